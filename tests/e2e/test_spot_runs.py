"""Runs that live in a store: whatever happens to a machine, the same command on another continues, and ends with the
same weights, bit for bit. A "machine" is a folder of its own with nothing in it."""
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import FARTHING, PATIENCE_S, Bucket, Program, Result, environment, record, tensors, wait_for
from fault_proxy import FaultProxy, Rule

STEPS = 240


class Folder:
    """A store that is a folder, seen from outside."""

    def __init__(self, path):
        self.path, self.url, self.environment = path, str(path), {}

    def is_locked_by(self, pid):
        """Whether the process holds a lock of a folder, as it does for a moment with each write."""
        inodes = {path.stat().st_ino for path in [self.path, *self.path.rglob("*")] if path.is_dir()}
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
        return any(lock[1] == "FLOCK" and int(lock[4]) == pid and int(lock[5].split(":")[-1]) in inodes for lock in locks)

    def keys(self, prefix=""):
        found = [str(file.relative_to(self.path)) for file in self.path.rglob("*") if file.is_file()]
        return sorted(key for key in found if key.startswith(prefix) and "/.tmp-" not in "/" + key)

    def read(self, key):
        return (self.path / key).read_bytes()

    def write(self, key, content):
        (self.path / key).write_bytes(content)


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        return Folder(tmp_path / "store")
    return Bucket(request.getfixturevalue("s3_server"))


@pytest.fixture
def folder_store(tmp_path):
    return Folder(tmp_path / "store")


def manifests(store):
    return store.keys("checkpoints/") and [key for key in store.keys("checkpoints/") if key.endswith(".json")]


class Machine(Program):
    def __init__(self, folder, store, data):
        folder.mkdir()
        super().__init__(folder)
        self.store = store
        self.arguments = ["train", "--data", data, "--batch", 16, "--steps", STEPS, "--checkpoint-every", 10,
                          "--validate-every", 5, "--threads", 2, "--seed", 3, "--lease", "2s", "--watch", "none", "--checkpoints", store.url]

    def begin(self, *more, command="train"):
        line = [FARTHING, command, *map(str, self.arguments[1:]), *map(str, more)]
        self.process = subprocess.Popen(line, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment(**self.store.environment))
        return self

    def train(self, *more, code=0):
        return self(*self.arguments, *more, code=code, env=self.store.environment)

    def end(self, number=None):
        if number:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return Result(self.process.returncode, out, err)

    def freeze(self):
        """Stops the process while it holds no lock of a folder: others would wait for that until it wakes. (On a network
        file system the server takes the locks of a machine that sleeps; here nobody does.)"""
        def frozen():
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
            if not (isinstance(self.store, Folder) and self.store.is_locked_by(self.process.pid)):
                return True
            self.process.send_signal(signal.SIGCONT)
            return False
        wait_for(frozen, "a moment without locks")

    def weights(self):
        return tensors(self.only_run() / "last.safetensors")


@pytest.fixture
def machines(tmp_path, tiny):
    made = []

    def make(store):
        made.append(Machine(tmp_path / f"machine{len(made)}", store, tiny))
        return made[-1]

    yield make
    for machine in made:
        process = getattr(machine, "process", None)
        if process and process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("uninterrupted")
    machine = Machine(folder / "machine", Folder(folder / "store"), tiny)
    machine.train()
    return machine.weights()


def stored_weights(store, folder, name="last.safetensors"):
    file = folder / "downloaded.safetensors"
    file.write_bytes(store.read(name))
    return tensors(file)


