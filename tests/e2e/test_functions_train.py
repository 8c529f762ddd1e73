"""Training in functions: `farthing worker openwhisk` processes, driven as the platform does, and a parameter server. Deadlines,
kills and servers that lie are part of it; every sample counts once an epoch all the same."""
import contextlib
import hashlib
import http.client
import io
import itertools
import json
import random
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import pytest
from conftest import FARTHING, PATIENCE_S, png, wait_for, write_mnist
from fault_proxy import FaultProxy, Rule
from parameter_client import pack
from test_functions_openwhisk import Action, end
from test_parameter_server import Server

SGD = ["--model", "linear", "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0", "--stay"]
KEYS = "worker WORKERSECRET11111111 train\n"


# ---- shards, servers, functions ----

def tar_of(folder, prefix="", more=()):
    """The training part of a folder of idx files, as a function would download it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path in sorted(folder.glob("train-*")):
            tar.add(path, prefix + path.name)
        for name, text in more:
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def write_shards(folder, counts):
    """Shards of so many samples with the manifest, as `farthing data shard` writes them."""
    parts = []
    folder.mkdir()
    for number, count in enumerate(counts, 1):
        content = tar_of(write_mnist(folder / f"raw-{number}", count, 1, seed=number))
        (folder / f"part-{number:04d}.tar.gz").write_bytes(content)
        parts.append({"name": f"part-{number:04d}.tar.gz", "samples": count, "size_bytes": len(content),
                      "sha256": hashlib.sha256(content).hexdigest()})
    (folder / "shards.json").write_text(json.dumps(
        {"format": 1, "dataset": "squares", "classes": 10, "class_names": [str(i) for i in range(10)], "channels": 1,
         "height": 28, "width": 28, "normalization": {"mean": [0.1], "std": [0.3]}, "samples": sum(counts), "seed": 0,
         "shards": parts}))
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards") / "data", (192, 200, 130))


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(*arguments, **options):
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        servers.append(Server(folder, **options))
        servers[-1].arguments = [*SGD, *arguments]
        return servers[-1].start()
    yield start
    for server in servers:
        if server.process and server.process.poll() is None:
            server.kill()


@pytest.fixture
def start(tmp_path):
    """Starts functions, each in a folder of its own, and initializes them."""
    functions, numbers = [], itertools.count()

    def start_one(env=None):
        folder = tmp_path / f"function-{next(numbers)}"
        folder.mkdir()
        function = Action(folder, [FARTHING, "worker", "openwhisk", "--port", "0", "--address", "127.0.0.1", "--json",
                                   "--cache", folder / "cache"])
        functions.append(function)
        assert function.init({"value": {"env": env or {}}}).code == 200
        return function
    yield start_one
    for function in functions:
        end(function)


def invoke(function, server, limit_s=None, **parameters):
    """Runs it once, with a platform's deadline; gives the result."""
    others = {"deadline": str(int((time.time() + limit_s) * 1000))} if limit_s else {}
    answer = function.run({"apihost": f"127.0.0.1:{server.port}", **parameters}, activation_id="0a1b2c", **others)
    assert answer.code == 200, answer.body
    return answer.json


def attempt(function, server, limit_s, **parameters):
    """The same; None where a busy machine left no time even to register, or not to push again and again."""
    answer = function.run({"apihost": f"127.0.0.1:{server.port}", **parameters}, activation_id="0a1b2c",
                          deadline=str(int((time.time() + limit_s) * 1000)))
    assert answer.code == 200 or "in time" in answer.error or "in a row" in answer.error, answer.body
    return answer.json if answer.code == 200 else None


def fails(function, value, limit_s=None, **others):
    """Runs it, and gives the error."""
    if limit_s:
        others["deadline"] = str(int((time.time() + limit_s) * 1000))
    answer = function.run(value, **others)
    assert answer.code == 502, answer.body
    return answer.error


def table(server, **options):
    return server.client(**options)("GET", "/shards").json


