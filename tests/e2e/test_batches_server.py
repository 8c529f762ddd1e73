"""farthing serve batches: registration, positions, orders, restarts, keys and limits, seen from outside."""
import http.client
import http.server
import json
import re
import socket
import threading
import time

import pytest
from coordinator_client import Coordinator, HostClient, spec
from conftest import png, wait_for


@pytest.fixture
def serve(tmp_path, tiny):
    """Starts coordinators of the tiny data set, one folder for all: the next continues the last."""
    started = []

    def start(*arguments, data=f"tiny={tiny}", **options):
        server = Coordinator(tmp_path, "--data", data, *arguments, **options)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()


def register(server, **changes):
    return server.ask("POST", "/v1/jobs", {"job": spec("tiny", **changes), "name": "test", "agent": "here"})


def sync(server, jobs=(), code=200, key=None, **more):
    return server.ask("POST", "/v1/sync", {"agent": "here", "wait_ms": 0, "jobs": list(jobs), "finished": [],
                                           "wanted": [], "waiting": [], "lost": [], **more}, code, key)


def at(job, next, counters=(0,) * 8, slot=0, end=0):
    return {"job": job, "processes": [[slot, next, 1, end]], "counters": list(counters)}


# ---- jobs of this machine ----

def test_a_job_of_this_machine(serve):
    server = serve()
    client = HostClient(server)
    described = client.ask(op="describe", data="tiny")["set"]
    assert (described["training"], described["validation"], described["files"]) == (256, 64, False)
    answer = client.ask(op="register", job=spec("tiny"), name="one")
    assert answer["set"] == described and answer["cache"] == "shm" and answer["why"]
    assert answer["spec"]["version"] == described["version"] and answer["spec"]["rotation"] == 0
    assert answer["spec"]["form"] != "auto"

    client.move(0, end=8)
    wait_for(lambda: server.status["work"]["prepared"] >= 1, "items are prepared ahead of need")
    client.move(5, end=8)
    client.count(hits=5, bytes=1000, wait_ns=2_000_000_000)
    wait_for(lambda: server.job(answer["job"])["next"] == 5, "the board is read")
    wait_for(lambda: server.job(answer["job"])["hits"] == 5, "counters are read")
    job = server.job(answer["job"])
    assert (job["bytes"], job["wait_s"], job["processes"], job["name"]) == (1000, 2.0, 1, "one")
    assert server.status["clients"] == 1 and server.metrics()["farthing_batches_clients"] == 1
    assert client.ask(op="figures")["job"] == answer["job"]

    second = HostClient(server)
    assert second.ask(op="join", job=answer["job"])["slot"] != answer["slot"]
    second.move(6)
    wait_for(lambda: server.job(answer["job"])["processes"] == 2, "the second process is seen")
    second.close()
    wait_for(lambda: server.job(answer["job"])["processes"] == 1, "a process that left is seen")
    client.tell(op="finish")
    client.close()
    wait_for(lambda: server.job(answer["job"])["finished"], "the job finishes")
    assert server.job(answer["job"])["hits"] == 5
    assert server.stop() == 0


@pytest.mark.parametrize("request_, words", [
    ({"op": "describe", "data": "other"}, "expected tiny"),
    ({"op": "register", "job": {"data": "tiny"}}, "job: "),
    ({"op": "register", "job": spec("tiny", version="0" * 64)}, "has changed"),
    ({"op": "join", "job": 7}, "no job 7"),
    ({"op": "failed?", "id": "x"}, "id"),
    ({"op": "dance"}, "dance"),
])
def test_bad_requests_are_answered(serve, request_, words):
    client = HostClient(serve())
    answer = client.ask(**request_)
    assert words in answer["error"] and answer["status"] == "invalid"
    client.close()


def test_a_job_of_several_processes_finishes_with_the_last(serve):
    server = serve()
    first, second = HostClient(server), HostClient(server)
    job = first.ask(op="register", job=spec("tiny"))["job"]
    second.ask(op="join", job=job)
    first.move(0)
    second.move(1)
    wait_for(lambda: server.job(job)["processes"] == 2, "both are seen")
    first.tell(op="finish")
    first.close()
    wait_for(lambda: server.job(job)["processes"] == 1, "one has left")
    assert not server.job(job)["finished"]
    second.close()
    wait_for(lambda: server.job(job)["finished"], "both have left")


