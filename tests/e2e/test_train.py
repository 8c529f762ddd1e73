"""Training: events, the last line, evaluation, progress, and what stops a run."""
import fcntl
import json
import math
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from conftest import (FARTHING, PATIENCE_S, SANITIZED, SMALL, environment, record, stop, tensors, wait_for,
                      write_mnist)

LOSS = r"[\d.]+(?:e-\d+)?"


def test_events(trained):
    events = trained.result.events
    names = [event["event"] for event in events]
    assert names[0] == "start"
    assert names[-1] == "end" and names.count("end") == 1
    assert names.count("epoch") == 3
    assert "step" in names and "best" in names
    assert names.index("step") < names.index("epoch")
    steps = [event["step"] for event in events if event["event"] == "step"]
    assert steps == sorted(steps)
    assert events == record(trained.run)


def test_end_event(trained):
    end = trained.result.end
    assert end["epochs"] == 3 and end["steps"] == 24  # 256 images in batches of 32
    assert 0 <= end["accuracy"] <= 1 and end["loss"] > 0
    assert end["seconds"] > 0 and end["samples_per_s"] > 0
    for key in ("model", "best"):
        assert (trained.folder / end[key]).is_file()
    assert end["model"].endswith("last.safetensors") and end["best"].endswith("best.safetensors")


def test_model_file_has_pytorch_names(trained):
    model = tensors(trained.run / "last.safetensors")
    assert model["conv1.weight"][:2] == ("F32", (32, 1, 3, 3))
    assert model["fc1.weight"][:2] == ("F32", (128, 9216))
    assert set(model) == {f"{layer}.{kind}" for layer in ("conv1", "conv2", "fc1", "fc2")
                          for kind in ("weight", "bias")}


@pytest.mark.skipif(SANITIZED, reason="sanitizers start slowly and take memory")
def test_starts_at_once_and_stays_small(farthing, tiny):
    first = []
    while len(first) < 20 and min(first, default=1) > 0.3:  # other work on the machine adds to most of them
        result = farthing("train", "--model", "mnist-cnn", "--data", tiny, "--steps", 3, "--json")
        first += [event["first_step_s"] for event in result.events if "first_step_s" in event]
        assert result.end["peak_memory_bytes"] <= 150e6
    assert min(first) <= 0.3


@pytest.mark.parametrize("every, within, at_ends", [
    ("25%", [2, 4, 6, 10, 12, 14, 18, 20, 22], [8, 16, 24]), ("0.5", [4, 12, 20], [8, 16, 24]),
    ("1.5", [12], [24]), ("5steps", [5, 10, 15, 20], []), ("4 steps", [4, 12, 20], [8, 16, 24]), ("2", [], [16])])
def test_validations_within_an_epoch(farthing, tiny, every, within, at_ends):
    """They change nothing of the training; their results count as those at the end of an epoch do."""
    train = ["train", *SMALL, "--data", tiny, "--batch", 32, "--epochs", 3, "--threads", 1]
    farthing(*train, "--name", "plain")
    events = farthing(*train, "--name", "x", "--validate-every", every, "--json").events
    assert [event["step"] for event in events if event["event"] == "validation"] == within
    assert [event["step"] for event in events if event["event"] == "epoch" and "validation_loss" in event] == at_ends
    assert [event["step"] for event in events if event["event"] == "epoch"] == [8, 16, 24]
    losses = {event["step"]: event["validation_loss"] for event in events if event["event"] in ("validation", "epoch", "end")
              and "validation_loss" in event and "step" in event}
    losses[24] = events[-1]["loss"]
    assert events[-1]["best_loss"] == min(losses.values()) == losses[events[-1]["best_step"]]
    for event in events:
        if event["event"] == "validation":
            assert event["epoch"] == event["step"] / 8 and event["samples"] == 32 * event["step"]
    plain, x = (tensors(farthing.folder / "runs" / name / "last.safetensors") for name in ("plain", "x"))
    assert plain == x
    assert json.loads(farthing("report", "x", "--json").out)["best_loss"] == min(losses.values())
    assert farthing(*train, "--name", "shown", "--validate-every", every).out.count(": validation loss") == len(within)


