"""What a run cost: prices, machines, budgets, and that the report adds up."""
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import FARTHING, PATIENCE_S, SMALL, environment, record, stop, wait_for

QUICK = [*SMALL, "--batch", 16, "--checkpoint-every", 20, "--threads", 2]


def bill(program, run):
    return json.loads(program("report", run, "--json").out)["bill"]


def near(value):
    return pytest.approx(value, rel=1e-6, abs=1e-9)


def machine_events(run):
    """The events of each machine of a run: a start or resume and what follows it."""
    machines = []
    for event in record(run):
        if event["event"] in ("start", "resume"):
            machines.append([])
        machines[-1].append(event)
    return machines


def check_sums(program, run):
    """The bill against a second opinion, from the events alone."""
    its = bill(program, run)
    machines = machine_events(run)
    assert len(its["machines"]) == len(machines)
    for machine, events in zip(its["machines"], machines):
        assert machine["seconds"] == pytest.approx(max(event["process_s"] for event in events), abs=0.05)
        assert machine["usd"] == near(machine["seconds"] * events[0]["price_usd_per_hour"] / 3600)
        parts = machine["useful_s"] + machine["lost_s"] + machine["starting_s"]
        assert machine["seconds"] == near(parts)
    for key in ("seconds", "usd", "lost_usd", "useful_s", "lost_s", "starting_s", "epochs", "steps_lost"):
        assert its[key] == near(sum(machine[key] for machine in its["machines"])), key
    return its


def test_price_is_recorded(farthing, tiny):
    result = farthing("train", *QUICK, "--data", tiny, "--epochs", 3, "--price", "0.526", "--json")
    start = result.events[0]
    assert start["price_usd_per_hour"] == 0.526 and start["price_source"] == "--price" and start["host"]
    run = farthing.only_run()
    machine = json.loads((run / "run.json").read_text())["machine"]
    assert machine["price_usd_per_hour"] == 0.526 and machine["host"] == start["host"]
    its = check_sums(farthing, run)
    assert its["epochs"] == near(3) and its["usd_per_epoch"] == near(its["usd"] / 3)
    assert its["lost_s"] == 0
    assert result.end["spent_usd"] == pytest.approx(its["usd"], abs=1e-7)
    text = farthing("report", run).out
    for expected in ("rate", "$0.5260/h", "cost", "momentum", "accuracy", "an epoch cost $"):
        assert expected in text
    best = max(event.get("validation_accuracy", 0) for event in result.events)
    reached = [step["accuracy"] for step in its["to_accuracy"]]
    assert reached == [share for share in (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999) if best >= share]
    assert ("of machine time and cost $" in text) == (best >= 0.9)


def test_without_a_price(farthing, tiny):
    farthing("train", *QUICK, "--data", tiny, "--epochs", 1)
    text = farthing("report").out
    assert "no price is known" in text and "--price 0.526" in text and "$" not in text
    assert "usd" not in bill(farthing, farthing.only_run())
    text = farthing("report", "--price", "3.6").out
    assert "$3.6000/h" in text and "no price" not in text


def test_moves_between_machines(farthing, tiny):
    """Interrupted, killed, finished: three machines with three prices, and the steps between checkpoint and kill lost."""
    train = ["train", *QUICK, "--data", tiny, "--steps", 100000, "--name", "moving", "--resume"]
    run = farthing.folder / "runs" / "moving"

    process = farthing.start(*train, "--price", "3.6")
    wait_for(lambda: list(run.glob("checkpoints/step-*.json")), "a checkpoint")
    assert stop(process).code == 75

    process = farthing.start(*train, "--price", "7.2", "--checkpoint-every", 3000)
    seen = len(record(run))
    wait_for(lambda: sum(e["event"] == "step" for e in record(run)[seen:]) > 3, "steps")
    process.kill()
    process.communicate()
    lost_at = max(e["step"] for e in record(run) if e["event"] == "step")

    process = farthing.start(*train, "--price", "$1.8")
    seen = len(record(run))
    wait_for(lambda: any(e["event"] == "step" for e in record(run)[seen:]), "steps")
    assert stop(process, signal.SIGTERM).code == 75

    its = check_sums(farthing, run)
    assert [machine["price_usd_per_hour"] for machine in its["machines"]] == [3.6, 7.2, 1.8]
    assert [machine["ending"] for machine in its["machines"]] == ["interrupted", "unknown", "interrupted"]
    resumed_at = its["machines"][2]["first_step"]
    assert its["steps_lost"] == its["machines"][1]["steps_lost"] == lost_at - resumed_at
    assert its["machines"][0]["steps_lost"] == 0
    assert (its["lost_usd"] > 0) == (lost_at > resumed_at)
    text = farthing("report", run).out
    assert "none: killed" in text and "signal" in text and "what was paid for" in text
    assert "\ntotal " in text

    farthing("train", *QUICK, "--data", tiny, "--epochs", 1, "--name", "other", "--price", 1)
    text = farthing("report", "moving", "other").out
    assert "A  moving" in text and "B  other" in text and "all  total" in text
    rows = {line.split("  ")[0]: line for line in farthing("compare", "moving", "other").out.splitlines()}
    assert "$" in rows["cost"] and "$" in rows["cost per epoch"]


