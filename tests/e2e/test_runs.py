"""Which run a command begins, extends, ends, lists and removes."""
import json
import random
import re
import signal
import struct
import zlib

import pytest
from conftest import SMALL, idx, png, record, stop, tensors, wait_for


def undecodable_png(side):
    """A good header, so that only decoding finds out."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", b"not zlib") + chunk(b"IEND", b""))


@pytest.fixture
def undecodable(tmp_path):
    """A set that is found wanting at the first batch, when the record of the run is made already."""
    for name in ("a", "b"):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for i in range(24):
            (folder / f"{i}.png").write_bytes(undecodable_png(8))
    return tmp_path / "pictures"


# ---- a run that never took a step does not exist ----

COMMAND = ["train", *SMALL, "--batch", 8, "--steps", 4, "--name", "x", "--threads", 1]


@pytest.mark.parametrize("flags", [[], ["--resume"]])
def test_a_mistake_does_not_use_up_the_name(farthing, tiny, undecodable, flags):
    assert "be read, more than" in farthing(*COMMAND, *flags, "--data", undecodable, code=1).err
    assert not (farthing.folder / "runs/x").exists()
    assert "there are no runs" in farthing("report", code=1).err
    farthing(*COMMAND, *flags, "--data", tiny)
    assert [event["event"] for event in record(farthing.folder / "runs/x")].count("start") == 1


def test_a_mistake_does_not_use_up_the_store(farthing, tiny, undecodable):
    store = farthing.folder / "store"
    stored = [*COMMAND, "--checkpoints", store, "--watch", "none"]
    farthing(*stored, "--data", undecodable, code=1)
    assert not (farthing.folder / "runs/x").exists()
    assert {path.name for path in store.rglob("*") if path.is_file()} <= {"lease.json"}
    assert "no run" in farthing("report", store, code=1).err
    farthing(*stored, "--data", tiny)
    assert (store / "last.safetensors").exists()


def forge_unbegun(folder, id):
    """What a kill before the first step leaves, or an older version's failure."""
    folder.mkdir(parents=True)
    configuration = {"model": "linear", "data": "digits", "optimizer": "sgd"}
    (folder / "run.json").write_text(json.dumps(
        {"id": id, "created": "2026-01-01T00:00:00Z", "created_s": 4e9, "identity": "0" * 16,
         "configuration": configuration}))
    return "".join(json.dumps({"event": event, "time": 4e9}) + "\n" for event in ("start", "error"))


def test_what_a_kill_leaves_is_in_nobodys_way(farthing, tiny):
    arguments = ["train", *SMALL, "--data", tiny, "--steps", 2]
    left = farthing.folder / "runs/x"
    (left / "events.jsonl").write_text(forge_unbegun(left, "x"))
    farthing(*arguments, "--name", "before")
    assert farthing("report").out.startswith("run before")  # although x is newer
    assert "never took a step" in farthing("report", "x", code=1).err
    assert "never took a step" in farthing(*arguments, "--resume", "x", code=1).err
    result = farthing(*arguments, "--optimizer", "adamw", "--resume", "--name", "x")
    assert "there is no run x to resume" in result.err
    events = record(left)
    assert events[0]["event"] == "start" and "id" in events[0] and events[-1]["event"] == "end"


def test_what_a_kill_leaves_in_a_store_is_replaced(farthing, tiny):
    store = farthing.folder / "store"
    (store / "events").mkdir(parents=True)
    events = forge_unbegun(store / "forged", "old")
    (store / "forged/run.json").rename(store / "run.json")
    (store / "events/000001.jsonl").write_text(events)
    arguments = ["train", *SMALL, "--data", tiny, "--steps", 2, "--checkpoints", store, "--watch", "none"]
    farthing(*arguments, "--name", "new")
    assert json.loads((store / "run.json").read_text())["id"] == "new"
    assert not (store / "events/000001.jsonl").exists()
    assert farthing("report", store, "--json").events[0]["resumes"] == 0


def test_killed_in_the_first_step(farthing, tiny):
    process = farthing.start("train", "--model", "resnet18", "--data", "shapes", "--batch", 512, "--name", "x",
                             "--threads", 1)
    events = farthing.folder / "runs/x/events.jsonl"
    wait_for(lambda: events.exists() and '"start"' in events.read_text(), "the start")
    process.kill()
    process.communicate()
    assert '"step"' not in [line.split(",")[0] for line in events.read_text().splitlines()]
    farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--name", "x")


