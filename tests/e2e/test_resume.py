"""Interrupted runs: whatever happens, the same command continues and ends with the same weights."""
import json
import random
import re
import resource
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SMALL, checkpoints, environment, record, stop, tensors, wait_for


def test_interrupt_then_the_printed_command(farthing, repeated):
    process = farthing.start(*[a for a in repeated.arguments if a != "--resume"])
    wait_for(lambda: farthing.runs() and checkpoints(farthing.runs()[0]), "a checkpoint")
    result = stop(process)
    assert result.code == 75, result.err
    (command,) = [line.strip() for line in result.out.splitlines() if line.endswith("--resume")]
    assert record(farthing.only_run())[-1]["event"] == "interrupted"
    assert re.search(r"^state +stopped, at step \d", farthing("report").out, re.M)
    done = subprocess.run(command, shell=True, cwd=farthing.folder, env=environment(), capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "continuing after step" in done.stdout
    assert tensors(farthing.only_run() / "last.safetensors") == repeated.weights


def test_terminate_is_as_good_as_interrupt(farthing, repeated):
    process = farthing.start(*repeated.arguments, "--json")
    wait_for(lambda: farthing.runs() and checkpoints(farthing.runs()[0]), "a checkpoint")
    result = stop(process, signal.SIGTERM)
    assert result.code == 75
    assert result.events[-1]["event"] == "interrupted"
    farthing(*repeated.arguments)
    assert tensors(farthing.only_run() / "last.safetensors") == repeated.weights


def test_no_thread_runs_a_signal_handler(farthing, repeated):
    """A handler's frame would be written into the heap where oneDNN has pointed the stack register."""
    process = farthing.start(*repeated.arguments)
    wait_for(lambda: farthing.runs() and checkpoints(farthing.runs()[0]), "a checkpoint")
    stops = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    seen = 0
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        waits = int(fields["SigBlk"], 16) & stops == 0  # sigwait() unblocks what it waits for
        assert int(fields["SigCgt"], 16) & stops == 0
        assert not waits or fields["Name"].strip() == "signals"
        seen += waits
    assert seen <= 1
    assert stop(process).code == 75


def test_interrupts_over_and_over(farthing, repeated):
    def steps():
        return sum(path.read_text().count('"event":"step"') for path in farthing.folder.glob("runs/*/events.jsonl"))

    for _ in range(12):
        before = steps()
        process = farthing.start(*repeated.arguments)
        wait_for(lambda: process.poll() is not None or steps() > before, "a step")
        result = stop(process)
        assert result.code in (0, 75), result.err
    farthing(*repeated.arguments)
    assert tensors(farthing.only_run() / "last.safetensors") == repeated.weights


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_reader_that_goes_away_stops_and_saves(farthing, tiny, flags):
    process = farthing.start("train", "--data", tiny, *SMALL, "--batch", 16, "--epochs", 100000, *flags)
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=PATIENCE_S)
    err = process.stderr.read()
    process.stderr.close()
    assert process.returncode == 75, err
    assert "--resume" in err
    assert record(farthing.only_run())[-1]["event"] == "interrupted"
    assert checkpoints(farthing.only_run())


def test_second_interrupt_stops_at_once(farthing):
    process = farthing.start("train", "--batch", 2048, "--steps", 1000, "--checkpoint-every", 1)
    wait_for(lambda: farthing.runs() and checkpoints(farthing.runs()[0]), "a checkpoint")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (-signal.SIGINT, 75)  # 75 only if the step ended between the two


def test_printed_command_is_quoted(farthing, tiny):
    odd = farthing.folder / "it's a folder"
    odd.symlink_to(tiny)
    process = farthing.start("train", "--data", odd, "--batch", 16, "--epochs", 1000)
    wait_for(lambda: farthing.runs() and '"step"' in (farthing.runs()[0] / "events.jsonl").read_text(), "a step")
    result = stop(process)
    (command,) = [line.strip() for line in result.out.splitlines() if line.endswith("--resume")]
    assert shlex.split(command)[3] == str(odd)


