"""What `farthing report` says of data-parallel runs, from records made by hand."""
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import FARTHING, environment

needs_gnuplot = pytest.mark.skipif(shutil.which("gnuplot") is None, reason="gnuplot is not installed")
HOSTS = "abcdefgh"


def write_run(folder, workers, epoch_s, strategy="data-parallel", group=None, **configuration):
    """Four epochs of 100 steps, each of which takes epoch_s; every worker on a node of its own."""
    configuration = {"model": "vgg19", "data": "shapes", "image-size": 64, "precision": "f32", "accumulate": 1,
                     "strategy": strategy, "optimizer": "sgd", "momentum": 0.9, **configuration}
    members = [{"rank": r, "host": f"{HOSTS[r]}.example", "node": HOSTS[r], "facts": {"price_usd_per_hour": 3.6}}
               for r in range(workers)]
    events = [{"event": "start", "time": 1000, "process_s": 0, "workers": workers, "nodes": workers,
               "batches_per_epoch": 100, "price_usd_per_hour": 3.6, "host": "a.example"},
              {"event": "group", "time": 1000, "process_s": 0, "workers": workers, "members": members}]
    if group:
        events.append({"event": "group", "time": 1001, "process_s": 1, "workers": group, "members": members[:group]})
    for epoch in range(1, 5):
        now = epoch * epoch_s
        at = {"time": 1000 + now, "process_s": now, "step": 100 * epoch, "epoch": epoch, "elapsed_s": now}
        ranks = [{"rank": r, "host": f"{HOSTS[r]}.example", "compute_s": 9 if r == 1 else 5, "data_wait_s": 1,
                  "exchange_s": 2, "waiting_s": 0.5, "update_s": 0.25} for r in range(workers)]
        events += [{"event": "step", "loss": 4 / epoch, "learning_rate": 0.01 * workers ** 0.5, **at},
                   {"event": "ranks", "ranks": ranks, "stragglers": [1] if epoch == 2 and workers > 1 else [], **at},
                   {"event": "epoch", "validation_loss": 5 / epoch, "validation_accuracy": 0.2 * epoch, **at}]
    end = 4 * epoch_s
    events.append({"event": "end", "time": 1000 + end, "process_s": end, "steps": 400, "epochs": 4, "elapsed_s": end,
                   "loss": 1.3, "accuracy": 0.81, "reason": "for"})
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"id": folder.name, "configuration": configuration, "batch": 32 * workers}))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def rows_of(text, runs):
    return {line.split()[0]: line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in runs}


def test_runs_are_compared_with_the_smallest(farthing, tmp_path):
    """The prototype's times: 1, 2, 4 and 8 nodes at 1.00, 0.81, 0.65 and 0.46."""
    names = {8: 0.46, 1: 1.0, 4: 0.65, 2: 0.81}
    runs = [write_run(tmp_path / f"nodes-{n}", n, 80 / n / efficiency) for n, efficiency in names.items()]
    text = farthing("report", *runs).out
    rows = rows_of(text, {run.name for run in runs})
    assert list(rows) == ["nodes-1", "nodes-2", "nodes-4", "nodes-8"]
    assert [row[9] for row in rows.values()] == ["1.00", "0.81", "0.65", "0.46"]
    assert rows["nodes-4"][1:9] == ["4", "4", "0.02", "128", "100", "31s", "4", "2m03s"]
    assert rows["nodes-4"][10:] == ["1.2500", "1.2500", "80.00", "%"]
    for expected in ("scaling efficiency", "seconds per epoch", "training loss   A 1 worker   B 2 nodes"):
        assert expected in text


def test_other_experiments_have_their_own_base(farthing, tmp_path):
    runs = [write_run(tmp_path / "a1", 1, 10), write_run(tmp_path / "a2", 2, 10),
            write_run(tmp_path / "b2", 2, 30, model="resnet18"), write_run(tmp_path / "b4", 4, 20, model="resnet18")]
    rows = rows_of(farthing("report", *runs).out, {"a1", "a2", "b2", "b4"})
    assert {name: row[9] for name, row in rows.items()} == {"a1": "1.00", "a2": "0.50", "b2": "1.00", "b4": "0.75"}


