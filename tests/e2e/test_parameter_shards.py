"""Shards that the parameter server deals out: every sample once an epoch, whatever dies.

As in test_parameter_server.py the `linear` model with plain SGD at rate 1 makes arithmetic visible: a push of so many
samples of the shard number N lowers the weight at position N by their number."""
import hashlib
import http.client
import json
import random
import threading
import time
import urllib.parse
import urllib.request

import numpy
import pytest
from conftest import PATIENCE_S, png, record, wait_for
from parameter_client import pack, unpack
from test_parameter_server import KEYS, OTHER, READER, WORKER, Server, dot, weight_of

PLAIN = ["--model", "linear", "--optimizer", "sgd", "--lr", "1", "--momentum", "0"]


def describe(sizes, **changes):
    """A manifest of shards of so many samples."""
    parts = [{"name": f"part-{i + 1:04d}.tar.gz", "samples": size, "size_bytes": len(content(i, size)),
              "sha256": hashlib.sha256(content(i, size)).hexdigest()} for i, size in enumerate(sizes)]
    return {"format": 1, "dataset": "squares", "classes": 10, "class_names": [f"class {i}" for i in range(10)], "channels": 1,
            "height": 8, "width": 8, "normalization": {"mean": [0.25], "std": [0.5]}, "samples": sum(sizes), "seed": 0,
            "shards": parts, **changes}


def content(number, size):
    return f"shard {number} of {size} samples".encode()


@pytest.fixture
def shards(tmp_path):
    """Makes a folder of shards, and gives its path."""
    def make(*sizes, folder="my data", **changes):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        for number, size in enumerate(sizes):
            (place / f"part-{number + 1:04d}.tar.gz").write_bytes(content(number, size))
        (place / "shards.json").write_text(json.dumps(describe(sizes, **changes)))
        return place
    return make


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(*arguments, **options):
        servers.append(Server(tmp_path, **options))
        servers[-1].arguments = [*PLAIN, *arguments]
        return servers[-1].start()
    yield start
    for server in servers:
        if server.process and server.process.poll() is None:
            server.kill()


def post(client, route, code=200, **body):
    answer = client("POST", route, json.dumps(body).encode())
    assert answer.code == code, (answer.code, answer.body)
    return answer.json


def take(client, worker, wait=0, code=200, **body):
    answer = post(client, "/takeShard", code, worker=worker, wait=wait, **body)
    return answer["lease"] if code == 200 else answer


def push(client, worker, sequence, version, gradient, lease, count, code=None, **changes):
    """Pushes for the next `count` samples of a lease."""
    span = {"shard": lease["shard"], "epoch": lease["epoch"], "from": lease["from"], "to": lease["from"] + count, **changes}
    return client.push(worker, sequence, version, gradient, samples=count, code=code, **span)


def table(client):
    answer = client("GET", "/shards")
    assert answer.code == 200, answer.body
    return answer.json


def places(client):
    return {s["name"]: (s["epoch"], s["position"], s["worker"]) for s in table(client)["shards"]}


# ---- the protocol ----

