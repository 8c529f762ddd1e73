"""The parameter server from outside: the protocol, the dial of consistency, keys, and what survives a kill.

The `linear` model with plain SGD at rate 1 makes arithmetic visible: pushing a gradient of 1 at a position lowers that
parameter by 1, so the parameters themselves say how often each push was applied."""
import json
import mmap
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import numpy
import pytest
import yaml
from batches_server import access_flags
from conftest import environment, FARTHING, PATIENCE_S, ROOT, wait_for
from parameter_client import Client, pack, sign, unpack

LONG = bool(os.environ.get("FARTHING_LONG_TESTS"))
PLAIN = ["--model", "linear", "--data-shape", "1x8x8", "--classes", "10", "--optimizer", "sgd", "--lr", "1", "--momentum",
         "0", "--lease", "10m"]  # on a busy machine minutes pass; tests of leases have their own
KEYS = "reader 00000000000000000000 read\nworker 11111111111111111111 train\nboss 22222222222222222222 admin\n" \
       "other 33333333333333333333 train\n"
WORKER, READER, BOSS, OTHER = [(line.split()[0], line.split()[1]) for line in
                               (KEYS.splitlines()[i] for i in (1, 0, 2, 3))]


class Server:
    def __init__(self, folder, *arguments, env=None, port=0, token=False):
        self.folder, self.arguments, self.env = folder, [*PLAIN, *arguments], env or {}
        self.process, self.port, self.token = None, port, token

    def start(self):
        access = [] if self.token else access_flags(self.arguments, self.env)
        self.process = subprocess.Popen(
            [FARTHING, "serve", "parameters", *map(str, self.arguments), *access, "--port", str(self.port), "--json"],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(self.folder / "stderr", "a"),
            text=True, env=environment(**self.env))
        line = self.process.stdout.readline()
        assert line, (self.folder / "stderr").read_text()
        self.about = json.loads(line)
        self.port = self.about["port"]
        return self

    def client(self, key=None, **options):
        return Client(self.port, key, **options)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, code=75):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == code, (self.folder / "stderr").read_text()

    def errors(self):
        return (self.folder / "stderr").read_text()


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(*arguments, **options):
        servers.append(Server(tmp_path, *arguments, **options))
        return servers[-1].start()
    yield start
    for server in servers:
        if server.process and server.process.poll() is None:
            server.kill()


def ones(tensors, value=1.0):
    return {name: numpy.full(t.shape, value, numpy.float32) for name, t in tensors.items()}


def dot(position, tensors, value=1.0):
    """A gradient that is 0 but at one position of the first tensor."""
    gradient = {name: numpy.zeros(t.shape, numpy.float32) for name, t in tensors.items()}
    gradient[weight_of(tensors)].reshape(-1)[position] = value
    return gradient


def sparse(position, tensors, value=1.0):
    gradient = {}
    for name in tensors:
        there = name == weight_of(tensors)
        gradient[name + ".indices"] = numpy.array([position] if there else [], numpy.uint32)
        gradient[name + ".values"] = numpy.array([value] if there else [], numpy.float32)
    return gradient


def weight_of(tensors):
    return max(tensors, key=lambda name: tensors[name].size)


# ---- the protocol ----

def test_pull_and_push(serve):
    client = serve().client()
    assert client("GET", "/getVersion").json == {"code": 200, "version": 0, "accuracy": None}
    assert client("GET", "/getAccuracy").json == {"code": 200, "version": None, "accuracy": None, "loss": None}
    before, version = client.pull()
    assert version == 0 and {t.dtype for t in before.values()} == {numpy.dtype(numpy.float32)}
    joined = client.register("w")
    assert joined["sequence"] == 0 and joined["consistency"] == "async" and joined["model"] == "linear"
    answer = client.push("w", 1, 0, ones(before), samples=4, code=200, loss=2.5, correct=1)
    assert answer == {"code": 200, "version": 1, "staleness": 0}
    after, version = client.pull()
    assert version == 1
    for name in before:
        numpy.testing.assert_array_equal(after[name], before[name] - 1)

    # The same again is the same push; an older number is refused; staleness is told.
    assert client.push("w", 1, 0, ones(before), samples=4, code=200) == {**answer, "duplicate": True}
    assert client.push("w", 2, 0, ones(before), code=200)["staleness"] == 1
    assert client.push("w", 1, 0, ones(before), code=409)["reason"] == "sequence"
    assert client.push("w", 3, 9, ones(before), code=409)["reason"] == "version"
    assert client.version() == 2
    assert client.pull()[1] == 2

    # All types, and top-k.
    half = {name: t.astype(numpy.float16) for name, t in ones(before).items()}
    brain = {name: (numpy.full(t.shape, 0x3f80, numpy.uint16), "BF16") for name, t in before.items()}
    client.push("w", 3, 2, half, code=200)
    client.push("w", 4, 3, brain, code=200)
    client.push("w", 5, 4, sparse(7, before, 10.0), code=200)
    after, _ = client.pull()
    expected = {name: t - 4 for name, t in before.items()}
    expected[weight_of(before)].reshape(-1)[7] -= 10
    for name in before:
        numpy.testing.assert_allclose(after[name], expected[name], rtol=0, atol=1e-5)
    values = client.metrics()
    assert values["farthing_version"] == 5 and values["farthing_workers"] == 1
    assert values['farthing_staleness_bucket{le="0"}'] == 4 and values["farthing_staleness_count"] == 5
    assert values["farthing_duplicates_total"] == 1
    assert values['farthing_refused_total{reason="sequence"}'] == 1
    assert values['farthing_requests_total{path="/putGradient",code="200"}'] == 6