def test_a_run_whose_workers_changed_has_no_efficiency(farthing, tmp_path):
    runs = [write_run(tmp_path / "one", 1, 10, strategy="single"), write_run(tmp_path / "many", 4, 10, group=3)]
    text = farthing("report", *runs).out
    assert "4, later others" in text
    line = next(line for line in text.splitlines() if line.startswith("many"))
    assert line.split("40s")[1].split()[0] == "-"


def test_runs_of_another_strategy_are_not_compared_so(farthing, tmp_path):
    runs = [write_run(tmp_path / "one", 1, 10), write_run(tmp_path / "wild", 2, 10, strategy="hogwild")]
    assert "efficiency" not in farthing("report", *runs).out


def test_ranks_and_stragglers(farthing, tmp_path):
    run = write_run(tmp_path / "two", 2, 10)
    text = farthing("report", run).out
    assert ["1", "b.example", "36s", "4.0s", "8.0s", "2.0s", "1.0s", "straggler", "in", "1", "of", "4", "epochs"] in [
        line.split() for line in text.splitlines()]
    scaling = json.loads(farthing("report", run, "--json").out)["scaling"]
    assert scaling["workers"] == 2 and scaling["epoch_s"] == 10 and scaling["batch"] == 64
    assert [rank["straggler_epochs"] for rank in scaling["ranks"]] == [0, 1]


def test_every_node_is_in_the_bill(farthing, tmp_path):
    run = write_run(tmp_path / "three", 3, 10)
    text = farthing("report", run).out
    for host in ("a.example", "b.example (b)", "c.example (c)"):
        assert f"{host} " in text
    bill = json.loads(farthing("report", run, "--json").out)["bill"]
    assert [node["node"] for node in bill["nodes"]] == ["b", "c"]
    assert bill["seconds"] == pytest.approx(120) and bill["usd"] == pytest.approx(0.12)
    assert bill["usd_per_epoch"] == pytest.approx(0.03)


@needs_gnuplot
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_picture(farthing, tmp_path, kind):
    runs = [write_run(tmp_path / f"nodes-{n}", n, 80 / n) for n in (1, 2, 4)]
    picture = tmp_path / f"scaling.{kind}"
    farthing("report", *runs, "--chart", picture)
    data = picture.read_bytes()
    if kind == "png":
        assert data.startswith(b"\x89PNG")
    else:
        for expected in (b"vgg19 on shapes, data-parallel", b"scaling efficiency", b"seconds per epoch", b"4 nodes"):
            assert expected in data


def path_without(program, folder):
    """A PATH with everything that is on this machine's but one program."""
    folder.mkdir()
    for name in ("/usr/bin", "/bin"):
        for file in Path(name).iterdir():
            if not file.name.startswith(program) and not (folder / file.name).exists():
                (folder / file.name).symlink_to(file)
    return str(folder)


def test_the_example_needs_no_gnuplot(tmp_path):
    script = Path(__file__).resolve().parents[2] / "examples/vgg19-scaling/run"
    variables = environment(FARTHING=str(FARTHING), RUNS=str(tmp_path / "runs"), WORKERS="1",
                            PATH=path_without("gnuplot", tmp_path / "bin"))
    done = subprocess.run([script, "--model", "linear", "--steps", "3"], cwd=tmp_path, env=variables, text=True,
                          capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "efficiency" in done.stdout
    assert "vgg19-scaling.png is left out" in done.stderr and "apt-get install gnuplot" in done.stderr
    assert not (tmp_path / "vgg19-scaling.png").exists()


@needs_gnuplot
def test_the_example_runs(tmp_path):
    """The prototype's experiment, with a small model and few steps."""
    script = Path(__file__).resolve().parents[2] / "examples/vgg19-scaling/run"
    variables = environment(FARTHING=str(FARTHING), RUNS=str(tmp_path / "runs"), WORKERS="1 2")
    done = subprocess.run([script, "--model", "linear", "--steps", "3"], cwd=tmp_path, env=variables, text=True,
                          capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("vgg19-")]
    assert [row[2:5] for row in rows] == [["1", "0.0002", "32"], ["2", "0.0002828", "64"]]
    assert "scaling efficiency" in done.stdout
    assert (tmp_path / "vgg19-scaling.png").read_bytes().startswith(b"\x89PNG")