def test_a_worker_goes_through_a_shard(serve, shards):
    place = shards(10, 6)
    server = serve("--shards", place, "--epochs", 2)
    client = server.client()
    me = client.register("w")
    assert (me["input"], me["classes"], me["normalization"]) == ("1x8x8", 10, {"mean": [0.25], "std": [0.5]})
    before, _ = client.pull()
    lease = take(client, "w")
    assert lease == {"shard": "part-0001.tar.gz", "epoch": 0, "from": 0, "to": 10, "samples": 10, "first": 0, "seed": 1,
                     "etag": "", "url": f"file://{urllib.parse.quote(str(place))}/part-0001.tar.gz"}
    assert urllib.request.urlopen(lease["url"]).read() == content(0, 10)
    assert take(client, "w") == lease  # its answer may have been lost
    push(client, "w", 1, 0, dot(0, before, 4), lease, 4, code=200)
    again = push(client, "w", 1, 0, dot(0, before, 4), lease, 4, code=200)
    assert again["duplicate"]
    refused = push(client, "w", 2, 1, dot(0, before, 4), lease, 4, code=409)  # the same samples as another push
    assert refused["reason"] == "lease" and "what comes next is 4 of epoch 0" in refused["error"]
    assert places(client) == {"part-0001.tar.gz": (0, 4, "w"), "part-0002.tar.gz": (0, 0, None)}
    assert take(client, "w")["from"] == 4
    push(client, "w", 2, 1, dot(0, before, 6), {**lease, "from": 4}, 6, code=200)
    assert places(client)["part-0001.tar.gz"] == (1, 0, None)
    lease = take(client, "w")
    assert (lease["shard"], lease["epoch"], lease["to"]) == ("part-0002.tar.gz", 0, 6)
    assert post(client, "/returnShard", worker="w")["returned"] and not post(client, "/returnShard", worker="w")["returned"]
    after, version = client.pull()
    assert (before[weight_of(before)] - after[weight_of(before)]).reshape(-1)[0] == pytest.approx(10) and version == 2
    totals = table(client)
    assert (totals["samples"], totals["samples_done"], totals["epochs_done"], totals["held"], totals["done"]) == (16, 10, 0, 0, 0)
    values = client.metrics()
    assert [values[f'farthing_shard_leases_total{{event="{e}"}}'] for e in ("taken", "completed", "returned", "lost")] == [2, 1, 1, 0]
    assert values['farthing_shards{state="listed"}'] == 2 and values['farthing_refused_total{reason="lease"}'] == 1


def test_the_training_ends_when_all_is_done(serve, shards, tmp_path):
    server = serve("--shards", shards(4, 2), "--epochs", 2, "--name", "run")
    client = server.client()
    client.register("w")
    before, _ = client.pull()
    sequence = 0
    while True:
        answer = client("POST", "/takeShard", b'{"worker":"w"}')
        if answer.code == 409:
            break
        lease = answer.json["lease"]
        for start in range(lease["from"], lease["to"], 2):
            sequence += 1
            push(client, "w", sequence, sequence - 1, dot(0, before), {**lease, "from": start}, 2, code=200)
    assert answer.json["reason"] == "finished" and sequence == 6
    assert push(client, "w", 7, 6, dot(0, before), {**lease, "from": 0}, 2, code=409)["reason"] == "finished"
    assert all(s["done"] and s["epoch"] == 2 for s in table(client)["shards"])
    client.unregister("w")
    assert server.process.wait(PATIENCE_S) == 0
    end = record(tmp_path / "runs" / "run")[-1]
    assert (end["event"], end["samples"], end["epochs"], end["reason"]) == ("end", 12, 2.0, "epochs")
    server.arguments = [*PLAIN, "--shards", tmp_path / "my data", "--epochs", 3, "--name", "run"]
    client = server.start().client()  # one more
    client.register("w")
    assert take(client, "w")["epoch"] == 2


def test_a_worker_waits_for_a_shard(serve, shards):
    server = serve("--shards", shards(10), "--epochs", 1, "--lease", "10m")
    holder, other = server.client(), server.client()
    holder.register("a")
    other.register("b")
    assert take(holder, "a")["from"] == 0
    assert take(other, "b") is None

    def wait(free):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(take(other, "b", wait=60)))
        thread.start()
        time.sleep(0.1)
        assert thread.is_alive()
        free()
        thread.join(PATIENCE_S)
        return answers[0]
    assert wait(lambda: post(holder, "/returnShard", worker="a"))["shard"] == "part-0001.tar.gz"
    post(other, "/returnShard", worker="b")
    assert take(holder, "a")["from"] == 0
    assert wait(lambda: holder.unregister("a"))["shard"] == "part-0001.tar.gz"
    post(other, "/returnShard", worker="b")
    holder.register("a")
    lease = take(holder, "a")
    before, _ = holder.pull()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(take(other, "b", wait=60, code=409)))
    thread.start()
    push(holder, "a", 1, 0, dot(0, before), lease, 10, code=200)  # and nothing is left
    thread.join(PATIENCE_S)
    assert answers[0]["reason"] == "finished"