def test_pull_conditions_and_ranges(serve):
    server = serve()
    client = server.client()
    whole = client("GET", "/getParameter")
    assert whole.headers["ETag"] == '"0"' and whole.headers["X-Farthing-Version"] == "0"
    assert client("GET", "/getParameter", headers={"If-None-Match": '"0"'}).code == 304
    assert client("GET", "/getParameter", headers={"If-None-Match": '"1"'}).code == 200
    assert client("HEAD", "/getParameter").headers["Content-Length"] == str(len(whole.body))
    part = client("GET", "/getParameter", headers={"Range": "bytes=10-19"})
    assert part.code == 206 and part.body == whole.body[10:20]
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(whole.body)}"
    assert client("GET", "/getParameter", headers={"Range": "bytes=10-"}).body == whole.body[10:]
    last = client("GET", "/getParameter", headers={"Range": "bytes=-500"})
    assert last.code == 206 and last.body == whole.body[-500:]
    assert last.headers["Content-Range"] == f"bytes {len(whole.body) - 500}-{len(whole.body) - 1}/{len(whole.body)}"
    assert client("GET", "/getParameter", headers={"Range": "bytes=-99999999"}).body == whole.body
    for beyond in ("bytes=99999999-", "bytes=-0"):
        refused = client("GET", "/getParameter", headers={"Range": beyond})
        assert refused.code == 416 and refused.headers["Content-Range"] == f"bytes */{len(whole.body)}"
        assert refused.json["reason"] == "range"
    for ignored in ("lines=0-9", "bytes=9-0", "bytes=x", "bytes=0-1,5-6"):  # RFC 9110: not valid, not understood
        answer = client("GET", "/getParameter", headers={"Range": ignored})
        assert answer.code == 200 and answer.body == whole.body
    assert client("HEAD", "/getParameter", headers={"Range": "bytes=0-9"}).code == 200
    assert client("GET", "/getParameter", headers={"Range": "bytes=0-9", "If-Range": '"0"'}).code == 206
    assert client("GET", "/getParameter", headers={"Range": "bytes=0-9", "If-Range": '"7"'}).code == 200
    assert client("GET", "/getParameter", headers={"Range": "bytes=0-9", "If-Match": '"3"'}).code == 409
    tensors, _ = unpack(whole.body)
    flat = numpy.concatenate([t.reshape(-1) for t in tensors.values()])
    data = client("GET", "/getParameter?offset=5&count=100")
    assert data.code == 200
    numpy.testing.assert_array_equal(numpy.frombuffer(data.body, numpy.float32), flat[5:105])
    assert client("GET", f"/getParameter?offset=5&count={flat.size}").code == 416
    assert client("GET", "/getParameter?since=x").code == 400

    # A long poll is answered when the version moves on, and otherwise at its time.
    assert client("GET", "/getParameter?since=0&wait=0").code == 304
    found = []
    poll = threading.Thread(target=lambda: found.append(server.client().pull("?since=0&wait=50")))
    poll.start()
    client.register("w")
    client.push("w", 1, 0, ones(tensors), code=200)
    poll.join(PATIENCE_S)
    assert found[0][1] == 1


def test_workers_of_the_same_machine_go_by_memory(serve):
    server = serve()
    client = server.client()
    tensors, _ = client.pull()
    flat = numpy.concatenate([t.reshape(-1) for t in tensors.values()])
    client.register("w")
    mapped = None
    memory = os.memfd_create("farthing-test")
    for version in range(8):
        where = client("GET", "/getParameter?local=1").json
        assert where["version"] == version and where["size_bytes"] == flat.nbytes
        if mapped is None:
            file = os.open(where["path"], os.O_RDONLY)
            mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
            os.close(file)
        assert struct.unpack_from("<Q", mapped, where["stamp"]) == (version + 1,)
        numpy.testing.assert_allclose(numpy.frombuffer(mapped, numpy.float32, flat.size, where["offset"]), flat - version,
                                      atol=1e-5)
        body = pack(ones(tensors), {"worker": "w", "sequence": version + 1, "version": version, "samples": 1})
        os.pwrite(memory, body, 0)
        local = {"X-Farthing-Local": f"{os.getpid()} {memory} {len(body)}"}
        assert client("POST", "/putGradient", headers=local).json["version"] == version + 1
    assert client("GET", "/getParameter?local=1&since=8&wait=0").code == 304

    # Only a memfd made for it, of a size that is there; nothing else is read.
    secret = os.open("/etc/passwd", os.O_RDONLY)
    other = os.memfd_create("something")
    os.pwrite(other, body, 0)
    for bad in (f"{os.getpid()} {secret} 100", f"{os.getpid()} {other} {len(body)}", "x", "1 2", "-1 0 5",
                f"{os.getpid()} {memory} {len(body) + 1}", f"{os.getpid()} 9999 10", "999999999 1 10",
                f"{os.getpid()} {memory} 999999999999"):
        assert client("POST", "/putGradient", headers={"X-Farthing-Local": bad}).code == 400, bad
    assert client("POST", "/putGradient", body, local).code == 400
    assert client.version() == 8
    assert client.metrics()['farthing_memory_bytes{of="bodies"}'] == 0


def test_refusals_leave_the_model_alone(serve):
    server = serve("--max-memory-mb", 1)
    client = server.client()
    tensors, _ = client.pull()
    good = ones(tensors)
    name = weight_of(tensors)
    assert client.push("nobody", 1, 0, good, code=409)["reason"] == "stranger"
    client.register("w")
    assert client.register("w", "two", code=409)["reason"] == "duplicate"
    assert client.register("w", "one")["sequence"] == 0
    assert client.unregister("nobody", code=409)["reason"] == "stranger"
    for bad, reason, code in [
        ({k: v for k, v in good.items() if k != name}, "names", 409),
        ({**good, "stranger": good[name]}, "names", 409),
        ({**good, name: good[name].reshape(-1)}, "shape", 409),
        ({**good, name: good[name].astype(numpy.int32)}, "dtype", 409),
        ({**good, name: good[name] * numpy.nan}, "not_finite", 400),
        ({**good, name: good[name] * numpy.inf}, "not_finite", 400),
    ]:
        assert client.push("w", 1, 0, bad, code=code)["reason"] == reason
    whole = pack(good, {"worker": "w", "sequence": 1, "version": 0, "samples": 1})
    for cut in (0, 7, 8, 50, len(whole) // 2, len(whole) - 1):
        assert client("POST", "/putGradient", whole[:cut]).code == 400
    assert client("POST", "/putGradient", whole + b"x").code == 400
    assert client("POST", "/putGradient", b"\xff" * 1000).code == 400
    assert client("POST", "/registerWorker", b"{").code == 400
    assert client("POST", "/registerWorker", b'{"worker":"a b"}').code == 400
    assert client("POST", "/unregisterWorker", b"{}").code == 400
    assert client("POST", "/registerWorker", b" " * 5000).code == 413
    assert client("GET", "/nothing").code == 404
    assert client("GET", "/putGradient").code == 405

    # Too large is refused before it is sent; a client that goes away in the middle is forgotten.
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /putGradient HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in raw.recv(1000)
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /putGradient HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole[:-1])
        time.sleep(0.3)  # a hang-up that comes with the last bytes is noticed at the idle time only
    after, version = client.pull()
    assert version == 0
    for key in tensors:
        numpy.testing.assert_array_equal(after[key], tensors[key])
    values = client.metrics()
    assert values['farthing_refused_total{reason="not_finite"}'] == 2
    assert values['farthing_requests_total{path="/putGradient",code="413"}'] == 1
    wait_for(lambda: client.metrics()['farthing_memory_bytes{of="bodies"}'] == 0, "the body's end", 150)


