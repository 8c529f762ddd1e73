"""Every way in which people save weights: loaded to the same logits as PyTorch's, or refused with the reason.

The ways are tried on a small network, since they do not depend on it; each of torchvision's networks is then read once,
without being told which one it is."""
import argparse
import collections
import copy
import datetime
import enum
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
torchvision = pytest.importorskip("torchvision", reason="needs torchvision")
numpy = pytest.importorskip("numpy", reason="needs NumPy")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="needs the safetensors package")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FARTHING = pathlib.Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
sys.path.insert(0, str(ROOT / "tests" / "torch"))
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import make_fixtures  # noqa: E402: PyTorch's side of every model
from test_torch import create, relative_error  # noqa: E402

TOLERANCE = 1e-5  # both programs round in f32


def run(*arguments):
    return subprocess.run([FARTHING, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})


def predict(weights, images, *more):
    done = run("predict", "--weights", weights, *more, "--threads", 2, "--json", "--logits", images)
    assert done.returncode == 0, done.stderr
    return torch.tensor([json.loads(line)["logits"] for line in done.stdout.splitlines()]), done.stderr


# ---- a network, and what people keep beside it ----


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(1)
    torch.set_num_threads(2)
    return create("resnet20", 3, 32, 10)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "images.safetensors"
    torch.manual_seed(2)
    safetensors_torch.save_file({"images": torch.randn(3, 3, 32, 32)}, path)
    return path


class Wrapper(torch.nn.Module):
    """A LightningModule, as far as its names go."""

    def __init__(self, net, name, with_loss=False):
        super().__init__()
        setattr(self, name, net)
        if with_loss:
            self.criterion = torch.nn.CrossEntropyLoss(weight=torch.ones(10))


class OwnDict(collections.OrderedDict):
    pass


class Phase(enum.Enum):
    FINE = "fine"


class Config(dict):
    """Somebody's settings: a dictionary with attributes."""

    def __init__(self, **values):
        super().__init__(values)
        self.__dict__["parent"] = None


def optimizer_of(net):
    optimizer = torch.optim.AdamW(net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return optimizer


def prefixed(prefix, state):
    return {prefix + name: value for name, value in state.items()}


def fsdp(state):
    return {"_fsdp_wrapped_module." + name.replace("layer1.", "layer1._fsdp_wrapped_module.")
            .replace("conv1.", "_checkpoint_wrapped_module.conv1."): value for name, value in state.items()}


def noncontiguous(state):
    shared = torch.cat([value.reshape(-1) for value in state.values() if value.dtype == torch.float32])
    result, at = {}, 0
    for name, value in state.items():
        if value.dtype != torch.float32:
            result[name] = value
            continue
        part = shared[at:at + value.numel()].view(value.shape)  # all in one storage
        at += value.numel()
        result[name] = part.to(memory_format=torch.channels_last) if part.ndim == 4 else part
    return result


# ---- the ways ----


def ways(net):
    """name -> (value, options of torch.save, text after the file's name, words of the log)"""
    state = net.state_dict()
    optimizer = optimizer_of(copy.deepcopy(net))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60])
    average = torch.optim.swa_utils.AveragedModel(net)
    training = {"epoch": 7, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                "scaler": {"scale": 65536.0, "growth_tracker": 3}, "best_acc": numpy.float64(93.1)}
    arguments = argparse.Namespace(lr=0.1, data_path=pathlib.PurePosixPath("/data"), resume="")
    legacy = {"_use_new_zipfile_serialization": False}
    return {
        "state_dict": (state, {}, "", ""),
        "state_dict legacy": (state, legacy, "", ""),
        "protocol 3": (state, {"pickle_protocol": 3}, "", ""),
        "protocol 4": (state, {"pickle_protocol": 4}, "", ""),
        "protocol 5": (state, {"pickle_protocol": 5}, "", ""),
        "protocol 5 legacy": (state, {"pickle_protocol": 5, **legacy}, "", ""),
        "plain dict": (dict(state), {}, "", ""),
        "OrderedDict of a class of one's own": (OwnDict(state), {}, "", "OwnDict"),
        "DataParallel": (torch.nn.DataParallel(net).state_dict(), {}, "", "'module.' taken off"),
        "compiled": (prefixed("_orig_mod.", state), {}, "", "'_orig_mod.' taken off"),
        "compiled DDP": (prefixed("module._orig_mod.", state), {}, "", "'module._orig_mod.' taken off"),
        "FSDP": (fsdp(state), {}, "", "taken out of the names"),
        "checkpoint": ({"model_state_dict": state, **training}, {}, "", "read from 'model_state_dict'"),
        "checkpoint legacy": ({"state_dict": state, **training}, legacy, "", "read from 'state_dict'"),
        "torchvision reference": ({"model": state, "args": arguments, **training}, {}, "", "argparse.Namespace"),
        "torchvision reference with EMA": ({"model": state, "model_ema": average.state_dict(), "args": arguments}, {}, "",
                                           "read from 'model'"),
        "EMA by key": ({"model": {}, "model_ema": average.state_dict()}, {}, ":model_ema", "'module.' taken off"),
        "EMA alone": (average.state_dict(), {}, "", "'module.' taken off"),
        "Lightning": ({"state_dict": Wrapper(net, "model").state_dict(), "pytorch-lightning_version": "2.2",
                       "hyper_parameters": Config(lr=0.1), "callbacks": {}, "loops": {"fit": {}}}, {}, "",
                      "'model.' taken off"),
        "Lightning with a loss": ({"state_dict": Wrapper(net, "model", True).state_dict()}, {}, "",
                                  "1 other tensor left out"),
        "Lightning, any name": ({"state_dict": Wrapper(net, "classifier", True).state_dict()}, {}, "",
                                "'classifier.' taken off"),
        "Lightning by key": ({"state_dict": Wrapper(net, "model", True).state_dict()}, {}, ":state_dict.model",
                             "'model.' taken off"),
        "backbone": (prefixed("module.backbone.", state), {}, "", "'module.backbone.' taken off"),
        "encoder": (prefixed("encoder.", state), {}, "", "'encoder.' taken off"),
        "net": ({"net": state, "acc": 93.1, "epoch": 1}, {}, "", "read from 'net'"),
        "nested": ({"run": {"checkpoint": {"weights": state}}}, {}, "", "read from 'run.checkpoint.weights'"),
        "nested by key": ({"a": {"model": state}, "b": {"model": {}}}, {}, ":a.model", "read from 'a.model'"),
        "NumPy's numbers": ({"state_dict": state, "top1": numpy.float32(0.5), "step": numpy.int64(3),
                             "curve": numpy.linspace(0, 1, 5), "rng": numpy.random.get_state()}, {}, "",
                            "read from 'state_dict'"),
        "NumPy's numbers, protocol 5": ({"state_dict": state, "curve": numpy.linspace(0, 1, 5),
                                         "generator": numpy.random.default_rng(1)}, {"pickle_protocol": 5}, "",
                                        "read from 'state_dict'"),
        "dates, paths, enums": ({"state_dict": state, "when": datetime.datetime(2024, 1, 1), "phase": Phase.FINE,
                                 "out": pathlib.PurePosixPath("/x"), "device": torch.device("cpu"), "span": slice(1, 2),
                                 "seen": {1, 2}, "by": collections.defaultdict(list)}, {}, "", "datetime.datetime"),
        "parameters": ({name: torch.nn.Parameter(value) if value.is_floating_point() else value
                        for name, value in state.items()}, {}, "", ""),
        "without counters": ({name: value for name, value in state.items() if "num_batches" not in name}, {}, "", ""),
        "float64": ({name: value.double() if value.is_floating_point() else value for name, value in state.items()}, {}, "",
                    ""),
        "noncontiguous, one storage": (noncontiguous(state), {}, "", ""),
        "noncontiguous, one storage, legacy": (noncontiguous(state), legacy, "", ""),
        "a whole optimizer beside it": ({"model": state, "optimizer": optimizer}, {}, "", "torch.optim.adamw.AdamW"),
    }