def test_a_goal_is_reached_within_an_epoch(farthing, tiny):
    train = ["train", *SMALL, "--data", tiny, "--batch", 32, "--epochs", 3, "--until", "loss=100", "--json"]
    assert farthing(*train).end["steps"] == 8
    assert farthing(*train, "--validate-every", "3steps").end["steps"] == 3


def test_a_stopped_run_validates_at_the_same_steps(farthing, tiny):
    """Also one that was stopped where a validation was due."""
    train = ["train", *SMALL, "--data", tiny, "--batch", 32, "--validate-every", "3steps", "--name", "x"]
    for steps in (3, 7, 20):
        farthing(*train, "--steps", steps, *(["--resume"] if steps > 3 else []))
    events = record(farthing.folder / "runs/x")
    assert [event["step"] for event in events if event["event"] == "validation"] == [3, 6, 9, 12, 15, 18]


@pytest.mark.parametrize("start", [["train", "--strategy", "hogwild", "--workers", 2],
                                   ["launch", "--workers", 2, "--", "train"]], ids=["hogwild", "data-parallel"])
def test_workers_validate_within_an_epoch(farthing, tiny, start):
    farthing(*start, *SMALL, "--data", tiny, "--batch", 32, "--epochs", 2, "--validate-every", 0.5, "--name", "x")
    events = record(farthing.folder / "runs/x")
    assert [event["step"] for event in events if event["event"] == "validation"] == [4, 12]
    assert [event["step"] for event in events if event["event"] == "epoch"] == [8, 16]
    assert all("validation_loss" in event for event in events if event["event"] == "epoch")


def test_it_learns(farthing, tiny):
    end = farthing("train", "--data", tiny, "--batch", 16, "--epochs", 4, "--json").end
    assert end["accuracy"] >= 0.9  # chance is 0.1


def test_compressed_data_is_the_same(farthing, trained, tmp_path):
    data = write_mnist(tmp_path / "compressed", compressed=True)
    farthing("train", "--data", data, "--batch", 32, "--epochs", 3, "--threads", 2)
    assert tensors(farthing.only_run() / "last.safetensors") == tensors(trained.run / "last.safetensors")


def test_evaluate_agrees_with_the_end(farthing, trained, tiny):
    end = trained.result.end
    result = json.loads(farthing("evaluate", "--data", tiny, "--batch", 32, "--weights",
                                 trained.run / "last.safetensors", "--json").out)
    assert result["accuracy"] == end["accuracy"]
    assert math.isclose(result["loss"], end["loss"], rel_tol=1e-5)
    assert result["samples"] == 64


def test_evaluate_a_run(trained):
    best = json.loads(trained("evaluate", trained.run.name, "--json").out)
    assert best["weights"].endswith("best.safetensors")
    same = json.loads(trained("evaluate", "--weights", trained.run, "--json").out)
    assert same["accuracy"] == best["accuracy"]
    text = trained("evaluate", trained.run).out
    assert re.match(r"mnist-cnn on .*: validation accuracy [\d.]+ %, loss " + LOSS + r" over 64 samples in ", text)


def test_evaluate_mistakes(farthing, trained, tiny):
    assert "--weights" in farthing("evaluate", code=2).err
    assert "nonesuch" in farthing("evaluate", "--weights", "nonesuch", code=1).err
    (farthing.folder / "bad.safetensors").write_bytes(b"\xff" * 100)
    assert "bad.safetensors" in farthing("evaluate", "--data", tiny, "--weights", "bad.safetensors", code=1).err
    wrong = farthing("evaluate", "--data", "shapes", "--model", "cifar-cnn", "--weights",
                     trained.run / "last.safetensors", code=1)
    assert "last.safetensors" in wrong.err


def test_start_from_weights(farthing, trained, tiny):
    first = farthing("train", "--data", tiny, "--steps", 1, "--weights", trained.run / "best.safetensors",
                     "--json").events
    fresh = trained.result.events
    loss = next(e["loss"] for e in first if e["event"] == "step")
    assert loss < next(e["loss"] for e in fresh if e["event"] == "step")


