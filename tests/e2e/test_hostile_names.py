"""Names of files and classes are outside data: whatever they hold, a terminal shows it and obeys none of it."""
import json
import os
import signal
import subprocess

import pytest
from conftest import FARTHING, environment, png

ESCAPE = "cat\x1b]0;owned\x07\x1b[2J"
LINES = "dog\r\nfarthing: all is well"
C1 = "emu\u009b31m\u202egpj"
RAW = b"fox\xe9\x9b"
CLASSES = [os.fsencode(ESCAPE), os.fsencode(LINES), C1.encode(), RAW, "Bär猫".encode()]
SHOWN = ["cat\\x1b]0;owned\\x07\\x1b[2J", "dog\\r\\nfarthing: all is well", "emu\\u009b31m\\u202egpj", "fox\\xe9\\x9b",
         "Bär猫"]


def run(folder, *arguments, code=0):
    """The program with any bytes as arguments; both outputs must be safe for a terminal."""
    done = subprocess.run([FARTHING, *arguments], cwd=folder, capture_output=True, timeout=60, env=environment(),
                          stdin=subprocess.DEVNULL)
    assert done.returncode == code, done
    out, err = done.stdout.decode(), done.stderr.decode()  # which fails where it is not UTF-8
    for text in (out, err):
        bad = [c for c in text if (c < " " and c != "\n") or "\x7f" <= c < "\xa0" or "\u2028" <= c <= "\u202e"
               or "\u2066" <= c <= "\u2069"]
        assert not bad, (bad, text)
    return out, err


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A set of image files with a class for each kind of bad name; one image of each cannot be read, one is grey."""
    root = tmp_path_factory.mktemp("hostile")
    for name in CLASSES:
        folder = os.path.join(os.fsencode(root), b"set", name)
        os.makedirs(folder)
        for i in range(4):
            with open(os.path.join(folder, name + b"%d.png" % i), "wb") as file:
                file.write(png(8, 8, 40 * i) if i < 3 else b"no picture")
    return root


def test_inspect(hostile):
    out, _ = run(hostile, "data", "inspect", "set")
    for name in SHOWN:
        assert any(line.startswith(name + " ") for line in out.splitlines()), (name, out)
        assert f"  {name}/{name}3.png: " in out


def test_inspect_as_json(hostile):
    out, _ = run(hostile, "data", "inspect", "set", "--json")
    found = json.loads(out)
    assert {c["name"] for c in found["classes"]} == {ESCAPE, LINES, C1, SHOWN[3], SHOWN[4]}
    assert len(found["unreadable"]) == len(CLASSES)


def train(hostile, name, *more, code=0):
    return run(hostile, "train", "--data", "set", "--model", "linear", "--batch", "4", "--image-size", "8",
               "--validation-fraction", "0.3", "--max-bad-images", "0.9", "--name", name, *more, code=code)


def test_train_predict_and_report(hostile):
    _, err = train(hostile, "h", "--steps", "20")
    assert any(f"{name}3.png cannot be read" in err for name in SHOWN), err
    image = os.path.join(b"set", CLASSES[0], CLASSES[0] + b"0.png")
    out, _ = run(hostile, "predict", "--weights", "runs/h", image, "--top", "5")
    lines = out.splitlines()
    assert lines[0] == f"set/{SHOWN[0]}/{SHOWN[0]}0.png" and len(lines) == 6
    assert any(line.endswith(" %  " + SHOWN[1]) for line in lines), out
    bad = os.path.join(b"set", CLASSES[3], CLASSES[3] + b"0.png")
    out, _ = run(hostile, "predict", "--weights", "runs/h", bad, "--json")
    assert json.loads(out)["image"] == f"set/{SHOWN[3]}/{SHOWN[3]}0.png"
    run(hostile, "report", "runs/h")


@pytest.mark.parametrize("arguments", [["data", "inspect", ESCAPE], ["report", LINES], [ESCAPE], ["train", "--" + C1],
                                       ["train", "--data", RAW], ["store", "ls", LINES], ["train", ESCAPE + ".yaml"],
                                       ["predict", "--weights", LINES, ESCAPE]])
def test_errors_are_one_line(hostile, arguments):
    _, err = run(hostile, *arguments, code=2 if arguments[0] in ("train", ESCAPE) else 1)
    assert all(line.startswith("farthing: ") for line in err.splitlines()), err
    assert "\nfarthing: all is well" not in err


def test_store(hostile):
    out, err = run(hostile, "store", "ls", "-l", "set")
    assert "8 objects are left out" in err  # a control character is no part of a key
    assert all(any(line.endswith("  " + name + "/") for line in out.splitlines()) for name in SHOWN[2:])
    out, _ = run(hostile, "store", "ls", "-r", "set", "--json")
    assert len([json.loads(line) for line in out.splitlines()]) == 4 * 3
    copy = b"copy" + CLASSES[2]
    run(hostile, "store", "cp", "-r", "set", copy, code=1)  # what was left out
    out, _ = run(hostile, "store", "rm", "-r", "-y", "--confirm", copy, copy)
    assert "copy" + SHOWN[2] in out


def test_the_command_that_resumes_is_printed_as_words_of_a_shell(hostile):
    runs = "ru'n\\s\n\x1b[2J"
    process = subprocess.Popen([FARTHING, "train", "--data", "digits", "--model", "linear", "--name", "w", "--runs", runs,
                                "--json"], cwd=hostile, env=environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if json.loads(line)["event"] == "step":  # there is something to resume
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    command = err.splitlines()[-1].strip()
    assert "\x1b" not in command and command.endswith(" --resume")
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True).stdout
    assert os.fsencode(runs) in said.split(b"\0")