def test_a_stop_before_the_first_step_leaves_nothing(farthing, tiny):
    process = farthing.start("train", "--data", tiny, "--epochs", 1000, "--name", "x")
    wait_for(lambda: (farthing.folder / "runs/x/events.jsonl").exists(), "the record")
    result = stop(process)
    assert result.code == 75
    begun = (farthing.folder / "runs/x").exists()  # where the step was quicker than the signal
    assert ("stopped and saved" if begun else "stopped before anything was trained") in result.out
    assert begun or not result.out.rstrip().endswith("--resume")


def test_a_run_that_is_being_begun_is_somebodys(farthing, tiny):
    arguments = ["train", *SMALL, "--data", tiny, "--epochs", 1000000, "--name", "x"]
    process = farthing.start(*arguments)
    wait_for(lambda: (farthing.folder / "runs/x/run.json").exists(), "the record")
    assert f"process {process.pid}" in farthing(*arguments, code=1).err
    assert stop(process, signal.SIGINT).code == 75


def test_local_workers_that_cannot_begin_leave_nothing(farthing, tiny, undecodable):
    arguments = [*COMMAND[:-2], "--strategy", "parameter-server", "--workers", 2, "--data"]
    farthing(*arguments, undecodable, code=1)
    assert not (farthing.folder / "runs/x").exists()
    farthing(*arguments, tiny)
    assert "ended: --steps 4 reached" in farthing(*COMMAND[:-4], "--strategy", "parameter-server", "--data", tiny).out


# ---- runs in a store go on for longer ----

@pytest.fixture
def stored(farthing, tiny):
    """A finished run of 20 steps in a store, and how to train on from a machine that has nothing of it."""
    store = farthing.folder / "store"
    elsewhere = iter(range(100))

    def train(*flags, command="train", code=0):
        return farthing(command, *SMALL, "--data", tiny, "--batch", 16, "--threads", 1, "--watch", "none", "--lease",
                        "1s", "--checkpoints", store, "--runs", f"machine{next(elsewhere)}", *flags, code=code)

    train("--steps", 20, "--name", "x")
    train.store = store
    train.steps = lambda: farthing("report", store, "--json").events[0]["steps"]
    return train


@pytest.mark.parametrize("limit, expected", [(["--steps", 30], 30), (["--epochs", 3], 48),
                                             (["--steps", 30, "--for", "10m"], 30),
                                             (["--steps", 30, "--until", "loss=1e-9"], 30)])
def test_a_stored_run_is_extended(stored, limit, expected):
    result = stored(*limit)
    assert "it continues" in result.err
    assert stored.steps() == expected
    run = json.loads((stored.store / "run.json").read_text())
    assert run["id"] == "x" and run["configuration"]["steps"] == (expected if expected == 30 else 0)
    assert "already finished" in stored(*limit).out


def test_an_extended_run_is_the_same_as_a_long_one(stored, farthing, tiny):
    stored("--steps", 30)
    farthing("train", *SMALL, "--data", tiny, "--batch", 16, "--threads", 1, "--steps", 30, "--name", "whole")
    assert tensors(stored.store / "last.safetensors") == tensors(farthing.folder / "runs/whole/last.safetensors")


def test_a_stored_run_keeps_its_limit_where_none_is_given(stored):
    assert "already finished" in stored().out
    assert "already finished" in stored("--steps", 10).out  # which it has had
    assert stored.steps() == 20


def test_a_stored_run_is_not_shortened_nor_changed(stored):
    """A machine that was started with the old command must not end a run that was extended meanwhile."""
    run = json.loads((stored.store / "run.json").read_text())
    run["configuration"]["steps"] = 40
    (stored.store / "run.json").write_text(json.dumps(run))
    for events in (stored.store / "events").iterdir():  # unfinished
        events.write_text("".join(line for line in events.read_text().splitlines(True) if '"end"' not in line))
    assert "--steps 40" in stored("--steps", 30, code=1).err
    assert "--lr is 0.01 there and 0.02 here" in stored("--steps", 50, "--lr", 0.02, code=1).err
    stored("--steps", 30, command="standby")  # the run says how long
    assert stored.steps() == 40


# ---- why it ended, and which model is the best ----

@pytest.mark.parametrize("limit, reason, words", [
    (["--steps", 3], "steps", "--steps 3 reached"), (["--epochs", 1], "epochs", "--epochs 1 reached"),
    (["--until", "accuracy=0.01"], "until", "--until accuracy=0.01 reached"),
    (["--for", "300ms"], "for", "--for 0.3s reached"),
    (["--epochs", 1000000, "--price", 36000, "--budget", "5usd"], "budget", "--budget 5usd spent")])
