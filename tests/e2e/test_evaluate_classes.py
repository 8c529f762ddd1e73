"""`evaluate`, class by class: scores, the confusion matrix, files for other programs."""
import csv
import json
import struct

import pytest
from conftest import png


def labels(tiny):
    """Of the validation images, from the idx file itself."""
    data = (tiny / "t10k-labels-idx1-ubyte").read_bytes()
    return list(data[8:8 + struct.unpack(">I", data[4:8])[0]])


def test_scores_add_up(trained, tiny):
    result = json.loads(trained("evaluate", trained.run, "--confusion", "--json").out)
    classes, matrix, truth = result["classes"], result["confusion"], labels(tiny)
    assert [entry["name"] for entry in classes] == [str(i) for i in range(10)]
    assert [sum(row) for row in matrix] == [truth.count(i) for i in range(10)] == [c["samples"] for c in classes]
    assert sum(matrix[i][i] for i in range(10)) == round(result["accuracy"] * result["samples"])
    for i, entry in enumerate(classes):
        predicted = sum(row[i] for row in matrix)
        assert entry["predicted"] == predicted and entry["correct"] == matrix[i][i]
        assert entry["recall"] == pytest.approx(matrix[i][i] / sum(matrix[i]))
        assert entry["precision"] == (pytest.approx(matrix[i][i] / predicted) if predicted else None)
    mistakes = [(row, column, matrix[row][column]) for row in range(10) for column in range(10)
                if row != column and matrix[row][column]]
    assert sum(entry["samples"] for entry in result["mistakes"]) <= sum(count for _, _, count in mistakes)
    assert [entry["samples"] for entry in result["mistakes"]] == sorted((m[2] for m in mistakes), reverse=True)[:20]
    assert "confusion" not in json.loads(trained("evaluate", trained.run, "--json").out)


def test_tables(trained, farthing):
    lines = trained("evaluate", trained.run).out.splitlines()
    assert lines[2].split() == ["class", "samples", "accuracy", "(recall)", "precision", "F1"]
    assert [line.split()[0] for line in lines[4:14]] == [str(i) for i in range(10)]
    assert lines[14].startswith("mean of classes") and len(lines) == 15
    assert len(trained("evaluate", trained.run, "--no-per-class").out.splitlines()) == 1
    matrix = trained("evaluate", trained.run, "--no-per-class", "--confusion").out.splitlines()
    assert matrix[2].split() == ["true", "\\", "predicted", *map(str, range(10))] and len(matrix) == 14
    wrong = trained("evaluate", "--confusion", trained.run, code=2).err
    assert "a run goes before --confusion" in wrong
    assert "train takes no --confusion" in farthing("train", "--confusion", code=2).err


def test_csv(trained, tmp_path):
    shown = json.loads(trained("evaluate", trained.run, "--confusion", "--json").out)["confusion"]
    out = trained("evaluate", trained.run, "--confusion", tmp_path / "matrix.csv").out
    assert f"confusion matrix: {tmp_path / 'matrix.csv'}" in out
    rows = list(csv.reader((tmp_path / "matrix.csv").open(newline="")))
    assert rows[0][1:] == [str(i) for i in range(10)]
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == shown
    assert "No such file" in trained("evaluate", trained.run, "--confusion", tmp_path / "none" / "x.csv", code=1).err


def test_many_classes_and_strange_names(farthing, tmp_path):
    """Beyond 20 classes the worst confusions are listed; names from outside are made safe."""
    for i in range(22):
        name = f"kind {i:02}" if i else 'a "cat", \x1b[2J'
        (tmp_path / "set" / name).mkdir(parents=True)
        for k in range(4):
            (tmp_path / "set" / name / f"{k}.png").write_bytes(png(8, 8, (11 * i + k) % 256))
    farthing("train", "--data", tmp_path / "set", "--model", "linear", "--image-size", 8, "--steps", 2, "--batch", 8,
             "--validation-fraction", 0.5, "--name", "many")
    out = farthing("evaluate", "many", "--confusion").out
    assert out.splitlines()[2].split() == ["true", "class", "predicted", "samples", "share", "of", "class"]
    mistakes = json.loads(farthing("evaluate", "many", "--confusion", "--json").out)["mistakes"]
    assert len(out.splitlines()) == 4 + len(mistakes) and 10 < len(mistakes) <= 20 and "\x1b" not in out
    table = farthing("evaluate", "many", "--per-class").out
    assert 'a "cat", \\x1b[2J' in table and "kind 21" in table
    farthing("evaluate", "many", "--confusion", "m.csv")
    header = next(csv.reader((farthing.folder / "m.csv").open(newline="")))
    assert len(header) == 23 and 'a "cat", \x1b[2J' in header


def test_classes_in_other_places_are_refused(farthing, tmp_path):
    def pictures(folder, names):
        for number, name in enumerate(names):
            (tmp_path / folder / name).mkdir(parents=True)
            for i in range(10):
                (tmp_path / folder / name / f"{i}.png").write_bytes(png(8, 8, 80 * number + i))
        return tmp_path / folder
    farthing("train", "--model", "linear", "--data", pictures("a", ["cat", "dog", "elk"]), "--steps", 2, "--name", "x")
    moved = farthing("evaluate", "x", "--data", pictures("b", ["ant", "cat", "dog"]), code=1)
    assert "the class dog is number 2" in moved.err and "number 3 in" in moved.err
    renamed = farthing("evaluate", "x", "--data", pictures("c", ["katze", "kuh", "maus"]))
    assert "number 1: cat there, katze here" in renamed.err and "accuracy" in renamed.out
    assert "warning" not in farthing("evaluate", "x").err
