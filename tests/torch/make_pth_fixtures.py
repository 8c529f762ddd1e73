"""Writes tests/torch/pth/: small files of torch.save() as PyTorch itself writes them, and pth.json with what
torch.load() reads back from them.

    python3 tests/torch/make_pth_fixtures.py        # needs torch and numpy

pth.json maps each file to {"key": ..., "prefix": ..., "marker": ..., "skipped": ..., "left_out": N, "copied": N,
"tensors": {name: [dtype, shape, hex]}}: where the weights are to be found, what is taken off their names and out of
them, the classes of what is skipped, how many tensors are left out, how many are not contiguous, and the bytes of each.
"""

import argparse
import collections
import datetime
import enum
import json
import os
import pathlib

import numpy
import torch

FOLDER = pathlib.Path(__file__).parent / "pth"
DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint32: "U32", torch.float32: "F32",
    torch.float64: "F64", torch.int64: "I64", torch.uint64: "U64",
}

facts = {}


def describe(tensor):
    tensor = tensor.detach().contiguous()
    raw = b"" if tensor.numel() == 0 else tensor.flatten().view(torch.uint8).numpy().tobytes()
    return [DTYPES[tensor.dtype], list(tensor.shape), raw.hex()]


def save(name, value, state, key="", prefix="", legacy=False, protocol=2, marker="", skipped="", left_out=0):
    path = FOLDER / name
    torch.save(value, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    tensors = {k[len(prefix):]: v for k, v in state.items() if isinstance(v, torch.Tensor)}
    if marker:
        tensors = {k.replace(marker, ""): v for k, v in tensors.items()}
    facts[name] = {
        "key": key, "prefix": prefix,
        "format": "PyTorch's old format" if legacy else "PyTorch's zip format",
        "copied": sum(not v.is_contiguous() for v in tensors.values()),
        "marker": marker, "skipped": skipped, "left_out": left_out,
        "tensors": {k: describe(v) for k, v in tensors.items()},
    }


def everything():
    """Every dtype and every way for a tensor to lie in its storage."""
    base = torch.arange(12, dtype=torch.float32)
    state = collections.OrderedDict()
    state["f32"] = torch.tensor([[1.5, -2.25], [0.0, 3e38]])
    state["f16"] = torch.tensor([1.0, -0.333], dtype=torch.float16)
    state["bf16"] = torch.tensor([1.0, -0.333, 1e30], dtype=torch.bfloat16)
    state["f64"] = torch.tensor([1 / 3, 1e300], dtype=torch.float64)
    state["i64"] = torch.tensor([-(2**62), 7])
    state["i32"] = torch.tensor([-(2**31), 7], dtype=torch.int32)
    state["i16"] = torch.tensor([-(2**15), 7], dtype=torch.int16)
    state["i8"] = torch.tensor([-128, 127], dtype=torch.int8)
    state["u8"] = torch.tensor([0, 255], dtype=torch.uint8)
    state["bool"] = torch.tensor([[True], [False]])
    state["scalar"] = torch.tensor(3.5)
    state["empty"] = torch.zeros(0, 3)
    state["transposed"] = torch.arange(6, dtype=torch.float32).reshape(2, 3).t()
    state["channels_last"] = torch.arange(24, dtype=torch.float32).reshape(2, 3, 2, 2).to(
        memory_format=torch.channels_last)
    state["expanded"] = torch.tensor([[1], [2]], dtype=torch.int16).expand(2, 5)
    state["strided"] = torch.arange(10, dtype=torch.float64)[1::3]
    state["first_half"] = base[:6]
    state["second_half"] = base[6:].reshape(2, 3)
    state["whole"] = base
    state["column"] = base.reshape(4, 3)[:, 1]
    state["parameter"] = torch.nn.Parameter(torch.tensor([0.1, 0.2]))
    state["grad"] = torch.tensor([0.3], requires_grad=True)
    state["ones"] = torch.ones(1, 1, 1, 2)
    return state


def checkpoint():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    return model, {
        "epoch": 5,
        "model_state_dict": model.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler": {"base": torch.ones(2)},
        "loss": 0.25,
        "best": numpy.float64(0.5),
        "history": numpy.arange(3),
        "rng": torch.zeros(4, dtype=torch.uint8),
        "args": {"lr": 0.1, "name": "run", "milestones": [1, 2], "big": 1 << 80, "seen": {1, 2}},
        "device": torch.device("cpu"), "dtype": torch.float16, "size": torch.Size([2, 3]), "raw": b"bytes",
    }


class Attributes(dict):
    """A dictionary of somebody's own class, as Lightning's AttributeDict for hyper_parameters."""


class State(collections.OrderedDict):
    pass


class Phase(enum.Enum):
    FINE = 1


class Attack:
    def __reduce__(self):
        return os.system, ("true",)


def settings():
    """What people keep beside their weights."""
    return {
        "args": argparse.Namespace(lr=0.1, data_path="/data", output_dir=pathlib.PurePosixPath("/out"), device="cuda"),
        "best_acc": numpy.float64(93.5), "top1": numpy.float32(0.5), "seen": numpy.int64(7), "ok": numpy.bool_(True),
        "curve": numpy.linspace(0, 1, 4), "when": datetime.datetime(2024, 5, 1, 12), "phase": Phase.FINE,
        "milestones": collections.Counter([30, 60]), "sums": collections.defaultdict(list, a=[1]),
        "span": slice(1, 2), "generator": numpy.random.default_rng(1).bit_generator.state,
    }


def beside_weights(model):
    """Checkpoints of torchvision's reference scripts, Lightning, SWA and EMA, FSDP."""
    plain = model.state_dict()
    average = torch.optim.swa_utils.AveragedModel(model)
    skipped = "argparse.Namespace, pathlib.PurePosixPath, datetime.datetime, __main__.Phase"
    for protocol in (2, 5):
        save(f"reference-protocol{protocol}.pth", {"model": plain, "model_ema": average.state_dict(), **settings()}, plain,
             key="model", protocol=protocol, skipped=skipped)
    ema = average.state_dict()
    save("ema.pth", {"epoch": 3, "ema_state_dict": ema}, {k: v for k, v in ema.items() if k != "n_averaged"},
         key="ema_state_dict", prefix="module.", left_out=1)
    lightning = {"model." + k: v for k, v in plain.items()}
    save("lightning.pth", {"pytorch-lightning_version": "2.1.0", "global_step": 7, "state_dict": lightning,
                           "hyper_parameters": Attributes(lr=0.1), "callbacks": {}}, lightning, key="state_dict",
         prefix="model.", skipped="__main__.Attributes")
    torch.save({"state_dict": {**lightning, "criterion.weight": torch.ones(3)}}, FOLDER / "lightning-loss.pth")
    save("ordered-subclass.pth", State(plain), plain, skipped="__main__.State")
    sharded = {"_fsdp_wrapped_module.0._fsdp_wrapped_module.weight": torch.ones(2),
               "_fsdp_wrapped_module.1._checkpoint_wrapped_module.weight": torch.zeros(2)}
    torch.save(sharded, FOLDER / "fsdp.pth")
    torch.save({"w": torch.ones(2), "s": torch.eye(2).to_sparse()}, FOLDER / "sparse.pth")
    torch.save({"w": torch.ones(2), "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)},
               FOLDER / "quantized.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": plain, "sparse": torch.eye(2).to_sparse()}, FOLDER / "sparse-beside.pth")
    torch.save({"state_dict": plain, "run": Attack()}, FOLDER / "attack.pth")


def main():
    FOLDER.mkdir(exist_ok=True)
    state = everything()
    save("zip.pth", state, state)
    save("legacy.pth", state, state, legacy=True)
    for protocol in (3, 4, 5):
        small = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3])}
        save(f"protocol{protocol}.pth", small, small, protocol=protocol)
    save("legacy-protocol4.pth", small, small, legacy=True, protocol=4)
    # these dtypes have no storage class of their own
    unsigned = {"u16": torch.tensor([1, 65535], dtype=torch.uint16), "u32": torch.tensor([2**31], dtype=torch.uint32),
                "u64": torch.tensor([2**63], dtype=torch.uint64)[0:1]}
    save("unsigned.pth", unsigned, unsigned)

    model, value = checkpoint()
    save("checkpoint.pth", value, model.state_dict(), key="model_state_dict")
    save("checkpoint-legacy.pth", value, model.state_dict(), key="model_state_dict", legacy=True)
    save("nested.pth", {"run": {"checkpoint": {"weights": model.state_dict()}}, "epoch": 1}, model.state_dict(),
         key="run.checkpoint.weights")
    save("mixed.pth", {"w": torch.ones(2), "b": torch.zeros(1), "epoch": 3}, {"w": torch.ones(2), "b": torch.zeros(1)})
    beside = {"w": torch.ones(2), "config": {"width": 2}, "epoch": 3}
    save("beside.pth", beside, beside)
    torch.save({"generator": model.state_dict(), "discriminator": {"w": torch.ones(1)}, "step": 7}, FOLDER / "gan.pth")
    torch.save({"a.b": {"c": {"w": torch.ones(1)}}, "other": {"w": torch.zeros(1)}}, FOLDER / "dots.pth")

    wrapped = {"module." + k: v for k, v in model.state_dict().items()}
    save("ddp.pth", {"state_dict": wrapped}, wrapped, key="state_dict", prefix="module.")
    twice = {"_orig_mod.module." + k: v for k, v in model.state_dict().items()}
    save("compiled-ddp.pth", twice, twice, prefix="_orig_mod.module.")
    some = {"module.a": torch.ones(1), "b": torch.ones(1)}
    save("some-module.pth", some, some)

    beside_weights(model)
    torch.save({"w": torch.zeros(2, dtype=torch.complex64)}, FOLDER / "complex.pth")
    torch.save({"w": torch.ones(2, dtype=torch.complex64).conj().imag}, FOLDER / "negated.pth")
    torch.save(torch.ones(2), FOLDER / "lone-tensor.pth")
    torch.save(torch.nn.Linear(1, 1), FOLDER / "whole-model.pth")
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), FOLDER / "script.pth")
    (FOLDER / "pth.json").write_text(json.dumps(facts, indent=0) + "\n")


if __name__ == "__main__":
    main()