class Files(BaseHTTPRequestHandler):
    """Serves `files` by their paths, with ETags; notes what was asked."""

    def do_GET(self):
        content = self.server.files.get(self.path.split("?")[0])
        etag = '"%s"' % hashlib.md5(content or b"").hexdigest()
        known = self.headers.get("If-None-Match") == etag
        self.server.asked.append((self.path, known))
        self.send_response(404 if content is None else 304 if known else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content or b"") if not known else 0))
        self.end_headers()
        if content is not None and not known:
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def listen():
    """Starts an HTTP server of a test's own."""
    servers = []

    def start_one(handler, **members):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        vars(server).update(members)
        servers.append((server, threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)))
        servers[-1][1].start()
        return server
    yield start_one
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- training ----

def test_the_prototypes_keys(serve, start, listen, tmp_path):
    """Its archive too: programs in it are passed over. A warm function asks whether its shard is still the same, and no more."""
    raw = write_mnist(tmp_path / "raw", 150, 1)
    archive = tar_of(raw, "dataset_dl/data/MNIST/raw/", [("dataset_dl/main.py", b"raise SystemExit('executed')")])
    files = listen(Files, files={"/s.tar.gz": archive}, asked=[])
    server, function = serve("--data-shape", "1x28x28", "--classes", "10"), start()
    value = {"batch_sz_train": 32, "epoch_n": 3, "update_intv": 2, "device": "cpu",
             "dataset_url": f"http://127.0.0.1:{files.server_port}/s.tar.gz?X-Amz-Signature=TOPSECRET"}
    first = invoke(function, server, **value)
    assert first["finished"] and first["cold"] and first["job"] == "train" and "continuation" not in first
    assert (first["samples"], first["steps"], first["pushes"]) == (3 * 150, 3 * 5, 3 * 3)
    assert first["run"] == "0a1b2c" and first["version"] == 9 == server.client().version()
    assert 0 <= first["accuracy"] <= 1 and 0 < first["loss"] < 10
    assert first["received_bytes"] > len(archive) and first["sent_bytes"] > 9 * 7850 * 4
    assert first["peak_memory_bytes"] > 1 << 20
    assert 0 < first["fetch_s"] + first["compute_s"] + first["wait_s"] <= first["seconds"] + 0.01
    [shard] = table(server)["shards"]
    assert shard["done"] and shard["samples"] == 150 and shard["epochs"] == 3 and shard["name"].startswith("0a1b2c/s.tar.gz-")

    again = invoke(function, server, **value)  # the same run: there is nothing left of it
    assert again["finished"] and not again["cold"] and again["samples"] == 0
    other = invoke(function, server, run="another", **value)
    assert other["samples"] == 450 and other["received_bytes"] < first["received_bytes"]
    assert [known for _, known in files.asked] == [False, True, True]
    half = invoke(function, server, run="half", **{**value, "epoch_n": 1, "range": "100:"})
    assert half["samples"] == 50
    assert "TOPSECRET" not in function.output() + function.errors()


def test_a_push_is_the_mean_over_its_samples(serve, start, shards):
    """However many batches it is made of, also when the last one is short."""
    weights = []
    for batch, interval in ((192, 1), (50, 4), (7, 1000)):
        server = serve("--shards", shards, "--epochs", "1", "--seed", "5")
        before, _ = server.client().pull()
        result = invoke(start(), server, batch_sz_train=batch, update_intv=interval)
        assert result["finished"] and result["samples"] == 522
        if batch == 192:  # 192; 192 and 8; 130
            assert result["pushes"] == 4
            continue
        assert result["pushes"] == 3
        after, _ = server.client().pull()
        weights.append({name: after[name] - before[name] for name in after})
        server.kill()
    for name in weights[0]:  # sums of some hundred floats in another order
        numpy.testing.assert_allclose(weights[0][name], weights[1][name], rtol=1e-3, atol=1e-6)
        assert numpy.abs(weights[0][name]).max() > 1e-4