def test_the_end_says_why(farthing, tiny, limit, reason, words):
    result = farthing("train", *SMALL, "--data", tiny, "--name", "x", *limit)
    assert f"; ended: {words}\n" in result.out
    assert record(farthing.folder / "runs/x")[-1]["reason"] == reason
    assert f" {words}\n" in farthing("report").out.replace("ended  ", "")
    assert words in farthing("compare", "x", "x", "--columns", 120).out
    assert farthing("report", "--json").events[0]["reason"] == reason


def test_a_stop_is_a_reason_too(farthing, tiny):
    process = farthing.start("train", *SMALL, "--data", tiny, "--epochs", 100000, "--name", "x")
    wait_for(lambda: '"step"' in ((farthing.folder / "runs/x/events.jsonl").read_text()
                                  if (farthing.folder / "runs/x/events.jsonl").exists() else ""), "a step")
    assert "running, at step" in farthing("report", "x").out
    assert stop(process).code == 75
    assert "stopped: " in farthing("report", "x").out


def test_resume_with_nothing_to_resume_says_so(farthing, tiny):
    result = farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--resume")
    assert f"nothing to resume for this configuration in runs; starting a new run, {farthing.only_run().name}" in result.err
    assert "nothing to resume" not in farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--resume").err


def events_of(farthing, id):
    return [event["event"] for event in record(farthing.folder / "runs" / id)]


def leave_unfinished(farthing, id, *flags):
    """Stops a run by its end being taken from the record, as a kill right before it does."""
    farthing("train", *SMALL, "--steps", 2, "--name", id, *flags)
    path = farthing.folder / "runs" / id / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == "end"
    path.write_text("".join(lines[:-1]))


def test_resume_alone_continues_the_newest_unfinished_run(farthing, tiny):
    for seed, id in enumerate(("old", "new")):
        leave_unfinished(farthing, id, "--data", tiny, "--seed", seed)
    farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--seed", 5, "--name", "finished")
    facts = json.loads(farthing("train", "--resume", "--dry-run", "--json").out)
    assert (facts["action"], facts["id"]) == ("resume", "new")
    first = farthing("train", "--resume", "--threads", 1)
    assert "resuming new, the newest unfinished run in runs (of new, old; --resume ID" in first.err
    assert events_of(farthing, "new")[-1] == "end" and "resume" in events_of(farthing, "new")
    assert "resume" not in events_of(farthing, "old")
    assert "resuming old, the newest unfinished run in runs\n" in farthing("train", "--resume").err
    last = farthing("train", "--resume")
    assert "no run in runs is unfinished; the newest is runs/finished" in last.err and "already finished" in last.out
    assert len(farthing.runs()) == 3


def test_resume_alone_passes_over_a_run_that_is_being_trained(farthing, tiny):
    leave_unfinished(farthing, "left", "--data", tiny)
    process = farthing.start("train", *SMALL, "--data", tiny, "--epochs", 1000000, "--name", "busy")
    wait_for(lambda: (farthing.folder / "runs/busy/run.json").exists(), "the record")
    assert "resuming left," in farthing("train", "--resume").err
    assert f"process {process.pid}" in farthing("train", "--resume", code=1).err  # not a run of its own beside it
    assert stop(process).code == 75


def test_resume_with_options_names_the_unfinished_runs_of_others(farthing, tiny):
    leave_unfinished(farthing, "other", "--data", tiny)
    result = farthing("train", *SMALL, "--data", tiny, "--steps", 3, "--resume")
    assert re.search(r"starting a new run, \S+ \(unfinished runs of others: other; --resume ID continues one\)", result.err)


@pytest.mark.parametrize("run", ["x", "runs/x"])
def test_resume_continues_a_run_in_its_store(farthing, tiny, run):
    store = farthing.folder / "store"
    farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--name", "x", "--checkpoints", store, "--watch", "none")
    assert "already finished" in farthing("train", "--resume").out
    result = farthing("train", "--resume", run, "--steps", 5, "--json")
    assert f"runs/x lives in {store}, and is continued there" in result.err
    assert result.end["steps"] == 5
    assert "already finished" in farthing("train", "--checkpoints", store, *SMALL, "--data", tiny).out
    assert "--lr is" in farthing("train", "--resume", run, "--steps", 6, "--lr", 0.5, code=1).err
    assert "leave out --resume" in farthing("train", "--resume", run, "--checkpoints", store, code=2).err


