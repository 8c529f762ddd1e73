"""Sets of text: what `data inspect` says of them, what is refused, and what `predict` and `evaluate` make of texts."""
import csv
import gzip
import http.server
import json
import random
import re
import subprocess
import threading

import pytest
from conftest import FARTHING, PATIENCE_S, Program, environment

WORDS = {"sport": "goal match team win player ball score league".split(),
         "money": "bank stock price market share fund profit trade".split()}
TINY = "bert(layers=1,hidden=32,heads=2,intermediate=64,vocabulary=128,positions=128)"


def rows(count, seed):
    draw = random.Random(seed)
    for i in range(count):
        label = ("money", "sport")[i % 2]
        yield label, " ".join(draw.choice(WORDS[label]) for _ in range(draw.randint(3, 12)))


def write_set(folder, train=256, test=64):
    """As AG News is published: class numbers from 1, no heading, names in classes.txt."""
    folder.mkdir()
    number = {"money": 1, "sport": 2}
    for name, count in (("train_subset.csv.gz", train), ("test.csv.gz", test)):
        with gzip.open(folder / name, "wt") as out:
            for label, text in rows(count, name):
                title, rest = text.split(" ", 1)
                out.write(f'"{number[label]}","{title}","{rest}, ""as said"""\n')
    (folder / "classes.txt").write_text("Money\nSport\n")
    return folder


def test_inspect_text(tmp_path):
    program = Program(tmp_path)
    news = write_set(tmp_path / "news")
    (found,) = program("data", "inspect", news, "--json", "--vocab-size", "100").events
    assert found["kind"] == "text" and found["training_samples"] == 256 and found["validation_samples"] == 64
    assert found["classes"] == [{"name": "Money", "training": 128, "validation": 32},
                                {"name": "Sport", "training": 128, "validation": 32}]
    assert found["lengths"]["min"] >= 8 and found["lengths"]["max"] >= found["lengths"]["median"]
    assert found["vocabulary"] <= 100 and found["lower_case"] and found["cut"] == 0
    assert [sample["label"] for sample in found["samples"]] == ["Money", "Money", "Sport", "Sport"]
    assert found["samples"][0]["text"].endswith(', "as said"')
    # A vocabulary that lacks most words, and samples that are cut.
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "goal", ",", '"']) + "\n")
    (found,) = program("data", "inspect", news, "--json", "--vocab", tmp_path / "vocab.txt", "--max-length", "6").events
    assert found["longest"] == 6 and found["cut"] == 320 and found["unknown_tokens"] > 500
    shown = program("data", "inspect", news, "--vocab-size", "100").out
    for said in ("news: text, 2 classes, 256 training and 64 validation samples", "Money", "tokens of a sample: ",
                 "learned from the training texts", "unknown tokens: 0 of"):
        assert said in shown