def test_image_files_have_the_models_size(farthing, serve, start, tmp_path):
    """Also those of a shard that all have one size, and of one that the function has an address of."""
    for kind in ("cat", "dog"):
        folder = tmp_path / "photos" / "train" / kind
        folder.mkdir(parents=True)
        (tmp_path / "photos" / "val" / kind).mkdir(parents=True)
        for number in range(8):
            (folder / f"{number}.png").write_bytes(png(20, 20, number))
        (tmp_path / "photos" / "val" / kind / "v.png").write_bytes(png(20, 20, 1))
    (tmp_path / "photos" / "train" / "cat" / "0.png").write_bytes(png(30, 25, 0))  # in one part, not in both
    farthing("data", "shard", "--data", tmp_path / "photos", "--parts", 2, "--to", tmp_path / "parts")
    assert json.loads((tmp_path / "parts" / "shards.json").read_text())["height"] == 224  # as sizes differ
    assert invoke(start(), serve("--shards", tmp_path / "parts", "--epochs", "1"))["samples"] == 16
    brought = invoke(start(), serve("--data-shape", "3x32x24", "--classes", "2"),
                     dataset_url=f"file://{tmp_path}/parts/part-0001.tar.gz")
    assert brought["finished"] and brought["samples"] == 8


def test_deadlines_and_continuations(serve, start, shards):
    """Invocation after invocation, until the server has had every sample of every epoch; then the model knows the squares. The
    first ones are too slow for that on any machine: two samples a push."""
    epochs, slow, pushed = 100, 2, 0
    server, function = serve("--shards", shards, "--epochs", str(epochs), "--data", shards / "raw-1"), start()
    results, continuation, end_s = [], None, time.monotonic() + PATIENCE_S
    while not results or not results[-1]["finished"]:
        limit_s, batch = (0.8, 2) if len(results) < slow else (PATIENCE_S / 4, 200)
        result = attempt(function, server, limit_s, batch_sz_train=batch, margin_s=0.1, continuation=continuation)
        assert time.monotonic() < end_s
        pushed += batch
        if not result:
            continue
        results.append(result)
        assert result["finished"] or result["stopped"] == "deadline"
        continuation = result.get("continuation")
    assert len(results) > slow and results[-2]["continuation"]["invocations"] == len(results) - 1
    assert {r["run"] for r in results} == {"0a1b2c"}
    # A push whose answer comes too late counts for the server alone.
    assert epochs * 522 - pushed <= sum(r["samples"] for r in results) <= epochs * 522
    shown = table(server)
    assert shown["samples_done"] == epochs * 522 and shown["epochs_done"] == epochs and shown["held"] == 0
    assert all(s["done"] for s in shown["shards"])
    assert server.client().metrics()["farthing_samples_total"] == epochs * 522
    assert max(results, key=lambda r: r["samples"])["accuracy"] > 0.9
    wait_for(lambda: (server.client()("GET", "/getAccuracy").json["accuracy"] or 0) > 0.95, "validation")


def test_a_group_that_the_deadline_cuts_short_is_pushed(serve, start, tmp_path):
    """Also where nothing has been pushed before, and a push takes far longer than a batch."""
    server, function = serve("--model", "resnet56", "--data-shape", "1x28x28", "--classes", "10"), start()
    (tmp_path / "s.tar.gz").write_bytes(tar_of(write_mnist(tmp_path / "raw", 700, 1)))
    with FaultProxy(server.port) as proxy:
        proxy.rules = [Rule("delay", target="(get|put)(Parameter|Gradient)", seconds=0.3)]
        for _ in range(3):  # a busy machine may be slower yet
            answer = function.run({"apihost": f"127.0.0.1:{proxy.port}", "dataset_url": f"file://{tmp_path}/s.tar.gz",
                                   "batch_sz_train": 1, "update_intv": 100000, "run": "r"},
                                  deadline=str(int((time.time() + 3) * 1000)))
            assert answer.code == 200, answer.body
            if answer.json["pushes"]:
                break
    result = answer.json
    assert result["pushes"] == 1 and result["stopped"] == "deadline" and 0 < result["samples"] == result["steps"] < 700
    assert server.client().metrics()["farthing_samples_total"] >= result["samples"]


