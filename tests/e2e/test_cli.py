"""Commands, flags and files: help, names, precedence, and what is said about mistakes."""
import json
import re
import subprocess
import time

import pytest
from conftest import FARTHING, ROOT, SANITIZED, environment, stop

COMMANDS = ["train", "evaluate", "report", "compare", "models", "doctor", "bench"]


def test_version(farthing):
    assert farthing("--version").out == "farthing 0.1.0\n"


@pytest.mark.skipif(SANITIZED, reason="sanitizers start slowly")
def test_version_is_quick():
    """About 7 ms where nothing else runs; a heavy library loaded by mistake costs a second."""
    best = 1.0
    for _ in range(100):  # other work on the machine adds to most of them
        start = time.perf_counter()
        subprocess.run([FARTHING, "--version"], stdout=subprocess.DEVNULL, env=environment(), check=True)
        best = min(best, time.perf_counter() - start)
        if best <= 0.050:
            break
    assert best <= 0.050


def test_help_lists_commands(farthing):
    text = farthing("--help").out
    for command in COMMANDS:
        assert f"\n  {command} " in text
    assert farthing(code=2).out == text


@pytest.mark.parametrize("command", [*COMMANDS, "options"])
def test_help_of_each(farthing, command):
    text = farthing(command, "--help").out
    assert f"usage: farthing {command}" in text
    assert not [line for line in text.splitlines() if line.endswith(" ")]
    assert farthing("help", command).out == text


def test_flags_that_scripts_rely_on(farthing):
    text = farthing("train", "--help").out
    for flag in ("model data batch epochs steps for until optimizer lr momentum weight-decay schedule warmup seed "
                 "threads precision device weights runs name checkpoint-every resume json").split():
        assert f"--{flag}" in text or f"--[no-]{flag}" in text


def test_help_fits_80_columns(farthing):
    """Of every command, and of those below one."""
    names = re.findall(r"^  (\w+) +\w", farthing("--help").out, re.M)
    below = [f"{name} {part}" for name in ("serve", "worker", "functions")
             for part in re.findall(r"^  (\w+) +\w", farthing(name, "--help").out.partition("Examples:")[0], re.M)]
    assert {"serve parameters", "worker prefetch"} <= set(below)
    for name in ["", *names, *below]:
        for line in farthing(*name.split(), "--help").out.splitlines():
            assert len(line) <= 80, f"{name}: {line}"


def test_help_shows_what_a_command_takes(farthing):
    evaluate, standby = farthing("evaluate", "--help").out, farthing("standby", "--help").out
    assert "--weights" in evaluate and "--data" in evaluate and "--batch" in evaluate
    assert "--checkpoints" in standby and "--lease" in standby and "--threads" in standby
    for flag in ("--lr", "--epochs", "--optimizer", "--strategy", "--augment"):
        assert f"  {flag} " not in evaluate and f"  {flag} " not in standby
    assert "  --checkpoints" not in evaluate
    serve = farthing("serve", "parameters", "--help").out
    assert "--lr X" in serve and "--augment" not in serve


def test_flags_of_other_commands(farthing, trained, tiny):
    refused = farthing("evaluate", "--epochs", 3, code=2)
    assert "evaluate takes no --epochs: it is an option of train and serve parameters" in refused.err
    assert "evaluate takes no --nesterov" in farthing("evaluate", "--no-nesterov", code=2).err
    assert "--checkpoints URL" in farthing("standby", "--epochs", 3, code=2).err  # taken: it describes the run
    # a file may be shared by commands: what is for training is no matter to evaluate
    (farthing.folder / "run.yaml").write_text(f"data: {tiny}\nepochs: 3\nlr: 0.1\naugment: none\n")
    assert "accuracy" in farthing("evaluate", "run.yaml", "--weights", trained.run / "last.safetensors").out


def test_unknown_command(farthing):
    result = farthing("trian", code=2)
    assert "did you mean train?" in result.err
    assert farthing("xyzzyq", code=2).err.count("--help") == 1


@pytest.mark.parametrize("arguments, expected", [
    (["--bacth", "3"], "did you mean '--batch'"),
    (["--batch", "many"], "--batch"),
    (["--batch", "0"], "--batch"),
    (["--batch"], "--batch"),
    (["--optimizer", "adam"], "adamw"),
    (["--precision", "f64"], "bf16"),
    (["--until", "accuracy=99"], "0.99"),
    (["--for", "2 weeks"], "--for"),
    (["--lr", "0"], "--lr must be above 0"),
    (["--epochs", "0"], "--epochs must be at least 1"),
    (["--steps", "0"], "--steps must be at least 1"),
    (["--seed", "-1"], "between 0 and 9007199254740991"),
    (["--checkpoint-every", "often"], "30s"),
    (["mnist-cnn"], "--model mnist-cnn"),
])
def test_bad_flags(farthing, arguments, expected):
    result = farthing("train", *arguments, code=2)
    assert expected in result.err
    assert result.out == ""