@pytest.fixture
def noise(tmp_path):
    """Pictures that say nothing about their labels: the lowest loss and the highest accuracy are chance, and differ."""
    draw = random.Random(5)
    folder = tmp_path / "noise"
    folder.mkdir()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx((64, 28, 28), draw.randbytes(64 * 784)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx((64,), [draw.randrange(10) for _ in range(64)]))
    return ["train", *SMALL, "--data", folder, "--batch", 16, "--threads", 1, "--seed", 1]


def best_of(events, by):
    epochs = [event for event in events if event["event"] == "epoch"]
    loss, accuracy = "validation_loss", "validation_accuracy"
    key = {"loss": lambda e: (e[loss], -e[accuracy]), "accuracy": lambda e: (-e[accuracy], e[loss])}[by]
    chosen = min(epochs, key=key)
    return chosen["step"], chosen[loss], chosen[accuracy]


def kept(farthing, name):
    report = farthing("report", name, "--json").events[0]
    return tuple(report["kept"][key] for key in ("step", "loss", "accuracy"))


def test_the_best_by_loss_or_accuracy(farthing, noise):
    for by in ("loss", "accuracy"):
        result = farthing(*noise, "--epochs", 8, "--name", by, "--best-by", by)
        events = record(farthing.folder / "runs" / by)
        expected = best_of(events, by)
        assert kept(farthing, by) == expected
        assert f"(validation accuracy {100 * expected[2]:.2f} %, loss {expected[1]:.4f})" in result.out
        measured = farthing("evaluate", "--weights", farthing.folder / f"runs/{by}/best.safetensors", *noise[1:5],
                            "--json").events[0]
        assert measured["accuracy"] == pytest.approx(expected[2]) and measured["loss"] == pytest.approx(expected[1])
        assert events[-1]["best_by"] == by and events[-1]["best_step"] == expected[0]
    assert best_of(events, "loss") != best_of(events, "accuracy")  # or the test shows nothing
    seen = f"{100 * best_of(events, 'accuracy')[2]:.2f} %"
    assert "best validation seen" in farthing("report", "loss").out and "best validation seen" not in farthing("report", "accuracy").out
    table = farthing("compare", "loss", "accuracy").out
    row = [line for line in table.splitlines() if line.startswith("best validation accuracy")][0]
    assert [cell.strip() for cell in row.split("  ") if cell][1] == seen and row.count(seen) == 1  # the best is the first
    assert [line for line in table.splitlines() if line.startswith("best validation seen")][0].count(seen) == 2


def test_what_is_best_survives_a_resume(farthing, noise):
    """Not part of the configuration, so that a command without it finds the run; and the run's choice holds."""
    farthing(*noise, "--epochs", 4, "--name", "x", "--best-by", "accuracy")
    farthing(*noise, "--resume", "x", "--epochs", 8)
    events = record(farthing.folder / "runs/x")
    assert kept(farthing, "x") == best_of(events, "accuracy") and events[-1]["best_by"] == "accuracy"
    stored = [*noise, "--watch", "none", "--checkpoints", farthing.folder / "store"]
    farthing(*stored, "--epochs", 4, "--best-by", "accuracy", "--runs", "a")
    farthing(*stored, "--epochs", 8, "--runs", "b")
    assert kept(farthing, farthing.folder / "store") == best_of(events, "accuracy")


# ---- farthing runs ----

def test_runs_are_listed_newest_first(farthing, tiny):
    assert "there are no runs" in farthing("runs").err
    train = ["train", *SMALL, "--data", tiny, "--batch", 16]
    farthing(*train, "--epochs", 2, "--name", "old")
    process = farthing.start(*train, "--epochs", 1000000, "--name", "new")
    events = farthing.folder / "runs/new/events.jsonl"
    wait_for(lambda: events.exists() and '"step"' in events.read_text(), "a step")
    left = farthing.folder / "runs/left"
    (left / "events.jsonl").write_text(forge_unbegun(left, "left"))
    (farthing.folder / "runs/notes").mkdir()  # neither is a run
    running, finished = farthing("runs", "--json").events
    assert (running["id"], running["state"]) == ("new", "running")
    assert (finished["id"], finished["state"], finished["epochs"], finished["steps"]) == ("old", "finished", 2, 32)
    assert finished["accuracy"] == kept(farthing, "old")[2] and finished["reason"] == "epochs"
    size = sum(path.stat().st_size for path in (farthing.folder / "runs/old").rglob("*") if path.is_file())
    assert size <= finished["size_bytes"] < size + 100000
    assert stop(process).code == 75
    lines = farthing("runs").out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [["new", "stopped", "linear"], ["old", "finished", "linear"]]
    record_file = farthing.folder / "runs/new/events.jsonl"
    record_file.write_text("".join(line for line in record_file.read_text().splitlines(True) if '"interrupted"' not in line))
    assert farthing("runs", "--json").events[0]["state"] == "killed"