def test_large_gradients_are_checked_where_they_are_logged(serve):
    server = serve("--model", "mnist-cnn", "--data-shape", "1x28x28", "--name", "run")
    client = server.client()
    before, _ = client.pull()
    client.register("w")
    for bad in (numpy.nan, numpy.inf, -numpy.inf):
        gradient = ones(before)
        gradient[weight_of(before)].reshape(-1)[-1] = bad
        assert client.push("w", 1, 0, gradient, code=400)["reason"] == "not_finite"
    assert client.metrics()["farthing_log_bytes"] < 1 << 20  # what was refused takes no room
    client.push("w", 1, 0, ones(before), code=200)
    server.kill()
    server.start()
    after, version = server.client().pull()
    assert version == 1
    for name in before:
        numpy.testing.assert_array_equal(after[name], before[name] - 1)


def test_garbage_on_the_wire(serve):
    """Requests cut, spliced, repeated and made up: the server answers or hangs up, and goes on."""
    server = serve()
    client = server.client()
    tensors, _ = client.pull()
    client.register("w")
    body = pack(ones(tensors), {"worker": "x", "sequence": 1, "version": 0, "samples": 1})
    head = b"POST /putGradient HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    seeds = [head + body, b"GET /getParameter?since=0&wait=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=0-10\r\n\r\n",
             b"GET /getParameter?offset=1&count=2&local=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: \"0\"\r\n\r\n",
             b"POST /registerWorker HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"wor\r\n0\r\n\r\n",
             b"POST /unregisterWorker HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 14\r\n\r\n{\"worker\":\"q\"}",
             b"GET /metrics HTTP/1.0\r\n\r\n", b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n\r\n"]
    draw, until = random.Random(5), time.monotonic() + (180 if LONG else 3)
    while time.monotonic() < until:
        data = bytearray(b"".join(draw.choice(seeds) for _ in range(draw.randrange(1, 4))))
        for _ in range(draw.choice([0, 1, 3, 20])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        if draw.random() < 0.5:
            del data[draw.randrange(len(data)):]
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            try:
                raw.sendall(bytes(data))
                if draw.random() < 0.5:
                    raw.shutdown(socket.SHUT_WR)
                    raw.recv(1000)
            except OSError:
                pass
    assert server.process.poll() is None
    assert client.version() == 0  # "x" is a stranger: none of its pushes counts
    after, _ = client.pull()
    for name in tensors:
        numpy.testing.assert_array_equal(after[name], tensors[name])
    client.push("w", 1, 0, ones(tensors), code=200)


def test_openapi_describes_every_route(serve):
    client = serve().client()
    answer = client("GET", "/openapi.yaml")
    assert answer.code == 200
    assert answer.body == (ROOT / "docs" / "parameter-server.openapi.yaml").read_bytes()
    described = yaml.safe_load(answer.body)
    assert described["openapi"].startswith("3.")
    source = (ROOT / "src" / "parameters" / "routes.c").read_text()
    table = source[source.index("static const fth_route routes[]"):]
    routes = [line.split('"')[1:4:2] for line in table[:table.index("};")].splitlines() if line.strip().startswith('{"')]
    assert len(routes) == 14
    for method, path in routes:
        operation = described["paths"][path][method.lower()]
        assert operation["summary"] and operation["responses"]
    assert sorted(described["paths"]) == sorted(path for _, path in routes)


def test_every_refusal_is_as_described(serve):
    """404 and 405 too, and what is not text."""
    server = serve()
    client = server.client()
    schema = yaml.safe_load((ROOT / "docs" / "parameter-server.openapi.yaml").read_text())["components"]["schemas"]["Refusal"]
    tensors, _ = client.pull()
    for method, target, body, code, reason in (
            ("GET", "/", b"", 404, "not_found"), ("GET", "/nothing%ff", b"", 404, "not_found"),
            ("DELETE", "/getVersion", b"", 405, "method"), ("GET", "/putGradient", b"", 405, "method"),
            ("POST", "/registerWorker", b"x" * 5000, 413, "too_large"), ("GET", "/getVersion", b"x", 413, "too_large"),
            ("POST", "/registerWorker", b"x", 400, "malformed"), ("POST", "/unregisterWorker", b'{"worker":"q"}', 409, "stranger")):
        answer = client(method, target, body)
        assert (answer.code, answer.json["code"], answer.json["reason"]) == (code, code, reason), (target, answer.body)
        assert set(schema["required"]) <= set(answer.json) and reason in schema["properties"]["reason"]["enum"]
    source = (ROOT / "src" / "parameters" / "gradient.c").read_text()
    table = source[source.index("refusals[FTH_REFUSALS] = {"):]
    for line in table[:table.index("};")].splitlines()[2:]:
        assert line.split('"')[1] in schema["properties"]["reason"]["enum"], line


def test_the_worked_example_works(serve):
    """The block in docs/parameter-server.md, as it stands but for the port."""
    page = (ROOT / "docs" / "parameter-server.md").read_text()
    example = page[page.index("import http.client"):]
    example = example[:example.index("```")]
    server = serve(token=True)
    done = subprocess.run([sys.executable, "-c", example.replace("29500", str(server.port))], capture_output=True, text=True,
                          timeout=PATIENCE_S, env=environment(PATH=f"{FARTHING.parent}:{os.environ['PATH']}"))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["200", str(i)] for i in range(20)]
    assert float(lines[-1][2]) < 0.5 * float(lines[0][2])
    health = server.client()("GET", "/healthz").json
    assert health["version"] == 20 and server.client().metrics()["farthing_workers"] == 0


# ---- the dial ----