def test_last_lines_for_people(farthing, tiny):
    lines = farthing("train", *SMALL, "--data", tiny, "--steps", 20, "--name", "here").out.splitlines()
    assert re.fullmatch(r"trained linear on .*: validation accuracy [\d.]+ %, loss " + LOSS + r", \S+ epochs, 20 steps in \S+ "
                        r"\([\d,]+ samples/s\); ended: --steps 20 reached", lines[-3])
    assert re.fullmatch(r"models in runs/here: last.safetensors, best.safetensors \(validation accuracy [\d.]+ %, loss " +
                        LOSS + r"\)", lines[-2])
    assert lines[-1].endswith(" report here")
    elsewhere = farthing("train", *SMALL, "--data", tiny, "--steps", 20, "--name", "x", "--runs", "else/where").out
    assert elsewhere.endswith(" report x --runs else/where\n")
    assert elsewhere.count("else/where/x") == 2  # at the start and at the end


def test_pipe_gets_plain_lines(farthing, tiny):
    result = farthing("train", *SMALL, "--data", tiny, "--epochs", 2)
    for text in (result.out, result.err):
        assert "\033" not in text and "\r" not in text
    assert "epoch 1/2:" in result.out and "epoch 2/2:" in result.out


def test_terminal_gets_a_live_line(farthing, tiny):
    columns = 90
    try:
        master, slave = pty.openpty()
    except OSError as error:  # a container without /dev/pts
        pytest.skip(f"no terminal can be made here: {error}")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([FARTHING, "train", *SMALL, "--data", tiny, "--batch", "4", "--epochs", "2"], stderr=slave,
                               stdout=subprocess.PIPE, cwd=farthing.folder, env=environment())
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    process.communicate(timeout=PATIENCE_S)
    os.close(master)
    assert process.returncode == 0
    redrawn = [line.replace("\033[K", "") for line in shown.decode().split("\r")]
    drawn = [line for line in redrawn if line.startswith("epoch ")]
    assert len(drawn) >= 2
    assert re.match(r"epoch \d/2, step \d+/128, loss [\d.]+, accuracy ", drawn[-1])
    assert max(map(len, drawn)) < columns
    assert shown.endswith(b"\r\033[K")  # taken away at the end


def test_json_prints_nothing_else(farthing, tiny):
    result = farthing("train", *SMALL, "--data", tiny, "--steps", 3, "--json")
    assert all(isinstance(event, dict) for event in result.events)
    failed = farthing("train", "--data", "/nowhere", "--json", code=1)
    assert failed.events[-1]["event"] == "error" and "/nowhere" in failed.events[-1]["message"]


def test_stops_at_a_goal(farthing, tiny):
    end = farthing("train", "--data", tiny, "--batch", 16, "--epochs", 50, "--until", "accuracy=0.8", "--json").end
    assert end["reason"] == "until" and end["epochs"] < 50 and end["accuracy"] >= 0.8


def test_stops_after_a_time(farthing, tiny):
    end = farthing("train", *SMALL, "--data", tiny, "--for", "1s", "--json").end
    assert end["reason"] == "for" and 0.9 <= end["seconds"] < 10


def test_few_validation_images(farthing, tmp_path):
    data = write_mnist(tmp_path / "few", train=40, test=3)
    end = farthing("train", *SMALL, "--data", data, "--batch", 8, "--epochs", 1, "--json").end
    assert end["accuracy"] * 3 == pytest.approx(round(end["accuracy"] * 3))  # each of the three counted once


def test_built_in_sets(farthing):
    assert farthing("train", *SMALL, "--steps", 3, "--json").end["steps"] == 3
    end = farthing("train", "--model", "cifar-cnn", "--data", "shapes", "--steps", 3, "--json").end
    assert end["steps"] == 3


def test_adamw_schedules_and_the_rest(farthing, tiny):
    for schedule in ("constant", "step", "cosine", "linear"):
        events = farthing("train", *SMALL, "--data", tiny, "--batch", 16, "--steps", 12, "--optimizer", "adamw", "--schedule",
                          schedule, "--warmup", 3, "--clip", 1, "--accumulate", 2, "--label-smoothing", 0.1,
                          "--augment", "crop", "--json").events
        assert events[-1]["event"] == "end" and events[-1]["steps"] == 12, schedule