def test_runs_are_removed(farthing, tiny):
    train = ["train", *SMALL, "--data", tiny, "--steps", 2, "--name"]
    for name in ("a", "b", "c"):
        farthing(*train, name)
    (farthing.folder / "precious").mkdir()
    (farthing.folder / "precious/file").write_text("x")
    (farthing.folder / "runs/link").symlink_to("../precious")
    (farthing.folder / "runs/other").symlink_to("b")
    (farthing.folder / "runs/b/mine.txt").write_text("x")
    # Past what cannot be removed it goes on.
    result = farthing("runs", "rm", "a", "nope", "link", "other/", "../precious", "..", "", "runs/b", code=1)
    assert "removed runs/a: " in result.out and "2 runs removed" in result.out and result.err.count("error: ") == 6
    assert "did you mean" in result.err or "there is no run \"nope\"" in result.err
    assert "runs/b stays" in result.err and (farthing.folder / "runs/b/mine.txt").exists()
    assert not (farthing.folder / "runs/a").exists() and (farthing.folder / "precious/file").exists()
    assert [run["id"] for run in farthing("runs", "--json").events] == ["c"]
    (removed,) = farthing("runs", "rm", "c", "--json").events
    assert removed["removed"] and removed["freed_bytes"] > 30000
    farthing(*train, "a")  # the name is free


def test_removing_a_run_leaves_what_others_put_there(farthing, tiny):
    farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--name", "a")
    checkpoints = farthing.folder / "runs/a/checkpoints"
    (checkpoints / "notes.txt").write_text("mine")
    (checkpoints / "best-so-far").mkdir()
    (checkpoints / "best-so-far/step-1.safetensors").write_text("mine")
    assert "runs/a stays" in farthing("runs", "rm", "a").err
    left = {str(path.relative_to(checkpoints)) for path in checkpoints.rglob("*")}
    assert left == {"notes.txt", "best-so-far", "best-so-far/step-1.safetensors"}
    assert not (farthing.folder / "runs/a/run.json").exists()


def test_a_server_with_its_workers_is_removed(farthing, tiny):
    farthing("train", *SMALL, "--data", tiny, "--strategy", "parameter-server", "--workers", 1, "--steps", 4, "--name", "a")
    farthing("runs", "rm", "a")
    assert not (farthing.folder / "runs/a").exists()


def test_a_running_run_is_not_removed(farthing, tiny):
    process = farthing.start("train", *SMALL, "--data", tiny, "--epochs", 1000000, "--name", "x")
    wait_for(lambda: (farthing.folder / "runs/x/run.json").exists(), "the record")
    assert f"process {process.pid}" in farthing("runs", "rm", "x", code=1).err
    assert (farthing.folder / "runs/x/run.json").exists()
    stop(process)


def test_runs_are_of_this_machine(farthing):
    assert "farthing store ls" in farthing("runs", "--runs", "s3://bucket/runs", code=2).err
    for command in ("train", "evaluate", "report", "weights"):
        for folder in ("s3://bucket/runs", "http://127.0.0.1:9/runs"):
            assert f"{folder} is not a folder on this machine" in farthing(command, "--runs", folder, code=2).err
    assert not any(farthing.folder.iterdir())
    assert "missing the runs to remove" in farthing("runs", "rm", code=2).err
    assert "list" in farthing("runs", "list", code=2).err


@pytest.mark.parametrize("flag", ["--resume", "--runs", "--name", "--weights", "--until", "--checkpoints"])
def test_an_empty_value_is_a_mistake(farthing, tiny, flag):
    """As of a variable that is not set; it would quietly train something else."""
    job = ["train", *SMALL, "--data", tiny, "--steps", 2]
    for words in ([flag, ""], [flag + "="]):
        assert f"{flag} is empty (a variable that is not set?)" in farthing(*job, *words, code=2).err
    (farthing.folder / "run.yaml").write_text(f'{flag[2:]}: ""\n')
    assert f"{flag[2:]} is empty" in farthing("train", "run.yaml", code=2).err
    assert not (farthing.folder / "runs").exists()


