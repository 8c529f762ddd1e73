"""What functions cost: in the report of a run that they worked for, and in a plan."""
import json

import pytest
from conftest import FARTHING

emulated = pytest.mark.skipif(not (FARTHING.parent / "farthing_emulated.so").exists(),
                              reason="farthing_emulated.so was not built")


@pytest.fixture
def run(farthing):
    """A parameter server's record with twelve invocations of 55.2 s, the first of which was taken for lost for a while, and one that was lost."""
    folder = farthing.folder / "runs" / "made"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"id": "made", "configuration": {}}')
    function = {"event": "invocation", "time": 1060, "provider": "lambda", "function": "mnist", "memory_mb": 1769}
    events = [{"event": "start", "time": 1000, "process_s": 0, "host": "server", "price_usd_per_hour": 3.6},
              {**function, "id": "i0", "seconds": 7, "ended": "lost"},
              *({**function, "id": f"i{i}", "seconds": 55.2, "cold": i < 6, "sent_bytes": 10**8, "ended": "deadline"} for i in range(12)),
              {**function, "id": "i12", "seconds": 5.2, "ended": "lost"},
              {"event": "step", "time": 1060, "step": 100, "epoch": 1, "elapsed_s": 60, "loss": 1, "samples": 60000},
              {"event": "epoch", "time": 1060, "epoch": 6, "step": 100, "validation_loss": 0.1, "validation_accuracy": 0.98},
              {"event": "end", "time": 1060, "process_s": 60, "steps": 100, "epochs": 1, "elapsed_s": 60, "loss": 0.1, "accuracy": 0.98}]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return "made"


def test_report(farthing, run):
    bill = json.loads(farthing("report", run, "--json").out)["bill"]
    (function,) = bill["functions"]
    gb_s = (12 * 55.2 + 5.2) * 1769 / 1024
    usd = gb_s * 0.0000166667 + 13 * 0.2e-6 + 1.2 * 0.09
    assert (function["invocations"], function["cold"], function["lost"]) == (13, 6, 1)
    assert function["gb_s"] == pytest.approx(gb_s)
    assert function["usd"] == bill["functions_usd"] == pytest.approx(usd)
    assert bill["usd"] == pytest.approx(usd + 0.06)
    assert bill["epochs"] == 1  # however often the server validated
    assert bill["instead_of_functions"]["instance"] == "m6i.xlarge"
    assert bill["instead_of_functions"]["seconds"] == pytest.approx(60 + (12 * 55.2 + 5.2) / 4)
    out = farthing("report", run).out
    assert "functions, 13 invocations" in out and "lambda mnist" in out
    assert "a VM for the same samples: m6i.xlarge" in out and "if its 4 vCPUs are as fast" in out


def test_report_with_other_prices(farthing, run):
    prices = farthing.folder / "prices.yaml"
    prices.write_text("- {cloud: aws, function: lambda, usd_per_gb_second: 1}\n")
    bill = json.loads(farthing("report", run, "--json", "--prices", prices).out)["bill"]
    assert bill["functions_usd"] == pytest.approx((12 * 55.2 + 5.2) * 1769 / 1024)
    assert "instead_of_functions" not in bill
    prices.write_text("- {cloud: aws, function: lambda, usd_per_gb_second: -1}\n")
    assert "prices.yaml line 1" in farthing("report", run, "--prices", prices, code=1).err
    prices.write_text("- {cloud: aws, instance: x, usd_per_hour: 1}\n")
    assert "no price of these functions is known" in farthing("report", run, "--prices", prices).out


def test_a_catalogue_that_is_wrong_is_in_nobodys_way(farthing, run):
    folder = farthing.folder / "runs" / run
    events = [line for line in (folder / "events.jsonl").read_text().splitlines() if "invocation" not in line]
    (folder / "events.jsonl").write_text("\n".join(events) + "\n")
    (farthing.folder / "wrong.yaml").write_text("nonsense")
    assert "functions" not in farthing("report", run, env={"FARTHING_PRICES": "wrong.yaml"}).out


def test_prices(farthing):
    out = farthing("prices").out
    assert "lambda" in out and "$0.0000166667" in out and "openwhisk" in out
    rows = [json.loads(line) for line in farthing("prices", "lambda", "--json").out.splitlines()]
    assert [row["function"] for row in rows] == ["lambda"]
    assert "no such price" in farthing("prices", "nothing", code=1).err


def plan(farthing, *arguments, run=(), **options):
    return farthing("plan", "--profile-for", "0.2s", *arguments, "--", "train", "--model", "mnist-cnn", "--data", "digits",
                    "--device", "emulated", "--batch", 100, *run, env={"FARTHING_EMULATE": "step=0.02"}, **options)


@emulated
def test_plan_of_functions(farthing):
    """A batch takes 20 ms, and 20,000 samples are an epoch."""
    result = json.loads(plan(farthing, "--functions", 10, "--json", "--link", "800Mbit,1ms", run=["--epochs", 1]).out)
    functions, vm, spot = result["rows"]
    assert [row["kind"] for row in result["rows"]] == ["functions", "on-demand", "spot"]
    assert result["samples"] == 20000 and result["batch_s"] >= 0.02
    round_s = 8 * result["batch_s"] + 0.002 + 2 * result["push_bytes"] / 1e8
    assert functions["seconds"] == pytest.approx(3 * round_s + 0.25, rel=0.01)  # 25 pushes of 10 functions
    assert functions["invocations"] == 10
    assert vm["seconds"] == pytest.approx(60 + 200 * result["batch_s"] / 4, rel=0.01)
    assert vm["usd"] == pytest.approx(vm["seconds"] * 0.192 / 3600) and spot["usd"] < vm["usd"]
    assert result["fastest"] == "functions" and result["cheapest"] == "spot"
    text = plan(farthing, "--functions", 10).out
    assert "10 x lambda, 1769 MB" in text and "m6i.xlarge on demand" in text and "assumed: " in text


@emulated
def test_plan_of_a_long_job(farthing):
    jobs = [json.loads(plan(farthing, "--functions", 100, "--push-every", 100, "--json", "--instance", "c6i.4xlarge",
                            run=["--epochs", epochs]).out) for epochs in (1, 10000)]
    short, long = ({row["kind"]: row["usd"] for row in job["rows"]} for job in jobs)
    assert short["functions"] < short["on-demand"] and long["functions"] > 2 * long["on-demand"]
    assert 20000 < jobs[0]["break_even_samples"] < 20000 * 10000


def test_plans_that_are_wrong(farthing, tmp_path):
    assert "--nodes is of nodes" in plan(farthing, "--functions", 2, "--nodes", "1,2", code=2).err
    assert "no price of azure functions" in plan(farthing, "--functions", 2, "--provider", "azure", code=1).err
    prices = tmp_path / "prices.yaml"
    prices.write_text("- {cloud: aws, function: lambda, usd_per_gb_second: 1}\n")
    assert "mb_per_vcpu" in plan(farthing, "--functions", 2, run=["--prices", prices], code=1).err
