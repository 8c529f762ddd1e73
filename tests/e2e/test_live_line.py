"""The line that a run draws on a terminal: its numbers are the record's, and it fits whatever the width is."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from conftest import FARTHING, environment, record

FIELDS = [r"[█░]{16}", r"epoch \d+(/\d+)?", r"step [\d,]+(/[\d,]+)?", r"loss [\d.e-]+", r"accuracy [\d.]+ %",
          r"[\d,]+ samples/s", r"[\d,]+/s", r"(\d+[hm])*[\d.]+[smh] left", "evaluating"]
WHOLE = re.compile("|".join(f"({field})" for field in FIELDS))


class Terminal:
    """A pseudo-terminal that a program runs on."""

    def __init__(self, *arguments, columns, folder):
        try:
            self.master, slave = pty.openpty()
        except OSError as error:  # a container without /dev/pts
            pytest.skip(f"no terminal can be made here: {error}")
        self.resize(columns)
        self.process = subprocess.Popen([FARTHING, *map(str, arguments)], cwd=folder, stdin=slave, stdout=slave,
                                        stderr=slave, env=environment(TERM="xterm", LC_ALL="C.UTF-8"))
        os.close(slave)
        self.text = ""

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        """False when the program has closed it."""
        try:
            self.text += os.read(self.master, 65536).decode(errors="replace")
            return True
        except OSError:
            return False

    def draw(self, count):
        """What is drawn next, until `count` lines are; the line is also taken away, before others are printed."""
        seen = len(self.lines())
        while len([line for line in self.lines()[seen:] if line]) < count:
            assert self.read(), self.text[-500:]
        return [line for line in self.lines()[seen:] if line]

    def draw_until(self, condition, most=100):
        """Lines drawn before a change may still come."""
        assert any(condition(self.draw(1)[-1]) for _ in range(most)), self.text[-500:]

    def lines(self):
        return re.findall(r"\r([^\r\n\x1b]*)\x1b\[K", self.text)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def parts(line):
    """The fields of a line; each must be a whole one."""
    bar = re.match(r"([█░]{16}) ", line)
    found = [bar.group(1)] if bar else []
    found += line[bar.end() if bar else 0:].split(", ")
    assert all(WHOLE.fullmatch(part) for part in found), line
    return found


def has(line, words):
    return all(re.search(word, line) for word in words)


def test_the_line_fits(farthing, tiny):
    """At every width, and when the window changes while the run goes on."""
    terminal = Terminal("train", "--data", tiny, "--model", "linear", "--steps", 10_000_000, "--batch", 4, "--lr", "1e-9",
                        "--validate-every", 1000, columns=80, folder=farthing.folder)
    for columns, expected in [(80, ["epoch", "step", "loss", "accuracy", "left"]),
                              (200, ["█|░", "epoch", "step", "loss", "accuracy", "samples/s", "left"]),
                              (72, ["step", "loss", "accuracy", "left"]), (55, ["step", "loss", "left"]), (30, ["step"]),
                              (120, ["█|░", "epoch", "step", "loss", "accuracy", "samples/s", "left"])]:
        terminal.resize(columns)
        terminal.draw_until(lambda line: has(line, expected) and len(line) < columns)
        for line in terminal.draw(3):
            assert len(line) < columns  # the last column stays free: a full line may wrap
            assert parts(line) and (has(line, expected) or "evaluating" in line), line
    terminal.resize(7)  # no room for anything
    while any(terminal.lines()[-5:]):
        assert terminal.read(), terminal.text[-500:]
    terminal.close()


def test_its_numbers_are_those_of_the_record(farthing, tiny):
    """What the first steps were like must not linger: accuracy rises quickly here, and the record says how far."""
    terminal = Terminal("train", "--data", tiny, "--model", "linear", "--lr", 0.1, "--batch", 32, "--steps", 60, "--name",
                        "risen", columns=150, folder=farthing.folder)
    while terminal.read():
        pass
    last = [line for line in terminal.lines() if "step 60/60" in line][-1]
    shown = float(re.search(r"accuracy ([\d.]+) %", last).group(1)) / 100
    events = [event for event in record(farthing.folder / "runs" / "risen") if event["event"] == "step"]
    before = [0] + [event["samples"] for event in events]
    correct = sum(event["accuracy"] * (event["samples"] - so_far) for event, so_far in zip(events, before))
    mean, newest = correct / events[-1]["samples"], events[-1]["accuracy"]
    assert mean - 0.005 <= shown <= max(newest, mean) + 0.005, (last, mean, newest)
    assert terminal.process.wait() == 0


def test_a_server_and_its_workers_have_the_same_line(farthing, tiny):
    """--strategy parameter-server without --server: a live line, and at the end the line that other runs end with."""
    terminal = Terminal("train", "--strategy", "parameter-server", "--workers", 2, "--consistency", "sync", "--data", tiny,
                        "--model", "linear", "--batch", 8, "--epochs", 100, columns=130, folder=farthing.folder)
    while terminal.read():
        pass
    lines = [line for line in terminal.lines() if line]
    assert terminal.process.wait() == 0, terminal.text[-500:]
    training = [parts(line) for line in lines]
    assert any(has(", ".join(line), [r"epoch \d+/100", r"step [\d,]+/[\d,]+", "loss", "accuracy", "samples/s", "left"])
               for line in training), lines[:3]
    steps = [int(re.search(r"step ([\d,]+)/", line)[1].replace(",", "")) for line in lines]
    assert steps == sorted(steps) and steps[-1] > steps[0]
    end = record(farthing.only_run())[-1]
    assert end["event"] == "end" and end["reason"] == "epochs"
    announced = {int(re.search(r"/([\d,]+), loss", line)[1].replace(",", "")) for line in lines}
    assert announced == {end["steps"]}  # it knew from the beginning how many there would be
    last = terminal.text.replace("\r\n", "\n").strip().splitlines()[-3]
    run = farthing.only_run().relative_to(farthing.folder)
    assert re.match(r"trained linear on .*: validation accuracy [\d.]+ %, loss [\d.e-]+, 100 epochs, ", last.rpartition("\x1b[K")[2]), last
    assert f"models in {run}: last.safetensors" in terminal.text
    os.close(terminal.master)