# ---- what is held out for validation ----

UNEVEN = {"many": 90, "some": 20, "few": 10}


def write_uneven(folder):
    for number, (name, count) in enumerate(UNEVEN.items()):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.png").write_bytes(png(8, 8, 80 * number + i % 60))
    return folder


def supports(farthing, *arguments):
    """How many validation samples of each class there are."""
    result = farthing("evaluate", *arguments, "--json").events[0]
    return {row["name"]: row["samples"] for row in result["classes"]}


def forget_split(run):
    """As a version without --validation-split recorded it."""
    path = run / "run.json"
    facts = json.loads(path.read_text())
    del facts["configuration"]["validation-split"]
    path.write_text(json.dumps(facts))


def test_every_class_gives_its_share_to_validation(farthing):
    data = write_uneven(farthing.folder / "photos")
    train = ["train", *SMALL, "--data", data, "--batch", 16]
    farthing(*train, "--steps", 2, "--name", "x")
    by_class = {"few": 1, "many": 9, "some": 2}
    assert supports(farthing, "x") == by_class
    assert supports(farthing, "--weights", "runs/x/last.safetensors", "--data", data) == by_class
    farthing(*train, "--steps", 2, "--name", "y", "--validation-split", "random")
    assert supports(farthing, "y") != by_class
    assert "--validation-split cannot change" in farthing(
        *train, "--steps", 3, "--resume", "y", "--validation-split", "stratified", code=1).err


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_of_an_older_version_keeps_its_split(farthing, stored):
    data = write_uneven(farthing.folder / "photos")
    train = ["train", *SMALL, "--data", data, "--batch", 16, "--threads", 1]
    place = ["--checkpoints", "store", "--watch", "none", "--lease", "off"] if stored else []
    farthing(*train, "--steps", 6, "--name", "whole", "--validation-split", "random")
    farthing(*train, "--steps", 3, "--name", "x", "--validation-split", "random", *place)
    forget_split(farthing.folder / ("store" if stored else "runs/x"))
    if stored:
        forget_split(farthing.folder / "runs/x")
    farthing(*train, "--steps", 6, *(place if stored else ["--resume", "x"]))
    ends = [record(farthing.folder / "runs" / name)[-1] for name in ("whole", "x")]
    assert ends[0]["loss"] == ends[1]["loss"]
    whole, x = (farthing.folder / "runs" / name / "last.safetensors" for name in ("whole", "x"))
    assert tensors(whole) == tensors(x)
    assert supports(farthing, "x") == supports(farthing, "whole") != {"few": 1, "many": 9, "some": 2}


def test_a_server_and_its_workers_hold_out_the_same(farthing):
    data = write_uneven(farthing.folder / "photos")
    train = ["train", *SMALL, "--data", data, "--batch", 16, "--strategy", "parameter-server", "--workers", 1,
             "--name", "x"]
    splits = lambda: {json.loads(path.read_text())["configuration"]["validation-split"]
                      for path in farthing.folder.glob("runs/x/**/run.json")}
    farthing(*train, "--steps", 2)
    assert splits() == {"stratified"}
    forget_split(farthing.folder / "runs/x")
    forget_split(farthing.folder / "runs/x/workers/1")
    farthing(*train, "--steps", 4, "--resume")
    assert "random" in splits()


# ---- without --model ----

def write_photos(folder, sides):
    for number, side in enumerate(sides):
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{number}.png").write_bytes(png(side, side - 4, 10 * number))
    return folder


@pytest.mark.parametrize("data, model, shape", [
    ("digits", "mnist-cnn", (28, 28)), ("shapes", "resnet18-small", (32, 32)), ("small", "resnet18-small", (40, 44)),
    ("photos", "resnet18", (224, 224))])
def test_without_a_model_one_is_chosen_by_the_data(farthing, data, model, shape):
    write_photos(farthing.folder / "small", [44] * 8)
    write_photos(farthing.folder / "photos", [90, 100, 110, 120])
    dry = farthing("train", "--data", data, "--batch", 2, "--steps", 1, "--dry-run", "--json")
    assert dry.events[0]["model"] == model and dry.events[0]["configuration"]["optimizer"]["value"] == "sgd"
    assert f"training {model}, the default for images of {shape[0]} × {shape[1]} pixels" in dry.err


