"""Who keeps the run of a group of workers, when the one that did is lost: record, checkpoints and lease are handed over."""
import json
import os
import signal

import pytest
from conftest import PATIENCE_S, events_of, leader_of, wait_for

ENDLESS = ["train", "--strategy", "data-parallel", "--model", "linear", "--data", "digits", "--seed", "5", "--steps",
           "100000000", "--validate-every", "1000000", "--name", "run", "--watch", "none"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_another_worker_keeps_the_run(farthing, tmp_path, how):
    """In a store with a lease that lapses after a minute: the other does not wait for that."""
    store, local = tmp_path / "store", tmp_path / "runs/run/events.jsonl"
    process = farthing.start("launch", "--workers", "2", "--", *ENDLESS, "--checkpoints", store,
                             "--lease", "60s")
    former = None
    try:
        wait_for(lambda: any(event["event"] == "group" for event in events_of(local)), "a group", PATIENCE_S)
        former = leader_of(events_of(local))
        os.kill(former, how)
        if how == signal.SIGSTOP:
            wait_for(lambda: json.loads((store / "lease.json").read_text())["fence"] > 1, "another owner", PATIENCE_S)
            os.kill(former, signal.SIGCONT)
        wait_for(lambda: any("-f000001" not in path.name for path in (store / "checkpoints").glob("*-f*.json")),
                 "its checkpoint", PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 75, process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    events = events_of(local)
    resumes = [event for event in events if event["event"] == "resume"]
    assert len(resumes) >= 1 and f"process {former}" in resumes[0]["reason"]
    assert events[-1]["event"] == "interrupted"
    assert json.loads((store / "lease.json").read_text())["owner"] == ""  # given up in order
    last = max(event["step"] for event in events if event["event"] == "checkpoint")
    assert last == events[-1]["step"]
    assert farthing("report", store).code == 0


def test_a_stop_while_nobody_keeps_the_run(farthing, tmp_path):
    """A stop that finds the others without the one that kept the run: they save all the same."""
    local = tmp_path / "runs/run/events.jsonl"
    process = farthing.start("launch", "--workers", "3", "--", *ENDLESS)
    try:
        wait_for(lambda: any(event["event"] == "step" for event in events_of(local)), "steps", PATIENCE_S)
        os.kill(leader_of(events_of(local)), signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 75, process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    events = events_of(local)
    assert events[-1]["event"] == "interrupted"
    assert [event for event in events if event["event"] == "checkpoint"][-1]["step"] == events[-1]["step"] > 0