def test_long_and_odd_names(serve):
    server = serve()
    name = "\u00e9" * 200 + "\x1b[2J"
    job = server.ask("POST", "/v1/jobs", {"job": spec("tiny"), "name": name, "agent": "x" + name})["job"]
    assert server.job(job)["name"] == "\u00e9" * 63
    assert [seen["job"] for seen in server.status["jobs"]] == [job]
    assert f'job="{job}"' in "".join(server.metrics())


# ---- agents ----

def test_an_agent_and_its_jobs(serve):
    server = serve()
    job = register(server)["job"]
    assert sync(server, [at(job, 3, [7] + [0] * 7), at(99, 0)]) == {"ready": [], "failed": [], "unknown": [99]}
    seen = server.job(job)
    assert (seen["next"], seen["hits"], seen["processes"], seen["host"]) == (3, 7, 1, "here")
    sync(server, [at(job, 4, [9] + [0] * 7)])
    assert server.job(job)["hits"] == 9  # sums, not differences
    sync(server)
    assert server.job(job)["processes"] == 0  # no longer in the list
    sync(server, finished=[job])
    assert server.job(job)["finished"]
    assert [agent["agent"] for agent in server.status["agents"]] == ["here"]


def test_an_item_goes_to_another_machine(serve):
    server = serve("--prefetch", "workers")
    job = register(server, form="batches")["job"]
    sync(server, [at(job, 0, end=1)])
    (order,) = server.ask("POST", "/v1/orders/take", {"prefetcher": "w", "room": 1, "wait_ms": 5000})["orders"]
    server.ask("GET", f"/v1/items/{order['id']}", code=404)
    # what is wanted is held until it has failed or is ready
    asked = time.monotonic()
    assert sync(server, [at(job, 0, end=1)], wanted=[order["id"]], wait_ms=100)["ready"] == []
    assert time.monotonic() - asked >= 0.1
    assert sync(server, [at(job, 0, end=1)], wanted=["0" * 32, "nonsense"], code=400)["error"]


def test_syncs_that_make_no_sense_are_refused(serve):
    server = serve()
    for body in ({}, {"agent": ""}, {"agent": "x", "wanted": [1]}, {"agent": "x", "wanted": ["0" * 32] * 513}):
        assert server.ask("POST", "/v1/sync", body, 400)["status"] == "invalid"
    for longer in ({"jobs": [{"job": 1}] * 1025}, {"finished": [1] * 1025}, {"waiting": [[1, "0" * 32]] * 1025},
                   {"jobs": [{"job": 1, "processes": [[0, 0, 1, 0]] * 600}] * 2}):
        assert "more than" in sync(server, **{"code": 400, **longer})["error"]
    job = register(server)["job"]
    for processes in ([[0, 0]], [[-1, 0, 1, 0]], [[5000, 0, 1, 0]], [["a", "b", "c", "d", "e"]]):
        sync(server, [{"job": job, "processes": processes, "counters": []}], 400)
    sync(server, [{"job": job, "processes": [[0, -5, 0, -1]], "counters": ["x"]}])  # ignored, not believed
    assert server.job(job)["next"] == 0


def test_agents_that_are_gone_give_way(serve):
    server = serve()
    client = server.http()

    def come(name):
        return client("POST", "/v1/sync", json.dumps({"agent": name}).encode()).code

    assert {come(f"agent {i}") for i in range(1024)} == {200}
    assert come("one too many") == 400
    # after 10 s of silence; agent 0 goes on, and stays
    wait_for(lambda: come("agent 0") == 200 and come("one too many") == 200, "a place for another agent")
    names = [agent["agent"] for agent in server.status["agents"]]
    assert len(names) == 1024 and "agent 0" in names and "one too many" in names
    client.close()


# ---- workers ----

def take(server, worker, room=1, wait_ms=5000):
    return server.ask("POST", "/v1/orders/take", {"prefetcher": worker, "room": room, "wait_ms": wait_ms})["orders"]


def fail(server, worker, order, error="cannot read sample cat.jpg: no such key"):
    return server.ask("POST", "/v1/orders/done", {"prefetcher": worker, "results": [
        {"id": order["id"], "status": "io", "error": error}]})