@pytest.mark.parametrize("how", ["terminate", "kill", "notice"])
def test_the_same_command_elsewhere(store, machines, uninterrupted, how, tmp_path):
    first, second = machines(store), machines(store)
    more = ["--watch", "file:preempt.txt"] if how == "notice" else []
    first.begin(*more)
    wait_for(lambda: len(manifests(store)) >= 2, "checkpoints")
    if how == "notice":
        (first.folder / "preempt.txt").write_text("20\n")
    result = first.end({"terminate": signal.SIGTERM, "kill": signal.SIGKILL}.get(how))
    assert result.code == (-signal.SIGKILL if how == "kill" else 75), result.err
    assert first.runs() and not (first.only_run() / "checkpoints").exists()
    if how != "kill":
        assert json.loads(store.read("lease.json"))["owner"] == ""
        assert "on any machine" in result.out
    if how == "notice":
        (notice,) = [event for event in record(first.only_run()) if event["event"] == "notice"]
        assert notice["fitted"] and notice["steps_lost"] == 0 and notice["saved_step"] == notice["step"] > 0
        assert notice["source"] == "file" and 0 < notice["seconds_used"] < notice["seconds_given"] <= 20

    result = second.train()
    assert "continuing after step" in result.out
    assert second.weights() == uninterrupted == stored_weights(store, tmp_path)
    assert stored_weights(store, tmp_path, "best.safetensors") == tensors(second.only_run() / "best.safetensors")
    assert not store.keys("best/")  # those were for the way
    events = record(second.only_run())
    assert [event["event"] for event in events if event["event"] in ("start", "resume", "end")] == [
        "start", "resume", "end"]
    assert [key for key in store.keys("events/")] == ["events/000001.jsonl", "events/000002.jsonl"]
    parts = b"".join(store.read(key) for key in store.keys("events/"))
    assert parts == (second.only_run() / "events.jsonl").read_bytes()

    third = machines(store)
    assert "already finished" in third.train().out
    assert third.weights() == uninterrupted
    url = store.url if "://" in store.url else f"file://{store.url}"
    assert json.loads(third("report", url, "--json", env=store.environment).out)["finished"]


def test_the_best_model_leaves_with_a_notice(folder_store, machines, tmp_path):
    first, second, third = (machines(folder_store) for _ in range(3))
    first.begin("--steps", 1000000, "--checkpoint-every", 1000000, "--watch", "file:preempt.txt")
    wait_for(lambda: list(first.folder.glob("runs/*/best.safetensors")), "a best model")
    (first.folder / "preempt.txt").write_text("20\n")
    result = first.end()
    assert result.code == 75, result.err
    (best,) = folder_store.keys("best/")
    assert stored_weights(folder_store, tmp_path, best) == tensors(first.only_run() / "best.safetensors")

    (folder_store.path / best).rename(folder_store.path / "best.safetensors")  # where older versions have it
    second.begin("--steps", 1000000, "--checkpoint-every", 1000000)
    wait_for(lambda: second.runs() and any(event["event"] == "step" for event in record(second.only_run())[-1:]), "steps")
    assert second.end(signal.SIGTERM).code == 75
    assert not [event for event in record(second.only_run()) if event["event"] == "warning"]

    for key in ["best.safetensors", *folder_store.keys("best/")]:
        (folder_store.path / key).unlink()  # as if there had been no time for it
    third.begin("--steps", 1000000)
    wait_for(lambda: third.runs() and any(event["event"] == "warning" for event in record(third.only_run())), "a warning")
    assert third.end(signal.SIGTERM).code == 75
    (warning,) = [event for event in record(third.only_run()) if event["event"] == "warning"]
    assert "best model" in warning["message"] and "went with its machine" in warning["message"]


def test_over_and_over_with_kills_at_random_moments(folder_store, machines, uninterrupted):
    for number in range(6):
        machine = machines(folder_store).begin()
        time.sleep(1.0 + 0.25 * number)
        if machine.end(signal.SIGKILL if number % 2 else signal.SIGTERM).code == 0:
            break
    last = machines(folder_store)
    last.train()
    assert last.weights() == uninterrupted


def test_another_configuration_is_refused(folder_store, machines):
    machines(folder_store).train("--steps", 3)
    result = machines(folder_store).train("--steps", 3, "--momentum", 0.5, code=1)
    assert "--momentum is 0.9 there and 0.5 here" in result.err


def test_torn_objects_are_skipped_aloud(store, machines, uninterrupted):
    first, second = machines(store), machines(store)
    first.begin()
    wait_for(lambda: len(manifests(store)) >= 3, "checkpoints")
    first.end(signal.SIGKILL)
    newest, before = manifests(store)[-1], manifests(store)[-2]
    tensors_key = newest.replace(".json", ".safetensors")
    store.write(tensors_key, store.read(tensors_key)[:-100])
    store.write(before, b"{")
    result = second.train()
    assert result.err.count("skipping the checkpoint") == 2
    assert second.weights() == uninterrupted