def test_sync_averages_by_samples(serve):
    client = serve("--consistency", "sync:2").client()
    before, _ = client.pull()
    client.register("a")
    client.register("b")
    assert client.push("a", 1, 0, ones(before, 1.0), samples=3, code=201)["version"] == 0
    assert client.version() == 0
    assert client.push("a", 1, 0, ones(before, 1.0), samples=3, code=201)["duplicate"]
    assert client.push("b", 1, 0, ones(before, 5.0), samples=1, code=200)["version"] == 1
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 2, rtol=0, atol=1e-6)
    assert client.push("a", 2, 0, ones(before), code=409)["reason"] == "stale"


def test_sync_does_not_wait_for_the_dead(serve):
    client = serve("--consistency", "sync", "--lease", "5s").client()
    before, _ = client.pull()
    for name in ("a", "b", "c"):
        client.register(name)
    client.push("a", 1, 0, ones(before, 2.0), code=201)
    client.push("b", 1, 0, ones(before, 4.0), code=201)
    began = time.monotonic()
    while client("GET", "/getVersion", headers={"X-Farthing-Worker": "a"}).json["version"] == 0:
        client("GET", "/getVersion", headers={"X-Farthing-Worker": "b"})  # both live on; c is dead
        time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE_S
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 3, rtol=0, atol=1e-6)
    assert client.push("c", 1, 0, ones(before), code=409)["reason"] == "stranger"
    client.push("a", 2, 1, ones(before), code=201)
    assert client.unregister("b")["code"] == 200  # leaving completes the step as well
    wait_for(lambda: client.version() == 2, "the step")
    assert client.register("c")["version"] == 2


def test_sync_goes_on_with_fewer_than_it_was_to_have(serve):
    """Workers that never come are waited for as long as --gather says; one that dies in mid-step, for its lease."""
    server = serve("--consistency", "sync:3", "--lease", "4s", "--gather", "3s", "--name", "run")
    client = server.client()

    def wait_for_version(version, *alive):
        began = time.monotonic()
        while client.version() < version:
            for name in alive:
                client("GET", "/getVersion", headers={"X-Farthing-Worker": name})
            time.sleep(0.05)
            assert time.monotonic() - began < PATIENCE_S
    before, _ = client.pull()
    client.register("a")
    client.register("b")
    client.push("a", 1, 0, ones(before, 2.0), code=201)
    assert client.push("b", 1, 0, ones(before, 4.0))["code"] == 201
    wait_for_version(1, "a", "b")
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 3, rtol=0, atol=1e-6)
    assert "sync:3 has waited 3 s (--gather) for its workers, and 2 came" in server.errors()
    client.register("c")  # from now on a step is of three
    client.push("a", 2, 1, ones(before), code=201)
    client.push("b", 2, 1, ones(before), code=201)
    assert client.version() == 1
    wait_for_version(2, "a", "b")  # c dies
    client.push("a", 3, 2, ones(before), code=201)
    assert client.push("b", 3, 2, ones(before), code=200)["version"] == 3
    server.stop()
    events = (server.folder / "runs/run/events.jsonl").read_text()
    assert "2 came; steps are now made of the gradients of these" in events


@pytest.mark.parametrize("leaves", ["unregisters", "dies"])
def test_a_gradient_of_one_that_left_does_not_close_the_step_alone(serve, leaves):
    """It counts, and whoever is still there is waited for."""
    server = serve("--consistency", "sync:2", "--lease", "600s" if leaves == "unregisters" else "2s", "--name", "run")
    client = server.client()
    before, _ = client.pull()
    client.register("a")
    client.register("b")
    client.push("a", 1, 0, ones(before, 1.0), samples=3, code=201)
    if leaves == "unregisters":
        client.unregister("a")
    stay_s, began = (0.5 if leaves == "unregisters" else 0), time.monotonic()
    while client.metrics()["farthing_workers"] > 1 or time.monotonic() - began < stay_s:
        assert client("GET", "/getVersion", headers={"X-Farthing-Worker": "b"}).json["version"] == 0
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.02)
    assert client("GET", "/getVersion", headers={"X-Farthing-Worker": "b"}).json["version"] == 0
    assert client.push("b", 1, 0, ones(before, 5.0), samples=1, code=200)["version"] == 1
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 2, rtol=0, atol=1e-6)
    client.push("b", 2, 1, ones(before, 1.0), code=200)  # alone by now
    assert client.register("c")["version"] == 2
    client.push("c", 1, 2, ones(before, 1.0), code=201)
    client.unregister("b")
    wait_for(lambda: client.version() == 3, "the step that c alone is left for")
    last, _ = client.pull()
    server.kill()
    server.start()
    after, version = server.client().pull()
    assert version == 3
    for name in before:
        numpy.testing.assert_array_equal(after[name], last[name])


def test_bounded_makes_the_fast_wait(serve):
    server = serve("--consistency", "bounded:2", "--lease", "8s")
    client = server.client()
    before, _ = client.pull()
    client.register("fast")
    client.register("slow")
    for i in range(2):
        client.push("fast", i + 1, i, ones(before), code=200)
    assert client.push("fast", 3, 2, ones(before), code=200)["version"] == 3  # nobody has told that he computes
    assert client.push("slow", 1, 0, ones(before), code=409)["reason"] == "stale"
    assert client.pull("?worker=slow")[1] == 3
    for i in range(3, 5):
        client.push("fast", i + 1, i, ones(before), code=200)
    done = []
    fast = threading.Thread(target=lambda: done.append(server.client().push("fast", 6, 5, ones(before))))
    fast.start()
    time.sleep(0.3)
    assert not done and client.version() == 5  # slow's gradient, for version 3, may come yet
    assert client.push("slow", 1, 3, ones(before), code=200)["staleness"] == 2
    fast.join(PATIENCE_S)
    assert done[0]["code"] == 200 and client.version() == 7
    assert client.pull("?worker=slow")[1] == 7
    for i in range(7, 10):  # slow dies: its lease bounds the wait
        client.push("fast", i, i, ones(before), code=200)
    assert client.version() == 10


# ---- keys ----

def test_without_keys_only_loopback(farthing):
    result = farthing("serve", "parameters", *PLAIN, "--address", "0.0.0.0", "--port", "0", code=1)
    assert "--keys" in result.err


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(KEYS)
    path.chmod(0o600)
    return path