def test_all_parts_in_a_store_are_read(tmp_path):
    """More than one page of a listing, and more than is looked at to tell what a store holds."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(1005):
        (folder / f"train-{i:05}-of-01005.csv").write_text(f"{i % 2},word {i}\n")
    (found,) = Program(tmp_path)("data", "inspect", f"file://{folder}", "--json").events
    assert found["training_samples"] + found["validation_samples"] == 1005


def test_a_link_to_one_table(tmp_path):
    """The server refuses classes.txt, as one does of which only that link has been signed."""
    class Signed(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=tmp_path)

        def send_head(self):
            return super().send_head() if self.path == "/news.csv?signature=1" else self.send_error(403)

        def log_message(self, *_):
            pass

    (tmp_path / "news.csv").write_text("".join(f"{label},{text}\n" for label, text in rows(40, 1)))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Signed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/news.csv?signature=1"
            (found,) = Program(tmp_path)("data", "inspect", address, "--json", "--label-column", "1").events
        finally:
            server.shutdown()
    assert found["training_samples"] + found["validation_samples"] == 40


def test_inspect_other_labels(tmp_path):
    program = Program(tmp_path)
    (tmp_path / "scores.jsonl").write_text("".join(
        json.dumps({"sentence1": "a b", "sentence2": f"c {i}", "score": i / 4}) + "\n" for i in range(20)))
    (found,) = program("data", "inspect", tmp_path / "scores.jsonl", "--json", "--task", "regression").events
    assert found["pairs"] == 20 and found["numbers"] == [{"name": "score", "least": 0, "mean": 2.375, "most": 4.75}]
    warned = program("data", "inspect", tmp_path / "scores.jsonl").err
    assert "labels such as 4.75 are taken as the names of 20 classes" in warned and "--task regression" in warned
    (tmp_path / "flags.tsv").write_text("text\tx\ty\n" + "a\t1\t0\nb\t1\t1\nc\t0\t0\n" * 4)
    (found,) = program("data", "inspect", tmp_path / "flags.tsv", "--json", "--task", "multi-label",
                       "--label-column", "x,y").events
    assert [c["training"] + c["validation"] for c in found["classes"]] == [8, 4]


@pytest.mark.parametrize("command, said", [
    (["data", "pack", "{set}", "--out", "x.tar"], "is text; farthing data pack takes images alone"),
    (["data", "shard", "{set}", "--out", "parts"], "is text; farthing data shard takes images alone"),
    (["data", "inspect", "{set}", "--sheet", "x.png"], "--sheet is for images; news is text"),
    (["data", "inspect", "missing.csv"], "there is no file or folder missing.csv"),
    (["data", "inspect", "train.parquet"], "train.parquet is Parquet, which is not read; convert it"),
    (["data", "inspect", __file__], "nor a table of text (.csv, .tsv or .jsonl)"),
    (["plan", "--functions", "2", "--", "train", "--data", "{set}", "--model", TINY], "which functions do not train"),
    (["train", "--data", "{set}", "--model", TINY, "--task", "multi-label", "--label-smoothing", "0.1"],
     "--label-smoothing is for --task classes, not for multi-label"),
    (["data", "inspect", "{set}", "--label-column", "9"], "there is no column '9', which --label-column asks for"),
    (["serve", "batches", "--data", "news={set}", "--port", "0"], "is text; the batch cache takes images alone"),
    (["train", "--data", "{set}", "--model", TINY, "--transform", "flip"], "--transform is for images; news is text"),
])
def test_what_text_cannot_do(tmp_path, command, said):
    program = Program(tmp_path)
    news = write_set(tmp_path / "news", 16, 4)
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    done = program(*(part.format(set=news) if part.startswith(("{set}", "news=")) else part for part in command), code=None)
    assert done.code in (1, 2) and said in done.err, done.err
    assert done.err.count("error:") == 1


def test_predict_and_evaluate_text(tmp_path):
    program = Program(tmp_path)
    news = write_set(tmp_path / "news")
    program("train", "--data", news, "--model", TINY, "--vocab-size", "128", "--batch", "16", "--epochs", "6",
            "--optimizer", "adamw", "--lr", "0.003", "--name", "tiny", "--by-length")
    one = program("predict", "--weights", "tiny", "--json", "--text", "the goal of the match").events[0]
    assert one["text"] == "the goal of the match" and one["predictions"][0]["class"] == "Sport"
    shown = program("predict", "--weights", "tiny", "--top", "1", "--text", "stock", "--pair", "market").out
    assert shown.startswith("stock | market\n") and shown.endswith("%  Money\n")
    # Lines, and a table with labels, which are not looked at, in order.
    (tmp_path / "lines.txt").write_text("bank profit\n\nteam ball\r\n")
    (tmp_path / "table.csv").write_text("label,text\nx,\"win, score\"\ny,fund\n")
    done = program("predict", "--weights", "tiny", "--json", "lines.txt", "table.csv").events
    assert [each["text"] for each in done] == ["bank profit", "team ball", "win, score", "fund"]
    assert [each["predictions"][0]["class"] for each in done] == ["Money", "Sport", "Sport", "Money"]
    done = subprocess.run([FARTHING, "predict", "--weights", "tiny", "--top", "1", "-"], cwd=tmp_path, input="league\n",
                          text=True, capture_output=True, timeout=PATIENCE_S, env=environment())
    assert done.stdout.startswith("league\n") and done.stdout.endswith("%  Sport\n"), done.stderr
    # A text has the same prediction whatever it is packed with.
    alone = program("predict", "--weights", "tiny", "--json", "--logits", "--text", "fund").events[0]["logits"]
    beside = program("predict", "--weights", "tiny", "--json", "--logits", "table.csv").events[1]["logits"]
    assert beside == pytest.approx(alone, abs=1e-5)
    # Another table, whose labels are names in another order.
    (tmp_path / "other.tsv").write_text("text\tlabel\n" + "team win\tSport\nbank fund\tMoney\nshare\tMoney\n")
    found = program("evaluate", "--weights", "tiny", "--data", tmp_path / "other.tsv", "--json").events[-1]
    assert found["accuracy"] == 1
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    done = program("predict", "--weights", "tiny", "picture.png", code=None)
    assert done.code == 1 and "picture.png, line 3: a zero byte" in done.err and not done.out
    assert re.search(r"^task +classes; \d+ tokens in the vocabulary, \d+ in the longest text$", program("report", "tiny").out, re.M)
    # What is said of text says nothing of images.
    for words in program("evaluate", "tiny").out, program("report", "tiny").out, program("weights", "tiny").out:
        assert not re.search("image|channel|pixel|decoding", words), words
    done = program("predict", "--weights", "tiny", "--pair", "x", "lines.txt", code=None)
    assert done.code == 1 and "give the first with --text" in done.err


def test_predict_numbers_and_labels(tmp_path):
    program = Program(tmp_path)
    draw = random.Random(1)
    with open(tmp_path / "scores.jsonl", "w") as scores, open(tmp_path / "labels.csv", "w") as labels:
        labels.write("text,labels\n")
        for i in range(200):
            kinds = [["sport"] * 4, ["money"] * 4, draw.sample(["sport", "sport", "money", "money"], 4)][i % 3]
            words = [draw.choice(WORDS[kind][:3]) for kind in kinds]
            scores.write(json.dumps({"text": " ".join(words), "score": kinds.count("sport") / 4}) + "\n")
            labels.write(f"{' '.join(words)},{'|'.join(sorted(set(kinds)))}\n")
    how = ["--model", TINY, "--vocab-size", "128", "--batch", "16", "--optimizer", "adamw", "--lr", "0.003"]
    program("train", "--data", "scores.jsonl", "--task", "regression", "--epochs", "10", "--name", "scores", *how)
    for text, least, most in (("goal match team goal", 0.8, 1.2), ("bank stock price bank", -0.2, 0.2)):
        (found,) = program("predict", "--weights", "scores", "--json", "--text", text).events[0]["predictions"]
        assert found["name"] == "score" and least < found["value"] < most
    program("train", "--data", "labels.csv", "--task", "multi-label", "--epochs", "40", "--name", "labels", *how)
    for text, kinds in (("goal match team goal", {"sport"}), ("goal bank match price", {"sport", "money"})):
        found = program("predict", "--weights", "labels", "--json", "--text", text).events[0]["predictions"]
        assert {each["class"] for each in found if each["probability"] > 0.5} == kinds


def test_csv_is_read_as_python_reads_it(tmp_path):
    program = Program(tmp_path)
    draw = random.Random(5)
    texts = ["".join(draw.choice('a",\n\r;\té\\ ') for _ in range(draw.randint(1, 12))) for _ in range(500)]
    with open(tmp_path / "hostile.csv", "w", newline="") as out:
        csv.writer(out).writerows([["text", "label"], *([text, "xy"[i % 2]] for i, text in enumerate(texts))])
    program("train", "--data", "hostile.csv", "--model", TINY, "--vocab-size", "64", "--steps", "1", "--name", "one")
    found = program("predict", "--weights", "one", "--json", "hostile.csv").events
    assert [each["text"] for each in found] == texts
