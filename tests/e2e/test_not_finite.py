"""Weights and losses that are not finite: refused where they are read, never published, and never a silent success."""
import hashlib
import json
import math
import struct
import zlib

import pytest
from conftest import checkpoints, record, tensors


def rewrite(path, name, change):
    """Applies `change` to the floats of one tensor of a safetensors file, in place."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    place = slice(8 + size + begin, 8 + size + end)
    count = (end - begin) // 4
    numbers = change(list(struct.unpack(f"<{count}f", data[place])))
    data[place] = struct.pack(f"<{count}f", *numbers)
    path.write_bytes(data)


def png(path):
    """A grey picture of 28 x 28."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = zlib.compress(b"".join(b"\0" + bytes(range(28)) for _ in range(28)))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 28, 28, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def set_nan(index):
    def change(numbers):
        numbers[index] = math.nan
        return numbers
    return change


def is_finite(path):
    values = tensors(path).values()
    return all(math.isfinite(x) for dtype, _, raw in values if dtype == "F32"
               for x in struct.unpack(f"<{len(raw) // 4}f", raw))


@pytest.fixture
def model(farthing, tiny):
    """A trained model's file, outside of its run."""
    farthing("train", "--data", tiny, "--model", "mnist-cnn", "--steps", 2, "--batch", 16, "--name", "good")
    path = farthing.folder / "model.safetensors"
    path.write_bytes((farthing.folder / "runs/good/last.safetensors").read_bytes())
    return path


def test_weights_that_are_not_finite_are_refused_by_every_command(farthing, tiny, model):
    rewrite(model, "conv2.weight", set_nan(9 + 4))  # (0, 1, 1, 1)
    picture = farthing.folder / "picture.png"
    png(picture)
    commands = {
        "train": ["train", "--data", tiny, "--model", "mnist-cnn", "--steps", 2, "--name", "bad", "--weights", model],
        "evaluate": ["evaluate", "--data", tiny, "--model", "mnist-cnn", "--weights", model],
        "predict": ["predict", "--weights", model, picture],
        "onnx": ["export", "--weights", model, "--to", "onnx", "--out", "out.onnx"],
        "safetensors": ["export", "--weights", model, "--to", "safetensors", "--out", "out.safetensors"],
    }
    for what, command in commands.items():
        result = farthing(*command, code=1)
        assert "conv2.weight is NaN at (0, 1, 1, 1); 1 of its 18432 numbers is not finite" in result.err, what
        assert "--lr" not in result.err, what
        assert result.out == "", what
    assert not list(farthing.folder.glob("out.*"))
    assert not list(farthing.folder.glob("runs/bad/*.safetensors"))


def test_a_checkpoint_that_is_not_finite_is_not_resumed(farthing, tiny):
    farthing("train", "--data", tiny, "--model", "linear", "--steps", 2, "--name", "run")
    run = farthing.folder / "runs/run"
    path = checkpoints(run)[-1]
    manifest = json.loads(path.read_text())
    file = path.parent / manifest["tensors"]["file"]
    rewrite(file, next(iter(tensors(file))), set_nan(0))
    manifest["tensors"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))
    result = farthing("train", "--resume", "run", "--steps", 4, code=1)
    assert "is NaN at" in result.err and "--lr" not in result.err


def test_a_loss_that_is_not_finite_is_no_result(farthing, tiny, model):
    """Finite weights, but so large that the logits overflow."""
    rewrite(model, "fc2.weight", lambda numbers: [3e38 if i % 2 else -3e38 for i in range(len(numbers))])
    command = ["evaluate", "--data", tiny, "--model", "mnist-cnn", "--weights", model]
    for flags in ([], ["--json"]):
        result = farthing(*command, *flags, code=1)
        assert "the loss is not finite (all weights are finite)" in result.err
        assert result.out == ""


@pytest.mark.parametrize("strategy", [[], ["--strategy", "hogwild", "--workers", 2]])
def test_diverged_training_publishes_nothing(farthing, tiny, strategy):
    common = ["--data", tiny, "--model", "mnist-cnn", "--batch", 16, "--name", "wild", *strategy]
    farthing("train", *common, "--epochs", 1)
    run = farthing.folder / "runs/wild"
    before = (run / "best.safetensors").read_bytes()
    result = farthing("train", "--resume", "wild", "--epochs", 5, "--lr", "1e38", code=1)
    assert "not finite" in result.err or "not a number" in result.err
    event = record(run)[-1]
    assert event["event"] == "error" and event["status"] == "diverged"
    assert "Checkpoints from before it, if any, are kept" in event["message"]
    assert "conv" in event["message"] or "fc" in event["message"] or "all weights are finite" in event["message"]
    assert (run / "best.safetensors").read_bytes() == before
    for path in [*run.glob("*.safetensors"), *run.glob("checkpoints/*.safetensors")]:
        assert is_finite(path), path
    farthing("train", "--resume", "wild", "--epochs", 2, "--lr", "0.01")