def test_keys_and_roles(serve, key_file):
    server = serve("--keys", key_file)
    nobody, reader, worker, boss, other = [server.client(k) for k in (None, READER, WORKER, BOSS, OTHER)]
    for path in ("/healthz", "/metrics", "/openapi.yaml"):
        assert nobody("GET", path).code == 200
    for path in ("/getVersion", "/getAccuracy", "/getParameter"):
        assert nobody("GET", path).code == 401
        assert reader("GET", path).code == 200
    before, _ = reader.pull()
    assert nobody("POST", "/registerWorker", b"{}").code == 401
    assert reader("POST", "/registerWorker", b"{}").code == 403
    worker.register("w")
    gradient = ones(before)
    body = pack(gradient, {"worker": "w", "sequence": 1, "version": 0, "samples": 1})
    assert nobody("POST", "/putGradient", body).code == 401
    assert reader("POST", "/putGradient", body).code == 403
    assert other("POST", "/putGradient", body).code == 403  # another key's worker
    wrong = server.client((WORKER[0], "x" * 20))
    assert wrong("POST", "/putGradient", body).code == 401
    header = {"Authorization": sign(*WORKER, "POST", "/putGradient", body[:-1] + b"x")}
    assert nobody("POST", "/putGradient", body, header).code == 401  # another body
    for ahead_s, where, result in ((-3600, "past", "old"), (7200, "future", "future")):
        header = {"Authorization": sign(*WORKER, "POST", "/putGradient", body, now=time.time() + ahead_s)}
        refused = nobody("POST", "/putGradient", body, header)
        assert refused.code == 401 and refused.json["reason"] == "clock"
        assert re.search(rf"lies (\d+) s in the {where} of the server's clock; check the clocks", refused.json["error"])
        assert abs(int(re.search(r"lies (\d+) s", refused.json["error"])[1]) - abs(ahead_s)) < 60
        assert nobody.metrics()[f'farthing_signatures_total{{result="{result}"}}'] == 1
    assert reader.version() == 0
    memory = os.memfd_create("farthing-test")
    os.pwrite(memory, body, 0)
    header = {"X-Farthing-Local": f"{os.getpid()} {memory} {len(body)}",
              "Authorization": sign(*WORKER, "POST", "/putGradient", body[:-1] + b"x")}
    assert nobody("POST", "/putGradient", b"", header).code == 401  # the same by memory
    header = {"Authorization": sign(*WORKER, "POST", "/putGradient", body)}
    assert nobody("POST", "/putGradient", body, header).code == 200
    replay = nobody("POST", "/putGradient", body, header)
    assert replay.code == 401 and replay.json["error"] == "the signature is replayed"
    assert reader.version() == 1
    assert worker("POST", "/saveCheckpoint").code == 403
    assert boss("POST", "/saveCheckpoint").code == 202
    assert other("POST", "/unregisterWorker", b'{"worker":"w"}').code == 403
    assert boss("POST", "/unregisterWorker", b'{"worker":"w"}').code == 200
    values = nobody.metrics()
    assert values['farthing_signatures_total{result="replayed"}'] == 1
    assert values['farthing_signatures_total{result="old"}'] == 1
    assert values['farthing_signatures_total{result="wrong"}'] == 1
    assert values['farthing_refused_total{reason="body_hash"}'] == 2
    server.stop()
    for path in server.folder.rglob("*"):
        if path.is_file() and path != key_file:
            assert b"1111111111111111" not in path.read_bytes(), path


def test_a_replay_is_refused_by_the_next_process_too(serve, key_file):
    server = serve("--keys", key_file, "--name", "run")
    worker, nobody = server.client(WORKER), server.client()
    worker.register("w")
    body = b'{"worker":"w"}'
    header = {"Authorization": sign(*WORKER, "POST", "/unregisterWorker", body)}
    assert nobody("POST", "/unregisterWorker", body, header).code == 200
    worker.register("w")
    server.kill()
    server.start()
    replay = server.client()("POST", "/unregisterWorker", body, header)
    assert replay.code == 401 and replay.json["error"] == "the signature is replayed"
    assert server.client(WORKER).register("w")["sequence"] == 0


def test_keys_from_the_environment_and_the_command(serve, farthing, tmp_path):
    line = farthing("keys", "--role", "admin").out.split()
    assert line[2] == "admin"
    path = tmp_path / "made"
    out = farthing("keys", path).out
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_text().split()[1] not in out
    server = serve(env={"FARTHING_KEYS": " ".join(line)})
    assert server.client()("GET", "/getVersion").code == 401
    assert server.client(line[:2]).version() == 0
    path.chmod(0o644)
    assert "chmod 600" in farthing("serve", "parameters", *PLAIN, "--keys", path, "--port", "0", code=1).err


def test_pages_in_a_browser_are_refused(serve, key_file):
    """Another page's Origin, and a name that somebody made to point here (DNS rebinding)."""
    server = serve("--host-name", "trainer.example,second.example")
    client = server.client()
    here = f"127.0.0.1:{server.port}"
    for headers, reason in (({"Origin": "http://evil.example"}, "origin"), ({"Origin": "null"}, "origin"),
                            ({"Origin": "http://127.0.0.1:1"}, "origin"), ({"Sec-Fetch-Site": "cross-site"}, "origin"),
                            ({"Host": f"evil.example:{server.port}"}, "host"),
                            ({"Host": "evil.example", "Origin": "http://evil.example"}, "host")):
        for method, path, body in (("POST", "/registerWorker", b'{"worker":"w"}'), ("GET", "/getParameter", b""),
                                   ("GET", "/metrics", b""), ("POST", "/saveCheckpoint", b"")):
            answer = client(method, path, body, headers)
            assert (answer.code, answer.json["reason"]) == (403, reason), (headers, path)
            assert "Access-Control-Allow-Origin" not in answer.headers
    assert client("OPTIONS", "/registerWorker", b"", {"Origin": "http://evil.example"}).code == 405
    values = client.metrics()
    assert values["farthing_workers"] == 0 and values['farthing_refused_total{reason="host"}'] == 8
    answer = client("GET", "/getVersion", headers={"Host": "\xff\x1b.example"})  # not UTF-8 on the wire
    assert answer.code == 403 and '"\\xff\\x1b.example" is not a name of this server' in answer.json["error"]
    for host in ("localhost", f"localhost:{server.port}", here, f"[::1]:{server.port}", "trainer.example:80", "second.example"):
        assert client("GET", "/getVersion", headers={"Host": host}).code == 200
    assert client("GET", "/getVersion", headers={"Origin": f"http://{here}", "Sec-Fetch-Site": "same-origin"}).code == 200
    server.kill()

    # Under keys it is the signature that counts, and what is open to everybody may be asked for by any name.
    server = serve("--keys", key_file, "--open-reads")
    elsewhere = {"Host": "balancer.example"}
    assert server.client(WORKER)("POST", "/registerWorker", b'{"worker":"w"}', elsewhere).code == 200
    assert server.client()("GET", "/healthz", headers=elsewhere).code == 200
    assert server.client()("GET", "/getVersion", headers=elsewhere).json["reason"] == "host"
    assert server.client()("GET", "/getVersion").code == 200
    foreign = {"Origin": "http://evil.example"}
    assert server.client(WORKER)("POST", "/unregisterWorker", b'{"worker":"w"}', foreign).json["reason"] == "origin"


