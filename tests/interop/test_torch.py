"""Weights to and from PyTorch, ONNX and onnxruntime: the same numbers on both sides.

Runs where a Python has torch and torchvision ($FARTHING_TORCH_PYTHON names one for scripts/run-tests); the parts on ONNX
want onnx and onnxruntime as well, those on safetensors the package of that name. Whatever is missing is skipped."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("torchvision", reason="needs torchvision")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="needs the safetensors package")

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
sys.path.insert(0, str(ROOT / "tests" / "torch"))
import make_fixtures  # noqa: E402: PyTorch's side of every model

# Each model at the size of its data; VGG's 32 × 32 makes its adaptive pooling grow 1 × 1 to 7 × 7, and 96 × 96 makes
# windows overlap. Both programs round in f32: products of up to 25,088 terms, 50 layers deep.
CASES = {
    "mnist-cnn": (4, 1, 28, 10),
    "cifar-cnn": (4, 3, 32, 10),
    "resnet18": (2, 3, 64, 20),
    "resnet20": (2, 3, 32, 10),
    "resnet18-small": (2, 3, 32, 10),
    "resnet50": (2, 3, 64, 10),
    "vgg19": (1, 3, 32, 10),
    "vgg11-bn": (1, 3, 96, 10),
}
TOLERANCE = 1e-5


def run(*arguments, code=0):
    done = subprocess.run([FARTHING, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def create(model, channels, side, classes):
    """A net as a trained one could be: statistics that matter, and signals that reach the end."""
    net = make_fixtures.create(model, channels, side, side, classes).to_empty(device="cpu")
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, torch.nn.BatchNorm2d):
            count = module.num_features
            module.weight.data = 0.5 + torch.rand(count)
            module.bias.data = 0.2 * torch.randn(count)
            module.running_mean = 0.2 * torch.randn(count)
            module.running_var = 0.5 + torch.rand(count)
            module.num_batches_tracked.fill_(1234)
    return net.eval()


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    torch.manual_seed(1)
    torch.set_num_threads(2)
    batch, channels, side, classes = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    net = create(request.param, channels, side, classes)
    images = torch.randn(batch, channels, side, side)
    torch.save(net.state_dict(), folder / "weights.pth")
    safetensors_torch.save_file({"images": images}, folder / "images.safetensors")
    with torch.no_grad():
        logits = net(images)
    yield request.param, folder, net, images, logits, side
    for path in folder.iterdir():  # VGG's weights are half a gigabyte a file
        path.unlink()


def logits_of(model, weights, images, *more):
    done = run("predict", "--model", model, "--weights", weights, *more, "--json", "--logits", images)
    return torch.tensor([json.loads(line)["logits"] for line in done.stdout.splitlines()])


def relative_error(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def test_logits_are_pytorchs(case, record_property):
    model, folder, _, _, logits, side = case
    ours = logits_of(model, folder / "weights.pth", folder / "images.safetensors", "--size", side)
    error = relative_error(ours, logits)
    record_property("relative_error", error)
    print(f"{model}: {error:.2g}")
    assert error <= TOLERANCE


def test_pytorch_loads_what_we_write(case):
    model, folder, net, _, _, side = case
    ours = folder / "ours.safetensors"
    run("export", "--model", model, "--weights", folder / "weights.pth", "--size", side, "--to", "safetensors", "--out",
        ours)
    loaded = safetensors_torch.load_file(ours)
    for name, tensor in net.state_dict().items():
        assert torch.equal(loaded[name], tensor), name
    fresh = create(model, *CASES[model][1:])
    fresh.load_state_dict(loaded, strict=True)
    ours.unlink()


def test_onnx_gives_the_same_logits(case, record_property):
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    model, folder, _, images, logits, side = case
    path = folder / "model.onnx"
    run("export", "--model", model, "--weights", folder / "weights.pth", "--size", side, "--normalize", "0.5/0.25", "--to",
        "onnx", "--out", path)
    onnx.checker.check_model(str(path), full_check=True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(["logits"], {"images": images.numpy()})
    error = relative_error(torch.from_numpy(theirs), logits)
    record_property("relative_error", error)
    print(f"{model} in onnxruntime: {error:.2g}")
    assert error <= TOLERANCE
    (one,) = session.run(["logits"], {"images": images[:1].numpy()})  # the batch is free
    assert one.shape == (1, logits.shape[1])
    metadata = session.get_modelmeta().custom_metadata_map
    channels = images.shape[1]
    assert metadata["model"] == model
    assert json.loads(metadata["normalization"]) == {"mean": [0.5] * channels, "std": [0.25] * channels}
    path.unlink()


def test_every_form_of_file_is_read(tmp_path):
    torch.manual_seed(2)
    net = create("cifar-cnn", 3, 32, 10)
    images = torch.randn(2, 3, 32, 32)
    safetensors_torch.save_file({"images": images}, tmp_path / "images.safetensors")
    with torch.no_grad():
        logits = net(images)
    state = net.state_dict()
    torch.save(state, tmp_path / "zip.pth")
    torch.save(state, tmp_path / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 5, "model_state_dict": state, "optimizer_state_dict": {"state": {}}}, tmp_path / "nested.pth")
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "ddp.pth")
    torch.save({name: value.double() for name, value in state.items()}, tmp_path / "double.pth")
    safetensors_torch.save_file(state, tmp_path / "ours.safetensors")
    for weights in ("zip.pth", "legacy.pth", "nested.pth", "nested.pth:model_state_dict", "ddp.pth", "double.pth",
                    "ours.safetensors"):
        ours = logits_of("cifar-cnn", tmp_path / weights, tmp_path / "images.safetensors")
        assert relative_error(ours, logits) <= TOLERANCE, weights
    for dtype in (torch.float16, torch.bfloat16):
        torch.save({name: value.to(dtype) for name, value in state.items()}, tmp_path / "half.pth")
        rounded = create("cifar-cnn", 3, 32, 10)
        rounded.load_state_dict({name: value.to(dtype).float() for name, value in state.items()})
        with torch.no_grad():
            expected = rounded(images)
        ours = logits_of("cifar-cnn", tmp_path / "half.pth", tmp_path / "images.safetensors")
        assert relative_error(ours, expected) <= TOLERANCE


def test_fine_tuning_replaces_the_head_and_keeps_what_is_frozen(tmp_path):
    torch.manual_seed(4)
    net = create("cifar-cnn", 3, 32, 100)
    torch.save(net.state_dict(), tmp_path / "pretrained.pth")
    done = run("train", "--model", "cifar-cnn", "--data", "shapes", "--weights", tmp_path / "pretrained.pth", "--freeze",
               "conv1,conv2.*", "--steps", "3", "--runs", tmp_path / "runs", "--name", "tuned", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (weights,) = [event for event in events if event["event"] == "weights"]
    assert weights["message"].startswith("head replaced: fc3.weight is (100, 84) in the file, the data has ")
    tuned = safetensors_torch.load_file(tmp_path / "runs" / "tuned" / "last.safetensors")
    for name, before in net.state_dict().items():
        frozen = name.startswith(("conv1.", "conv2."))
        assert frozen == (before.shape == tuned[name].shape and torch.equal(before, tuned[name])), name
    # What was trained can be used with nothing else said.
    from PIL import Image
    Image.new("L", (50, 40), 128).save(tmp_path / "grey.png")
    done = run("predict", "--weights", "tuned", "--runs", tmp_path / "runs", "--json", tmp_path / "grey.png")
    predictions = json.loads(done.stdout)["predictions"]
    assert len(predictions) == 5 and all(p["class"] for p in predictions)
    assert 0 < sum(p["probability"] for p in predictions) <= 1 + 1e-6
