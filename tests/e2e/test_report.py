"""Reports, comparisons and pictures of runs."""
import json
import lzma
import re
import shutil
import xml.etree.ElementTree as xml

import numpy
import pytest

needs_gnuplot = pytest.mark.skipif(shutil.which("gnuplot") is None, reason="gnuplot is not installed")


@pytest.fixture(scope="module")
def other(trained, tiny):
    trained("train", "--data", tiny, "--batch", 64, "--epochs", 3, "--optimizer", "adamw", "--name", "other")
    return "other"


def test_report(trained):
    text = trained("report", trained.run.name).out
    for expected in ("finished", "mnist-cnn, 1,199,882 parameters", "256 images to train, 64 to validate",
                     "sgd, lr 0.01", "samples/s", "reading data", "compute", "waiting for data", "last.safetensors",
                     "best.safetensors", "loss", "A training", "B validation",
                     "accuracy (%)   A training   B validation"):
        assert expected in text
    assert "\033" not in text
    assert max(map(len, text.split("loss", 1)[0].splitlines())) < 200


def test_report_in_ascii(trained):
    text = trained("report", trained.run.name, env={"FARTHING_ASCII": "1"}).out
    assert "* training" in text and "⠤" not in text
    assert text.split("where the time went", 1)[1].isascii()


def test_report_width(trained):
    for columns in (50, 110):
        text = trained("report", trained.run, "--columns", columns).out
        chart = text.split("A training", 1)[1].splitlines()[1:]
        assert max(map(len, chart)) <= columns


def test_report_takes_the_newest(trained, other):
    assert trained("report").out.startswith("run other\n")


def test_report_json(trained):
    report = json.loads(trained("report", trained.run, "--json").out)
    end = trained.result.end
    assert report["finished"] and report["steps"] == end["steps"]
    assert report["last_accuracy"] == end["accuracy"]
    assert report["best_loss"] <= report["last_loss"]
    assert report["compute_s"] > 0 and report["peak_memory_bytes"] > 1 << 20
    total = sum(report[key] for key in ("compute_s", "data_wait_s", "checkpoint_s", "evaluate_s"))
    assert total <= report["elapsed_s"] * 1.05 + 0.05


def test_reading_data_is_measured_and_shown(farthing, tmp_path):
    """CIFAR's xz files: what unpacking them takes is no part of the training time, and has a row of its own."""
    random = numpy.random.default_rng(1)
    records = random.integers(0, 256, (2000, 3073), numpy.uint8)
    records[:, 0] %= 10
    for name in ("data_batch_1.bin.xz", "test_batch.bin.xz"):
        (tmp_path / name).write_bytes(lzma.compress(records.tobytes(), preset=0))
    for name in ("first", "second"):
        farthing("train", "--model", "linear", "--data", tmp_path, "--steps", 2, "--batch", 8, "--name", name,
                 env={"FARTHING_CACHE": str(farthing.folder / "cache")})
        report = json.loads(farthing("report", name, "--json").out)
        assert report["read_s"] > 0
        row = next(line for line in farthing("report", name).out.splitlines() if line.startswith("reading data"))
        assert row.endswith(f'{100 * report["read_s"] / (report["read_s"] + report["elapsed_s"]):.1f} %')
    assert len(list((farthing.folder / "cache" / "unpacked").glob("??/*"))) == 1  # both files have the same contents


def test_report_of_nothing(farthing):
    assert "no runs" in farthing("report", code=1).err
    assert "nonesuch" in farthing("report", "nonesuch", code=1).err


def test_report_suggests_the_nearest(trained, other):
    assert "other" in trained("report", "othre", code=1).err


def test_torn_record(trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained.run, copy)
    with open(copy / "events.jsonl", "a") as events:
        events.write('{"event":"step","st')
    assert "finished" in trained("report", copy).out


def test_compare(trained, other):
    text = trained("compare", trained.run.name, other).out
    assert f"A  {trained.run.name}" in text and "B  other" in text
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert rows["batch"].split()[1:] == ["32", "64"]
    assert rows["--optimizer"].split()[1:] == ["sgd", "adamw"]
    assert "--schedule" not in rows  # the same in both
    assert rows["speed"].split()[1:3] == ["1.00", "x"]
    assert f"\nvalidation accuracy (%)   A {trained.run.name}   B other\n" in text