def state_of(store):
    return {key: store.read(key) for key in store.keys()}


def test_an_owner_that_slept_writes_nothing_when_it_wakes(store, machines, uninterrupted):
    first, second = machines(store), machines(store)
    first.begin()
    wait_for(lambda: len(manifests(store)) >= 2, "checkpoints")
    first.freeze()
    second.begin()
    result = second.end()
    assert result.code == 0, result.err
    assert "taking the run over" in result.err
    before = state_of(store)
    first.process.send_signal(signal.SIGCONT)
    woken = first.end()
    assert woken.code == 75, woken.err
    assert "has taken this run over" in woken.err
    assert state_of(store) == before
    assert second.weights() == uninterrupted


def test_a_sleeper_never_wins_over_its_successor(folder_store, machines, uninterrupted):
    """It wakes while the other trains: the other goes on undisturbed."""
    first, second = machines(folder_store), machines(folder_store)
    first.begin()
    wait_for(lambda: len(manifests(folder_store)) >= 2, "checkpoints")
    first.freeze()
    second.begin()
    wait_for(lambda: any("-f000002" in key for key in manifests(folder_store)), "the other's checkpoint")
    first.process.send_signal(signal.SIGCONT)
    assert first.end().code == 75
    assert second.end().code == 0
    assert second.weights() == uninterrupted


@pytest.mark.parametrize("what", ["best", "last.safetensors", "run.json"])
def test_what_a_dead_machine_sent_arrives_late(bucket, s3_server, machines, uninterrupted, tmp_path, what):
    """A write that the network has when the machine dies takes effect when another has the run: it changes nothing."""
    with FaultProxy(s3_server.port) as proxy:
        owners = [machines(bucket) for _ in range(3)]
        if what == "run.json":  # as it is rewritten when a run is continued
            owners[0].begin()
            wait_for(lambda: manifests(bucket), "a checkpoint")
            assert owners[0].end(signal.SIGTERM).code == 75
        proxy.rules = [Rule("late", method="PUT", target=f"/{what}")]
        owners[1].store = SimpleNamespace(environment={**bucket.environment, "AWS_ENDPOINT_URL": proxy.endpoint})
        owners[1].begin()
        wait_for(lambda: proxy.count("late"), f"a put of {what}")
        owners[1].end(signal.SIGKILL)
        result = owners[2].train()
        assert result.code == 0 and owners[2].weights() == uninterrupted

        before = {key: bucket.boto.head_object(Bucket=bucket.name, Key=key)["LastModified"] for key in bucket.keys()}
        time.sleep(1.1)  # times are in seconds
        proxy.release()
        late = [request for request in proxy.requests if request.fault == "late"]
        wait_for(lambda: all(request.code for request in late), "its arrival")
        after = {key: bucket.boto.head_object(Bucket=bucket.name, Key=key)["LastModified"] for key in bucket.keys()}
        assert {key: after.get(key) for key in before} == before
        assert what == "best" or late[0].code == 412
        owner = 3 if what == "run.json" else 2
        assert json.loads(bucket.read("run.json"))["owner"] == owner
        for name in ("best.safetensors", "last.safetensors"):
            assert stored_weights(bucket, tmp_path, name) == tensors(owners[2].only_run() / name)


def test_standby_takes_over(folder_store, machines, uninterrupted):
    standby, first = machines(folder_store), machines(folder_store)
    standby.begin(command="standby")
    first.begin()
    wait_for(lambda: len(manifests(folder_store)) >= 2, "checkpoints")
    time.sleep(0.3)
    assert standby.process.poll() is None
    first.end(signal.SIGKILL)
    result = standby.end()
    assert result.code == 0, result.err
    assert "standing by" in result.err or "waiting until it finishes the run" in result.err
    assert standby.weights() == uninterrupted


def test_standby_ends_with_the_run(folder_store, machines):
    patient = ["--lease", "20s"]  # also a machine too busy to renew it for a while keeps the run
    first, standby = machines(folder_store), machines(folder_store)
    first.begin(*patient)
    wait_for(lambda: manifests(folder_store), "a checkpoint")
    standby.begin(*patient, command="standby")
    assert first.end().code == 0
    result = standby.end()
    assert result.code == 0 and "already finished" in result.out
    assert "--checkpoints" in standby("standby", code=2).err