def test_a_chosen_model_stays_with_the_run(farthing, tiny):
    """The same command continues it, from the folder and from a store; its record says what was chosen."""
    train = ["train", "--data", tiny, "--batch", 64, "--name", "x"]
    assert "no --model given: training mnist-cnn" in farthing(*train, "--steps", 1).err
    configuration = json.loads((farthing.folder / "runs/x/run.json").read_text())["configuration"]
    assert (configuration["model"], configuration["optimizer"], configuration["lr"]) == ("mnist-cnn", "sgd", 0.01)
    assert "already finished: mnist-cnn" in farthing(*train, "--steps", 1, "--resume").out
    more = farthing(*train, "--steps", 2, "--resume", "--model", "auto")
    assert "no --model" not in more.err and "mnist-cnn on" in more.out
    assert "--model cannot change" in farthing(*train, "--steps", 3, "--resume", "--model", "linear", code=1).err
    assert "mnist-cnn on" in farthing("evaluate", "x").out
    stored = ["train", "--data", tiny, "--batch", 64, "--checkpoints", "store", "--watch", "none"]
    farthing(*stored, "--steps", 1)
    assert "already finished" in farthing(*stored, "--steps", 1).out
    assert "2 steps" in farthing(*stored, "--steps", 2, "--runs", "elsewhere").out


def test_a_chosen_model_is_the_servers(farthing, tiny):
    result = farthing("train", "--data", tiny, "--batch", 64, "--strategy", "parameter-server", "--workers", 1,
                      "--steps", 2, "--name", "x")
    assert "mnist-cnn on" in result.out and result.err.count("no --model given: training mnist-cnn") == 1
    assert "which network to serve" in farthing("serve", "parameters", code=1).err


def test_a_stem_needs_a_model(farthing):
    assert "give --model" in farthing("train", "--data", "shapes", "--stem", "small", code=2).err


# ---- --dry-run ----

