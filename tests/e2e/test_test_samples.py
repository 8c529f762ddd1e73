"""Test samples: never trained on nor validated with, measured once, with the best model, and named in every number."""
import json
import random

import pytest
from conftest import SMALL, png, record, write_mnist


def write_classes(folder, count, seed):
    draw = random.Random(seed)
    for number, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.png").write_bytes(png(8, 8, 90 + 30 * number + draw.randrange(60)))
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for seed, (part, count) in enumerate({"train": 40, "val": 16, "test": 24}.items()):
        write_classes(folder / part, count, seed)
    return folder


def test_the_test_part_is_measured_once_with_the_best_model(farthing, parts):
    train = ["train", *SMALL, "--data", parts, "--batch", 8, "--lr", 0.3, "--epochs", 4, "--name", "x"]
    result = farthing(*train)
    assert "outside the class folders" not in result.err
    events = record(farthing.folder / "runs/x")
    (test,) = [event for event in events if event["event"] == "test"]
    end = events[-1]
    evaluated = farthing("evaluate", "--weights", "runs/x/best.safetensors", *SMALL, "--data", parts / "test",
                         "--validation-fraction", 0.5, "--json").events[0]  # half of it
    assert evaluated["samples"] == 24 and test["samples"] == end["test_samples"] == 48
    assert test["step"] == end["best_step"] and test["data"].endswith("/test")
    assert (test["test_loss"], test["test_accuracy"]) == (end["test_loss"], end["test_accuracy"])
    assert end["validation_loss"] == end["loss"] and end["test_loss"] != end["validation_loss"]
    # As the same images are measured when they are the validation part of a set, by the best model.
    other = farthing.folder / "other"
    other.mkdir()
    (other / "train").symlink_to(parts / "train")
    (other / "val").symlink_to(parts / "test")
    alone = farthing("evaluate", "--weights", "runs/x/best.safetensors", *SMALL, "--data", other, "--json").events[0]
    assert (alone["samples"], alone["part"]) == (48, "validation")
    assert alone["loss"] == pytest.approx(test["test_loss"], rel=1e-6) and alone["accuracy"] == test["test_accuracy"]
    assert f"test accuracy {100 * end['test_accuracy']:.2f} %" in result.out
    assert "already finished" in farthing(*train, "--resume").out
    assert [event["event"] for event in record(farthing.folder / "runs/x")].count("test") == 1


def test_test_data_is_named_and_checked_before_training(farthing, tiny, tmp_path):
    train = ["train", *SMALL, "--data", tiny, "--batch", 32, "--steps", 4]
    more = write_mnist(tmp_path / "more", train=32, test=48, seed=9)
    end = farthing(*train, "--test", more, "--json", "--name", "x").end
    assert end["test_samples"] == 48  # its own test files
    report = farthing("report", "x").out
    assert f"accuracy {100 * end['test_accuracy']:.2f} %, loss" in report
    assert f"the best model, over 48 samples of {more}" in report
    facts = json.loads(farthing("report", "x", "--json").out.splitlines()[0])
    assert facts["test_loss"] == end["test_loss"]
    for wrong, message in ((write_classes(tmp_path / "photos", 4, 1), "--test"), (tmp_path / "nowhere", "nowhere")):
        for dry in ([], ["--dry-run"]):
            assert message in farthing(*train, "--test", wrong, *dry, code=1).err
    for server in ([], ["--server", "http://127.0.0.1:1"]):
        refused = farthing(*train, "--test", more, "--strategy", "parameter-server", *server, code=2).err
        assert "keeps no best model to measure" in refused
    assert len(farthing.runs()) == 1


def test_the_scaling_table_names_its_numbers(farthing, parts):
    plain = farthing.folder / "plain"
    plain.mkdir()
    for part in ("train", "val"):
        (plain / part).symlink_to(parts / part)
    for name, data in (("tested", parts), ("plain", plain)):
        farthing("launch", "--workers", 2, "--", "train", *SMALL, "--batch", 8, "--epochs", 2, "--data", data, "--name", name)
    heading = lambda *runs: [line for line in farthing("report", *runs).out.splitlines() if "efficiency" in line][0]
    assert heading("plain", "plain").endswith("best val. loss  val. loss  val. accuracy")
    assert heading("tested", "plain").endswith("val. loss  val. accuracy  test loss  test accuracy")
    assert "test_loss" in record(farthing.folder / "runs/tested")[-1]
    assert "test_loss" not in record(farthing.folder / "runs/plain")[-1]
    assert "test loss" in farthing("compare", "runs/tested", "runs/plain").out