def test_a_failure_is_tried_again_a_few_times_and_told_once(serve):
    server = serve("--prefetch", "workers")
    job = register(server, form="batches")["job"]
    sync(server, [at(job, 0, end=1)])
    tries = 0
    while not (failed := sync(server, [at(job, 0, end=1)], wanted=[order["id"]] if tries else [])["failed"]):
        (order,) = take(server, f"worker {tries}")
        fail(server, f"worker {tries}", order)
        tries += 1
        assert tries < 10
    assert tries == 3
    assert failed[0]["id"] == order["id"] and failed[0]["status"] == "io" and "cat.jpg" in failed[0]["error"]
    assert take(server, "another", wait_ms=0) == []
    status = server.status
    assert status["work"]["failed_for_good"] == 1 and "cat.jpg" in status["failures"][0]["error"]
    assert sum(p["failures"] for p in status["prefetchers"]) == 3
    assert server.log.read_text().count("cat.jpg") == 1
    client = HostClient(server)
    assert "cat.jpg" in client.ask(op="failed?", id=order["id"])["error"]
    client.close()


def test_orders_of_a_worker_that_was_started_again_are_given_to_others(serve):
    server = serve("--prefetch", "workers")
    job = register(server, form="batches")["job"]
    sync(server, [at(job, 0, end=1)])
    (order,) = take(server, "w")
    begun = server.ask("POST", "/v1/orders/take", {"prefetcher": "w", "room": 1, "begins": True})
    assert begun["orders"] == []  # what it had goes to somebody else first
    (again,) = take(server, "another")
    assert again["id"] == order["id"]
    assert server.status["prefetchers"][0]["last_failure"] == "the worker w was restarted"


def test_the_log_does_not_fill(serve):
    server = serve("--prefetch", "workers")
    job = register(server, form="batches", batch=1)["job"]
    failed = set()
    for _ in range(100):
        if len(failed) == 40:
            break
        sync(server, [at(job, len(failed), end=40)])
        orders = take(server, "worker", room=64, wait_ms=500)
        server.ask("POST", "/v1/orders/done", {"prefetcher": "worker", "results": [
            {"id": order["id"], "status": "invalid", "error": "broken"} for order in orders]})
        failed.update(order["id"] for order in orders)
    assert server.status["work"]["failed_for_good"] == 40
    assert len(server.log.read_text().splitlines()) <= 12


def test_cached_is_not_believed_without_the_entry(serve):
    server = serve("--prefetch", "workers")
    job = register(server, form="batches")["job"]
    sync(server, [at(job, 0, end=1)])
    (order,) = take(server, "liar")
    client = server.http()
    assert client("PUT", f"/v1/items/{order['id']}", b"not an entry" * 20).code == 400
    assert client("PUT", f"/v1/items/{'0' * 32}", b"x" * 100).code == 400  # nobody asked for it
    client.close()
    preparation = {"receipt": [order["id"], 1000, "0" * 16], "fetch_s": 0, "decode_s": 0, "transform_s": 0,
                   "fetched_bytes": 0, "samples": 32, "decoded": 0, "bad": 0, "bad_name": "", "bad_reason": ""}
    server.ask("POST", "/v1/orders/done", {"prefetcher": "liar", "results": [
        {"id": order["id"], "preparation": preparation}]})
    status = server.status
    assert status["cache"]["items"] == 0 and status["prefetchers"][0]["failures"] == 1
    assert "an item that is not cached" in status["prefetchers"][0]["last_failure"]
    (again,) = take(server, "honest")
    assert again["id"] == order["id"]


def test_workers_need_to_be_asked_for(serve):
    server = serve()
    assert "--prefetch workers" in server.ask("POST", "/v1/orders/take", {"prefetcher": "w", "room": 1}, 400)["error"]


# ---- restarts ----

def saved(server):
    path = server.folder / "state" / "coordinator.json"
    return path.read_text() if path.exists() else ""


def test_a_killed_coordinator_continues(serve):
    server = serve()
    known = register(server, sharing="order")
    job = known["job"]
    sync(server, [at(job, 6, [11, 0, 0, 0, 0, 0, 0, 0])])
    local = HostClient(server)
    second = local.ask(op="register", job=spec("tiny", batch=16))
    wait_for(lambda: '"next":6' in saved(server) and str(second["job"]) in saved(server), "the state is saved")
    server.kill()
    local.close()

    server = serve(port=server.port)
    seen = server.job(job)
    assert (seen["next"], seen["hits"], seen["processes"]) == (6, 11, 0)
    # the agent goes on with the same sums, and nothing is counted twice
    assert sync(server, [at(job, 7, [12] + [0] * 7)])["unknown"] == []
    assert server.job(job)["hits"] == 12
    again = server.ask("POST", "/v1/jobs", {"job": known["spec"], "resume": job, "agent": "here"})
    assert again["job"] == job and again["spec"] == known["spec"]
    local = HostClient(server)
    assert local.ask(op="register", job=second["spec"], resume=second["job"])["job"] == second["job"]
    local.close()
    assert server.stop() == 0
    assert not server.socket_path().exists()