def test_a_stop_ends_the_waiting(folder_store, machines):
    first, second = machines(folder_store), machines(folder_store)
    first.begin("--steps", 1000000)
    wait_for(lambda: manifests(folder_store), "a checkpoint")
    second.begin("--steps", 1000000)
    time.sleep(0.5)
    assert second.end(signal.SIGTERM).code == 75
    assert first.end(signal.SIGTERM).code == 75


def test_without_a_lease(folder_store, machines, uninterrupted):
    first, second = machines(folder_store), machines(folder_store)
    first.begin("--lease", "off")
    wait_for(lambda: len(manifests(folder_store)) >= 2, "checkpoints")
    first.end(signal.SIGKILL)
    result = second.train("--lease", "off")
    assert "nothing keeps a second machine" in result.err
    assert second.weights() == uninterrupted
    assert "lease.json" not in folder_store.keys()


@pytest.fixture
def silent_server():
    """Takes connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0))
    held, ending = [], threading.Event()

    def accept():
        listener.settimeout(0.1)
        while not ending.is_set():
            try:
                held.append(listener.accept()[0])
            except OSError:
                pass

    thread = threading.Thread(target=accept)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", held
    ending.set()
    thread.join()
    for connection in [listener, *held]:
        connection.close()


def test_a_stop_while_data_is_being_fetched(folder_store, machines, silent_server):
    address, held = silent_server
    machine = machines(folder_store)
    machine.begin("--data", f"{address}/images.tar")
    wait_for(lambda: held, "the download")
    result = machine.end(signal.SIGTERM)
    assert result.code == 75, result.err
    assert "before anything was trained" in result.out
    assert "interrupt" not in result.err and "trying again" not in result.err  # it did not wait for the server to fail
    assert not machine.runs() and json.loads(folder_store.read("lease.json"))["owner"] == ""


def test_a_notice_while_data_is_being_fetched(folder_store, machines, silent_server):
    """Whether or not what waits for the server heeds the stop, the process ends."""
    address, held = silent_server
    machine = machines(folder_store)
    machine.begin("--data", f"{address}/images.tar", "--watch", "file:preempt.txt")
    wait_for(lambda: held, "the download")
    (machine.folder / "preempt.txt").write_text("10\n")
    asked = time.monotonic()
    result = machine.end()
    assert result.code == 75, result.err
    assert time.monotonic() - asked < 9
    assert json.loads(folder_store.read("lease.json"))["owner"] == ""


def test_a_step_that_ends_too_late_is_abandoned(folder_store, machines):
    """Steps of many seconds and a short notice: what was saved before is what is continued."""
    machine = machines(folder_store)
    machine.begin("--model", "resnet18", "--data", "shapes", "--batch", 64, "--accumulate", 40, "--checkpoint-every", 1,
                  "--watch", "file:preempt.txt")
    # The first step ends whenever it does; a notice before that has nothing to save.
    wait_for(lambda: folder_store.keys("events/"), "the start", PATIENCE_S)
    time.sleep(1)
    (machine.folder / "preempt.txt").write_text("3\n")
    asked = time.monotonic()
    result = machine.end()
    assert result.code == 75, result.err
    assert time.monotonic() - asked < PATIENCE_S / 8
    # On a machine too busy to write even that in three seconds there is none.
    for notice in [event for event in record(machine.only_run()) if event["event"] == "notice"]:
        assert notice["step"] - notice["saved_step"] == notice["steps_lost"]


def test_the_interval_is_found(folder_store, machines):
    machine = machines(folder_store)
    result = machine.train("--checkpoint-every", "auto", "--steps", 50, "--json")
    assert result.end["steps"] == 50
    (interval,) = [event for event in result.events if event["event"] == "interval"]
    assert interval["seconds"] > 0 and interval["between_interruptions_s"] >= 3600
    assert "a checkpoint every" in result.err


@pytest.mark.parametrize("flags, expected", [
    (["--lease", "never"], "10s"),
    (["--watch", "moon"], "moon"),
    (["--checkpoint-overhead", "2"], "share"),
    (["--resume", "mine"], "leave out --resume"),
    (["--s3-style", "odd"], "s3-style"),
    (["--checkpoints", "http://localhost:9000/bucket/run"], "goes into --s3-endpoint"),
])
def test_wrong_usage(folder_store, machines, flags, expected):
    assert expected in machines(folder_store).train(*flags, code=2).err


def test_an_empty_store_is_not_no_store(farthing, tiny):
    """`--checkpoints "$URL"` with URL unset must not train where nothing survives the machine."""
    assert "--checkpoints is empty" in farthing("train", "--data", tiny, "--checkpoints", "", code=2).err


def test_a_server_named_by_flag_is_reached_by_all_who_read_the_run(bucket, machines, farthing):
    machine = machines(bucket)
    there = ["--s3-endpoint", bucket.environment["AWS_ENDPOINT_URL"]]
    elsewhere = {**bucket.environment, "AWS_ENDPOINT_URL": "http://localhost:1"}
    machine.store = SimpleNamespace(environment=elsewhere)
    machine.train("--steps", 20, *there)
    for command in (["report"], ["doctor"], ["report", "--json", bucket.url]):
        assert bucket.url in farthing(*command, bucket.url, *there, env=elsewhere).out
    result = farthing("evaluate", bucket.url, *there, env=elsewhere)
    assert f"weights {bucket.url}/best.safetensors" in result.out


# ---- stores that cannot be written ----

def check_refused(machine, reason):
    """The command ends at once and says why, as `farthing doctor` does."""
    began = time.monotonic()
    result = machine.train(code=1)
    assert time.monotonic() - began < 15
    assert reason in result.err and not result.out
    assert len(result.err.splitlines()) == 1
    doctor = machine("doctor", machine.store.url, code=None, env=machine.store.environment)
    assert reason in doctor.out + doctor.err


def test_a_store_that_may_not_be_written(machines, tmp_path):
    if not os.path.ismount("/sys"):
        pytest.skip("/sys is not mounted: no folder here that nobody may write to")
    target = Path("/sys/farthing-test")  # where not even root makes folders
    check_refused(machines(Folder(target)), f"create folder {target}")


def test_a_store_on_a_full_disk(machines, small_disk):
    disk = small_disk(size_kib=64)
    (disk / "run").mkdir()
    with pytest.raises(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    check_refused(machines(Folder(disk / "run")), "disk full")


def test_a_bucket_that_refuses_writes(s3_server, machines):
    with FaultProxy(s3_server.port) as proxy:
        bucket = Bucket(s3_server)
        bucket.environment = {**bucket.environment, "AWS_ENDPOINT_URL": proxy.endpoint}
        proxy.rules = [Rule("status", code=403, method="PUT")]
        check_refused(machines(bucket), "access denied")


# ---- a store that does not answer at a stop ----

@pytest.fixture
def hung(s3_server):
    """A bucket behind a proxy, and a function after which it takes requests and never answers."""
    with FaultProxy(s3_server.port) as proxy:
        bucket = Bucket(s3_server)
        bucket.environment = {**bucket.environment, "AWS_ENDPOINT_URL": proxy.endpoint, "FARTHING_GRACE_S": "2"}
        bucket.hang = lambda: setattr(proxy, "rules", [Rule("hold")])
        bucket.recover = lambda: setattr(proxy, "rules", [])
        bucket.holds = lambda: any(each.fault == "hold" and "lease" not in each.target for each in proxy.requests)
        yield bucket


def stop_while_hung(machine, store, number):
    """Trains until there is a checkpoint, then has the store hang, then the process stopped."""
    machine.begin()
    wait_for(lambda: manifests(store), "a checkpoint")
    store.hang()
    wait_for(store.holds, "a write that hangs")
    run = machine.only_run()
    seen = max([event["step"] for event in record(run) if event["event"] == "checkpoint"], default=0)
    began = time.monotonic()
    result = machine.end(number)
    assert time.monotonic() - began < 10, result.err
    assert result.code == 75, result.err
    (copy,) = (run / "checkpoints").glob("*.json")
    step = json.loads(copy.read_text())["step"]
    assert step == max(event["step"] for event in record(run) if event["event"] == "interrupted") > seen
    said = result.out + result.err
    assert f"step {step} is saved in runs/{run.name}/checkpoints" in said and " train --data " in said
    return step


def test_a_stop_while_the_store_does_not_answer(hung, machines, uninterrupted):
    """It ends in time, and nothing is lost: the copy here goes to the store at the next start, which ends as if nothing
    had happened."""
    machine = machines(hung)
    step = stop_while_hung(machine, hung, signal.SIGTERM)
    hung.recover()
    result = machine.train()
    assert f"step {step} was saved on this machine only" in result.err and f"continuing after step {step}" in result.out
    assert not list((machine.only_run() / "checkpoints").glob("*"))
    assert machine.weights() == uninterrupted
    events = record(machine.only_run())
    (resume,) = [event for event in events if event["event"] == "resume"]
    assert resume["step"] == step
    assert b"".join(hung.read(key) for key in hung.keys("events/")) == (machine.only_run() / "events.jsonl").read_bytes()


def test_a_copy_that_the_run_has_gone_on_without(hung, machines, uninterrupted):
    """Another machine carried the run on meanwhile: its work counts, and the copy here is removed."""
    first, second = machines(hung), machines(hung)
    step = stop_while_hung(first, hung, signal.SIGINT)
    hung.recover()
    second.begin()
    run = lambda: second.runs() and record(second.only_run())  # noqa: E731
    wait_for(lambda: any(e["event"] == "checkpoint" and e["step"] > step for e in (run() or [])[-50:]), "more checkpoints")
    assert second.end(signal.SIGTERM).code == 75
    result = first.train()
    assert f"removed the copy of step {step} on this machine" in result.err
    assert not list((first.only_run() / "checkpoints").glob("*"))
    assert first.weights() == uninterrupted


@pytest.mark.parametrize("trouble", ["refuses", "hangs"])
def test_a_store_that_fails_when_the_run_has_reached_its_end(s3_server, machines, tmp_path, trouble, uninterrupted):
    """Credentials that expired long ago, or a store that is away: what was trained since is not lost with the process."""
    with FaultProxy(s3_server.port) as proxy:
        bucket = Bucket(s3_server)
        bucket.environment = {**bucket.environment, "AWS_ENDPOINT_URL": proxy.endpoint}
        machine = machines(bucket)
        proxy.rules = [Rule("status", code=403, target="checkpoints/.*f000001", method="PUT") if trouble == "refuses" else
                       Rule("hold", target="checkpoints/.*f000001", method="PUT")]
        machine.begin()
        copies = lambda: machine.runs() and list(machine.only_run().glob("checkpoints/*.json"))  # noqa: E731
        wait_for(copies, "a copy on this machine", PATIENCE_S)
        if trouble == "hangs":
            wait_for(lambda: "is saved in" in (machine.only_run() / "events.jsonl").read_text(), "word of the copy", PATIENCE_S)
            machine.process.kill()
        result = machine.end()
        assert result.code == (1 if trouble == "refuses" else -signal.SIGKILL), result.err
        (copy,) = copies()
        step = json.loads(copy.read_text())["step"]
        assert f"step {step} is saved in runs/{machine.only_run().name}/checkpoints" in result.err
        proxy.rules = []
        result = machine.train()
        assert f"step {step} was saved on this machine only" in result.err
        assert not copies()
        assert machine.weights() == stored_weights(bucket, tmp_path) == uninterrupted


def test_models_of_an_earlier_end_are_replaced(folder_store, machines, tmp_path):
    """Another machine carried a finished run on: what this one names as its model is of the run's end, not of its own."""
    first, second = machines(folder_store), machines(folder_store)
    first.train("--steps", 20)
    before = first.weights()
    second.train("--steps", 30)
    first.train("--steps", 20)
    assert first.weights() == second.weights() == stored_weights(folder_store, tmp_path) != before


def test_a_wrong_grace_is_reported(farthing, tiny):
    result = farthing("train", "--data", tiny, "--steps", 1, env={"FARTHING_GRACE_S": "soon"})
    assert "FARTHING_GRACE_S" in result.err and "soon" in result.err and "30 s" in result.err