def test_what_the_dead_held_is_free(serve, shards):
    server = serve("--shards", shards(10), "--epochs", 1, "--lease", "1s")
    client = server.client()
    client.register("dead")
    before, _ = client.pull()
    lease = take(client, "dead")
    push(client, "dead", 1, 0, dot(0, before), lease, 3, code=200)
    other = server.client()
    other.register("b")
    got = []
    wait_for(lambda: got.append(take(other, "b", wait=0.4)) or got[-1], "the shard")
    assert got[-1]["from"] == 3
    late = push(client, "dead", 2, 1, dot(0, before), {**lease, "from": 3}, 3, code=409)
    assert late["reason"] == "stranger"
    client.register("dead", "again")
    late = push(client, "dead", 2, 1, dot(0, before), {**lease, "from": 3}, 3, code=409)
    assert late["reason"] == "lease" and "with another worker" in late["error"]
    assert client.metrics()['farthing_shard_leases_total{event="lost"}'] == 1


def test_after_a_restart_a_push_takes_the_lease(serve, shards):
    server = serve("--shards", shards(10, 10), "--epochs", 1, "--name", "run", "--lease", "10m")
    client = server.client()
    client.register("w")
    before, _ = client.pull()
    lease = take(client, "w")
    push(client, "w", 1, 0, dot(0, before), lease, 3, code=200)
    server.kill()
    server.start()
    assert places(client)["part-0001.tar.gz"] == (0, 3, None)
    push(client, "w", 2, 1, dot(0, before), {**lease, "from": 3}, 3, code=200)
    assert places(client)["part-0001.tar.gz"] == (0, 6, "w")
    client.register("v")
    assert take(client, "v")["shard"] == "part-0002.tar.gz"
    server.stop()
    server.start()
    assert places(client) == {"part-0001.tar.gz": (0, 6, None), "part-0002.tar.gz": (0, 0, None)}


def test_brought_shards(serve):
    server = serve("--data-shape", "1x8x8", "--name", "run", "--lease", "10m")
    client = server.client()
    client.register("w")
    client.register("v")
    before, _ = client.pull()
    mine = {"run": "r1", "name": "part.tar.gz", "samples": 8, "epochs": 2}
    assert "--shards" in take(client, "w", code=409)["error"]
    lease = take(client, "w", shard=mine)
    assert lease["shard"] == "r1/part.tar.gz" and lease["url"] == "" and lease["to"] == 8
    assert take(client, "v", shard=mine) is None
    assert take(client, "v", shard={**mine, "run": "r2"})["shard"] == "r2/part.tar.gz"
    push(client, "w", 1, 0, dot(0, before), lease, 5, code=200)
    server.kill()
    server.start()
    assert places(client) == {"r1/part.tar.gz": (0, 5, None), "r2/part.tar.gz": (0, 0, None)}
    lease = take(client, "v", shard=mine)
    assert (lease["epoch"], lease["from"]) == (0, 5)
    for changed in ({"samples": 9}, {"epochs": 3}):
        refused = take(client, "w", shard={**mine, **changed}, code=409)
        assert refused["reason"] == "lease" and "r1/part.tar.gz" in refused["error"]
    push(client, "v", 1, 1, dot(0, before), lease, 3, code=200)
    push(client, "v", 2, 2, dot(0, before), take(client, "v", shard=mine), 8, code=200)
    assert take(client, "v", shard=mine, code=409)["reason"] == "finished"
    totals = table(client)
    assert totals["done"] == 1 and totals["samples"] == 0 and not any(s["listed"] for s in totals["shards"])


