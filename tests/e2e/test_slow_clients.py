"""10,000 connections that send a byte of their headers now and then do not shut a server out: whoever sends a whole request
is answered at once, with a key or without."""
import base64
import contextlib
import http.client
import json
import math
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import threading
import time

import pytest
from batches_server import Coordinator
from conftest import FARTHING, PATIENCE_S, SANITIZED, environment
from functions_platform import Platform
from parameter_client import sign

CLIENTS = 10000
LIMIT_S = 1 if not SANITIZED else 10
KEY, SECRET = "boss", "22222222222222222222"


class SlowClients:
    """Dials, sends the beginning of a request, then a byte to each every half second; dials again where it was closed."""

    def __init__(self, port, count):
        self.address, self.count = ("127.0.0.1", port), count
        self.selector, self.ended = selectors.EpollSelector(), False
        self.all_there = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def dial(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(self.address)
        self.selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def serve(self, one, events):
        try:
            if events & selectors.EVENT_READ and not one.recv(4096):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                one.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                self.selector.modify(one, selectors.EVENT_READ)
        except BlockingIOError:
            pass
        except OSError:
            self.selector.unregister(one)
            one.close()
            self.dial()

    def run(self):
        for _ in range(self.count):
            self.dial()
        self.all_there.set()
        next_s = 0
        while not self.ended:
            for key, events in self.selector.select(0.05):
                self.serve(key.fileobj, events)
            if time.monotonic() > next_s:
                for key in list(self.selector.get_map().values()):
                    with contextlib.suppress(OSError):
                        key.fileobj.send(b"a")
                next_s = time.monotonic() + 0.5
            time.sleep(0.01)  # thousands of times a second are enough

    def __enter__(self):
        self.thread.start()
        assert self.all_there.wait(PATIENCE_S)
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 500:
        pytest.skip(f"{hard} open files are not enough for {CLIENTS} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def running(*arguments, folder, **env):
    """A command that prints where it serves as JSON."""
    with subprocess.Popen([FARTHING, *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment(**env)) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)


def signed(path):
    return {"Authorization": sign(KEY, SECRET, "GET", path, b"")}


def keys_of(folder):
    path = folder / "keys"
    path.write_text(f"{KEY} {SECRET} admin\n")
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def parameters(folder):
    with running("serve", "parameters", "--model", "linear", "--data-shape", "1x8x8", "--port", 0, "--json", "--keys",
                 keys_of(folder), folder=folder) as process:
        port = json.loads(process.stdout.readline())["port"]
        yield port, [("/healthz", dict, 200), ("/getVersion", lambda: signed("/getVersion"), 200)]


@contextlib.contextmanager
def batches(folder):
    with Coordinator(folder, "--data", "digits", "--keys", keys_of(folder)) as coordinator:
        yield coordinator.port, [("/healthz", dict, 200), ("/v1/status", lambda: signed("/v1/status"), 200)]


@contextlib.contextmanager
def functions(folder):
    platform = Platform(folder / "functions")
    try:
        key = base64.b64encode(platform.key.encode()).decode()
        path = "/api/v1/namespaces/_/actions"
        yield (int(platform.url.rsplit(":", 1)[1]),
               [(path, dict, 401), (path, lambda: {"Authorization": "Basic " + key}, 200)])
    finally:
        platform.process.terminate()
        platform.process.wait(PATIENCE_S)


@contextlib.contextmanager
def rendezvous(folder):
    """One of two nodes, which waits for the other."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with running("launch", "--nodes", "2:2", "--rendezvous", f"127.0.0.1:{port}", "--", "train", "--model", "linear", "--data",
                 "digits", folder=folder, FARTHING_TOKEN="0123456789abcdef"):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        yield port, [("/rendezvous", dict, 200), ("/members", lambda: {"Authorization": "Bearer 0123456789abcdef"}, 200)]


@contextlib.contextmanager
def prefetcher(folder):
    with running("worker", "prefetch", "--port", 0, "--json", folder=folder) as process:
        yield int(json.loads(process.stdout.readline())["url"].rsplit(":", 1)[1]), [("/healthz", dict, 200)]


@contextlib.contextmanager
def action(folder):
    with running("worker", "openwhisk", "--port", 0, "--address", "127.0.0.1", "--json", folder=folder) as process:
        yield json.loads(process.stdout.readline())["port"], [("/healthz", dict, 404)]


@pytest.mark.parametrize("server", [parameters, batches, functions, rendezvous, prefetcher, action],
                         ids=lambda server: server.__name__)
def test_slow_headers_shut_nobody_out(tmp_path, server):
    with server(tmp_path) as (port, requests), SlowClients(port, CLIENTS):
        for path, headers, code in requests:
            times = []
            for _ in range(5):
                began = time.monotonic()
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                try:
                    connection.request("GET", path, headers=headers())
                    answer = connection.getresponse()
                    answer.read()
                except ConnectionError:  # on a busy machine it may be closed to make room before it is read
                    times.append(math.inf)
                    continue
                finally:
                    connection.close()
                assert answer.status == code, path
                times.append(time.monotonic() - began)
            print(f"{path}: {sorted(times)}")
            assert statistics.median(times) < LIMIT_S
