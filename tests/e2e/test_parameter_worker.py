"""Workers of a parameter server: `farthing train --strategy parameter-server`, alone and several, through kills."""
import http.server
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from batches_server import access_flags
from conftest import environment, FARTHING, PATIENCE_S, stop, wait_for
from parameter_client import Client

MODEL = ["--model", "linear", "--lr", "0.1", "--momentum", "0", "--batch", "32"]


class Server:
    """`farthing serve parameters` on a data set, on a port that stays the same over restarts."""

    def __init__(self, folder, data, *arguments, env=None):
        self.folder, self.data, self.arguments, self.env, self.port = folder, data, arguments, env or {}, 0

    def start(self):
        command = [FARTHING, "serve", "parameters", *MODEL, "--data", self.data, "--name", "server", "--port",
                   str(self.port), "--json", *self.arguments,
                   *access_flags(self.arguments, self.env)]
        self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=open(self.folder / "server.txt", "a"), text=True,
                                        env=environment(**self.env))
        line = self.process.stdout.readline()
        assert line, (self.folder / "server.txt").read_text()
        about = json.loads(line)
        self.port, self.url, self.fingerprint = about["port"], about["url"], about.get("fingerprint")
        return self

    def version(self):
        return Client(self.port)("GET", "/getVersion").json["version"]

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def serve(tmp_path, tiny):
    servers = []

    def start(*arguments, **options):
        servers.append(Server(tmp_path, tiny, *arguments, **options).start())
        return servers[-1]
    yield start
    for server in servers:
        server.kill()


def worker_flags(server, data, *more):
    return ["train", "--strategy", "parameter-server", "--server", server.url, "--model", "linear", "--data", data,
            "--batch", "32", "--threads", "1", "--json", *more]


def test_one_worker_does_what_training_alone_does(farthing, serve, tiny):
    """With one worker and whole gradients the server makes the very updates that training without it makes."""
    server = serve()
    worker = farthing(*worker_flags(server, tiny, "--epochs", "2")).end
    alone = farthing("train", *MODEL, "--data", tiny, "--epochs", "2", "--threads", "1", "--json").end
    assert worker["loss"] == pytest.approx(alone["loss"], rel=1e-6)
    assert server.version() == alone["steps"] == worker["steps"]


@pytest.mark.parametrize("compression", ["f16", "bf16", "topk:0.05"])
def test_compressed_gradients_arrive_in_the_end(farthing, serve, tiny, compression):
    """What a compression leaves out is added later: the loss comes down nearly as far as without it."""
    whole = farthing(*worker_flags(serve(), tiny, "--epochs", "4")).end["loss"]
    (farthing.folder / compression).mkdir()
    other = Server(farthing.folder / compression, tiny).start()
    try:
        assert farthing(*worker_flags(other, tiny, "--epochs", "4", "--compress", compression)).end["loss"] < 1.3 * whole
    finally:
        other.kill()


def test_shares_are_disjoint_halves(farthing, serve, tiny):
    server = serve()
    halves = [farthing(*worker_flags(server, tiny, "--epochs", "1", "--share", share)).end for share in ("1/2", "2/2")]
    assert [half["samples"] for half in halves] == [128, 128]
    assert server.version() == 8


def test_a_server_ends_with_its_epochs(farthing, serve, tiny):
    server = serve("--epochs", "2")
    for share in ("1/2", "2/2"):
        farthing(*worker_flags(server, tiny, "--epochs", "2", "--share", share))
    assert server.process.wait(PATIENCE_S) == 0
    assert (server.folder / "runs/server/last.safetensors").exists()


def test_a_worker_outlives_its_server(farthing, serve, tiny):
    """Killed three times in the middle and started again: every update is made, once."""
    server = serve()
    worker = farthing.start(*worker_flags(server, tiny, "--steps", "400", "--server-timeout", "60s"))
    last = 0
    for target in (60, 150, 250):
        wait_for(lambda: server.version() >= target, f"version {target}", PATIENCE_S)
        last = server.version()
        server.kill()
        server.start()
        assert server.version() >= last
    out, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, err
    assert server.version() == 400
    assert json.loads(out.splitlines()[-1])["steps"] == 400