def test_a_warm_function_begins_anew_with_another_server(serve, start, shards):
    """What compression kept back of one model's gradients is not sent to another."""
    weights, warm = [], start()
    for function in (warm, warm, start()):
        server = serve("--shards", shards, "--epochs", "2", "--seed", "5")
        assert invoke(function, server, batch_sz_train=10, compress="topk:0.05")["finished"]
        weights.append(server.client().pull()[0])
        server.kill()
    for other in weights[1:]:
        assert all(numpy.array_equal(weights[0][name], other[name]) for name in other)


def test_kills(serve, start, shards):
    """Three functions, killed at random: each sample is part of the model once an epoch."""
    server = serve("--shards", shards, "--epochs", "6", "--lease", "1s", "--consistency", "async")
    draw, stop = random.Random(3), threading.Event()
    running, finished = [None] * 3, [False] * 3

    def keep_going(number):
        while not stop.is_set() and not finished[number]:
            running[number] = function = start()
            continuation = None
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # killed
                while not stop.is_set() and not finished[number]:
                    result = attempt(function, server, 1.0, batch_sz_train=2, continuation=continuation)
                    if result:
                        continuation, finished[number] = result.get("continuation"), result["finished"]

    threads = [threading.Thread(target=keep_going, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            done = table(server)["samples_done"]
            wait_for(lambda: table(server)["samples_done"] > done + draw.randrange(50, 300)
                     or table(server)["samples_done"] == 6 * 522, "training to go on")
            victim = running[draw.randrange(3)]
            if victim:
                victim.process.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert all(finished)
    shown = table(server)
    assert shown["samples_done"] == 6 * 522 and all(s["done"] for s in shown["shards"])
    assert server.client().metrics()["farthing_samples_total"] == 6 * 522


def test_a_function_continues_itself(serve, start, shards, listen):
    asked = []

    class Platform(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], body))
            answer = b'{"activationId": "d00d"}'
            self.send_response(202)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    platform = listen(Platform)
    server, function = serve("--shards", shards, "--epochs", "100000"), start()
    value = {"apihost": f"127.0.0.1:{server.port}", "continue": "self", "batch_sz_train": 8, "margin_s": 0.3}
    assert "__OW_API_KEY" in fails(function, value, 5, api_host="http://127.0.0.1:1", action_name="/guest/train")
    answer = function.run(value, deadline=str(int((time.time() + 2.5) * 1000)), activation_id="first",
                          api_host=f"http://127.0.0.1:{platform.server_port}", api_key="user:APISECRET",
                          action_name="/guest/pack/train")
    assert answer.code == 200, answer.body
    result = answer.json
    assert result["continued_by"] == "d00d" and result["stopped"] == "deadline" and "continuation" not in result
    [(path, authorization, body)] = asked
    assert path.startswith("/api/v1/namespaces/_/actions/pack/train") and authorization.startswith("Basic ")
    assert body == {**value, "continuation": body["continuation"]}
    assert body["continuation"]["run"] == "first" and body["continuation"]["invocations"] == 1
    assert "APISECRET" not in json.dumps(result) + function.output() + function.errors()


def test_a_chain_without_progress_ends(serve, start, shards):
    """All that is left is held by a worker that does nothing."""
    server, function = serve("--shards", write_shards(shards.parent / "one", [64]), "--epochs", "1", "--lease", "10m"), start()
    client = server.client()
    client.register("idle")
    assert client("POST", "/takeShard", json.dumps({"worker": "idle"}).encode()).json["lease"]
    continuation, invocations = {"run": "r", "invocations": 9, "version": 0, "idle": 2}, 0
    while True:
        answer = function.run({"apihost": f"127.0.0.1:{server.port}", "continuation": continuation},
                              deadline=str(int((time.time() + 1.5) * 1000)))
        if answer.code != 200:
            break
        assert answer.json["pushes"] == 0 and answer.json["stopped"] == "deadline"
        continuation, invocations = answer.json["continuation"], invocations + 1
    assert invocations == 2 and "in a row" in answer.error and "time limit" in answer.error