def test_a_job_keeps_its_number_without_the_state(serve):
    server = serve()
    known = register(server)
    server.kill()
    for file in (server.folder / "state").iterdir():
        file.unlink()
    server = serve(port=server.port)
    assert sync(server, [at(known["job"], 0)])["unknown"] == [known["job"]]
    assert server.ask("POST", "/v1/jobs", {"job": known["spec"]})["job"] != known["job"]
    again = server.ask("POST", "/v1/jobs", {"job": known["spec"], "resume": known["job"]})
    assert again["job"] == known["job"]
    other = {**known["spec"], "batch": 8}
    assert "another" in server.ask("POST", "/v1/jobs", {"job": other, "resume": known["job"]}, 400)["error"]


def test_a_broken_state_is_put_aside(serve):
    server = serve()
    register(server)
    assert server.stop() == 0
    state = server.folder / "state" / "coordinator.json"
    state.write_text(state.read_text()[:-20])
    server = serve(port=server.port)
    assert server.status["jobs"] == []
    assert "put aside" in server.log.read_text() or "unreadable" in server.log.read_text()
    assert state.with_name("coordinator.json.unreadable").exists()


def test_a_state_is_one_coordinators(serve, farthing, tiny):
    server = serve()
    result = farthing("serve", "batches", "--data", tiny, "--port", 0, "--state", server.folder / "state", code=1)
    assert "another coordinator" in result.err and len(result.err.splitlines()) == 1


# ---- errors before it serves ----

@pytest.mark.parametrize("flags, words", [
    ([], "--data"),
    (["--data", "./nothing"], "nothing"),
    (["--data", "a=digits,a=shapes"], "two data sets"),
    (["--data", "digits,"], "empty"),
    (["--data", "a b=digits"], "name"),
    (["--data", "digits", "--cache", "redis://127.0.0.1:1"], "127.0.0.1:1"),
    (["--data", "digits", "--address", "0.0.0.0"], "--keys"),
    (["--data", "digits", "--budget-per-hour", "1", "--cache-price", "2"], "--budget-per-hour"),
    (["--data", "digits", "--cache-memory", "1k"], "--cache-memory"),
])
def test_what_is_wrong_is_said_before_it_serves(farthing, flags, words):
    began = time.monotonic()
    result = farthing("serve", "batches", "--port", 0, *flags, code=1)
    assert words in result.err and len(result.err.splitlines()) == 1 and not result.out
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("flags", [["--cache", "floppy"], ["--prefetch", "threads:x"], ["--cache-memory", "lots"],
                                   ["--port", "x"]])
def test_wrong_flags_are_wrong_usage(farthing, flags):
    assert farthing("serve", "batches", "--data", "digits", *flags, code=2).err