@pytest.mark.parametrize("consistency", ["async", "sync"])
def test_a_worker_outlives_what_its_server_forgot(farthing, serve, tiny, consistency):
    """Without a log a killed server goes back to its checkpoint: the worker goes back with it."""
    server = serve("--durability", "checkpoint", "--checkpoint-every", "100000", "--consistency", consistency,
                   "--lease", "4s")
    worker = farthing.start(*worker_flags(server, tiny, "--steps", "600", "--server-timeout", "60s"))
    wait_for(lambda: server.version() >= 60, "version 60", PATIENCE_S)
    server.kill()
    server.start()
    assert server.version() < 60
    out, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, err
    assert 0 < server.version() < 600


@pytest.mark.parametrize("saved", [True, False])
def test_a_worker_pushes_again_what_its_server_forgot(farthing, serve, tiny, saved):
    """A server without a log is killed between the gradients of a step: the worker that has pushed its own, and waits
    for the step, pushes again."""
    server = serve("--durability", "checkpoint", "--checkpoint-every", "1" if saved else "100000", "--consistency",
                   "sync", "--lease", "10m")
    client = Client(server.port)

    def wait_for_stored(count):  # gradients whose worker was answered that they wait for others
        stored = 'farthing_requests_total{path="/putGradient",code="201"}'
        wait_for(lambda: client.metrics().get(stored, 0) == count, f"gradient {count}", PATIENCE_S)
    tensors, version = client.pull()
    nothing = {name: 0 * tensor for name, tensor in tensors.items()}
    client.register("other")
    worker = farthing.start(*worker_flags(server, tiny, "--steps", "6", "--server-timeout", "60s", "--worker", "w"))
    wait_for_stored(1)
    if saved:
        version = client.push("other", 1, version, nothing, code=200)["version"]
        wait_for(lambda: client.metrics()["farthing_checkpoint_version"] == version, "the checkpoint", PATIENCE_S)
        wait_for_stored(2)
    server.kill()
    server.start()
    assert server.version() == version
    if saved:
        wait_for_stored(1)
        client.unregister("other")
    out, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["steps"] == 6
    assert server.version() == 5  # one of the worker's gradients was lost


def test_sync_waits_for_both_workers(farthing, serve, tiny):
    server = serve("--consistency", "sync:2", "--lease", "20s")
    workers = [farthing.start(*worker_flags(server, tiny, "--epochs", "2", "--share", f"{i}/2", "--worker", f"w{i}"))
               for i in (1, 2)]
    for worker in workers:
        out, err = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0, err
    assert server.version() == 8  # 2 epochs of 4 steps, each the mean of two gradients


def test_keys_and_a_pinned_certificate(farthing, tmp_path, tiny):
    secret = "0123456789abcdef0123456789abcdef"
    server = Server(tmp_path, tiny, "--tls", env={"FARTHING_KEYS": f"worker-key {secret} train"}).start()
    try:
        flags = worker_flags(server, tiny, "--epochs", "1", "--server-pin", server.fingerprint)
        key = {"FARTHING_ACCESS_KEY": "worker-key", "FARTHING_SECRET_KEY": secret}
        assert farthing(*flags, env=key).end["steps"] == 8
        runs = farthing.runs()
        refused = farthing(*flags, code=1)
        assert "FARTHING_ACCESS_KEY" in refused.err
        wrong = farthing(*flags, code=1, env={**key, "FARTHING_SECRET_KEY": secret[::-1]})
        assert "401" in wrong.err and secret not in wrong.err
        stranger = "sha256//" + "A" * 43 + "="
        pinned = farthing(*flags[:-1], stranger, "--server-timeout", "1s", code=1, env=key)
        assert "pinned" in pinned.err or "key" in pinned.err
        unpinned = farthing(*flags[:-2], code=1, env=key)
        assert "certificate" in unpinned.err and "--server-pin" in unpinned.err
        assert farthing.runs() == runs  # nothing is left of what never began
    finally:
        server.kill()