def test_tls_with_a_made_certificate(serve, key_file):
    server = serve("--tls", "--keys", key_file)
    assert server.about["url"].startswith("https://") and server.about["fingerprint"].startswith("sha256//")
    fine = subprocess.run(["curl", "-sk", "--noproxy", "*", "--pinnedpubkey", server.about["fingerprint"],
                           server.about["url"] + "/healthz"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert json.loads(fine.stdout)["status"] == "ok"
    wrong = subprocess.run(["curl", "-sk", "--noproxy", "*", "--pinnedpubkey", "sha256//" + "A" * 43 + "=",
                            server.about["url"] + "/healthz"], capture_output=True, timeout=PATIENCE_S)
    assert wrong.returncode == 90
    context = ssl.create_default_context(cafile=server.folder / "runs" / "tls" / "certificate.pem")
    client = server.client(WORKER, context=context)
    tensors, _ = client.pull()
    client.register("w")
    client.push("w", 1, 0, ones(tensors), code=200)
    assert client.version() == 1


def test_rate_limit(serve):
    client = serve("--max-rate", 20).client()
    codes = [client("GET", "/getVersion").code for _ in range(200)]
    assert codes[0] == 200 and 429 in codes


# ---- what survives ----

def test_stop_and_go_on(serve, farthing):
    server = serve("--name", "run")
    client = server.client()
    before, _ = client.pull()
    client.register("w")
    for i in range(5):
        client.push("w", i + 1, i, ones(before), code=200, loss=1.0)
    server.stop()
    run = server.folder / "runs" / "run"
    assert (run / "last.safetensors").exists()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "interrupted" and events[-1]["step"] == 5
    again = serve("--name", "run")
    assert again.about["version"] == 5
    client = again.client()
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 5, rtol=0, atol=1e-5)
    assert client.push("w", 5, 4, ones(before), code=200)["duplicate"]
    assert client.push("w", 6, 5, ones(before), code=200)["version"] == 6  # still registered
    again.stop()
    report = farthing("report", "run", "--json").events[0]
    assert report["steps"] == 6
    assert report["samples_per_s"] == pytest.approx(report["samples"] / report["elapsed_s"])


def test_checkpoint_every_auto(serve):
    """It passed the check of the option, and then the server did not start."""
    server = serve("--name", "run", "--checkpoint-every", "auto")
    assert server.client()("GET", "/getVersion").json["version"] == 0
    server.stop()


def test_a_log_is_replayed_as_it_was_written(serve):
    """Also where the server is started again with another rate and another consistency, in the middle of a step."""
    server = serve("--name", "run", "--consistency", "sync:2")
    client = server.client()
    before, _ = client.pull()
    client.register("a")
    client.register("b")
    client.push("a", 1, 0, ones(before), samples=3, code=201)
    client.push("b", 1, 0, ones(before, 5.0), samples=1, code=200)  # -2
    client.push("a", 2, 1, ones(before, 4.0), samples=1, code=201)
    server.kill()
    server.arguments += ["--consistency", "async", "--lr", "0.5"]
    server.start()
    client = server.client()
    wait_for(lambda: client.version() == 2, "the step")  # what was stored makes one now: -4 / 2
    client.push("b", 2, 2, ones(before, 1.0), samples=3, code=200)  # -1 / 2
    numpy.testing.assert_allclose(client.pull()[0][weight_of(before)], before[weight_of(before)] - 4.5, atol=1e-5)


def test_a_log_is_not_forgotten_with_the_option(serve):
    """Killed, and started again without a log: what the log has is in a checkpoint before anything else."""
    server = serve("--name", "one")
    client = server.client()
    client.register("w")
    tensors, _ = client.pull()
    for i in range(5):
        client.push("w", i + 1, i, ones(tensors), code=200)
    tensors, _ = client.pull()
    server.kill()
    server.arguments += ["--durability", "checkpoint"]
    server.start()
    for _ in range(2):
        client = server.client()
        assert client.version() == 5
        for name, value in client.pull()[0].items():
            assert (value == tensors[name]).all()
        assert client.push("w", 5, 4, ones(tensors), code=200)["duplicate"]
        server.kill()
        server.start()


def test_a_name_that_another_process_has_by_now(serve):
    """One that slept through its lease, and says who it is, does not use up the numbers of who took its place."""
    client = serve("--lease", "2s").client()
    tensors, _ = client.pull()
    client.register("w", "old")
    wait_for(lambda: client.metrics()["farthing_leases_expired_total"] == 1, "the lease's end")
    client.register("w", "new")
    assert client.push("w", 1, 0, ones(tensors), code=409, instance="old")["reason"] == "stranger"
    client.register("w", "new")
    assert "duplicate" not in client.push("w", 1, 0, ones(tensors), code=200, instance="new")


def test_a_reader_learns_that_the_server_went_back(serve):
    client = serve().client()
    answer = client("GET", "/getParameter?since=7&wait=0")
    assert answer.code == 304 and answer.headers["ETag"] == '"0"'


@pytest.mark.parametrize("place", ["", "&local=1"])
@pytest.mark.parametrize("saved", [True, False])
def test_sync_asks_again_for_gradients_it_has_lost(serve, saved, place):
    """Without a log a killed server has lost the first gradients of a step. A worker that waits for the step gets the
    version it has, to push for it again; also one that the checkpoint knows nothing of."""
    server = serve("--name", "run", "--consistency", "sync", "--durability", "checkpoint", "--checkpoint-every", "100000")
    client = server.client()

    def poll(worker, wait=0):
        answer = client("GET", f"/getParameter?since={version}&wait={wait}{place}", headers={"X-Farthing-Worker": worker})
        return answer.code
    tensors, version = client.pull()
    for name in ("a", "b"):
        client.register(name)
    if saved:
        client.push("a", 1, 0, ones(tensors), code=201)
        version = client.push("b", 1, 0, ones(tensors), code=200)["version"]
        client("POST", "/saveCheckpoint")
        wait_for(lambda: client.metrics()["farthing_checkpoint_version"] == version, "the checkpoint")
    client.push("a", 2, version, ones(tensors), code=201)
    assert poll("a") == 304
    server.kill()
    server.start()
    assert client.version() == version
    assert client("GET", f"/getParameter?since={version}&wait=0{place}").code == 304  # one that only reads waits
    assert poll("a", wait=30) == 200
    if not saved:
        for name in ("a", "b"):
            client.register(name)
    client.push("a", 3, version, ones(tensors), code=201)
    assert poll("a") == 304
    assert client.push("b", 2, version, ones(tensors), code=200)["version"] == version + 1
    assert poll("a") == 200


def test_another_machine_goes_on_from_the_store(serve, tmp_path):
    place = f"file://{tmp_path}/copies"
    server = serve("--name", "first", "--checkpoints", place)
    client = server.client()
    before, _ = client.pull()
    client.register("w")
    for i in range(3):
        client.push("w", i + 1, i, ones(before), code=200)
    server.stop()
    other = serve("--name", "second", "--checkpoints", place)  # nothing of the first run's folder
    assert other.about["version"] == 3
    client = other.client()
    assert client.push("w", 3, 2, ones(before), code=200)["duplicate"]
    client.push("w", 4, 3, ones(before), code=200)
    other.kill()
    again = serve("--name", "second", "--checkpoints", place)
    assert again.about["version"] == 4
    after, _ = again.client().pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 4, rtol=0, atol=1e-5)