def test_refusals(serve, shards):
    server = serve("--shards", shards(10), "--epochs", 1)
    client = server.client()
    assert take(client, "nobody", code=409)["reason"] == "stranger"
    assert post(client, "/returnShard", 409, worker="nobody")["reason"] == "stranger"
    client.register("w")
    good = {"run": "r", "name": "n", "samples": 5, "epochs": 1}
    for wrong in ({"wait": -1}, {"wait": "long"}, {"shard": []}, {"shard": "x"}, {"shard": {}}, {"shard": {**good, "run": ""}},
                  {"shard": {**good, "name": "a b"}}, {"shard": {**good, "name": "\u00e9"}}, {"shard": {**good, "name": "x" * 256}},
                  {"shard": {**good, "samples": "5"}}, {"shard": {**good, "samples": 1.5}}, {"shard": {**good, "epochs": None}}):
        answer = client("POST", "/takeShard", json.dumps({"worker": "w", **wrong}).encode())
        assert (answer.code, answer.json["reason"]) == (400, "malformed"), (wrong, answer.body)
    for wrong in ({**good, "samples": 0}, {**good, "samples": -1}, {**good, "epochs": -1}, {**good, "samples": 2**62}):
        assert take(client, "w", shard=wrong, code=409)["reason"] == "lease"
    for body in (b"", b"{}", b"[]", b'{"worker":5}', b"{"):
        assert client("POST", "/takeShard", body).code == 400
        assert client("POST", "/returnShard", body).code == 400
    assert client("POST", "/takeShard", b"x" * 5000).code == 413
    before, _ = client.pull()
    lease = take(client, "w")
    for wrong in ({"epoch": "x"}, {"epoch": -1}, {"from": ""}, {"to": 5}, {"to": 2**63}, {"shard": "a b"}, {"shard": ""}):
        answer = push(client, "w", 1, 0, dot(0, before), lease, 4, code=400, **wrong)
        assert answer["reason"] == "malformed", (wrong, answer)
    for wrong in ({"shard": "other"}, {"epoch": 1}, {"from": 4, "to": 8}):
        assert push(client, "w", 1, 0, dot(0, before), lease, 4, code=409, **wrong)["reason"] == "lease"
    assert push(client, "w", 1, 0, dot(0, before), lease, 11, code=409)["reason"] == "lease"
    assert places(client) == {"part-0001.tar.gz": (0, 0, "w")} and client.version() == 0


def test_keys(serve, shards, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    server = serve("--shards", shards(10), "--epochs", 1, "--keys", keys)
    nobody, reader, worker, other = [server.client(k) for k in (None, READER, WORKER, OTHER)]
    worker.register("w")
    for route in ("/takeShard", "/returnShard"):
        assert post(nobody, route, 401, worker="w") and post(reader, route, 403, worker="w") and post(other, route, 403, worker="w")
    assert nobody("GET", "/shards").code == 401
    assert take(worker, "w")["from"] == 0
    assert table(reader)["shards"][0]["worker"] == "w"


def test_where_shards_are(farthing, shards, serve, tmp_path):
    """What can be wrong with --shards, each with a line that says so."""
    def refused(*arguments):
        return farthing("serve", "parameters", *map(str, arguments), "--port", 0, code=1).err
    place = shards(10, 6)
    assert "has no shards.json" in refused("--shards", tmp_path)
    assert "--data-shape" in refused("--shards", place, "--data-shape", "1x8x8")
    assert "--image-size" in refused("--shards", place, "--image-size", 16)
    assert "digits" in refused("--shards", place, "--data", "digits", "--model", "linear")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "shards.json").write_text("{}")
    assert "shards.json" in refused("--shards", tmp_path / "bad")
    cut = shards(10, 6, folder="cut")
    (cut / "part-0002.tar.gz").write_bytes(b"short")
    assert "part-0002.tar.gz" in refused("--shards", cut) and "has 5 bytes" in refused("--shards", cut)
    (cut / "part-0002.tar.gz").unlink()
    assert "part-0002.tar.gz, listed in" in refused("--shards", cut) and "does not exist" in refused("--shards", cut)
    server = serve("--shards", place, "--epochs", 1, "--name", "run")
    server.stop()
    again = [*PLAIN, "--name", "run"]
    assert "start the server with the --shards that it began with" in refused(*again, "--data-shape", "1x8x8")
    assert "another file" in refused(*again, "--shards", shards(10, 7, folder="changed"))
    assert "part-0002.tar.gz" in refused(*again, "--shards", shards(10, folder="fewer"))
    server.arguments = [*PLAIN, "--name", "run", "--shards", shards(10, 6, 5, folder="more"), "--epochs", 1]
    server.start()
    assert len(table(server.client())["shards"]) == 3