def test_bf16(farthing, tiny):
    checks = {c["check"]: c for c in map(json.loads, farthing("doctor", "--json").out.splitlines())}
    if checks["bf16"]["state"] != "ok":
        refused = farthing("train", "--data", tiny, "--steps", 5, "--precision", "bf16", code=1)
        assert "bf16" in refused.err
        pytest.skip("this machine does not compute in bf16; that it says so was tested")
    end = farthing("train", "--data", tiny, "--batch", 16, "--epochs", 3, "--precision", "bf16", "--json").end
    assert end["accuracy"] >= 0.7


def test_bf16_does_not_lose_to_f32(farthing, monkeypatch):
    """Where bf16 products are slower, they are made in f32: the advice to take f32 has nothing to say."""
    checks = {c["check"]: c for c in map(json.loads, farthing("doctor", "--json").out.splitlines())}
    if checks["bf16"]["state"] != "ok":
        pytest.skip("this machine does not compute in bf16")
    allowed = [("FARTHING_MAX_ISA", "amx"), ("FARTHING_MAX_ISA", "avx512"),
               ("ONEDNN_MAX_CPU_ISA", "avx512_core")]  # the last: bf16 without instructions of its own
    for model in ("cifar-cnn", "resnet18-small"):
        for variable, isa in allowed:
            with monkeypatch.context() as set_here:
                set_here.setenv(variable, isa)
                done = farthing("bench", "--device", "cpu", "--model", model, "--batch", 1, "--seconds", 0.001, "--precision", "bf16")
                assert "bf16 is slower" not in done.err, (model, isa)


def test_precision_auto_is_recorded_and_kept(farthing, tiny):
    """On the CPU it is f32. A run that was begun elsewhere goes on in what it was there, if this device has it."""
    common = ["train", "--device", "cpu", "--data", tiny, "--batch", 16, "--steps", 8]
    farthing(*common, "--precision", "auto", "--name", "first")
    farthing(*common, "--name", "plain")
    run = json.loads((farthing.folder / "runs/first/run.json").read_text())
    assert run["configuration"]["precision"] == "auto" and run["precision"] == "f32"
    assert tensors(farthing.folder / "runs/first/last.safetensors") == tensors(farthing.folder / "runs/plain/last.safetensors")
    assert "auto" not in [line for line in farthing("report", "runs/first").out.splitlines() if "f32" in line][0]

    run["precision"] = "f16"  # as if a GPU had begun it
    (farthing.folder / "runs/first/run.json").write_text(json.dumps(run))
    moved = farthing("train", "--resume", "first", "--device", "cpu", "--steps", 12)
    assert "was f16 until now" in moved.err
    assert json.loads((farthing.folder / "runs/first/run.json").read_text())["precision"] == "f32"


def test_two_processes_cannot_train_one_run(farthing, tiny):
    arguments = ["train", "--data", tiny, "--batch", 16, "--epochs", 1000, "--name", "shared"]
    process = farthing.start(*arguments)
    wait_for(lambda: (farthing.folder / "runs/shared/events.jsonl").exists(), "the start")
    second = farthing(*arguments, "--resume", code=1)
    assert str(process.pid) in second.err
    assert stop(process).code == 75


# ---- bad input ----

def test_nan_loss_stops(farthing, tiny):
    result = farthing("train", "--data", tiny, "--lr", "1e30", "--steps", 50, "--name", "wild", code=1)
    assert "step" in result.err
    events = record(farthing.folder / "runs/wild")
    assert events[-1]["event"] == "error" and events[-1]["status"] == "diverged"
    assert "failed" in farthing("report", "wild").out


def test_a_batch_has_no_more_images_than_there_are(farthing, tiny):
    """Said, and done as if that had been asked; the record keeps what was asked, so that the command finds its run."""
    flags = ["train", *SMALL, "--data", tiny, "--accumulate", 2, "--json"]
    result = farthing(*flags, "--batch", 1000, "--epochs", 2, "--name", "large")
    (line,) = [line for line in result.err.splitlines() if "--batch" in line]
    assert "--batch 1000 is more than the 256 training samples" in line and "batches of 256" in line
    exact = farthing(*flags, "--batch", 256, "--epochs", 2, "--name", "exact")
    assert "--batch" not in exact.err and exact.end["loss"] == result.end["loss"] and exact.end["steps"] == 2
    run = json.loads((farthing.folder / "runs/large/run.json").read_text())
    assert run["configuration"]["batch"] == 1000 and run["batch"] == 256
    assert "batch 256" in farthing("report", "large").out
    # finished, found by the same command, and extended by name
    farthing(*flags, "--batch", 1000, "--epochs", 2, "--resume")
    assert len(farthing.runs()) == 2
    more = farthing("train", "--resume", "large", "--batch", 1000, "--epochs", 4, "--json").end
    whole = farthing(*flags, "--batch", 256, "--epochs", 4, "--name", "whole").end
    assert more["loss"] == whole["loss"] and more["steps"] == 4