WAYS = list(ways(create("resnet20", 3, 32, 10)))


def test_there_are_thirty_ways():
    assert len(WAYS) >= 30


@pytest.fixture(scope="module")
def all_ways(net):
    return ways(net)


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_saving(net, all_ways, images, way, tmp_path):
    value, options, key, words = all_ways[way]
    torch.save(value, tmp_path / "weights.pth", **options)
    logits, said = predict(f"{tmp_path / 'weights.pth'}{key}", images)
    assert words in said and "its tensors are those of resnet20" in said
    with torch.no_grad():
        expected = net(safetensors_torch.load_file(images)["images"])
    assert relative_error(logits, expected) < TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(net, images, dtype, tmp_path):
    rounded = copy.deepcopy(net).to(dtype)
    torch.save(rounded.state_dict(), tmp_path / "weights.pth")
    logits, _ = predict(tmp_path / "weights.pth", images)
    with torch.no_grad():
        expected = rounded.float()(safetensors_torch.load_file(images)["images"])
    assert relative_error(logits, expected) < TOLERANCE


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "pt", "model": "something else"}])
def test_safetensors(net, images, metadata, tmp_path):
    safetensors_torch.save_file(net.state_dict(), tmp_path / "w.safetensors", metadata=metadata)
    logits, _ = predict(tmp_path / "w.safetensors", images)
    with torch.no_grad():
        expected = net(safetensors_torch.load_file(images)["images"])
    assert relative_error(logits, expected) < TOLERANCE