def test_same_command_again_and_again(farthing, repeated):
    first = farthing(*repeated.arguments)
    assert "trained mnist-cnn" in first.out
    for _ in range(2):
        again = farthing(*repeated.arguments)
        assert "already finished" in again.out
    assert farthing(*repeated.arguments, "--json").end["steps"] == 150
    assert tensors(farthing.only_run() / "last.safetensors") == repeated.weights
    farthing(*repeated.arguments, "--seed", 4)  # another configuration is another run
    assert len(farthing.runs()) == 2


def test_resume_by_name(farthing, tiny):
    process = farthing.start("train", "--data", tiny, "--batch", 16, "--steps", 400, "--checkpoint-every", 5, "--name",
                             "mine")
    wait_for(lambda: checkpoints(farthing.folder / "runs/mine"), "a checkpoint")
    assert stop(process).code == 75
    result = farthing("train", "--resume", "runs/mine", "--json")
    assert result.events[0]["event"] == "resume" and result.end["steps"] == 400
    assert "already finished" in farthing("train", "--resume", "mine").out
    assert "mine" in farthing("train", "--resume", "nine", code=1).err


def test_state_that_is_fetched_after_training_went_on(farthing, tiny):
    """The reference back end hands its state over as a GPU does: held at the step, fetched later by the writer's thread."""
    arguments = ["train", "--data", tiny, *SMALL, "--device", "reference", "--batch", 16, "--steps", 3000, "--checkpoint-every", 100]
    whole = farthing(*arguments, "--name", "whole", "--json")
    process = farthing.start(*arguments, "--name", "cut")
    wait_for(lambda: len(checkpoints(farthing.folder / "runs" / "cut")) > 1, "checkpoints")
    process.kill()
    process.communicate()
    cut = farthing("train", "--resume", "cut", "--json")
    assert [e["step"] for e in cut.events if e["event"] == "resume"][0] > 0
    assert tensors(farthing.folder / "runs/whole/last.safetensors") == tensors(farthing.folder / "runs/cut/last.safetensors")
    assert [e for e in whole.events if e["event"] == "checkpoint"]


def test_a_limit_given_now_replaces_the_old_one(farthing, tiny):
    farthing("train", "--data", tiny, "--model", "linear", "--batch", 16, "--steps", 3, "--name", "mine")
    assert farthing("train", "--resume", "mine", "--epochs", 2, "--json").end["epochs"] == 2
    longer = farthing("train", "--resume", "mine", "--steps", 40, "--json").end
    assert longer["steps"] == 40 and longer["reason"] == "steps"


def test_last_line_names_what_the_run_trains(farthing, tiny):
    farthing("train", "--data", tiny, "--model", "linear", "--batch", 16, "--steps", 1, "--name", "mine")
    assert f"already finished: linear on {tiny}:" in farthing("train", "--resume", "mine").out
    assert f"trained linear on {tiny}:" in farthing("train", "--resume", "mine", "--steps", 2).out


def test_killed_ten_times(farthing, repeated):
    """kill -9 at random moments, also while checkpoints are written; the end is the same, bit for bit."""
    draw = random.Random()
    seed = draw.randrange(1 << 32)
    draw.seed(seed)
    print("seed of the delays:", seed)
    kills = 0
    for _ in range(60):
        if kills == 10:
            break
        process = farthing.start(*repeated.arguments)
        try:
            process.wait(timeout=draw.uniform(0.02, 0.6))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        process.communicate()
        if process.returncode == 0:  # got to its end: begin another run, to be killed as well
            (folder,) = farthing.runs()
            assert tensors(folder / "last.safetensors") == repeated.weights
            folder.rename(farthing.folder / f"done-{time.monotonic_ns()}")
    assert kills == 10
    farthing(*repeated.arguments)
    assert tensors(farthing.only_run() / "last.safetensors") == repeated.weights
    report = json.loads(farthing("report", "--json").out)
    assert report["finished"] and report["steps"] == 150
    steps = [event["step"] for event in record_that_counts(farthing.only_run())]
    assert steps == sorted(set(steps))
    assert not list(farthing.only_run().glob("**/*.tmp*")), "a killed process left temporaries behind"