def test_a_takeover_is_billed(farthing, tiny, tmp_path):
    """Killed on one machine, taken over by one that waited: the wait costs nothing, and the dead one until last seen."""
    def train(command, runs, price):
        return farthing.start(command, *QUICK, "--data", tiny, "--steps", 100000000, "--checkpoints", tmp_path / "store",
                              "--lease", "2s", "--runs", runs, "--price", price)

    def steps_of(runs):
        """That the machine made itself: a record is handed on with the run."""
        parts = [part for events in tmp_path.glob(f"{runs}/*/events.jsonl") for part in machine_events(events.parent)]
        return sum(event["event"] == "step" for part in parts if part[0]["folder"].startswith(runs) for event in part)

    first = train("train", "here", 3.6)
    wait_for(lambda: steps_of("here") > 3 and list((tmp_path / "store").glob("checkpoints/*.json")), "a checkpoint")
    second = train("standby", "there", 7.2)
    time.sleep(1)
    first.kill()
    first.communicate()
    wait_for(lambda: steps_of("there") > 3, "the take-over")
    assert stop(second).code == 75
    (run,) = tmp_path.glob("there/*/")
    resume = [event for event in record(run) if event["event"] == "resume"][-1]
    assert resume["waited_s"] > 1 and resume["process_s"] > resume["waited_s"]
    its = bill(farthing, tmp_path / "store")
    dead, alive = its["machines"]
    assert (dead["price_usd_per_hour"], alive["price_usd_per_hour"]) == (3.6, 7.2)
    assert alive["began_s"] == pytest.approx(resume["time"] - resume["process_s"] + resume["waited_s"], abs=0.01)
    assert dead["last_s"] <= alive["began_s"] + 0.1
    assert its["usd"] == near(dead["usd"] + alive["usd"])
    assert record(run)[-1]["spent_usd"] == pytest.approx(its["usd"], abs=1e-7)


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


