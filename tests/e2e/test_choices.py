"""Options with a list of values: a wrong one is wrong usage, names them all and the nearest, in a flag and in a file."""
import re

import pytest

# The values that there are, in their order; tables that grow may have more behind them.
TRAIN = {
    "optimizer": ("sgd, adamw", "sdg", "sgd"),
    "schedule": ("constant, step, cosine, linear", "cosin", "cosine"),
    "precision": ("f32, bf16, f16, tf32, auto", "fb16", "bf16"),
    "strategy": ("single, hogwild, parameter-server", "hogwidl", "hogwild"),
    "hogwild-momentum": ("shared, worker", "share", "shared"),
    "wire": ("f32, f16, bf16", "fp16", "f16"),
    "scale-lr": ("none, sqrt, linear", "linaer", "linear"),
    "batch-norm": ("worker, synchronized", "synchronised", "synchronized"),
    "augment": ("none, flip, crop, flip-crop", "filp", "flip"),
    "stem": ("standard, small", "smal", "small"),
    "best-by": ("loss, accuracy", "acuracy", "accuracy"),
    "s3-style": ("auto, path, host", "pahth", "path"),
    "compress": ("none, f16, bf16, topk:SHARE", "bf61", "bf16"),
    "consistency": ("async, sync, sync:N, bounded:S", "asinc", "async"),
}

OTHERS = [
    (["serve", "parameters"], "consistency", *TRAIN["consistency"]),
    (["serve", "parameters"], "durability", "checkpoint, kill, power", "pover", "power"),
    (["serve", "parameters"], "optimizer", *TRAIN["optimizer"]),
    (["standby"], "s3-style", *TRAIN["s3-style"]),
    (["evaluate", "--weights", "none"], "precision", *TRAIN["precision"]),
    (["store", "presign", "s3://b/k"], "method", "get, put", "got", "get"),
    (["export"], "to", "safetensors, onnx", "onxx", "onnx"),
    (["report"], "over", "default, steps, epochs, time", "tiem", "time"),
    (["rehearse"], "cloud", "signal, file, aws, gcp, azure, mixed", "asure", "azure"),
    (["keys"], "role", "read, train, admin", "tarin", "train"),
    (["bench"], "optimizer", *TRAIN["optimizer"]),
    (["bench"], "precision", *TRAIN["precision"]),
]


def check(done, choices, wrong, nearest):
    first = done.err.splitlines()[0]
    assert re.search(rf"must be one of {choices}(, [\w:-]+)*, not '{wrong}'; did you mean '{nearest}'\?", first)
    assert done.out == ""


@pytest.mark.parametrize("name", TRAIN)
def test_a_flag_of_train(farthing, name):
    choices, wrong, nearest = TRAIN[name]
    done = farthing("train", f"--{name}", wrong, code=2)
    assert f"--{name} must" in done.err
    check(done, choices, wrong, nearest)


@pytest.mark.parametrize("name", TRAIN)
def test_a_key_in_a_file(farthing, name):
    choices, wrong, nearest = TRAIN[name]
    (farthing.folder / "job.yaml").write_text(f"seed: 3\n{name}: {wrong}\n")
    done = farthing("train", "job.yaml", code=2)
    assert f"job.yaml line 2: {name} must" in done.err
    check(done, choices, wrong, nearest)


@pytest.mark.parametrize("words, name, choices, wrong, nearest", OTHERS)
def test_flags_of_other_commands(farthing, words, name, choices, wrong, nearest):
    check(farthing(*words, f"--{name}", wrong, code=2), choices, wrong, nearest)


@pytest.mark.parametrize("value, expected", [
    ("sync:0", "how many gradients"), ("sync:x", "whole number"), ("bounded:-1", "how many versions"),
    ("bounded", "did you mean 'bounded:S'?"), ("sync:", "must be one of")])
def test_what_follows_a_colon(farthing, value, expected):
    for words in (["train", "--strategy", "parameter-server"], ["serve", "parameters"]):
        assert expected in farthing(*words, "--consistency", value, code=2).err


def test_a_share_that_does_not_fit(farthing):
    for value in ("topk:0", "topk:2", "topk:200%", "topk:%", "topk:x"):
        done = farthing("train", "--strategy", "parameter-server", "--compress", value, code=2)
        assert "expected a share above 0 and at most 1" in done.err


@pytest.mark.parametrize("words, choices", [
    (["store", "lss"], "ls, cat, cp, rm, presign"), (["data", "inspct", "x"], "inspect, pack, shard, bench"),
    (["runs", "remove"], "rm"), (["serve", "paramters"], "parameters, batches, functions"), (["completion", "tcsh"], "bash, zsh, fish")])
def test_words_that_commands_take_first(farthing, words, choices):
    assert f"must be one of {choices}, not '{words[1]}'" in farthing(*words, code=2).err