def test_a_name_that_is_taken(serve, start, shards):
    server = serve("--shards", shards, "--epochs", "1", "--lease", "10m")
    server.client().register("w")
    assert "registered" in fails(start(), {"apihost": f"127.0.0.1:{server.port}", "worker": "w"}, 1.0)


# ---- keys and TLS ----

def test_keys_and_pins(serve, start, shards, tmp_path):
    (tmp_path / "keys").write_text(KEYS)
    (tmp_path / "keys").chmod(0o600)
    server = serve("--shards", shards, "--epochs", "1", "--tls", "--keys", tmp_path / "keys")
    address, pin = f"https://127.0.0.1:{server.port}", server.about["fingerprint"]
    right = {"access_key": "worker", "secret_key": "WORKERSECRET11111111", "server_pin": pin, "batch_sz_train": 64}
    function = start(env={"FARTHING_ACCESS_KEY": "worker", "FARTHING_SECRET_KEY": "WRONGSECRET222222222"})
    assert "server_pin" in fails(function, {**right, "apihost": address, "server_pin": None}, 10)
    other = pin[:-3] + ("AA=" if pin[-3:] != "AA=" else "BA=")
    assert "key" in fails(function, {**right, "apihost": address, "server_pin": other}, 10)
    error = fails(function, {"apihost": address, "server_pin": pin}, 10)  # the environment's, which is wrong
    assert "key" in error or "signature" in error
    assert fails(function, {**right, "apihost": address, "secret_key": "WRONGSECRET333333333"}, 10)
    result = function.run({**right, "apihost": f"127.0.0.1:{server.port}"})  # a pin means TLS
    assert result.code == 200 and result.json["finished"] and result.json["samples"] == 522, result.body
    said = function.output() + function.errors() + json.dumps(result.json)
    assert "WORKERSECRET" not in said and "WRONGSECRET" not in said


# ---- servers that are away, slow or lie ----

REGISTRATION = {"code": 200, "worker": "w", "model": "linear", "input": "1x28x28", "classes": 10, "consistency": "async",
                "sequence": 0, "lease_s": 30, "version": 0}


