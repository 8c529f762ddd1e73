"""A server without keys answers the user who runs it and nobody else: by a token in a file, which clients find by themselves."""
import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from batches_server import Coordinator
from conftest import FARTHING, PATIENCE_S, environment

FOLDER = Path(f"/tmp/farthing-{os.geteuid()}")
STRANGER = 54321
MODEL = ["--model", "linear", "--data-shape", "1x8x8"]


def get(port, path, headers=None, method="GET", body=None, host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


class Parameters:
    def __init__(self, folder, *arguments, port=0):
        self.process = subprocess.Popen(
            [FARTHING, "serve", "parameters", *map(str, arguments or MODEL), "--port", str(port), "--json"], cwd=folder,
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.about = json.loads(line)
        self.port = self.about["port"]

    def kill(self, number):
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill(signal.SIGTERM)


def header_of(port):
    out = subprocess.run([FARTHING, "token", str(port)], capture_output=True, text=True, check=True, env=environment()).stdout
    name, value = out.strip().split(": ")
    return {name: value}


def files_of(port):
    return list(FOLDER.glob(f"token-{port}-*"))


def expect_access(port, path):
    assert get(port, "/healthz")[0] == 200
    code, text = get(port, path)
    assert code == 401 and "token is missing" in text
    for wrong in ("Bearer ", "Bearer " + 64 * "0", "Bearer local", "FTH1 key=local", "Basic bG9jYWw6"):
        assert get(port, path, {"Authorization": wrong})[0] == 401
    assert get(port, path, header_of(port))[0] == 200
    if shutil.which("curl"):
        line = f"'{FARTHING}' token {port} | curl -sf -H @- http://127.0.0.1:{port}{path}"
        assert subprocess.run(["sh", "-c", line], env=environment(), timeout=PATIENCE_S, stdout=subprocess.DEVNULL).returncode == 0
    (file,) = files_of(port)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(FOLDER.stat().st_mode) == 0o700


def test_a_parameter_server_answers_its_user_alone(tmp_path):
    with Parameters(tmp_path) as server:
        expect_access(server.port, "/getVersion")
        assert get(server.port, "/registerWorker", method="POST", body="{}")[0] == 401
        assert get(server.port, "/registerWorker", header_of(server.port), "POST", "{}")[0] == 200
    assert not files_of(server.port)


def test_a_coordinator_answers_its_user_alone(tmp_path):
    with Coordinator(tmp_path, "--data", "digits", token=True) as coordinator:
        expect_access(coordinator.port, "/v1/status")
        expect_access(coordinator.port, "/v1/data/digits")


@pytest.fixture
def stranger():
    """Runs a command as another user, in a folder where that user may write."""
    folder = tempfile.mkdtemp()
    os.chown(folder, STRANGER, STRANGER)

    def run(*command):
        return subprocess.run(["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups", *map(str, command)],
                              cwd=folder, env={"PATH": os.environ["PATH"], "HOME": folder, "XDG_RUNTIME_DIR": folder},
                              capture_output=True, text=True, timeout=PATIENCE_S)
    if run(FARTHING, "--version").returncode != 0:
        pytest.skip(f"another user cannot run {FARTHING}")
    yield run
    for path in (folder, f"/tmp/farthing-{STRANGER}"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be another user")
def test_another_user_gets_nothing(tmp_path, stranger):
    with Parameters(tmp_path, "--model", "linear", "--data", "digits") as server, \
            Coordinator(tmp_path, "--data", "digits", token=True) as coordinator:
        (file,) = files_of(server.port)
        assert "ermission denied" in stranger("cat", file).stderr
        for port in (server.port, coordinator.port):
            assert "no token" in stranger(FARTHING, "token", port).stderr
        train = [FARTHING, "train", "--model", "linear", "--steps", 1]
        for host in ("127.0.0.1", "localhost"):
            refused = stranger(*train, "--data", f"batches://{host}:{coordinator.port}/digits")
            assert refused.returncode == 1 and "token is missing" in refused.stderr
            refused = stranger(*train, "--data", "digits", "--strategy", "parameter-server", "--server",
                               f"http://{host}:{server.port}")
            assert refused.returncode == 1 and "token is missing" in refused.stderr
        assert get(server.port, "/healthz")[0] == 200


def test_clients_find_the_token(tmp_path, farthing):
    """Workers, data workers and jobs; by any name of the loopback, and without a runtime folder in the environment."""
    train = ["train", "--model", "linear", "--data", "digits", "--steps", 4, "--batch", 20]
    with Parameters(tmp_path, "--model", "linear", "--data", "digits") as server:
        for host in ("127.0.0.1", "localhost"):
            farthing(*train, "--strategy", "parameter-server", "--server", f"http://{host}:{server.port}")
        assert json.loads(get(server.port, "/getVersion", header_of(server.port))[1])["version"] == 8
    farthing(*train, "--strategy", "parameter-server", "--workers", 2)
    (tmp_path / "batches").mkdir()
    with Coordinator(tmp_path / "batches", "--data", "digits", "--prefetch", "workers", token=True) as coordinator:
        with subprocess.Popen([FARTHING, "worker", "prefetch", "--server", f"http://127.0.0.1:{coordinator.port}"], env=environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
            try:
                farthing("train", "--model", "linear", "--data", coordinator.address("digits"), "--steps", 4, "--batch", 20,
                         env={"XDG_RUNTIME_DIR": str(coordinator.folder)})
                farthing("train", "--model", "linear", "--data", coordinator.address("digits"), "--steps", 4, "--batch", 20,
                         env={"XDG_RUNTIME_DIR": ""})
            finally:
                worker.terminate()
    with subprocess.Popen([FARTHING, "worker", "prefetch", "--port", "0", "--json"], env=environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as function:
        try:
            url = json.loads(function.stdout.readline())["url"]
            assert get(int(url.rsplit(":", 1)[1]), "/run", method="POST", body="{}")[0] == 401
            (tmp_path / "calls").mkdir()
            with Coordinator(tmp_path / "calls", "--data", "digits", "--prefetch", url, token=True) as coordinator:
                farthing("train", "--model", "linear", "--data", coordinator.address("digits"), "--steps", 4, "--batch", 20,
                         env={"XDG_RUNTIME_DIR": str(coordinator.folder)})
        finally:
            function.terminate()


class Listener:
    """Keeps what is sent to a port, answers nothing."""

    def __init__(self, address, port):
        self.heard = []
        self.socket = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(1 << 16))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.mark.parametrize("own, other", [("127.0.0.1", "::1"), ("::1", "127.0.0.1"), ("127.0.0.1", "127.0.0.2")])
def test_who_listens_at_another_address_of_the_loopback_gets_nothing_signed(tmp_path, farthing, own, other):
    """Such a listener could pass a signed request on to the server, and read the answer."""
    train = ["train", "--model", "linear", "--data", "digits", "--steps", 2, "--batch", 20, "--strategy", "parameter-server", "--server"]
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6")
    with Parameters(tmp_path, "--model", "linear", "--data", "digits", "--address", own) as server:
        with Listener(other, server.port) as listener:
            host = "localhost" if other != "127.0.0.2" else own
            farthing(*train, f"http://{host}:{server.port}", env={"http_proxy": f"http://127.0.0.1:{server.port + 1}"})
            assert not listener.heard
            host = f"[{other}]" if ":" in other else other
            assert subprocess.run([FARTHING, "token", f"{host}:{server.port}"], env=environment()).returncode == 1
            worker = farthing.start(*train, f"http://{host}:{server.port}")
            while not listener.heard:
                assert worker.poll() is None, worker.communicate()
                time.sleep(0.01)
            worker.kill()
            worker.communicate()
            assert b"registerWorker" in listener.heard[0] and b"uthorization" not in listener.heard[0]


def test_a_worker_outlives_its_server(tmp_path, farthing):
    """The server that is started again on the port has another token; the worker goes on."""
    data = ["--model", "linear", "--data", "digits", "--name", "again", "--checkpoint-every", 1]
    server = Parameters(tmp_path, *data)
    first, port = header_of(server.port), server.port
    worker = farthing.start("train", "--model", "linear", "--data", "digits", "--steps", 3000, "--strategy", "parameter-server",
                            "--server", server.about["url"])
    try:
        while json.loads(get(port, "/healthz")[1])["version"] < 3:
            assert worker.poll() is None, worker.communicate()
        server.kill(signal.SIGKILL)
        assert files_of(port)  # left behind, and of no use
        assert subprocess.run([FARTHING, "token", str(port)], capture_output=True).returncode == 1
        with Parameters(tmp_path, *data, port=port):
            before = json.loads(get(port, "/healthz")[1])["version"]
            assert header_of(port) != first and get(port, "/getVersion", first)[0] == 401
            while json.loads(get(port, "/healthz")[1])["version"] < before + 3:
                assert worker.poll() is None, worker.communicate()
    finally:
        worker.kill()
        worker.communicate()


def test_each_server_has_its_own_token(tmp_path):
    with Parameters(tmp_path) as one, Parameters(tmp_path) as two:
        assert header_of(one.port) != header_of(two.port)
        assert get(two.port, "/getVersion", header_of(one.port))[0] == 401
        one.kill(signal.SIGKILL)
        assert files_of(one.port)
        with Parameters(tmp_path):  # tidies up what the killed one has left, and nothing else
            assert not files_of(one.port) and files_of(two.port)
            assert get(two.port, "/getVersion", header_of(two.port))[0] == 200


def test_a_second_server_on_the_port_leaves_the_token_alone(tmp_path, farthing):
    with Parameters(tmp_path) as server:
        before = header_of(server.port)
        assert "in use" in farthing("serve", "parameters", *MODEL, "--port", server.port, code=1).err
        assert header_of(server.port) == before and get(server.port, "/getVersion", before)[0] == 200


def test_no_token_only_if_asked_for(tmp_path, farthing):
    with Parameters(tmp_path, *MODEL, "--unsigned") as server:
        assert get(server.port, "/getVersion")[0] == 200 and not files_of(server.port)
        assert "no token" in farthing("token", server.port, code=1).err
    keys = tmp_path / "keys"
    farthing("keys", keys)
    for service in (["parameters", *MODEL], ["batches", "--data", "digits"]):
        assert "exclude each other" in farthing("serve", *service, "--unsigned", "--keys", keys, "--port", 0, code=1).err
        assert "needs --keys" in farthing("serve", *service, "--unsigned", "--address", "0.0.0.0", "--port", 0, code=1).err
    with Parameters(tmp_path, *MODEL, "--keys", keys) as server:
        assert not files_of(server.port)