class Busy(http.server.BaseHTTPRequestHandler):
    """A server that asks everybody to come again in a minute."""

    def do_POST(self):
        self.server.asked.set()
        self.send_response(503)
        self.send_header("Retry-After", "60")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("server", ["away", "busy"])
def test_a_stop_while_waiting_for_the_server(farthing, tiny, server):
    """Within a moment, with exit code 75, and not as a time-out that did not pass."""
    busy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    busy.asked = threading.Event()
    if server == "busy":
        threading.Thread(target=busy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{busy.server_port if server == 'busy' else 9}"
    worker = farthing.start("train", "--strategy", "parameter-server", "--server", url, "--model", "linear", "--data", tiny)
    if server == "busy":
        assert busy.asked.wait(PATIENCE_S)
    else:
        assert "does not accept requests" in worker.stderr.readline()
    time.sleep(0.3)  # in the middle of a pause
    began = time.monotonic()
    result = stop(worker, signal.SIGTERM)
    assert result.code == 75 and time.monotonic() - began < 10, result.err
    assert "--server-timeout" not in result.err and "stopped before anything was trained" in result.out
    assert not farthing.runs()
    if server == "busy":
        busy.shutdown()
    busy.server_close()


def test_bad_input_says_what_to_do(farthing, serve, tiny):
    server = serve()
    runs = farthing.runs()
    other = farthing(*worker_flags(server, tiny, "--epochs", "1", "--model", "mnist-cnn"), code=1)
    assert "serves linear" in other.err
    assert farthing.runs() == runs  # nothing is left of what never began
    gone = farthing("train", "--strategy", "parameter-server", "--server", "http://127.0.0.1:9", "--server-timeout", "1s",
                    "--model", "linear", "--data", tiny, code=1)
    assert "127.0.0.1:9" in gone.err and "--server-timeout" in gone.err
    for flags in (["--server", "http://x"], ["--compress", "f16"], ["--strategy", "parameter-server", "--compress", "zip"],
                  ["--share", "3/2"], ["--strategy", "parameter-server", "--server", "http://x", "--workers", "2"],
                  ["--strategy", "parameter-server", "--server", "x"],
                  ["--strategy", "parameter-server", "--server", "https://x", "--server-pin", "nonsense"]):
        assert "farthing" in farthing("train", "--data", tiny, *flags, code=2).err


def test_a_server_and_workers_from_one_command(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny]
    end = farthing(*flags, "--epochs", "3", "--json").end
    assert end["steps"] == 24 and end["accuracy"] > 0.5
    run = farthing.runs()[0]
    assert (run / "last.safetensors").exists() and len(list((run / "workers").glob("*/run.json"))) == 2


def test_a_lost_worker_is_started_again_and_a_stop_is_carried_on(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--epochs", "150",
             "--name", "both"]
    process = farthing.start(*flags)
    run = farthing.folder / "runs" / "both"

    def children():
        path = f"/proc/{process.pid}/task/{process.pid}/children"
        return [int(pid) for pid in open(path).read().split()]

    wait_for(lambda: len(children()) == 2 and "step" in (run / "workers/1/events.jsonl").read_text()
             if (run / "workers/1/events.jsonl").exists() else False, "two workers", PATIENCE_S)
    lost = children()[0]
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: len(children()) == 2 and lost not in children(), "a worker in its place", PATIENCE_S)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75, err
    assert "started again" in err
    end = farthing(*flags, "--resume", "--json").end
    assert end["epochs"] >= 150


