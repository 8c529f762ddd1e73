"""Rehearsals: a job under simulated clouds, signals, files and kills ends with the weights of one left alone."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import FARTHING, PATIENCE_S, SANITIZED, checkpoints, environment, record, wait_for

KINDS = ["gcp", "signal", "file", "kill9", "azure", "aws"]
# A lease that lapses quickly, so that machines do not wait long after a kill; enough steps for everything to happen.
JOB = ["train", "--data", "digits", "--batch", 16, "--threads", 1, "--checkpoint-every", "200ms", "--lease", "1s"]
# 100 for the whole thing, as in bench/RESULTS.md.
INTERRUPTIONS = int(os.environ.get("FARTHING_REHEARSE_INTERRUPTIONS", 6))


def run(farthing, *arguments, env=None):
    """A rehearsal is many runs, so it has the patience of several."""
    done = subprocess.run([FARTHING, "rehearse", *map(str, arguments)], cwd=farthing.folder, capture_output=True, text=True,
                          timeout=max(5, INTERRUPTIONS) * PATIENCE_S, env=environment(**(env or {})),
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def rehearse(farthing, *arguments, env=None):
    return json.loads(run(farthing, "--json", *arguments, env=env))


def check(outcome):
    assert outcome["equal"] is True
    assert outcome["lost_before_checkpoint"] == 0
    assert outcome["torn"] == 0
    for one in outcome["interruptions"]:
        assert one["steps_lost"] <= max(0, one["step"] - one["saved_step"])
        assert one["resumed_step"] >= one["saved_step"]
        assert not one["outlived"]
        if "notice_s" in one:
            assert one["notice_used_s"] <= one["notice_s"]


def test_every_kind_of_notice_in_a_bucket(farthing, bucket):
    """One machine of each cloud, and a kill; all but the killed one lose nothing."""
    trace = farthing.folder / "trace.yaml"
    trace.write_text("".join(f"- {{after_step: {30 * (i + 1)}, kind: {kind}}}\n" for i, kind in enumerate(KINDS)))
    outcome = rehearse(farthing, "--notices", trace, "--price", 0.5, "--", *JOB, "--steps", 1200, "--checkpoints",
                       f"{bucket.url}/run", env=bucket.environment)
    check(outcome)
    assert [one["kind"] for one in outcome["interruptions"]] == KINDS
    for one in outcome["interruptions"]:
        if one["kind"] != "kill9":
            assert one["steps_lost"] == 0
            assert one["resumed_step"] == one["step"]
        assert one["seconds_lost"] > 0
        assert one["dollars_lost"] == pytest.approx(one["seconds_lost"] * 0.5 / 3600)
    assert outcome["machines"] == len(KINDS) + 1
    assert outcome["steps"] == 1200
    # Nothing of the rehearsal is left in the user's bucket.
    assert bucket.boto.list_objects_v2(Bucket=bucket.name).get("KeyCount", 0) == 0


def test_random_moments(farthing):
    """Notices and kills at moments drawn from a seed, start-up included."""
    outcome = rehearse(farthing, "--every", "1s", "--kill9", "1.5s", "--cloud", "mixed", "--seed", 5, "--interruptions",
                       INTERRUPTIONS, "--keep", "--", *JOB, "--steps", 300 * INTERRUPTIONS, "--checkpoints",
                       farthing.folder / "store")
    check(outcome)
    assert len(outcome["interruptions"]) > 1
    assert list((farthing.folder / "store").glob("*/lease.json"))


def test_one_folder_without_a_store(farthing):
    """Machines that share their disk; told as a table."""
    shown = run(farthing, "--every", "500ms", "--cloud", "signal", "--interruptions", 2, "--seed", 2, "--folder", "here", "--",
                "train", "--data", "digits", "--batch", 16, "--steps", 300, "--threads", 1, "--checkpoint-every", "200ms")
    assert "byte for byte" in shown
    assert re.search(r"notices? used", shown)
    assert (farthing.folder / "here" / "uninterrupted" / "runs").is_dir()
    assert len(list((farthing.folder / "here" / "runs").glob("*/run.json"))) == 1


def test_a_notice_that_is_too_short(farthing):
    """A job that outlives its notice is killed, as a cloud would do, and goes on from its last checkpoint."""
    trace = farthing.folder / "trace.yaml"
    # Polling alone takes AWS's client longer than this.
    trace.write_text("- {after_step: 20, kind: aws, notice: 1ms}\n")
    outcome = rehearse(farthing, "--notices", trace, "--", *JOB, "--steps", 300, "--checkpoints",
                       farthing.folder / "store")
    assert outcome["equal"]
    assert not list((farthing.folder / "store").iterdir())  # nor an empty folder
    (one,) = outcome["interruptions"]
    assert one["outlived"] or one["notice_used_s"] < 0.6
    assert one["resumed_step"] >= one["saved_step"]


def test_a_stop_leaves_neither_the_job_nor_what_it_stored(farthing):
    process = farthing.start("rehearse", "--every", "1h", "--no-verify", "--folder", "here", "--", *JOB, "--steps", 10**6,
                             "--checkpoints", "store")
    wait_for(lambda: list(farthing.folder.glob("store/here/checkpoints/*.json")), "a checkpoint", PATIENCE_S)
    job = json.loads((farthing.folder / "store/here/lease.json").read_text())
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "the rehearsal was stopped" in err, err
    assert job["owner"] and not list(farthing.folder.glob("store/here/*"))
    time.sleep(1)  # a job left behind would renew its lease, or say that it is gone
    assert not (farthing.folder / "store/here").exists()


def test_a_job_that_fails(farthing):
    result = farthing("rehearse", "--kill9", "10s", "--", "train", "--data", farthing.folder / "nowhere", code=1)
    assert "nowhere" in result.err
    result = farthing("rehearse", "--kill9", "10s", "--no-verify", "--", "train", "--data", farthing.folder / "nowhere",
                      code=1)
    assert "machine 0" in result.err


@pytest.mark.parametrize("arguments, part", [
    (["--every", "3s"], "comes after --"),
    (["--every", "3s", "--", "report"], "comes after --"),
    (["--", "train"], "--every"),
    (["--every", "3s", "--notices", "x.yaml", "--", "train"], "--notices"),
    (["--every", "3s", "--", "train", "--nonsense"], "nonsense"),
    (["--every", "3s", "--", "train", "--epochs", "many"], "epochs"),
    (["--every", "3s", "--cloud", "ibm", "--", "train"], "ibm"),
    (["--every", "3s", "--", "train", "--for", "9s"], "--no-verify"),
])
def test_wrong_usage(farthing, arguments, part):
    assert part in farthing("rehearse", *arguments, code=2).err


# ---- signals of schedulers ----

def begin(farthing, tiny, **extra):
    arguments = ["train", "--data", tiny, "--batch", 16, "--steps", 10 ** 9, "--threads", 1, "--checkpoint-every", "1h"]
    process = subprocess.Popen([FARTHING, *map(str, arguments)], cwd=farthing.folder, env=environment(**extra), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: farthing.runs() and any(e["event"] == "step" for e in record(farthing.runs()[0])), "a step")
    return process


@pytest.mark.parametrize("number, extra", [
    (signal.SIGUSR1, {}),
    (signal.SIGTERM, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
    (signal.SIGTERM, {"FARTHING_GRACE_S": "20"}),
])
def test_a_scheduler_ends_the_job(farthing, tiny, number, extra):
    process = begin(farthing, tiny, **extra)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert checkpoints(farthing.only_run())


def test_timeout_sends_sigterm_twice(farthing, tiny):
    """To the process, and to the group it is in: one request."""
    process = begin(farthing, tiny)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert checkpoints(farthing.only_run())


def test_slurm_sends_sigterm_twice(farthing, tiny):
    """Until the process has ended, a further one changes nothing: neither the save nor the exit status."""
    process = begin(farthing, tiny, SLURM_JOB_ID="7")
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() < begun + 60:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.0001)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert checkpoints(farthing.only_run())


@pytest.mark.skipif(SANITIZED, reason="the time between two signals is the point")
def test_a_second_interrupt_ends_at_once(farthing, tiny):
    process = begin(farthing, tiny)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 75)  # 75 only if it was out between the two