def record_that_counts(run):
    """Step events as a reader keeps them: a resume at step S undoes later ones."""
    kept = []
    for line in (run / "events.jsonl").read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["event"] == "resume":
            kept = [step for step in kept if step["step"] <= event["step"]]
        if event["event"] == "step":
            kept.append(event)
    return kept


def kill_after_checkpoints(farthing, repeated, count=2):
    process = farthing.start(*repeated.arguments)
    wait_for(lambda: farthing.runs() and len(checkpoints(farthing.runs()[0])) >= count, "checkpoints")
    process.kill()
    process.communicate()
    return farthing.only_run()


def test_corrupt_checkpoint_falls_back_aloud(farthing, repeated):
    run = kill_after_checkpoints(farthing, repeated)
    newest = checkpoints(run)[-1].with_suffix(".safetensors")
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    result = farthing(*repeated.arguments)
    assert newest.name in result.err and "warning" in result.err
    assert tensors(run / "last.safetensors") == repeated.weights


def test_truncated_and_missing_parts_of_checkpoints(farthing, repeated):
    run = kill_after_checkpoints(farthing, repeated)
    newest = checkpoints(run)[-1]
    newest.write_bytes(newest.read_bytes()[:20])
    assert "warning" in farthing(*repeated.arguments).err
    assert tensors(run / "last.safetensors") == repeated.weights


def test_all_checkpoints_corrupt(farthing, repeated):
    run = kill_after_checkpoints(farthing, repeated)
    for path in run.glob("checkpoints/*.safetensors"):
        path.write_bytes(b"nothing")
    result = farthing(*repeated.arguments, code=1)
    assert "checkpoint" in result.err


def test_a_disk_too_small_for_what_is_kept(farthing, tiny, small_disk):
    """Two checkpoints and a bit fit, five are to be kept: it says so at the start, and always has the newest."""
    one = 2 * 4 * (784 * 10 + 10)  # weights and momentum of the linear model
    disk = small_disk(size_kib=3 * one // 1024 + 60)
    # Steps of many batches, so that each checkpoint is written before the next one is due.
    result = farthing("train", *SMALL, "--data", "digits", "--batch", 16, "--accumulate", 200, "--steps", 60,
                      "--checkpoint-every", 5, "--keep", 5, "--threads", 1, "--runs", disk)
    (run,) = disk.glob("*/")
    assert re.search(r"has room for [\d.]+ MB of checkpoints, but --keep 5 needs [\d.]+ MB", result.err)
    assert re.search(r"is full: removed the checkpoint of step \d+ to make room", result.err)
    assert "no checkpoint at step" not in result.err
    assert checkpoints(run)[-1].name == "step-000000000060.json" and (run / "last.safetensors").exists()
    assert not list(run.glob("**/.tmp*"))
    roomy = farthing("train", *SMALL, "--data", tiny, "--steps", 1, "--keep", 5)
    assert "room" not in roomy.err


def test_full_disk(farthing, repeated, tiny):
    """A limit on file sizes fails writes as a full disk does: what was saved stays good and the run can go on."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    run = kill_after_checkpoints(farthing, repeated)
    kept = len(checkpoints(run))
    limited = farthing(*repeated.arguments, code=None, preexec_fn=limit)
    assert limited.code == 1, limited.out + limited.err
    assert re.search(r"larger than the file system|File too large|No space", limited.err)
    assert len(checkpoints(run)) >= min(kept, 1)
    assert not list(run.glob("**/*.tmp*"))
    farthing(*repeated.arguments)
    assert tensors(run / "last.safetensors") == repeated.weights