def test_lost_workers_cost_no_lease_and_no_epochs(farthing, tiny):
    """Their names are free at once, and what they do twice counts: the run ends after --epochs, and stops when asked to."""
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--name", "both",
             "--consistency", "bounded:2"]
    run = farthing.folder / "runs/both"
    process = farthing.start(*flags, "--epochs", "400")

    def children():
        return [int(pid) for pid in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]

    def steps(worker):
        path = run / f"workers/{worker}/events.jsonl"
        return path.read_text().count('"step"') if path.exists() else 0

    for lost in (1, 2):
        wait_for(lambda: len(children()) == 2 and steps(lost) > 1, "a worker's steps", PATIENCE_S)
        os.kill(children()[lost - 1], signal.SIGKILL)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75 and time.monotonic() - began < 5, err
    result = farthing(*flags, "--epochs", "400", "--resume", "--json")
    assert 400 <= result.end["epochs"] < 401 and result.end["reason"] == "epochs"
    assert "not been heard of" not in err + result.err


def test_a_stop_while_a_name_is_taken(farthing, serve, tiny):
    server = serve("--lease", "10m")
    Client(server.port).register("taken")
    worker = farthing.start(*worker_flags(server, tiny, "--worker", "taken", "--epochs", "1"))
    wait_for(lambda: Client(server.port).metrics().get('farthing_requests_total{path="/registerWorker",code="409"}'),
             "a refusal", PATIENCE_S)
    began = time.monotonic()
    assert stop(worker, signal.SIGTERM).code == 75 and time.monotonic() - began < 5


def test_what_waits_heeds_a_stop(farthing, serve, tiny):
    """One of two that a step takes: it waits for a version that does not come, and stops when it is asked to."""
    server = serve("--consistency", "sync:2")
    worker = farthing.start(*worker_flags(server, tiny, "--epochs", "2"))
    client = Client(server.port)
    wait_for(lambda: client.metrics().get('farthing_requests_total{path="/putGradient",code="201"}') == 1,
             "a gradient", PATIENCE_S)
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 75, err
    wait_for(lambda: client.metrics()["farthing_workers"] == 0, "its goodbye", PATIENCE_S)


def test_workers_end_with_the_process_that_started_them(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--epochs", "150",
             "--name", "both"]
    process = farthing.start(*flags)
    events = farthing.folder / "runs/both/workers/1/events.jsonl"
    wait_for(lambda: events.exists() and "step" in events.read_text(), "a worker's step", PATIENCE_S)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    end = farthing(*flags, "--resume", "--json").end
    assert end["epochs"] >= 150


def test_what_is_started_together_says_what_it_cannot(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--epochs", "1"]
    for wrong, message in [(["--consistency", "sync:3"], "more workers than --workers 2"),
                           (["--until", "accuracy=0.9"], "--until is not for"),
                           (["--precision", "bf16"], "--precision is not for"),
                           (["--accumulate", 2], "--accumulate is not for")]:
        assert message in farthing(*flags, *wrong, code=2).err
        assert message in farthing(*flags, *wrong, "--dry-run", code=2).err
    assert "--keep has no effect" in farthing(*flags, "--keep", "3").err


def test_a_device_that_there_is_not_is_refused_before_workers_start(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--epochs", "1"]
    err = farthing(*flags, "--device", "abacus", code=1).err
    assert "there is no device 'abacus'" in err and "worker" not in err
    assert not farthing.runs()


def test_what_a_worker_failed_of_is_said_once(farthing, tiny):
    flags = ["train", "--strategy", "parameter-server", "--workers", "2", *MODEL, "--data", tiny, "--epochs", "1"]
    plugin = farthing.folder / "farthing_abacus.so"
    plugin.write_text("not a library")
    err = farthing(*flags, "--device", "abacus", code=1, env={"FARTHING_PLUGINS": str(farthing.folder)}).err
    assert "failed: back end 'abacus' cannot be loaded" in err