def contents(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def test_a_dry_run_prints_a_run_file_and_leaves_nothing(farthing, tiny):
    (farthing.folder / "run.yaml").write_text("model: linear\nsteps: 6\nfor: 90s\nnesterov: yes\n")
    arguments = ["train", "run.yaml", "--data", tiny, "--batch", 16, "--lr", 0.02, "--checkpoints", "some/store",
                 "--watch", "none"]
    before = contents(farthing.folder)
    printed = farthing(*arguments, "--dry-run").out
    assert contents(farthing.folder) == before
    lines = printed.splitlines()
    for line in ("steps: 6  # file", "for: 90.0s  # file", "nesterov: yes  # file", "lr: 0.02  # flag",
                 "# momentum: 0.9  # default", "# would start a new run in some/store"):
        assert line in lines
    assert "7,850 parameters" in printed and "16 batches an epoch, 6 steps in all" in printed
    names = {line.lstrip("# ").split(":")[0] for line in lines if line.endswith(("# file", "# flag", "# default"))}
    aliases = {"batch-size", "learning-rate", "lr-schedule"}
    documented = set(re.findall(r"--([a-z0-9-]+)", farthing("train", "--help").out)) - {"dry-run", "json", "help"} - aliases
    assert {name for name in documented if not name.startswith("no-")} - names <= {"flag"}
    assert not {"per-class", "confusion"} & names  # for evaluate
    # Read back it is the same run.
    (farthing.folder / "again.yaml").write_text(printed)
    farthing(*arguments, "--name", "x")
    result = farthing("train", "again.yaml")
    assert "already finished" in result.out


def test_a_dry_run_says_what_it_would_do(farthing, tiny):
    train = ["train", *SMALL, "--data", tiny, "--batch", 16]
    dry = lambda *flags, **how: farthing(*train, *flags, "--dry-run", "--json", **how).events[0]
    farthing(*train, "--steps", 4, "--name", "x", "--seed", 5)
    before = contents(farthing.folder)
    facts = dry("--steps", 4, "--seed", 5, "--resume")
    assert (facts["action"], facts["id"], facts["step"]) == ("finished", "x", 4)
    facts = dry("--resume", "x", "--steps", 9)
    assert (facts["action"], facts["step"], facts["steps"], facts["batches_per_epoch"]) == ("resume", 4, 9, 16)
    assert facts["configuration"]["seed"] == {"value": 5, "from": "run"}
    assert facts["configuration"]["steps"] == {"value": 9, "from": "flag"}
    assert facts["configuration"]["lr"]["from"] == "run" and facts["parameters"] == 7850
    assert dry("--steps", 4, "--resume")["action"] == "begin"
    assert "there is a run x" in dry("--steps", 4, "--name", "x", code=1)["message"]
    facts = farthing("standby", *train[1:], "--checkpoints", "store", "--watch", "none", "--dry-run", "--json").events[0]
    assert facts["action"] == "wait"
    assert contents(farthing.folder) == before


@pytest.mark.parametrize("flags, message", [
    (["--weights", "missing.pth"], "missing.pth"), (["--data", "nowhere"], "nowhere"),
    (["--model", "resnet18", "--data", "digits", "--weights", "x.safetensors"], "x.safetensors"),
    (["--device", "abacus"], "abacus.so"), (["--device", "abacus"], "/../lib"),
    (["--checkpoints", "/proc/store", "--watch", "none"], "/proc/store"),
    (["--runs", "file/runs"], "file"), (["--schedule", "cosine", "--for", "1m"], "cosine")])
def test_a_dry_run_finds_mistakes(farthing, flags, message):
    (farthing.folder / "file").write_text("")
    before = contents(farthing.folder)
    assert message in farthing("train", *SMALL, *flags, "--dry-run", code=1).err
    assert contents(farthing.folder) == before


@pytest.mark.parametrize("flags, message", [
    (["--data", "pictures", "--augment", "flip"], "--transform pad-crop=4,flip"),
    (["--data", "pictures", "--augment", "crop", "--strategy", "hogwild"], "--transform pad-crop=4,flip"),
    (["--data", "digits", "--task", "regression"], "--task regression is for text"),
    (["--data", "pictures", "--task", "multi-label"], "--task multi-label is for text"),
    (["--data", "digits", "--max-length", 20], "--max-length is for text"),
    (["--data", "digits", "--text-column", "title"], "--text-column is for text"),
    (["--data", "digits", "--by-length"], "--by-length is for text")])
def test_a_dry_run_refuses_what_train_refuses(farthing, undecodable, flags, message):
    """Also what only shows once the data is open, and before a run is recorded."""
    before = contents(farthing.folder)
    for dry in ([], ["--dry-run"]):
        assert message in farthing("train", *SMALL, "--steps", 1, *flags, *dry, code=1).err
        assert contents(farthing.folder) == before


def test_tasks_of_text_are_refused_for_images_by_every_command(farthing, tiny):
    farthing("train", *SMALL, "--data", tiny, "--steps", 1, "--task", "classes", "--name", "x")
    message = "--task regression is for text"
    assert message in farthing("evaluate", "x", "--task", "regression", code=1).err
    assert message in farthing("serve", "parameters", *SMALL, "--data", tiny, "--task", "regression", code=1).err
    assert message in farthing("train", *SMALL, "--data", tiny, "--strategy", "parameter-server", "--workers", 1,
                               "--steps", 1, "--task", "regression", code=1).err


def test_a_dry_run_does_not_care_what_else_is_among_the_runs(farthing, tiny):
    """A name is made up later: no file in the folder is in its way. Counts of one are singular."""
    (farthing.folder / "runs").mkdir()
    for name in "abcdefghijklmnopqrstuvwxyz":
        (farthing.folder / "runs" / name).write_text("")
    printed = farthing("train", *SMALL, "--data", tiny, "--batch", 9999, "--steps", 1, "--dry-run").out
    assert "# length   1 batch an epoch, 1 step in all\n" in printed


def test_a_dry_run_looks_at_a_stored_run_without_touching_it(stored, farthing):
    before = {path: path.read_bytes() for path in stored.store.rglob("*") if path.is_file()}
    folders = contents(farthing.folder)
    assert "is finished: nothing is left" in stored("--dry-run").out
    assert "would resume run x" in stored("--steps", 30, "--dry-run").out
    assert "would resume run x" in stored("--epochs", 30, "--dry-run").out
    assert "--lr is" in stored("--lr", 0.5, "--dry-run", code=1).err
    assert {path: path.read_bytes() for path in stored.store.rglob("*") if path.is_file()} == before
    assert contents(farthing.folder) == folders


@pytest.mark.parametrize("run", ["first", "runs/first"])
def test_weights_of_a_run(farthing, tiny, run):
    arguments = ["train", *SMALL, "--data", tiny, "--steps", 4]
    farthing(*arguments, "--name", "first")
    farthing(*arguments, "--weights", run, "--name", "second")
    (event,) = [event for event in record(farthing.folder / "runs/second") if event["event"] == "weights"]
    assert event["file"] == "runs/first/best.safetensors"
    assert "nowhere" in farthing(*arguments, "--weights", "nowhere", code=1).err