def test_links_into_a_bucket(serve, bucket):
    """Workers need no key of the bucket: the server gives out links that are good for a while."""
    for number, size in enumerate((10, 6)):
        bucket.write(f"mnist/part-{number + 1:04d}.tar.gz", content(number, size))
    bucket.write("mnist/shards.json", json.dumps(describe((10, 6))).encode())
    server = serve("--shards", f"{bucket.url}/mnist", "--epochs", 1, "--name", "run", "--shard-url-expiry", "90s",
                   env=bucket.environment)
    client = server.client()
    client.register("w")
    lease = take(client, "w")
    url = lease["url"]
    assert lease["etag"].strip('"') == hashlib.md5(content(0, 10)).hexdigest()
    assert urllib.request.urlopen(url).read() == content(0, 10)
    assert "X-Amz-Expires=90" in url
    server.stop()
    for path in server.folder.rglob("*"):
        assert not path.is_file() or b"X-Amz-Signature" not in path.read_bytes(), path


# ---- what functions used ----

def test_what_functions_used_is_recorded(serve, shards, tmp_path):
    server = serve("--shards", shards(10, 10), "--epochs", 1, "--name", "run", "--lease", "1s")
    client = server.client()
    function = {"provider": "lambda", "function": "train", "memory_mb": 512}
    usage = {**function, "id": "one", "seconds": 4.5, "cold": True, "peak_bytes": 40000000, "received_bytes": 100, "sent_bytes": 200,
             "ended": "deadline", "other": "not taken over", "function": "f" * 300}
    post(client, "/registerWorker", worker="said", instance="1", function={**function, "id": "one"})
    post(client, "/registerWorker", worker="plain", instance="1")
    post(client, "/registerWorker", worker="lost", instance="1", function={**function, "id": "two", "secret": "x"})
    post(client, "/unregisterWorker", worker="said", usage=usage)
    post(client, "/unregisterWorker", worker="plain")
    server.kill()
    server.start()

    def events():
        return [e for e in record(tmp_path / "runs" / "run") if e["event"] == "invocation"]
    wait_for(lambda: len(events()) == 2, "the lost one's event")
    said, lost = [{k: v for k, v in e.items() if k not in ("event", "time", "process_s")} for e in events()]
    assert said == {"worker": "said", **function, "id": "one", "seconds": 4.5, "cold": True, "peak_bytes": 40000000,
                    "received_bytes": 100, "sent_bytes": 200, "ended": "deadline"}
    seconds = lost.pop("seconds")
    assert lost == {"worker": "lost", **function, "id": "two", "ended": "lost"} and 0 <= seconds < 600
    post(client, "/registerWorker", worker="silent", instance="1", function={**function, "id": "three"})
    post(client, "/unregisterWorker", worker="silent")
    last = events()[-1]
    assert (last["worker"], last["id"], last["ended"]) == ("silent", "three", "done") and last["seconds"] >= 0


def test_functions_are_let_go_sooner(serve):
    function = {"provider": "lambda", "function": "train", "id": "one"}
    server = serve("--name", "run")

    def leases():
        client = server.client()
        return [post(client, "/registerWorker", worker="plain", instance="1")["lease_s"],
                post(client, "/registerWorker", worker="brief", instance="1", function=function)["lease_s"]]
    assert leases() == [30, 5]
    server.kill()
    server.start()
    assert leases() == [30, 5]
    server.stop()  # a checkpoint
    server.start()
    assert leases() == [30, 5]
    server.stop()
    server.arguments += ["--lease", "7s"]
    server.start()
    assert leases() == [7, 7]


