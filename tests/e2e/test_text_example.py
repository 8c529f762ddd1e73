"""examples/bert-ag-news: on a small set in the same format, and what it does with a download that is not the set."""
import os
import random
import subprocess
from pathlib import Path

from conftest import FARTHING, PATIENCE_S, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "bert-ag-news" / "run"
WORDS = ["minister treaty border war", "match team coach goal", "profit shares market oil", "software planet internet chip"]


def write_news(folder):
    draw = random.Random(1)
    folder.mkdir()
    for name, count in (("train.csv", 128), ("test.csv", 32)):
        lines = []
        for i in range(count):
            words = draw.choices(WORDS[i % 4].split(), k=6)
            lines.append(f'"{i % 4 + 1}","{words[0]}","{" ".join(words[1:])}"\n')
        (folder / name).write_text("".join(lines))
    (folder / "classes.txt").write_text("World\nSports\nBusiness\nSci/Tech\n")
    return folder


def run(folder, *arguments, **variables):
    return subprocess.run([EXAMPLE, *map(str, arguments)], cwd=folder, env=environment(FARTHING=str(FARTHING), **variables), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * PATIENCE_S)


def test_trains_and_classifies(tmp_path):
    done = run(tmp_path, "--data", write_news(tmp_path / "news"), "--model", "bert-tiny", "--epochs", 1, "--", "--seed", 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained bert-tiny" in done.stdout and done.stdout.count("Sci/Tech") >= 4, done.stdout
    (folder,) = (tmp_path / "bert-ag-news" / "runs").iterdir()
    hub = tmp_path / "hub"  # as folders on the Hugging Face hub are
    hub.mkdir()
    for name, there in (("config.json", "config.json"), ("tokenizer.json", "tokenizer.json"), ("best.safetensors", "model.safetensors")):
        (hub / there).write_bytes((folder / name).read_bytes())
    again = run(tmp_path, "--data", tmp_path / "news", "--weights", hub, "--epochs", 1, "--out", "again")
    assert again.returncode == 0, again.stdout + again.stderr
    assert not (tmp_path / "again" / "ag_news").exists()


def test_a_download_is_checked(tmp_path):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "curl"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho something else > "$2"\n')
    fake.chmod(0o755)
    done = run(tmp_path, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert done.returncode == 1 and "is not the file that was published" in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "bert-ag-news" / "runs").exists()


def test_downloaded_classes_have_names(tmp_path):
    news = write_news(tmp_path / "news")
    (tmp_path / "bin").mkdir()
    for name, script in (("curl", f'for last; do :; done; while [ "$1" != -o ]; do shift; done; cp {news}/"${{last##*/}}" "$2"'),
                         ("md5sum", "cat >/dev/null")):
        fake = tmp_path / "bin" / name
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
    done = run(tmp_path, "--model", "bert-tiny", "--", "--steps", 1, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert done.returncode == 0 and done.stdout.count("Sci/Tech") >= 4, done.stdout + done.stderr


def test_wrong_arguments_print_the_usage(tmp_path):
    for arguments in (["--epochs"], ["--wrong", "1"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 2 and "examples/bert-ag-news/run [--data FOLDER]" in done.stderr
