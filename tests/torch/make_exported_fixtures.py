#!/usr/bin/env python3
"""Writes the program that tests/unit/test_exported_program.c reads: exported/tiny-VERSION.pt2, by whichever version of
PyTorch runs this. One file for each layout of the archive is enough: 2.5, 2.7, 2.8, 2.9 and 2.15.

    python tests/torch/make_exported_fixtures.py"""

import pathlib
import re

import torch
from torch import nn


def fill(tensor):
    """The numbers 1, 2, 3 ... divided by their count, so that the test can say what it expects."""
    return (torch.arange(1.0, tensor.numel() + 1) / tensor.numel()).reshape(tensor.shape)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(2)
        self.a = nn.Linear(8, 3, bias=False)
        self.b = nn.Linear(8, 3, bias=False)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(fill(parameter))
        self.a.weight = self.b.weight = nn.Parameter(fill(torch.empty(8, 3)).t())  # tied, and not row by row
        self.bn.bias.requires_grad = False
        self.register_buffer("shift", torch.tensor([1, 2, 3]), persistent=False)
        self.mask = torch.tensor([False, True, False])

    def forward(self, x):
        x = self.bn(self.conv(x)).view(x.shape[0], 8)
        x = self.a(x) + self.b(x)
        return x.masked_fill(self.mask, float("-inf")) + self.shift


def shorten(program):
    """Small files that do not say where they were made."""
    for node in program.graph.nodes:
        trace = node.meta.get("stack_trace", "")
        trace = re.sub(r'"[^"]*/site-packages/', '"/venv/site-packages/', trace)
        trace = trace.replace(__file__, "/home/me/net.py").replace(str(pathlib.Path(__file__).resolve()), "/home/me/net.py")
        if "conv2d" not in node.name:  # one with PyTorch's own frames is enough
            trace = trace.partition('File "/venv')[0].rstrip()
        if trace:
            node.meta["stack_trace"] = trace
        node.meta.pop("torch_fn", None)
        node.meta.pop("source_fn_stack", None)
    program._example_inputs = None


def main():
    folder = pathlib.Path(__file__).parent / "exported"
    folder.mkdir(exist_ok=True)
    program = torch.export.export(
        Tiny().train(), (torch.ones(2, 1, 4, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    shorten(program)
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    torch.export.save(program, folder / f"tiny-{version}.pt2")


if __name__ == "__main__":
    main()