@pytest.mark.skipif(not FAKETIME, reason="no libfaketime: apt-get install faketime")
def test_a_clock_that_is_set_in_mid_run(farthing, tiny, tmp_path):
    """Three hours ahead while it trains: the bill is of the seconds that passed, and the end says what the report does."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    run = farthing.folder / "runs" / "jump"
    faked = environment(LD_PRELOAD=str(FAKETIME), FAKETIME_TIMESTAMP_FILE=str(offset), FAKETIME_NO_CACHE="1",
                        FAKETIME_DONT_FAKE_MONOTONIC="1")
    line = [FARTHING, "train", *QUICK, "--data", tiny, "--for", "2s", "--name", "jump", "--price", 360]
    began = time.monotonic()
    process = subprocess.Popen([*map(str, line)], cwd=farthing.folder, env=faked, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: (run / "events.jsonl").exists() and any(e["event"] == "step" for e in record(run)), "a step")
    (tmp_path / "ahead").write_text("+3h\n")
    os.replace(tmp_path / "ahead", offset)
    out, err = process.communicate(timeout=PATIENCE_S)
    took = time.monotonic() - began
    assert process.returncode == 0, err
    events = record(run)
    assert events[-1]["time"] - events[0]["time"] > 3 * 3600, "the clock was not set"
    its = check_sums(farthing, run)
    slack = 0.1  # when a process began is known to a tick of the kernel
    assert 2 < its["seconds"] < took + slack and its["usd"] < (took + slack) * 0.1
    (cost,) = re.findall(r"; cost (\$[\d.]+)", out)
    assert re.search(rf"\s{re.escape(cost)}\s", farthing("report", run).out)


def test_a_resume_begins_where_the_machine_before_stopped(farthing, tiny):
    """What it takes to begin is not trained by either, and lengthens no bill of before."""
    farthing("train", *QUICK, "--data", tiny, "--steps", 5, "--name", "x", "--price", 360)
    run = farthing.folder / "runs" / "x"
    (manifest,) = (run / "checkpoints").glob("*.json")
    saved_s = json.loads(manifest.read_text())["state"]["elapsed_s"]
    before = bill(farthing, run)["usd"]
    farthing("train", "--resume", "x", "--steps", 8)
    (resume,) = (event for event in record(run) if event["event"] == "resume")
    assert resume["elapsed_s"] == pytest.approx(saved_s, abs=1e-9)
    assert check_sums(farthing, run)["machines"][0]["usd"] == near(before)


def test_a_larger_budget_takes_the_lease(farthing, tiny, tmp_path):
    train = ["train", *QUICK, "--data", tiny, "--epochs", 10000000, "--price", 360, "--checkpoints", tmp_path / "store",
             "--json"]

    def fence():
        return json.loads((tmp_path / "store" / "lease.json").read_text())["fence"]

    assert farthing(*train, "--budget", 0.1).end["reason"] == "budget"
    before = fence()
    assert farthing(*train, "--budget", 0.1).events[-1]["reason"] == "budget"  # told again, and nothing done
    assert fence() == before and len(bill(farthing, tmp_path / "store")["machines"]) == 1
    spent = bill(farthing, tmp_path / "store")["usd"]
    assert farthing(*train, "--budget", spent + 0.2).end["reason"] == "budget"
    assert fence() == before + 1 and len(bill(farthing, tmp_path / "store")["machines"]) == 2


def test_a_price_stays_with_its_machine(farthing, tiny):
    farthing("train", *QUICK, "--data", tiny, "--steps", 10, "--price", 2, "--name", "one")
    farthing("train", "--resume", "one", "--steps", 20)
    assert [m["price_usd_per_hour"] for m in bill(farthing, "one")["machines"]] == [2, 2]
    run = farthing.folder / "runs" / "one" / "run.json"
    description = json.loads(run.read_text())
    description["machine"]["host"] = "another"
    run.write_text(json.dumps(description))
    farthing("train", "--resume", "one", "--steps", 30)
    assert "price_usd_per_hour" not in bill(farthing, "one")["machines"][2]


def test_budget(farthing, tiny):
    """Ten cents a second: it stops in time, stays stopped, and goes on with a larger budget."""
    slack = 2  # dollars: for twenty seconds in which the machine was busy with something else
    train = ["train", *QUICK, "--data", tiny, "--epochs", 10000000, "--price", 360, "--name", "short", "--resume"]
    run = farthing.folder / "runs" / "short"
    result = farthing(*train, "--budget", "0.2usd", "--json")
    assert result.end["reason"] == "budget"
    first = check_sums(farthing, run)
    assert 0 < first["usd"] <= 0.2 + slack
    assert any(event["event"] == "checkpoint" and event["step"] == result.end["steps"] for event in record(run))

    again = farthing(*train, "--budget", "0.2usd")
    assert "already finished" in again.out and "larger --budget" in again.err
    assert len(bill(farthing, run)["machines"]) == 1

    result = farthing(*train, "--budget", f"${first['usd'] + 0.3:.3f}", "--json")
    assert result.end["reason"] == "budget" and result.events[0]["event"] == "resume"
    second = check_sums(farthing, run)
    assert len(second["machines"]) == 2 and first["usd"] < second["usd"] <= first["usd"] + 0.3 + slack
    assert second["steps_lost"] == 0


def test_a_budget_cuts_the_last_validation(farthing):
    """A dollar a second; the reference back end needs half a minute for the 4,000 images of a validation."""
    train = ["train", "--device", "reference", "--model", "mnist-cnn", "--batch", 1, "--price", 3600, "--name", "cut", "--resume"]
    result = farthing(*train, "--budget", "4usd", "--json")
    run = farthing.folder / "runs" / "cut"
    assert result.end["reason"] == "budget" and "accuracy" not in result.end and "best" not in result.end
    assert "before the last validation did" in result.err
    assert any(event["event"] == "checkpoint" and event["step"] == result.end["steps"] for event in record(run))
    assert (run / "last.safetensors").exists()
    assert "accuracy -" in farthing(*train, "--budget", "4usd").out
    assert "finished" in farthing("report", run).out


def test_budget_and_other_limits(farthing, tiny):
    result = farthing("train", *QUICK, "--data", tiny, "--steps", 5, "--price", 1, "--budget", 1000, "--json")
    assert result.end["reason"] == "steps"


def test_budget_needs_a_price(farthing, tiny):
    result = farthing("train", *QUICK, "--data", tiny, "--budget", 5, code=1)
    assert "--budget needs" in result.err and "--price" in result.err
    assert not farthing.runs()
    for flag in ("--budget", "--price"):
        for value in ("0", "-1", "five", "5eur"):
            assert "dollars" in farthing("train", flag, value, code=2).err


class AmazonMetadata(http.server.BaseHTTPRequestHandler):
    """As much of the instance metadata service, version 2, as tells what a machine is."""
    answers = {
        "/latest/dynamic/instance-identity/document":
            json.dumps({"instanceType": "g4dn.xlarge", "region": "us-east-1", "instanceId": "i-0123456789"}),
        "/latest/meta-data/instance-life-cycle": "spot",
    }

    def answer(self, code, text=""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        self.answer(*(200, "token") if self.path == "/latest/api/token" else (404, ""))

    def do_GET(self):
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            return self.answer(401)
        text = self.answers.get(self.path)
        return self.answer(404) if text is None else self.answer(200, text)

    def log_message(self, *_):
        pass


@pytest.fixture
def on_amazon():
    """The environment of a spot machine of AWS."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), AmazonMetadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"FARTHING_AWS_METADATA": f"http://127.0.0.1:{server.server_port}", "FARTHING_GCP_METADATA": "off",
           "FARTHING_AZURE_METADATA": "off"}
    server.shutdown()
    server.server_close()