def test_compare_puts_the_best_run_first(farthing, tmp_path):
    """In the order of validation accuracy, not of the command line."""
    for name, rate in (("bad", 1e-6), ("good", 0.05)):
        farthing("train", "--model", "linear", "--data", "digits", "--lr", rate, "--epochs", 1, "--runs", tmp_path, "--name", name)
    for order in (("bad", "good"), ("good", "bad")):
        text = farthing("compare", *order, "--runs", tmp_path).out
        assert "best first:\nA  good\nB  bad\n" in text
        lines = farthing("compare", *order, "--runs", tmp_path, "--json").out.splitlines()
        assert [json.loads(line)["id"] for line in lines] == ["good", "bad"]


def test_tables_fit_80_columns(farthing, tmp_path):
    names = [f"20261118-22554{i}-with-a-long-name" for i in range(5)]
    for name in names:
        farthing("train", "--model", "linear", "--data", "digits", "--steps", 1, "--runs", tmp_path, "--name", name)
    for arguments in (["runs"], ["compare", *names]):
        text = farthing(*arguments, "--runs", tmp_path, env={"COLUMNS": "80"}).out
        assert max(map(len, text.splitlines())) <= 80, text
        assert all(name in text for name in names)
    wide = farthing("runs", "--runs", tmp_path, env={"COLUMNS": "200"}).out
    assert "steps" in wide and "size" in wide


def test_compare_json_and_mistakes(trained, other):
    lines = trained("compare", trained.run, other, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [trained.run.name, "other"]
    assert "two runs" in trained("compare", other, code=2).err
    assert "nonesuch" in trained("compare", other, "nonesuch", code=1).err


@needs_gnuplot
def test_charts(trained, other, tmp_path):
    svg, png = tmp_path / "loss.svg", tmp_path / "loss.png"
    trained("report", trained.run, "--chart", svg)
    assert xml.parse(svg).getroot().tag.endswith("svg")
    titles = [element.text for element in xml.parse(svg).iter() if element.tag.endswith("}title")]
    texts = ["".join(element.itertext()).strip() for element in xml.parse(svg).iter() if element.tag.endswith("}text")]
    assert titles[0] == trained.run.name and "Gnuplot" not in titles
    assert {trained.run.name, "loss", "accuracy (%)", "training", "validation"} <= set(texts)
    trained("compare", trained.run, other, "--chart", png)
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loss.png", "loss.svg"]


def test_chart_mistakes(trained, tmp_path):
    refused = trained("report", trained.run, "--chart", "loss.gif", code=2)  # before anything is done
    assert ".png or .svg" in refused.err and not refused.out
    refused = trained("report", trained.run, "--chart", tmp_path / "absent" / "loss.svg", code=1)
    assert "absent" in refused.err and not refused.out


def test_without_gnuplot_the_report_remains(trained, tmp_path):
    tables = trained("report", trained.run).out
    missing = trained("report", trained.run, "--chart", tmp_path / "loss.svg", code=1, env={"PATH": "/nowhere"})
    assert missing.out == tables and len(missing.err.splitlines()) == 1
    assert "loss.svg is left out" in missing.err and "apt-get install gnuplot" in missing.err
    assert not list(tmp_path.iterdir())


@needs_gnuplot
def test_the_legend_is_beside_the_axes_and_the_loss_not_drawn_from_zero(trained, tmp_path):
    svg = tmp_path / "loss.svg"
    trained("report", trained.run, "--chart", svg)
    text = svg.read_text()
    left, _, bottom, right = map(float, re.search(r"d='M([\d.]+),([\d.]+) L\1,([\d.]+) L([\d.]+),", text).groups())
    texts = [(float(x), float(y), re.sub("<[^>]*>", "", words)) for x, y, words in
             re.findall(r'translate\(([\d.]+),([\d.]+)\)[^>]*>\s*<text>(.*?)</text>', text)]
    legend = [x for x, _, words in texts if words in ("training", "validation")]
    assert len(legend) >= 2 and min(legend) > right
    ticks = [words for x, y, words in texts if x < left and y <= bottom + 10]
    assert len(ticks) > 1 and "0" not in ticks
