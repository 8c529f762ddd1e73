"""Levels of vector instructions: a run is the same when it is resumed at the same level, and says so when it is another."""
import json
import re
from pathlib import Path

import pytest
from conftest import tensors

FLAGS = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
LEVELS = [level for level, needs in (("baseline", []), ("avx2", ["avx2", "fma"]), ("avx512", ["avx512f", "avx512bw"]))
          if FLAGS.issuperset(needs)]
NOTE = "this run was computed by another device until now"


def device(farthing, allowed):
    """The device line, with FARTHING_MAX_ISA set to that."""
    done = farthing("bench", "--device", "cpu", "--model", "cifar-cnn", "--batch", 1, "--seconds", 0.001,
                    env={"FARTHING_MAX_ISA": allowed})
    return json.loads(done.out)["device"]


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


def test_avx512_leaves_amx_out(farthing):
    best = device(farthing, "")
    assert device(farthing, "amx") == best
    assert "amx" not in device(farthing, "avx512").lower()
    refused = farthing("bench", "--device", "cpu", env={"FARTHING_MAX_ISA": "sse9"}, code=1)
    assert "FARTHING_MAX_ISA is 'sse9'; use amx, avx512, avx2 or baseline" in refused.err


def test_doctor_says_what_to_do_about_a_wrong_variable(farthing):
    for variable in ("FARTHING_MAX_ISA", "FARTHING_CONVOLUTION"):
        checks = farthing("doctor", env={variable: "sse9"}, code=1).out
        assert variable in checks and "correct the variable, or unset it" in checks and "libdnnl" not in checks


@pytest.mark.skipif("avx512bw" not in FLAGS, reason="this machine does not compute in bf16")
@pytest.mark.parametrize("limit", [("FARTHING_MAX_ISA", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2")])
def test_bf16_is_refused_by_name_of_the_variable_that_rules_it_out(farthing, tiny, limit):
    refused = farthing("train", "--data", tiny, "--precision", "bf16", "--steps", 1, env=dict([limit]), code=1)
    assert f"which this CPU has but {limit[0]}={limit[1]} rules out; unset it" in refused.err


@pytest.mark.skipif("avx512bw" not in FLAGS, reason="this machine does not compute in bf16")
def test_a_resumed_run_in_bf16_is_the_same_with_and_without_amx(farthing, tiny):
    ends = {}
    for allowed in ("amx", "avx512"):
        for name, steps in ((f"{allowed}-whole", 6), (f"{allowed}-cut", 3)):
            train(farthing, allowed, "--data", tiny, "--batch", 8, "--steps", steps, "--schedule", "constant", "--name", name,
                  "--precision", "bf16")
        train(farthing, allowed, "--resume", f"{allowed}-cut", "--steps", 6)
        ends[allowed] = weights(farthing, f"{allowed}-whole")
        assert weights(farthing, f"{allowed}-cut") == ends[allowed]
    if ", AMX" in device(farthing, "amx"):  # else both are the same
        assert ends["amx"] != ends["avx512"]


@pytest.mark.parametrize("model, batch", [("resnet20", 4), ("resnet18-small", 8)])
def test_small_weight_gradients_are_not_oneDNNs_in_bf16(farthing, model, batch):
    """Its threads spin in a barrier: with 2 threads and a busy processor, steps took ten times as long as with 1."""
    done = farthing("bench", "--device", "cpu", "--model", model, "--batch", batch, "--precision", "bf16", "--threads", 2,
                    "--seconds", 0.01, env={"ONEDNN_VERBOSE": "1"}, code=None)
    if done.code != 0 and "bf16" in done.err:
        pytest.skip(f"no bf16 here: {done.err.strip()}")
    kernels = [line for line in done.out.splitlines() if ",exec," in line or line.startswith("onednn_verbose")]
    assert kernels
    assert not [line for line in kernels if "convolution" in line and "backward_weights" in line and "src_bf16" in line]