class Liar(BaseHTTPRequestHandler):
    """A parameter server whose answers the test chooses; None: it never answers."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = self.server.answers.get(self.path.split("?")[0], {"code": 404, "error": "no such route"})
        if "offset=" in self.path and isinstance(content, bytes):  # numbers alone
            content = content[8 + int.from_bytes(content[:8], "little"):]
        if content is None:
            self.server.over.wait(PATIENCE_S)
            return
        code = content.get("code", 200) if isinstance(content, dict) else 200
        content = json.dumps(content).encode() if isinstance(content, dict) else content
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Farthing-Version", "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def parameters(**changes):
    tensors = {"fc.weight": numpy.zeros((10, 784), numpy.float32), "fc.bias": numpy.zeros(10, numpy.float32), **changes}
    return pack(tensors, {})


LIES = {
    "nonsense": ({"/registerWorker": b"<html>hello</html>"}, "does not answer as a parameter server"),
    "no model of that name": ({"/registerWorker": {**REGISTRATION, "model": "../../etc/passwd"}}, "model"),
    "huge images": ({"/registerWorker": {**REGISTRATION, "input": "1x999999999x999999999"}}, "images"),
    "no images": ({"/registerWorker": {**REGISTRATION, "input": "x"}}, "images"),
    "huge classes": ({"/registerWorker": {**REGISTRATION, "classes": 2000000000}}, "classes"),
    "negative classes": ({"/registerWorker": {**REGISTRATION, "classes": -1}}, "classes"),
    "no safetensors": ({"/getParameter": b"\xff" * 64}, "safetensors"),
    "a header that is too long": ({"/getParameter": b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"}, ""),
    "other shapes": ({"/getParameter": parameters(**{"fc.weight": numpy.zeros((10, 10), numpy.float32)})}, "shape"),
    "other names": ({"/getParameter": parameters(more=numpy.zeros(1, numpy.float32))}, ""),
    "weights that are not finite": ({"/getParameter": parameters(**{"fc.bias": numpy.full(10, numpy.nan, numpy.float32)})}, ""),
    "a lease of nothing": ({"/getParameter": parameters(), "/takeShard": {"code": 200, "lease": {}}}, "not valid"),
    "a lease without end": ({"/getParameter": parameters(), "/takeShard": {"code": 200, "lease": {
        "shard": "s", "epoch": 0, "from": 5, "to": 1 << 62, "samples": 1 << 61, "url": "file:///x", "first": 0, "seed": 0}}},
        "not valid"),
    "an epoch beyond all numbers": ({"/getParameter": parameters(), "/takeShard": {"code": 200, "lease": {
        "shard": "s", "epoch": 1 << 62, "from": 0, "to": 10, "samples": 10, "url": "file:///x", "first": 0, "seed": 0}}},
        "not valid"),
    "a sequence that nothing follows": ({"/registerWorker": {**REGISTRATION, "sequence": (1 << 63) - 1}},
                                        "does not answer as a parameter server"),
    "a shard that is not there": ({"/getParameter": parameters(), "/takeShard": {"code": 200, "lease": {
        "shard": "s", "epoch": 0, "from": 0, "to": 10, "samples": 10, "url": "file:///nowhere/s.tar.gz",
        "first": 0, "seed": 0}}}, "nowhere"),
}


def test_lies_end_as_errors(start, listen):
    function = start()
    for what, (answers, message) in LIES.items():
        liar = listen(Liar, answers={"/registerWorker": REGISTRATION, "/unregisterWorker": {"code": 200}, **answers},
                      over=threading.Event())
        error = fails(function, {"apihost": f"127.0.0.1:{liar.server_port}"}, 20)
        assert message in error and "\n" not in error and "TOPSECRET" not in error, (what, error)
    assert function.process.poll() is None and function.markers() == len(LIES)


def test_servers_that_are_away_or_slow(start, listen):
    function = start()
    for answers in ({"/registerWorker": None}, {"/registerWorker": REGISTRATION, "/getParameter": None},
                    {"/registerWorker": REGISTRATION, "/getParameter": {"code": 503, "error": "busy"}}):
        liar = listen(Liar, answers={"/unregisterWorker": {"code": 200}, **answers}, over=threading.Event())
        began = time.monotonic()
        error = fails(function, {"apihost": f"127.0.0.1:{liar.server_port}"}, 1.0)
        assert "in time" in error and time.monotonic() - began < PATIENCE_S / 2
        # Where others went before, the chain does not end with that; or not soon.
        answer = function.run({"apihost": f"127.0.0.1:{liar.server_port}", "continuation": {
            "run": "r", "invocations": 3, "version": 7, "idle": 0}}, deadline=str(int((time.time() + 0.5) * 1000)))
        assert answer.code == 200, answer.body
        assert answer.json["stopped"] == "deadline" and not answer.json["finished"] and answer.json["pushes"] == 0
        assert answer.json["continuation"] == {"run": "r", "invocations": 4, "version": 7, "idle": 1}
        liar.over.set()
    assert "127.0.0.1:1" in fails(function, {"apihost": "127.0.0.1:1"}, 1.0)


def test_parameters_that_are_wrong(start):
    function = start()
    assert "\"apihost\"" in fails(function, {})
    assert "unknown job" in fails(function, {"job": "mine"})
    assert "\"batch_sz_train\"" in fails(function, {"apihost": "x:1", "batch_sz_train": "32.5"})
    assert "order" in fails(function, {"job": "prefetch"})
    answer = fails(function, {"apihost": "x:1", "batch_sz_train": 0, "colour": 5, "secret_key": "TOPSECRET"})
    assert "TOPSECRET" not in answer + function.output() + function.errors()
