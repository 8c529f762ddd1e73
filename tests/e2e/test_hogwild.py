"""--strategy hogwild: worker threads and processes that train one model; stopped, killed, resumed."""
import json
import os
import random
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SMALL, checkpoints, record, stop, tensors, wait_for

KINDS = {"threads": ["--workers", 2], "processes": ["--processes", 2]}


@pytest.fixture(params=KINDS)
def kind(request):
    return ["--strategy", "hogwild", *KINDS[request.param]]


def workers_of(pid):
    """Process ids of the workers that `pid` has now."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (path / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue  # gone meanwhile
        if parent == pid and b"hogwild-worker" in words:
            found.append(int(path.name))
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def kept_epochs(run):
    """Epoch events as a reader keeps them: a resume at step S undoes later ones."""
    kept = []
    for event in record(run):
        if event["event"] == "resume":
            kept = [epoch for epoch in kept if epoch["step"] <= event["step"]]
        if event["event"] == "epoch":
            kept.append(event)
    return kept


def metadata(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size])["__metadata__"]


def assert_best_is_what_was_validated(farthing, run, tiny):
    best = [event for event in record(run) if event["event"] == "best"][-1]
    assert int(metadata(run / "best.safetensors")["step"]) == best["step"]
    again = json.loads(farthing("evaluate", *SMALL, "--weights", run / "best.safetensors", "--data", tiny, "--json").out)
    assert again["loss"] == pytest.approx(best["validation_loss"], rel=1e-4)


@pytest.mark.parametrize("flags, said", [(["--workers", 2], "strategy hogwild, 2 worker threads"),
                                         (["--processes", 1], "strategy hogwild, 1 worker process\n")])
def test_the_header_names_the_workers(farthing, tiny, flags, said):
    assert said in farthing("train", "--data", tiny, *SMALL, "--batch", 16, "--steps", 2, "--strategy", "hogwild", *flags).out


def test_trains_and_validates(farthing, tiny, kind):
    result = farthing("train", "--data", tiny, *SMALL, "--batch", 16, "--epochs", 12, "--lr", 0.01, *kind, "--json")
    assert result.end["steps"] == 192 and result.end["samples"] == 12 * 256
    assert result.end["accuracy"] > 0.9
    epochs = [event for event in result.events if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == list(range(1, 13))
    assert [event["step"] for event in epochs] == [16 * n for n in range(1, 13)]
    assert all("validation_loss" in event for event in epochs)
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"]
    assert_best_is_what_was_validated(farthing, farthing.only_run(), tiny)


def test_one_worker_equals_none(farthing, tiny):
    flags = ["--data", tiny, "--batch", 8, "--steps", 4, "--augment", "crop", "--threads", 1]
    farthing("train", *flags, "--name", "none")
    expected = tensors(farthing.folder / "runs/none/last.safetensors")
    for name, extra in (("thread", ["--workers", 1]), ("process", ["--processes", 1])):
        farthing("train", *flags, "--strategy", "hogwild", *extra, "--name", name)
        assert tensors(farthing.folder / f"runs/{name}/last.safetensors") == expected


@pytest.mark.parametrize("flags", [["--optimizer", "adamw", "--schedule", "cosine", "--warmup", 4, "--clip", 1],
                                   ["--hogwild-momentum", "worker", "--nesterov", "--validate-every", 3],
                                   ["--optimizer", "adamw", "--hogwild-momentum", "worker", "--freeze", "conv1"]])
def test_optimizers_and_schedules(farthing, tiny, flags, kind):
    result = farthing("train", "--data", tiny, "--batch", 16, "--epochs", 2, *kind, *flags, "--json")
    assert result.end["steps"] == 32
    assert result.end["loss"] < 2.35


def events_of(farthing):
    return sum(len(path.read_text().splitlines()) for path in farthing.folder.glob("runs/*/events.jsonl"))


def test_interrupted_over_and_over(farthing, tiny, kind):
    """Whatever a stop cuts short, each epoch is told once, and the run ends with all of them."""
    draw = random.Random(5)
    flags = ["train", "--data", tiny, *SMALL, "--batch", 16, "--epochs", 400, "--checkpoint-every", 50, *kind, "--resume"]
    for _ in range(5):
        before = events_of(farthing)
        process = farthing.start(*flags)
        wait_for(lambda: process.poll() is not None or events_of(farthing) > before + 1, "the start of training")
        try:
            process.wait(timeout=draw.uniform(0, 0.4))
        except subprocess.TimeoutExpired:
            pass
        assert stop(process).code in (0, 75)
    end = farthing(*flags, "--json").events[-1]
    assert end["event"] == "end" and end["epochs"] == 400 and end["samples"] == 400 * 256
    assert [event["epoch"] for event in kept_epochs(farthing.only_run())] == list(range(1, 401))
    assert_best_is_what_was_validated(farthing, farthing.only_run(), tiny)


def test_killed_over_and_over(farthing, tiny, kind):
    draw = random.Random(6)
    flags = ["train", "--data", tiny, *SMALL, "--batch", 16, "--epochs", 400, "--checkpoint-every", 50, *kind, "--resume"]
    for _ in range(5):
        process = farthing.start(*flags)
        try:
            process.wait(timeout=draw.uniform(0.2, 0.9))
        except subprocess.TimeoutExpired:
            left = workers_of(process.pid)
            process.kill()
            wait_for(lambda: not any(map(is_alive, left)), "the end of a killed trainer's workers")
        process.communicate()
    end = farthing(*flags, "--json").events[-1]
    assert end["event"] == "end" and end["epochs"] == 400 and end["samples"] == 400 * 256
    assert [event["epoch"] for event in kept_epochs(farthing.only_run())] == list(range(1, 401))


def start_processes(farthing, tiny, *flags, **options):
    process = farthing.start("train", "--data", tiny, "--batch", 16, "--strategy", "hogwild", "--processes", 2,
                             "--checkpoint-every", 20, *flags, **options)
    wait_for(lambda: farthing.runs() and checkpoints(farthing.runs()[0]), "a checkpoint")
    return process


def test_a_killed_worker_is_replaced(farthing, tiny):
    process = start_processes(farthing, tiny, "--epochs", 40)
    killed = []
    for number in range(3):
        wait_for(lambda: len(set(workers_of(process.pid)) - set(killed)) == 2, "two workers")
        killed.append(sorted(set(workers_of(process.pid)) - set(killed))[number % 2])
        os.kill(killed[-1], signal.SIGKILL)
        wait_for(lambda: sum(e["event"] == "worker_lost" for e in record(farthing.only_run())) > number, "the event")
    code, out, err = finish(process)
    assert code == 0, err
    lost = [event for event in record(farthing.only_run()) if event["event"] == "worker_lost"]
    assert [event["process"] for event in lost] == killed
    assert all("signal 9" in event["reason"] and event["replaced"] for event in lost)
    end = record(farthing.only_run())[-1]
    assert end["steps"] == 640 and end["samples"] == 40 * 256  # no batch is lost or counted twice
    assert end["accuracy"] > 0.9
    assert "was lost" in err


def test_a_hanging_worker_is_replaced(farthing, tiny):
    process = start_processes(farthing, tiny, "--epochs", 30, "--worker-timeout", "1s")
    wait_for(lambda: len(workers_of(process.pid)) == 2, "two workers")
    os.kill(workers_of(process.pid)[0], signal.SIGSTOP)
    code, out, err = finish(process)
    assert code == 0, err
    assert record(farthing.only_run())[-1]["steps"] == 480


def test_workers_that_always_die_end_the_run(farthing, tiny):
    process = farthing.start("train", "--data", tiny, "--batch", 16, "--strategy", "hogwild", "--processes", 2,
                             "--epochs", 100000)
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        for pid in workers_of(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    code, out, err = finish(process)
    assert code == 1 and "lost" in err, (code, err)
    runs = list((farthing.folder / "runs").glob("*"))
    assert all(record(run)[-1]["event"] == "error" for run in runs)  # none is left where no step was made


def test_an_interrupt_of_all_processes_saves(farthing, tiny):
    """A Ctrl-C goes to the workers too; they go on until the trainer has saved."""
    process = start_processes(farthing, tiny, "--epochs", 100000, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    assert code == 75, err
    assert not [event for event in record(farthing.only_run()) if event["event"] == "worker_lost"]


def test_weights_that_are_no_numbers(farthing, tiny, kind):
    result = farthing("train", "--data", tiny, "--batch", 16, "--epochs", 3, "--lr", 1e30, *kind, code=1)
    assert "diverged" in result.err


def test_goals_and_times(farthing, tiny, kind):
    result = farthing("train", "--data", tiny, *SMALL, "--batch", 16, "--until", "accuracy=0.9", "--epochs", 500, *kind, "--json")
    assert result.end["reason"] == "until" and result.end["accuracy"] >= 0.9
    result = farthing("train", "--data", tiny, *SMALL, "--batch", 16, "--for", "500ms", *kind, "--json")
    assert result.end["reason"] == "for"


@pytest.mark.parametrize("flags, message", [
    (["--workers", 2], "--strategy hogwild"),
    (["--processes", 2], "--strategy hogwild"),
    (["--strategy", "hogwild", "--workers", 2, "--processes", 2], "one of them"),
    (["--strategy", "hogwild", "--accumulate", 4], "--accumulate"),
    (["--strategy", "hogwild", "--workers", 1000], "256"),
    (["--strategy", "hogwild", "--hogwild-momentum", "mine"], "shared"),
    (["--strategy", "hogwild", "--worker-timeout", "soon"], "soon"),
])
def test_bad_options(farthing, flags, message):
    assert message in farthing("train", "--data", "digits", *flags, code=2).err
    assert not farthing.runs()


def test_unknown_strategy(farthing):
    error = farthing("train", "--strategy", "hogwilt", code=2).err
    assert "one of single, hogwild, parameter-server" in error and "did you mean 'hogwild'?" in error


def test_a_resume_by_name_keeps_the_strategy(farthing, tiny):
    """The run's own configuration says how it is trained, and which options suit it."""
    farthing("train", "--data", tiny, *SMALL, "--steps", 4, "--name", "wild", "--strategy", "hogwild", "--workers", 1)
    farthing("train", "--resume", "wild", "--steps", 8, "--workers", 2)
    (begun,) = [event for event in record(farthing.only_run()) if event["event"] == "resume"]
    assert begun["strategy"] == "hogwild" and begun["workers"] == 2
    farthing("train", "--data", tiny, *SMALL, "--steps", 4, "--name", "tame")
    error = farthing("train", "--resume", "tame", "--steps", 8, "--workers", 2, code=1).err
    assert "--workers needs --strategy hogwild or parameter-server" in error
    table = farthing("compare", "wild", "tame").out
    assert re.search(r"workers +2 +-", table) and "epochs each" in table


def test_a_worker_by_hand(farthing):
    assert "farthing itself" in farthing("hogwild-worker", code=2).err
    assert farthing("hogwild-worker", 0, 0, code=1).err
    assert "hogwild-worker" not in farthing("--help").out