def test_a_state_folder_of_its_own(serve, tmp_path):
    server = serve("--checkpoints", tmp_path / "state")
    client = server.client()
    before, _ = client.pull()
    client.register("w")
    client.push("w", 1, 0, ones(before), code=200)
    run = server.about["run"]
    server.kill()
    again = serve("--checkpoints", tmp_path / "state")
    assert again.about["version"] == 1 and again.about["run"] == run
    again.kill()
    wrong = Server(tmp_path, "--checkpoints", tmp_path / "state", "--classes", 7)
    with pytest.raises(AssertionError, match="10 classes, not 7"):
        wrong.start()


def test_steps_end_the_run(serve):
    server = serve("--steps", 3, "--schedule", "linear")
    client = server.client()
    tensors, _ = client.pull()
    client.register("w")
    for i in range(3):
        client.push("w", i + 1, i, ones(tensors), code=200)
    assert client.push("w", 4, 3, ones(tensors), code=409)["reason"] == "finished"
    client.unregister("w")
    assert server.process.wait(PATIENCE_S) == 0


def test_epochs_end_the_run(serve):
    server = serve("--epochs", 2, "--epoch-samples", 10, "--name", "run")
    client = server.client()
    tensors, _ = client.pull()
    client.register("w")
    for i in range(4):
        client.push("w", i + 1, i, ones(tensors), samples=5, code=200)
    refusal = client.push("w", 5, 4, ones(tensors), code=409)
    assert refusal["reason"] == "finished" and "--epochs 2" in refusal["error"]
    client.unregister("w")
    assert server.process.wait(PATIENCE_S) == 0
    last = json.loads((server.folder / "runs/run/events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "end" and last["reason"] == "epochs" and last["epochs"] == 2

    # Told to stay it serves what it has, also after a kill; and then a stop is the end of a finished run.
    server.arguments.append("--stay")
    server.start()
    assert server.client().version() == 4
    server.kill()
    server.start()
    assert server.client().pull()[1] == 4 and server.process.poll() is None
    server.stop(code=0)


def test_epochs_need_to_be_known(farthing):
    result = farthing("serve", "parameters", *PLAIN, "--epochs", "2", "--port", "0", code=None)
    assert result.code != 0 and "--epoch-samples" in result.err


@pytest.mark.parametrize("consistency, gradient, side", [("async", sparse, 8), ("sync:3", sparse, 8), ("async", dot, 64)])
def test_killed_at_any_moment(serve, consistency, gradient, side):
    """Workers push and retry while the server is killed again and again: each push counts once, and no version is
    ever taken back. The whole gradients of 164 KB have a file of their own beside the log."""
    kills = 50 if LONG else 6
    server = serve("--name", "run", "--consistency", consistency, "--checkpoint-every", "1s", "--max-log-mb", 1,
                   "--lease", "10m", "--data-shape", f"1x{side}x{side}")
    before, _ = server.client().pull()
    over, acknowledged, seen, failures = threading.Event(), {}, [0], []

    def work(index):
        name, client, random_part = f"w{index}", server.client(timeout=10), random.Random(index)
        sequence, base, acknowledged[index] = 0, 0, 0
        try:
            while not over.is_set():
                try:
                    if sequence == 0:
                        client.register(name)
                        sequence = 1
                    floor, base = seen[0], client.version()
                    assert base >= floor
                    answer = client.push(name, sequence, base, gradient(index, before))
                    if answer["code"] in (200, 201):
                        acknowledged[index] += 1
                        sequence += 1
                        assert answer["version"] >= base or "duplicate" in answer
                        if answer["code"] == 201 and not over.is_set():
                            client("GET", f"/getParameter?since={answer['version']}&wait=1")
                    elif answer["reason"] not in ("stale", "busy"):
                        failures.append(answer)
                except AssertionError as error:
                    failures.append(error)
                except Exception:  # the server is away
                    client.close()
                    time.sleep(0.02 * random_part.random())
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for i in range(kills):
        time.sleep(random.Random(i).uniform(0.05, 0.5))
        try:
            seen[0] = max(seen[0], server.client(timeout=5).version())
        except OSError:
            pass
        server.kill()
        server.start()
        assert server.about["version"] >= seen[0]
    time.sleep(0.5)
    over.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert not failures, failures[:3]
    client = server.client()
    after, version = client.pull()
    moved = (before[weight_of(before)] - after[weight_of(before)]).reshape(-1)
    if consistency == "async":
        numpy.testing.assert_allclose(moved[:3], [acknowledged[i] for i in range(3)], rtol=1e-5)
        assert version == sum(acknowledged.values())
    else:  # a step is the mean of three
        assert version == sum(acknowledged.values()) // 3
        numpy.testing.assert_allclose(moved[:3].sum(), version, rtol=1e-4)
    assert version > kills
    assert numpy.all(moved[3:] == 0)


def test_many_workers_some_of_them_mad(serve):
    """Many push at random; some die, some send garbage, some are slow: nothing is lost or doubled."""
    count, seconds = (256, 60) if LONG else (48, 6)
    server = serve("--lease", "2s", "--max-memory-mb", 64, "--checkpoint-every", "2s")
    before, _ = server.client().pull()
    over, acknowledged, failures = threading.Event(), [0] * count, []

    def work(index):
        client, draw, kind = server.client(), random.Random(index), index % 8
        sequence, name = 1, f"w{index}"
        try:
            client.register(name)
            while not over.is_set():
                time.sleep(draw.random() * (0.5 if kind == 1 else 0.02))
                if kind == 2 and draw.random() < 0.3:
                    assert client("POST", "/putGradient", draw.randbytes(draw.randrange(2000))).code == 400
                    continue
                if kind == 3 and draw.random() < 0.3:  # goes away in the middle of its push
                    with socket.create_connection(("127.0.0.1", server.port)) as raw:
                        raw.sendall(b"POST /putGradient HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3000\r\n\r\nabc")
                    continue
                answer = client.push(name, sequence, client.version(), sparse(index, before))
                if answer["code"] == 200:
                    acknowledged[index] += 1
                    if kind == 4:  # repeats itself
                        assert client.push(name, sequence, 0, sparse(index, before))["duplicate"]
                    sequence += 1
                elif answer["reason"] == "stranger":
                    sequence = client.register(name, "again")["sequence"] + 1
                else:
                    assert answer["reason"] in ("busy",), answer
                if kind == 5 and draw.random() < 0.05:
                    break  # dies
                if kind == 6 and draw.random() < 0.02:
                    time.sleep(3)  # loses its lease
        except BaseException as error:
            failures.append((index, error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures, failures[:3]
    client = server.client()
    after, version = client.pull()
    moved = (before[weight_of(before)] - after[weight_of(before)]).reshape(-1)
    numpy.testing.assert_allclose(moved[:count], acknowledged, rtol=1e-5)
    values = client.metrics()
    assert version == sum(acknowledged) == values["farthing_version"]
    assert values['farthing_requests_total{path="/putGradient",code="400"}'] > 0
    assert values['farthing_memory_bytes{of="process"}'] < 1 << 30
    assert values["farthing_snapshots"] <= 4


def test_slow_readers_do_not_hold_versions_without_end(serve):
    server = serve("--model", "mnist-cnn", "--data-shape", "1x28x28", "--max-snapshots", 3)
    client = server.client()
    tensors, version = client.pull()
    client.register("w")
    slow = []
    for i in range(12):
        client.push("w", i + 1, version, sparse(0, tensors), code=200)
        slow.append(socket.create_connection(("127.0.0.1", server.port)))
        slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow[-1].sendall(b"GET /getParameter HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        slow[-1].recv(100)  # and no more
        assert client.metrics()["farthing_snapshots"] <= 3
        version = client.version()
    assert version == 12
    for connection in slow:
        connection.close()
    wait_for(lambda: client.metrics()["farthing_snapshots"] <= 1, "the readers' end")
    assert client.pull()[1] == 12


def test_slow_readers_leave_room_for_the_newest(serve):
    """As many as there is room for, less one: others get the newest version, and a step that waits for it goes on."""
    server = serve("--model", "mnist-cnn", "--data-shape", "1x28x28", "--max-snapshots", 3)
    client = server.client()
    tensors, version = client.pull()
    client.register("w")
    slow = []
    for i in range(2):
        client.push("w", i + 1, version, sparse(0, tensors), code=200)
        slow.append(socket.create_connection(("127.0.0.1", server.port)))
        slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow[-1].sendall(b"GET /getParameter HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        slow[-1].recv(100)  # and no more
    for i in range(3, 8):
        client.push("w", i, version, sparse(0, tensors), code=200)
        assert client.pull()[1] == i
    assert client.metrics()["farthing_snapshots"] <= 3
    for connection in slow:
        connection.close()


@pytest.mark.parametrize("consistency", ["sync", "async"])
def test_stalled_readers_do_not_lock_others_out(serve, consistency):
    """They hold all the room there is for versions; whoever waits for the newest gets it, and a quick reader is left alone."""
    server = serve("--model", "mnist-cnn", "--data-shape", "1x28x28", "--max-snapshots", 3, "--consistency", consistency)
    client = server.client()
    tensors, version = client.pull()
    client.register("w")
    stalled = []
    for i in range(3):
        client.push("w", i + 1, i, sparse(0, tensors), code=200)
        stalled.append(socket.create_connection(("127.0.0.1", server.port)))
        stalled[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled[-1].sendall(b"GET /getParameter HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        stalled[-1].recv(100)  # and no more
    assert client.metrics()["farthing_snapshots"] == 3
    client.push("w", 4, 3, sparse(0, tensors), code=200)
    assert client.pull("?since=3&wait=60")[1] == 4
    assert client.metrics()["farthing_snapshots"] <= 3
    if consistency == "sync":  # what is older than the newest is no use
        client.push("w", 5, 4, sparse(0, tensors), code=200)
        assert client.pull()[1] == 5


def test_accuracy_is_measured(serve, farthing):
    server = serve()  # the arguments that follow replace PLAIN's
    server.stop()
    server.arguments = ["--model", "linear", "--data", "digits", "--validate-every", "2", "--optimizer", "sgd", "--name",
                        "measured"]
    server.port = 0
    server.start()
    client = server.client()
    wait_for(lambda: client("GET", "/getAccuracy").json["accuracy"] is not None, "a validation", PATIENCE_S)
    first = client("GET", "/getAccuracy").json
    assert first["version"] == 0 and 0 <= first["accuracy"] <= 1 and first["loss"] > 0
    assert client("GET", "/getVersion").json["accuracy"] == first["accuracy"]
    tensors, _ = client.pull()
    client.register("w")
    for i in range(2):
        client.push("w", i + 1, i, ones(tensors, 0.001), code=200)
    wait_for(lambda: client("GET", "/getAccuracy").json["version"] == 2, "the next validation", PATIENCE_S)
    server.stop()
    assert "accuracy" in farthing("evaluate", "measured").out  # its configuration is one that train's options take
