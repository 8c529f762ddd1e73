#!/usr/bin/env python3
"""How far gradients in f32 are from exact ones: farthing's and PyTorch's against PyTorch's in f64, tensor by tensor.

    PYTHON_WITH_TORCH bench/engine/gradients.py [--model resnet18] [--batch 64] [--size 64] [--classes 200] [--seeds 3]
        [--levels avx512,avx2,baseline] [--step BUILD/tests/image_step] [--tensors 5] [--jumps]

The same weights, images and labels on all sides. An error is the norm of the difference over that of the exact gradient. With
ReLU and maxima, rounding acts in jumps: one activation within rounding of zero decides the figure, on either side. So the
networks are measured with GELU and averages in their place, unless --jumps is given. tests/interop/test_gradients.py holds us to
twice PyTorch's error.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "torch"))
import make_fixtures  # noqa: E402: PyTorch's side of every model


def make_net(model, channels, size, classes, seed, jumps=False):
    torch.manual_seed(seed)
    net = make_fixtures.create(model, channels, size, size, classes).to_empty(device="cpu")
    make_fixtures.initialize(model, net)
    if not jumps:
        make_fixtures.smooth(net)
    with torch.no_grad():
        for parameter in net.parameters():  # as after some training: no two seeds alike, and no constants
            parameter += (0.05 * (parameter.std() if parameter.numel() > 1 else 1) + 0.02) * torch.randn_like(parameter)
    return net.train()


def torch_gradients(net, images, labels, dtype, layout=torch.contiguous_format):
    net = net.to(dtype).to(memory_format=layout)
    net.zero_grad()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    functional.cross_entropy(net(images.to(dtype).contiguous(memory_format=layout)), labels).backward()
    return {name: parameter.grad.double() for name, parameter in net.named_parameters()}


def our_gradients(step, model, folder, level, precision="f32", jumps=False):
    command = [step, model, folder / "weights.safetensors", folder / "batch.safetensors", folder / "out.safetensors", "cpu", precision,
               *([] if jumps else ["smooth"])]
    environment = dict(os.environ) if level == "native" else dict(os.environ, FARTHING_MAX_ISA=level)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{step}: {done.stderr.strip()}")
    gradients = safetensors.torch.load_file(folder / "out.safetensors")
    return {name: gradient.double() for name, gradient in gradients.items() if name not in ("logits", "loss")}


def errors_of(found, exact):
    """Of each tensor. Gradients that are zero but for rounding (a bias before a batch norm) are left out."""
    largest = max(gradient.norm().item() for gradient in exact.values())
    return {name: ((found[name] - gradient).norm() / gradient.norm()).item() for name, gradient in exact.items()
            if gradient.norm().item() > 1e-9 * largest}


def measure(step, model, batch, size, classes, seed, levels, channels=3, precision="f32", jumps=False):
    """{side: {tensor: error}} for PyTorch's f32 and each of our levels."""
    net = make_net(model, channels, size, classes, seed, jumps)
    images, labels = torch.randn(batch, channels, size, size), torch.randint(0, classes, (batch,))
    sides = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        safetensors.torch.save_file(net.state_dict(), folder / "weights.safetensors")
        safetensors.torch.save_file({"images": images, "labels": labels.int()}, folder / "batch.safetensors")
        f32 = torch_gradients(net, images, labels, torch.float32)
        exact = torch_gradients(net, images, labels, torch.float64)
        sides["PyTorch"] = errors_of(f32, exact)
        for level in levels:
            sides[level] = errors_of(our_gradients(step, model, folder, level, precision, jumps), exact)
    return sides


def root_mean_square(errors):
    return statistics.fmean(error * error for error in errors.values()) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", default="native", help="of farthing: avx512, avx2, baseline, separated by commas")
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"], help="of farthing")
    parser.add_argument("--step", default=str(ROOT / "build" / "tests" / "image_step"))
    parser.add_argument("--jumps", action="store_true", help="keep ReLU and maxima")
    parser.add_argument("--tensors", type=int, default=0, help="show as many of the worst tensors of each")
    arguments = parser.parse_args()
    levels = arguments.levels.split(",")
    found = {}
    for seed in range(1, arguments.seeds + 1):
        sides = measure(arguments.step, arguments.model, arguments.batch, arguments.size, arguments.classes, seed, levels,
                        arguments.channels, arguments.precision, arguments.jumps)
        for side, errors in sides.items():
            found.setdefault(side, []).append((root_mean_square(errors), max(errors.values())))
            for name, error in sorted(errors.items(), key=lambda item: -item[1])[:arguments.tensors]:
                print(f"seed {seed}, {side}: {name} {100 * error:.3g} %")
    print(f"{arguments.model}, batch {arguments.batch} at {arguments.size}x{arguments.size}; seeds: {arguments.seeds}; errors in %\n")
    print("| side | error over tensors | times PyTorch's | worst tensor | times PyTorch's |\n| --- | --- | --- | --- | --- |")
    over, worst = (statistics.fmean(column) for column in zip(*found["PyTorch"]))
    for side, pairs in found.items():
        a, b = (statistics.fmean(column) for column in zip(*pairs))
        name = side if side == "PyTorch" else f"farthing {side}"
        print(f"| {name} | {100 * a:.3g} | {a / over:.2f} | {100 * b:.3g} | {b / worst:.2f} |")


if __name__ == "__main__":
    main()