# ---- whatever dies ----

class Deaths:
    """Workers that die at random, without a word, and come back under another name, until every shard is done."""

    def __init__(self, server, numbers, seed):
        self.server, self.numbers, self.seed = server, numbers, seed
        self.accepted, self.failures, self.deaths = [], [], 0
        self.lock = threading.Lock()

    def run(self, count):
        self.threads = [threading.Thread(target=self.live, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert not self.failures, self.failures[:3]

    def live(self, index):
        draw, life = random.Random(f"{self.seed} {index}"), 0
        try:
            while self.work(f"w{index}-{life}", draw):
                life += 1
                with self.lock:
                    self.deaths += 1
        except BaseException as error:
            self.failures.append(error)

    def ask(self, client, *request):
        """Asks until there is an answer: the server may be away."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = client(*request)
                if answer.code != 503:
                    return answer
            except (OSError, http.client.HTTPException):
                client.close()
            assert time.monotonic() < end, request
            time.sleep(0.02)

    def work(self, name, draw):
        """A worker's life; true if it ended before the training."""
        client = self.server.client(timeout=30)
        register = json.dumps({"worker": name, "instance": "one"}).encode()
        sequence, lease = self.ask(client, "POST", "/registerWorker", register).json["sequence"], None
        shapes, _ = unpack(self.ask(client, "GET", "/getParameter").body)
        while draw.random() > 0.02:
            if lease is None or lease["from"] == lease["to"]:
                answer = self.ask(client, "POST", "/takeShard", json.dumps({"worker": name, "wait": 0.3}).encode())
                if answer.code == 409 and answer.json["reason"] == "finished":
                    self.ask(client, "POST", "/unregisterWorker", json.dumps({"worker": name}).encode())
                    return False
                if answer.code == 409:
                    assert answer.json["reason"] == "stranger", answer.body
                    sequence = self.ask(client, "POST", "/registerWorker", register).json["sequence"]
                    continue
                lease = answer.json["lease"]
                continue
            version = self.ask(client, "GET", f"/getVersion?worker={name}").json["version"]
            count = min(draw.randint(1, 7), lease["to"] - lease["from"])
            body = pack_push(shapes, name, sequence + 1, version, self.numbers[lease["shard"]], lease, count)
            answer = self.ask(client, "POST", "/putGradient", body)
            reason = answer.json.get("reason")
            if reason == "stranger":  # its lease ran out; the push may have been taken before that
                taken = self.ask(client, "POST", "/registerWorker", register).json["sequence"] > sequence
            else:
                taken = answer.code in (200, 201)
                assert taken or reason in ("stale", "version", "lease", "finished"), answer.body
            if taken:
                sequence += 1
                with self.lock:
                    self.accepted.append((lease["shard"], lease["epoch"], lease["from"], lease["from"] + count))
                lease["from"] += count
            elif reason not in ("stale", "version"):
                lease = None
            if answer.code == 201:
                self.ask(client, "GET", f"/getParameter?since={version}&wait=1&worker={name}")
            if draw.random() < 0.03 and lease:
                self.ask(client, "POST", "/returnShard", json.dumps({"worker": name}).encode())
                lease = None
        client.close()
        return True


def pack_push(tensors, name, sequence, version, number, lease, count):
    return pack(dot(number, tensors, count), {"worker": name, "sequence": sequence, "version": version, "samples": count,
                                              "shard": lease["shard"], "epoch": lease["epoch"], "from": lease["from"],
                                              "to": lease["from"] + count})


@pytest.mark.parametrize("consistency", ["async", "bounded:3", "sync"])
def test_every_sample_once_whatever_dies(serve, shards, consistency, tmp_path):
    sizes, epochs, kills = [160, 145, 170, 1, 152, 133], 2, 4
    place = shards(*sizes)
    server = serve("--shards", place, "--epochs", epochs, "--name", "run", "--consistency", consistency, "--lease", "1s", "--stay",
                   "--checkpoint-every", "40")
    names = [s["name"] for s in json.loads((place / "shards.json").read_text())["shards"]]
    before, _ = server.client().pull()
    deaths = Deaths(server, {name: i for i, name in enumerate(names)}, consistency)
    deaths.run(7)  # one more than there are shards
    client, early = server.client(), []
    for kill in range(kills):  # spread over the training, whatever the machine's speed
        due = epochs * sum(sizes) * (kill + random.Random(f"{consistency} {kill}").random()) / (kills + 1)
        wait_for(lambda: table(client)["samples_done"] >= due, "the next kill's time")
        early.append(table(client)["samples_done"] < epochs * sum(sizes))
        server.kill()
        server.start()
    assert any(early)
    deaths.join()
    counted = {(name, epoch): numpy.zeros(size, int) for name, size in zip(names, sizes) for epoch in range(epochs)}
    for shard, epoch, start, end in deaths.accepted:
        counted[shard, epoch][start:end] += 1
    assert all((counts == 1).all() for counts in counted.values()), counted
    totals = table(client)
    assert all(s["done"] and s["epoch"] == epochs and s["position"] == 0 and s["worker"] is None for s in totals["shards"])
    assert totals["samples_done"] == epochs * sum(sizes) and totals["epochs_done"] == epochs
    after, version = client.pull()
    moved = (before[weight_of(before)] - after[weight_of(before)]).reshape(-1)
    if consistency != "sync":  # there a step is a mean
        numpy.testing.assert_allclose(moved[:6], [epochs * size for size in sizes], rtol=1e-5)
        assert version == len(deaths.accepted)
    assert numpy.all(moved[6:] == 0) and deaths.deaths > 0
    server.stop(code=0)
    end = record(tmp_path / "runs" / "run")[-1]
    assert end["event"] == "end" and end["samples"] == epochs * sum(sizes)


# ---- validation ----

def test_validation_is_with_what_the_shards_leave_out(farthing, serve, tmp_path):
    """Also where the set has no validation part, and the server's own seed and fraction would hold out others."""
    photos, place = tmp_path / "photos", tmp_path / "shards"
    for number, kind in enumerate(("cat", "dog")):
        (photos / kind).mkdir(parents=True)
        for i in range(20):
            (photos / kind / f"{i}.png").write_bytes(png(8, 8, 100 * number + 3 * i))
    farthing("data", "shard", "--data", photos, "--validation-fraction", 0.25, "--parts", 2, "--to", place)
    manifest = json.loads((place / "shards.json").read_text())
    assert manifest["samples"] == 30 and manifest["held_out"] == {"fraction": 0.25, "seed": 1, "by_class": True}

    def validate(*arguments):
        server = serve("--data", photos, "--weights", tmp_path / "weights.safetensors", *arguments)
        wait_for(lambda: server.client()("GET", "/getAccuracy").json["loss"] is not None, "a validation")
        return server.client()("GET", "/getAccuracy").json["loss"]

    weight = numpy.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=numpy.float32).reshape(2, -1) ** 3
    (tmp_path / "weights.safetensors").write_bytes(pack({"fc.weight": weight, "fc.bias": numpy.zeros(2, numpy.float32)}, {}))
    wanted = validate("--validation-fraction", "0.25")
    assert validate("--validation-fraction", "0.25", "--seed", "9") != pytest.approx(wanted, rel=1e-4)  # others
    assert validate("--shards", place, "--seed", "9") == pytest.approx(wanted, rel=1e-6)

    (photos / "dog").rename(photos / "fox")
    answer = farthing("serve", "parameters", "--model", "linear", "--shards", place, "--data", photos, "--port", 0, code=1)
    assert "class 1 of --data" in answer.err and "'fox', but that of --shards is 'dog'" in answer.err
    (photos / "fox").rename(photos / "dog")
    (photos / "dog" / "new.png").write_bytes(png(8, 8, 1))  # not the set that was split
    answer = farthing("serve", "parameters", "--model", "linear", "--shards", place, "--data", photos, "--port", 0, code=1)
    assert "would validate with training samples" in answer.err