@pytest.mark.parametrize("text, line, expected", [
    ("model: mnist-cnn\nbacth: 3\n", 2, "batch"),
    ("model: mnist-cnn\n\nbatch: lots\n", 3, "lots"),
    ("batch: 3\nbatch: 4\n", 2, "batch"),
    ("batch: [1, 2]\n", 1, "batch"),
    ("model: {a: b}\n", 1, "model"),
    ("model: 'open\n", None, ""),
])
def test_bad_yaml(farthing, text, line, expected):
    (farthing.folder / "run.yaml").write_text(text)
    result = farthing("train", "run.yaml", code=2)
    assert "run.yaml" in result.err and expected in result.err
    if line:
        assert f"line {line}" in result.err
    assert not (farthing.folder / "runs").exists()


def test_missing_yaml(farthing):
    assert "absent.yaml" in farthing("train", "absent.yaml", code=2).err


def test_flag_wins_over_file_and_file_over_default(farthing, tiny):
    (farthing.folder / "run.yaml").write_text(f"data: {tiny}\nbatch: 8\nsteps: 4\nweight_decay: 0.5\n")
    farthing("train", "run.yaml", "--batch", 16)
    configuration = json.loads((farthing.only_run() / "run.json").read_text())["configuration"]
    assert configuration["batch"] == 16
    assert configuration["steps"] == 4
    assert configuration["weight-decay"] == 0.5
    assert configuration["model"] == "mnist-cnn"


def test_models(farthing):
    lines = farthing("models").out.splitlines()
    assert any(line.split()[:2] == ["mnist-cnn", "1,199,882"] for line in lines)
    models = {m["name"]: m for m in map(json.loads, farthing("models", "--json").out.splitlines())}
    # torchvision's published counts
    assert models["resnet18"]["parameters"] == 11689512
    assert models["resnet50"]["parameters"] == 25557032
    assert models["vgg19"]["parameters"] == 143667240
    assert models["vgg16-bn"]["parameters"] == 138365992


def test_unknown_model_and_data(farthing, tiny):
    assert "resnet18" in farthing("train", "--model", "resnet81", code=None).err
    result = farthing("train", "--data", "digit", code=None)
    assert result.code in (1, 2) and "digits" in result.err


def test_doctor(farthing, tiny):
    result = farthing("doctor", "--data", tiny)
    assert "ready to train" in result.out
    checks = {c["check"]: c for c in map(json.loads, farthing("doctor", "--json").out.splitlines())}
    assert checks["cpu back end"]["state"] == "ok" and "oneDNN" in checks["cpu back end"]["found"]
    assert checks["cuda"]["found"] and checks["gloo"]["found"]
    assert not (farthing.folder / "runs").exists()  # looks, does not touch


def test_doctor_finds_faults(farthing):
    (farthing.folder / "file").write_text("")
    result = farthing("doctor", "--data", "/nowhere", "--runs", "file", code=1)
    assert result.out.count(" fail ") == 2 and "--runs" in result.out


def test_option_reference_is_up_to_date(farthing):
    assert farthing("options").out == (ROOT / "docs" / "OPTIONS.md").read_text()


@pytest.mark.parametrize("name", ["mnist.yaml", "cifar10.yaml"])
def test_examples_are_valid(farthing, name):
    result = farthing("train", ROOT / "examples" / name, "--data", "/nowhere", code=1)  # gets as far as the data
    assert "/nowhere" in result.err


def test_full_standard_output_is_a_failure(farthing):
    with open("/dev/full", "w") as full:
        done = subprocess.run([FARTHING, "models"], stdout=full, stderr=subprocess.PIPE, env=environment())
    assert done.returncode == 1


def test_bench(farthing):
    line = json.loads(farthing("bench", "--model", "cifar-cnn", "--batch", 4, "--seconds", 1).out)
    assert line["step_ms"] > 0 and line["samples_per_s"] > 0


def test_the_process_is_named_farthing(farthing, tiny):
    """The program starts itself again to set OpenMP's waiting; ps, top and pgrep must not show that as `exe`."""
    process = farthing.start("train", "--data", tiny, "--strategy", "hogwild", "--processes", "2", "--epochs", "100000",
                             "--json")
    try:
        for line in process.stdout:
            if json.loads(line)["event"] == "step":
                break
        names = subprocess.run(["ps", "-o", "comm=", "-p", str(process.pid), "--ppid", str(process.pid)],
                               capture_output=True, text=True, check=True).stdout.split()
        assert names == ["farthing"] * 3
    finally:
        stop(process)