def test_a_cloud_machine_is_priced(farthing, tiny, on_amazon):
    train = ["train", *QUICK, "--data", tiny, "--epochs", 1, "--json"]
    for number in range(5):  # a service that does not answer within a second, as on a very busy machine, is not there
        name = f"found-{number}"
        start = farthing(*train, "--name", name, env=on_amazon).events[0]
        if "cloud" in start:
            break
    assert (start["cloud"], start["instance"], start["region"], start["market"]) == \
        ("aws", "g4dn.xlarge", "us-east-1", "spot")
    assert start["price_usd_per_hour"] == 0.2104 and "g4dn.xlarge spot in us-east-1" in start["price_source"]
    assert json.loads((farthing.folder / "runs" / name / "run.json").read_text())["machine"]["instance"] == "g4dn.xlarge"
    assert "g4dn.xlarge spot, us-east-1" in farthing("report", name).out
    start = farthing(*train, "--price", "0.2", env=on_amazon).events[0]
    assert start["price_usd_per_hour"] == 0.2


def test_an_unknown_type_is_said(farthing, tiny, on_amazon, catalogue):
    for _ in range(5):
        result = farthing("train", *QUICK, "--data", tiny, "--steps", 2, "--prices", catalogue, env=on_amazon)
        if "no price for aws g4dn.xlarge" in result.err:
            return
    raise AssertionError(result.err)


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("- {cloud: own, instance: '*', usd_per_hour: 0.25, date: 2026-01-31}\n")
    return path


def test_catalogues(farthing, tiny, catalogue, tmp_path):
    train = ["train", *QUICK, "--data", tiny, "--steps", 3, "--json"]
    start = farthing(*train, "--prices", catalogue).events[0]
    assert start["price_usd_per_hour"] == 0.25 and "2026-01-31" in start["price_source"]
    start = farthing(*train, env={"FARTHING_PRICES": str(catalogue)}).events[0]
    assert start["price_usd_per_hour"] == 0.25
    start = farthing(*train, "--price", 3, "--prices", catalogue).events[0]
    assert start["price_usd_per_hour"] == 3
    configuration = tmp_path / "configuration" / "farthing"
    configuration.mkdir(parents=True)
    (configuration / "prices.yaml").write_text(catalogue.read_text().replace("0.25", "0.75"))
    start = farthing(*train, env={"XDG_CONFIG_HOME": str(configuration.parent)}).events[0]
    assert start["price_usd_per_hour"] == 0.75
    catalogue.write_text("\n- {cloud: own, instance: '*', usd_per_huor: 0.25}\n")
    error = farthing("train", *QUICK, "--data", tiny, "--prices", catalogue, code=1).err
    assert "prices.yaml line 2" in error and "usd_per_hour" in error


def test_prices_command(farthing, tmp_path):
    text = farthing("prices").out
    for expected in ("built-in catalogue", "g4dn.xlarge", "Standard_NC6s_v3", "n1-standard-4", "spot"):
        assert expected in text
    rows = [json.loads(line) for line in farthing("prices", "aws", "g4dn.xlarge", "--json").out.splitlines()]
    assert any(row["usd_per_hour"] == 0.526 and row["market"] == "on-demand" for row in rows)
    yaml = farthing("prices", "--yaml").out
    assert "EXAMPLES" in yaml
    (tmp_path / "mine.yaml").write_text(yaml)
    assert farthing("prices", "--prices", "mine.yaml").out.count("\n") == text.count("\n")
    assert "no such price" in farthing("prices", "nonesuch", code=1).err
