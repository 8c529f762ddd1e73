"""Levels of vector instructions: a run is the same when it is resumed at the same level, and says so when it is another."""
import re
from pathlib import Path

import pytest
from conftest import tensors

FLAGS = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
LEVELS = [level for level, needs in (("baseline", []), ("avx2", ["avx2", "fma"]), ("avx512", ["avx512f", "avx512bw"]))
          if FLAGS.issuperset(needs)]
NOTE = "this run was computed by another device until now"


def train(farthing, level, *arguments):
    # mnist-cnn has a 3x3 convolution of 32 to 64 channels, which goes through Winograd.
    return farthing("train", *arguments, "--json", env={"FARTHING_MAX_ISA": level})


def weights(farthing, name):
    return tensors(farthing.folder / "runs" / name / "last.safetensors")


def begin(farthing, data, level, name, steps):
    return train(farthing, level, "--data", data, "--batch", 8, "--steps", steps, "--schedule", "constant", "--name", name)


def test_a_resumed_run_is_the_same_at_each_level(farthing, tiny):
    ends = {}
    for level in LEVELS:
        whole = begin(farthing, tiny, level, f"{level}-whole", 6)
        assert f"CPU, {level}, oneDNN" in whole.events[0]["device"]
        begin(farthing, tiny, level, f"{level}-cut", 3)
        resumed = train(farthing, level, "--resume", f"{level}-cut", "--steps", 6)
        assert resumed.events[0]["event"] == "resume" and resumed.events[0]["step"] == 3
        assert NOTE not in resumed.err
        ends[level] = weights(farthing, f"{level}-whole")
        assert weights(farthing, f"{level}-cut") == ends[level]
    assert len(LEVELS) < 2 or any(end != ends[LEVELS[0]] for end in ends.values())  # else the levels were not used


@pytest.mark.skipif(len(LEVELS) < 2, reason="this machine has one level of vector instructions")
def test_another_level_is_noted_once(farthing, tiny):
    begin(farthing, tiny, LEVELS[-1], "moved", 3)
    resumed = train(farthing, LEVELS[-2], "--resume", "moved", "--steps", 5)
    assert resumed.err.count(NOTE) == 1
    assert f"(CPU, {LEVELS[-1]}, " in resumed.err and f"; now CPU, {LEVELS[-2]}, " in resumed.err
    assert resumed.end["steps"] == 5
    again = train(farthing, LEVELS[-2], "--resume", "moved", "--steps", 6)
    assert NOTE not in again.err
    assert f"CPU, {LEVELS[-2]}, oneDNN" in farthing("report", "moved").out