def test_runs_folder_is_a_file(farthing, tiny):
    (farthing.folder / "runs").write_text("in the way")
    result = farthing("train", "--data", tiny, "--steps", 3, code=1)
    assert "runs" in result.err
    assert (farthing.folder / "runs").read_text() == "in the way"


def test_runs_folder_cannot_be_made(farthing, tiny):
    result = farthing("train", "--data", tiny, "--steps", 3, "--runs", "/proc/farthing/runs", code=1)
    assert "/proc/farthing" in result.err


def test_names(farthing, tiny):
    farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--name", "mine")
    assert "mine" in farthing("train", *SMALL, "--data", tiny, "--steps", 2, "--name", "mine", code=1).err
    assert farthing("train", "--data", tiny, "--name", "../up", code=None).code in (1, 2)
    assert not (farthing.folder / "up").exists()


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("name, change", [
    (IMAGES, lambda b: b[:len(b) // 2]),
    (IMAGES, lambda b: b"\x12\x34\x56\x78" + b[4:]),
    (IMAGES, lambda b: b[:4] + b"\xff\xff\xff\xff" + b[8:]),
    (IMAGES, lambda b: b[:8] + b"\x7f\xff\xff\xff\x7f\xff\xff\xff" + b[16:]),
    (IMAGES, lambda b: b[:4] + bytes(4) + b[8:16]),
    (IMAGES, lambda b: b""),
    (LABELS, lambda b: b[:-1]),
    (LABELS, lambda b: b[:8] + b"\xff" * (len(b) - 8)),
    (LABELS, lambda b: b[:4] + struct.pack(">I", 3) + b[8:11]),
])
def test_damaged_data(farthing, tmp_path, name, change):
    data = write_mnist(tmp_path / "damaged", train=40, test=10)
    damage(data, name, change)
    result = farthing("train", "--data", data, "--batch", 8, "--steps", 3, code=1)
    assert "damaged" in result.err
    assert "Sanitizer" not in result.err


def test_data_folder_without_data(farthing, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty" in farthing("train", "--data", "empty", code=1).err
    (tmp_path / "empty" / "notes.txt").write_text("hello")
    assert "empty" in farthing("train", "--data", "empty", code=1).err


# ---- memory ----

@pytest.mark.skipif(SANITIZED, reason="the address sanitizer looks for leaks itself")
def test_no_leaks(farthing, tmp_path):
    data = write_mnist(tmp_path / "few", train=12, test=64)
    # The smallest network with convolutions: valgrind is a hundred times slower than the processor.
    done = subprocess.run(["valgrind", "--leak-check=full", "--undef-value-errors=no", FARTHING, "train", "--model",
                           "cifar-cnn", "--data", data, "--batch", "4", "--steps", "3", "--threads", "1"],
                          cwd=farthing.folder, capture_output=True, text=True, timeout=PATIENCE_S,
                          env=environment(ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="AVX2"))
    assert done.returncode == 0, done.stderr
    # A program that loses nothing gets another sentence instead of the summary.
    for kind in ("definitely", "indirectly"):
        lost = re.search(kind + r" lost: ([\d,]+) bytes", done.stderr)
        assert lost is None or lost[1] == "0", done.stderr
    assert "LEAK SUMMARY" in done.stderr or "no leaks are possible" in done.stderr
    # oneDNN's generated code reads past its own buffers on purpose; farthing's does not.
    assert not re.search(r"Invalid (read|write) of size \d+\n==\d+==    at 0x[0-9A-F]+: \S+ \(in [^)]*farthing\)",
                         done.stderr), done.stderr