def test_an_empty_folder_is_refused(farthing, tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    result = farthing("serve", "batches", "--port", 0, "--data", tmp_path / "photos", code=1)
    assert "photos" in result.err and len(result.err.splitlines()) == 1


def test_a_taken_port_is_refused(farthing):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = farthing("serve", "batches", "--data", "digits", "--port", port, "--state", "state", code=1)
    assert str(port) in result.err


# ---- keys, limits ----

def keys(folder, *lines):
    path = folder / "keys.txt"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


READER, TRAINER, OTHER = ("reader", "r" * 20), ("trainer", "t" * 20), ("other", "o" * 20)


@pytest.fixture
def keyed(serve, tmp_path, tiny):
    lines = [f"{READER[0]} {READER[1]} read data=tiny", f"{TRAINER[0]} {TRAINER[1]} train",
             f"{OTHER[0]} {OTHER[1]} train data=second"]
    return serve("--keys", keys(tmp_path, *lines), "--prefetch", "workers", data=f"tiny={tiny},second={tiny}", key=TRAINER)


def test_keys_and_the_data_they_may_read(keyed):
    server = keyed
    client = server.http()
    for method, target in (("GET", "/v1/data/tiny"), ("POST", "/v1/jobs"), ("POST", "/v1/sync"), ("GET", "/v1/status"),
                           ("POST", "/v1/orders/take"), ("GET", "/v1/items/" + "0" * 32), ("PUT", "/v1/items/" + "0" * 32)):
        assert client(method, target, b"{}" if method == "POST" else b"", signed=False).code == 401, target
    assert client("GET", "/healthz", signed=False).code == 200
    assert client("GET", "/metrics", signed=False).code == 200
    client.close()
    assert server.ask("GET", "/v1/data/tiny", key=READER)["name"] == "tiny"
    assert "may not read" in server.ask("GET", "/v1/data/second", code=403, key=READER)["error"]
    assert "may not read" in server.ask("POST", "/v1/jobs", {"job": spec("second")}, 400, READER)["error"]
    server.ask("POST", "/v1/orders/take", {"prefetcher": "w", "room": 1}, 403, READER)
    assert [data["name"] for data in server.ask("GET", "/v1/status", key=READER)["data"]] == ["tiny"]
    job = server.ask("POST", "/v1/jobs", {"job": spec("tiny")}, key=READER)["job"]
    assert server.ask("GET", f"/v1/jobs/{job}", key=READER)["key"] == READER[0]
    server.ask("GET", f"/v1/jobs/{job}", code=404, key=OTHER)
    # nobody speaks for another key's job
    assert sync(server, [at(job, 5)], key=OTHER)["unknown"] == [job]
    assert "another" in server.ask("POST", "/v1/jobs", {"job": spec("tiny"), "resume": job}, 400, TRAINER)["error"]


def fail_for_good(server, key, data):
    """Has a batch of a set fail at all its tries; returns its id."""
    job = server.ask("POST", "/v1/jobs", {"job": spec(data, form="batches")}, key=key)["job"]
    sync(server, [at(job, 0, end=1)], key=key)
    for attempt in range(3):
        (order,) = take(server, f"worker {attempt}")
        fail(server, f"worker {attempt}", order, f"cannot read {data}/secret-name.jpg")
    return order["id"]


def test_a_limited_key_hears_nothing_of_other_sets(keyed):
    server = keyed
    fail_for_good(server, OTHER, "second")
    assert "secret-name" in json.dumps(server.status)
    assert "secret-name" in json.dumps(server.ask("GET", "/v1/status", key=OTHER)["failures"])
    limited = server.ask("GET", "/v1/status", key=READER)
    assert "secret-name" not in json.dumps(limited) and limited["failures"] == [] and limited["agents"] == []


def test_a_limited_key_prepares_nothing(keyed):
    for target in ("take", "done"):
        body = {"prefetcher": "w", "room": 1, "wait_ms": 0, "results": []}
        assert "data=" in keyed.ask("POST", f"/v1/orders/{target}", body, 403, OTHER)["error"]
    client = keyed.http(OTHER)
    assert client("PUT", "/v1/items/" + "0" * 32, b"x" * 100).code == 403
    client.close()


def test_a_limited_key_drops_nothing_of_other_sets(keyed, serve, tmp_path, tiny):
    def go_to_the_first_batch(server):
        job = server.ask("POST", "/v1/jobs", {"job": spec("second", form="batches")}, key=OTHER)["job"]
        sync(server, [at(job, 0, end=1)], key=OTHER)
        return job

    go_to_the_first_batch(keyed)
    (order,) = take(keyed, "who wants to know its id")
    keyed.kill()
    server = serve("--keys", tmp_path / "keys.txt", data=f"tiny={tiny},second={tiny}", key=TRAINER)
    job = go_to_the_first_batch(server)
    wait_for(lambda: server.status["cache"]["items"] == 1, "the batch is made")
    sync(server, lost=[order["id"]], waiting=[[job, order["id"]]], key=READER)
    assert server.status["cache"]["lost"] == 0
    sync(server, [at(job, 0, end=1)], lost=[order["id"]], key=OTHER)
    assert server.status["cache"]["lost"] == 1


def test_too_many_requests(serve):
    server = serve("--max-rate", "5")
    client = server.http()
    codes = [client("GET", "/healthz").code for _ in range(40)]
    client.close()
    assert 200 in codes and 429 in codes


def test_bodies_are_limited(serve):
    server = serve()
    client = server.http()
    assert client("POST", "/v1/jobs", b"{" + b" " * 80_000 + b"}").code == 413
    assert client("POST", "/v1/jobs", b"[]").code == 400
    assert client("POST", "/v1/sync", b"\xff\xfe").code == 400
    assert client("GET", "/v1/nothing").code == 404
    client.close()


def test_names_of_other_servers_are_refused(serve):
    connection = http.client.HTTPConnection("127.0.0.1", serve().port)
    connection.request("GET", "/v1/status", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 403
    connection.close()


def test_tls(serve):
    import ssl
    server = serve("--tls")
    assert server.serving["url"].startswith("https://") and server.serving["fingerprint"].startswith("sha256//")
    assert server.serving["data"]["tiny"].startswith("batches+tls://")
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


# ---- what it says ----

def test_metrics_and_description(serve):
    server = serve("--cache-price", "3600")
    job = register(server, form="batches")["job"]
    sync(server, [at(job, 2, [4, 3, 2, 1_000_000_000, 5, 0, 0, 0])])
    wait_for(lambda: server.job(job)["usd"] > 0, "the cache costs something")
    metrics = server.metrics()
    label = f'{{job="{job}",name="test",data="tiny"}}'
    assert metrics["farthing_batches_job_hits_total" + label] == 4
    assert metrics["farthing_batches_job_wait_seconds_total" + label] == 1
    assert metrics["farthing_batches_jobs"] == 1 and metrics['farthing_batches_usd_total{on="cache"}'] > 0
    client = server.http()
    text = client("GET", "/metrics").body.decode()
    described = client("GET", "/openapi.yaml").body.decode()
    client.close()
    assert len(re.findall(r"^# TYPE (\S+)", text, re.M)) == len(set(re.findall(r"^# TYPE (\S+)", text, re.M)))
    for path in ("/v1/data/{name}", "/v1/jobs", "/v1/sync", "/v1/items/{id}", "/v1/orders/take", "/v1/status"):
        assert path + ":" in described


def test_image_folders_are_named_after_themselves(serve, tmp_path):
    for kind in ("a", "b"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(4):
            (tmp_path / "photos" / kind / f"{i}.png").write_bytes(png(40, 30, 10 * i))
    server = serve(data="photos")
    described = server.ask("GET", "/v1/data/photos")
    assert described["files"] and described["address"] == str(tmp_path / "photos")


# ---- money ----

class Function(http.server.BaseHTTPRequestHandler):
    """A function that is called, and paid for, and fails."""

    protocol_version = "HTTP/1.1"
    calls = 0

    def do_POST(self):
        Function.calls += 1
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"id": order["id"], "status": "io", "error": "cannot read cat.jpg"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_functions_password_is_not_told(serve):
    server = serve("--prefetch", "threads:1,http://user:hunter2@127.0.0.1:9/f?token=hunter2")
    status = server.status
    assert "hunter2" not in json.dumps(status) and "http://127.0.0.1:9/f" in status["prefetch"]


def test_functions_wait_when_the_budget_is_spent(serve):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Function) as function:
        thread = threading.Thread(target=function.serve_forever)
        thread.start()
        try:
            Function.calls = 0
            url = f"http://127.0.0.1:{function.server_port}/"
            server = serve("--prefetch", url, "--function-request-price", "0.5", "--budget-per-hour", "1.2",
                           "--cache-price", "0.1")
            job = register(server, form="batches", batch=1)["job"]
            sync(server, [at(job, 0)])
            wait_for(lambda: server.status["spending"]["exhausted"], "the budget is spent")
            assert server.status["spending"]["functions_usd"] >= 1.5 and server.job(job)["usd"] >= 1.5
            wait_for(lambda: "budget" in server.log.read_text(), "it is said")
            calls = Function.calls  # those that were under way may have come after the limit was reached
            sync(server, [at(job, 100)])
            spent = server.status["spending"]["functions_usd"]
            wait_for(lambda: json.loads(saved(server) or "{}").get("dispatcher", {}).get("spending", {}).get("functions_usd") == spent,
                     "it is saved")
            assert Function.calls == calls
            server.kill()
            server = serve("--prefetch", url, "--function-request-price", "0.5", "--budget-per-hour", "1.2",
                           "--cache-price", "0.1", port=server.port)
            assert server.status["spending"]["functions_usd"] == spent and server.status["spending"]["exhausted"]
            assert server.log.read_text().count("the budget of") <= 2  # once each
        finally:
            function.shutdown()
            thread.join()