def test_tensors_of_another_device(net, images, tmp_path):
    """Files say on which device each tensor was; it does not matter here. Written by changing the word in the pickle."""
    path = tmp_path / "weights.pth"
    torch.save(net.state_dict(), path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    logits, _ = predict(path, images)
    with torch.no_grad():
        expected = net(safetensors_torch.load_file(images)["images"])
    assert relative_error(logits, expected) < TOLERANCE


# ---- what is refused ----


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def refusals(net):
    state = net.state_dict()
    wrong = dict(state)
    sparse, quantized, meta, strange = dict(state), dict(state), dict(state), dict(state)
    sparse["linear.weight"] = state["linear.weight"].to_sparse()
    quantized["linear.weight"] = torch.quantize_per_tensor(state["linear.weight"], 0.1, 0, torch.qint8)
    meta["linear.weight"] = state["linear.weight"].to("meta")
    strange["linear.weight"] = state["linear.weight"].to(torch.complex64)
    wrong["linear.weight"] = torch.zeros(10, 63)
    return {
        "whole module": (net, "make_fixtures.CifarResnet, which only that class's own code can rebuild"),
        "whole module in a checkpoint": ({"model": net, "epoch": 3}, "model (an object of make_fixtures.CifarResnet)"),
        "sparse": (sparse, "tensor 'linear.weight' is refused: it is made by torch._utils._rebuild_sparse_tensor"),
        "quantized": (quantized, "tensor 'linear.weight' is refused: it is made by torch._utils._rebuild_qtensor"),
        "meta": (meta, "tensor 'linear.weight' is refused: it is made by torch._utils._rebuild_meta"),
        "complex": (strange, "tensor 'linear.weight' has dtype complex64"),
        "attack": ({"state_dict": state, "x": Attack()}, "refused: GLOBAL 'posix system'"),
        "list": (list(state.values()), "holds a list, not a dictionary"),
        "no weights": ({"epoch": 1, "args": argparse.Namespace(a=1)}, "args (an object of argparse.Namespace)"),
        "two networks": ({"generator": state, "discriminator": dict(state)}, "several dictionaries of tensors: generator"),
        "two networks in one": ({**prefixed("encoder_q.", state), **prefixed("encoder_k.", state)},
                                "two parts fit the model, encoder_q.* and encoder_k.*"),
        "another shape": (wrong, "linear.weight is (10, 63) instead of (10, 64)"),
        "another network": ({"a.weight": torch.ones(2)}, "its tensors are those of none: give --model NAME"),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", list(refusals(create("resnet20", 3, 32, 10))))
def test_refused_with_the_reason(net, images, what, tmp_path):
    value, words = refusals(net)[what]
    torch.save(value, tmp_path / "weights.pth")
    done = run("predict", "--weights", tmp_path / "weights.pth", images)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (pathlib.Path.cwd() / "attacked").exists()


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_refused(net, images, tmp_path):
    torch.jit.save(torch.jit.trace(net, torch.zeros(1, 3, 32, 32)), tmp_path / "script.pt")
    done = run("predict", "--weights", tmp_path / "script.pt", images)
    assert done.returncode == 1 and "TorchScript" in done.stderr


# ---- networks ----

NETWORKS = ["resnet18", "resnet34", "resnet50", "resnet101", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn",
            "vgg16_bn", "vgg19_bn"]


@pytest.mark.parametrize("name", NETWORKS)
def test_torchvisions_networks_are_recognized(name, tmp_path):
    """In half precision, which halves VGG's half a gigabyte. Memory is filled, not initialized: that takes seconds."""
    torch.manual_seed(1)
    with make_fixtures.uninitialized():
        network = getattr(torchvision.models, name)(num_classes=5)
    network = network.to_empty(device="cpu").bfloat16().eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.reset_parameters()
        elif isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            pool = torch.randn(1 << 16).bfloat16() * (2 / module.weight[0].numel()) ** 0.5
            flat = module.weight.data.view(-1)
            flat.copy_(pool.repeat(flat.numel() // pool.numel() + 1)[:flat.numel()])
            if module.bias is not None:
                module.bias.data.zero_()
    images = torch.randn(1, 3, 32, 32)
    torch.save({"model": network.state_dict(), "args": argparse.Namespace(model=name)}, tmp_path / "w.pth")
    safetensors_torch.save_file({"images": images}, tmp_path / "images.safetensors")
    logits, said = predict(tmp_path / "w.pth", tmp_path / "images.safetensors", "--size", 32)
    (tmp_path / "w.pth").unlink()
    assert f"its tensors are those of {name.replace('_', '-')}\n" in said
    with torch.no_grad():
        expected = network.float()(images)
    assert relative_error(logits, expected) < TOLERANCE


@pytest.mark.parametrize("model", ["resnet32", "resnet18-small"])
def test_networks_for_small_pictures(model, tmp_path):
    torch.manual_seed(1)
    network = create(model, 3, 32, 10)
    images = torch.randn(2, 3, 32, 32)
    torch.save(torch.nn.DataParallel(network).state_dict(), tmp_path / "w.pth")
    safetensors_torch.save_file({"images": images}, tmp_path / "images.safetensors")
    logits, said = predict(tmp_path / "w.pth", tmp_path / "images.safetensors")
    assert f"its tensors are those of {model}\n" in said
    with torch.no_grad():
        expected = network(images)
    assert relative_error(logits, expected) < TOLERANCE
    if model.endswith("-small"):
        named, _ = predict(tmp_path / "w.pth", tmp_path / "images.safetensors", "--model", "resnet18", "--stem", "small")
        assert torch.equal(named, logits)
