#!/usr/bin/env python3
"""Writes the programs of the unit tests of src/exported, by whichever version of PyTorch runs this:

    exported/tiny-VERSION.pt2   for test_exported_program.c. One file for each layout of the archive is enough: 2.5, 2.7,
                                2.8, 2.9 and 2.15
    exported/constants.json     for test_exported_fold.c: the program of a network that computes constants, and the
                                numbers that PyTorch computes. By 2.15 or newer alone

    python tests/torch/make_exported_fixtures.py"""

import base64
import json
import math
import pathlib
import re
import zipfile

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
        trace = re.sub(r'"[^"]*/(make_exported_\w+\.py)"', r'"/home/me/\1"', trace)
        if "conv2d" not in node.name:  # one with PyTorch's own frames is enough
            trace = trace.partition('File "/venv')[0].rstrip()
        if trace:
            node.meta["stack_trace"] = trace
        node.meta.pop("torch_fn", None)
        node.meta.pop("source_fn_stack", None)
    program._example_inputs = None


class Constants(nn.Module):
    """What networks compute of nothing: masks, positions, tables."""

    def forward(self, x):
        row = torch.arange(6)
        steps = torch.arange(1, 10, 2, dtype=torch.float32)
        grid = torch.arange(12.0).reshape(3, 4)
        truth = grid > 5
        windows = x.new_zeros((4, 4))  # swin's mask of shifted windows: a number for each part
        number = 0
        for down in (slice(0, -2), slice(-2, -1), slice(-1, None)):
            for right in (slice(0, -2), slice(-2, -1), slice(-1, None)):
                windows[down, right] = number
                number += 1
        parts = windows.view(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, 4)
        mask = parts.unsqueeze(1) - parts.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        high, low = torch.meshgrid(row[:3], row[3:], indexing="ij")
        changed = torch.zeros(2, 3)
        view = changed.t()[1:]
        changed.add_(1.5)
        view.mul_(2)
        frequencies = 1.0 / 100 ** (torch.arange(0, 4, 2).float() / 4)
        angles = torch.einsum("i,j->ij", row.float(), frequencies)
        first, second = grid.chunk(2, dim=1)
        left, right = grid.split([1, 3], 1)
        rows = grid.unbind(0)
        constants = [
            row * 2 - 1, row // 4, row % 4, row / 4, row.float().pow(2), 2 ** row, -row, row.clamp(1, 3), steps.sqrt(), steps.rsqrt(),
            steps.log(), steps.exp(), steps.sin(), angles.cos(), steps.tanh(), steps.sigmoid(), steps.round(), steps * 0.1,
            grid.tril(), torch.ones(3, 3).triu(1), torch.full((2, 2), float("-inf")).triu(1), truth, ~truth, truth & (grid < 9),
            torch.logical_or(truth, grid == 0), torch.where(truth, grid, -1.0), truth.cumsum(1), grid.sum(), grid.sum(0), grid.mean(-1),
            grid.amax(1, keepdim=True), truth.any(1), truth.all(), row.cumsum(0), grid.roll((1, -1), (0, 1)), grid.flip(0),
            torch.cat([grid, grid[:1]], 0), torch.stack([row, row + 1], 1), grid.repeat(2, 1), grid[None].expand(2, 3, 4), grid[1:, ::2],
            grid[:, -1], grid.transpose(0, 1), grid.permute(1, 0).contiguous().view(2, 6), grid.gather(1, torch.tensor([[0], [3], [1]])),
            grid[torch.tensor([2, 0]), torch.tensor([1, 3])], grid[:, torch.tensor([[3, 0], [1, 1]])], grid.index_select(1, row[2:4]),
            windows, mask, high, low, high.stride(0) + low, changed, view, angles, first + second, left * right, rows[1] + rows[2],
            torch.eye(2, 3), torch.linspace(0, 1, 5), nn.functional.pad(grid, (1, 0, 0, 2), value=7.0), torch.outer(row, row[:2]),
            grid @ grid.t(), row.to(torch.float16) / 3, row.to(torch.bfloat16) * 0.3, row.to(torch.bool), torch.ones_like(row).type_as(grid),
            torch.minimum(row, 5 - row), torch.div(-row, 4, rounding_mode="trunc"), torch.zeros(2, 2).fill_(3), row.new_full((2,), 9),
            torch.logical_not(truth).int(), torch.bitwise_xor(row, 3), grid.squeeze().unsqueeze(-1), torch.remainder(-row, 4), 1 - row,
        ]  # fmt: skip
        return [x, *constants]


def describe(tensor):
    numbers = [number if math.isfinite(number) else str(number) for number in tensor.flatten().tolist()]
    return {"shape": list(tensor.shape), "numbers": numbers}


def write_constants(path):
    example = torch.ones(2, 3)
    program = torch.export.export(Constants().train(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    archive = path.with_suffix(".pt2")
    torch.export.save(program, archive)
    with zipfile.ZipFile(archive) as file:
        whole = json.loads(file.read("constants/models/model.json"))
        config = json.loads(file.read("constants/data/constants/model_constants_config.json"))["config"]
        raw = {name: file.read("constants/data/constants/" + entry["path_name"]) for name, entry in config.items()}
    archive.unlink()
    graph, signature = whole["graph_module"]["graph"], whole["graph_module"]["signature"]
    for node in graph["nodes"]:
        for key in set(node) - {"target", "inputs", "outputs"}:
            del node[key]
        for argument in node["inputs"]:
            argument.pop("kind", None)
    values = {name: {key: meta[key] for key in ("dtype", "sizes")} for name, meta in graph["tensor_values"].items()}
    names = {
        spec["tensor_constant"]["tensor_constant_name"]: spec["tensor_constant"]["arg"]["name"]
        for spec in signature["input_specs"]
        if "tensor_constant" in spec
    }
    text = {
        "schema_version": whole["schema_version"], "verifiers": whole["verifiers"], "torch_version": whole["torch_version"],
        "graph_module": {"graph": {"nodes": graph["nodes"], "tensor_values": values, "sym_int_values": graph["sym_int_values"]}, "signature": signature},
        "data": {names[name]: base64.b64encode(data).decode() for name, data in raw.items()},
    }  # fmt: skip
    expected = [describe(output) for output in program.module()(example)[1:]]
    path.write_text(json.dumps({"program": text, "expected": expected}, separators=(",", ":")) + "\n")


def main():
    folder = pathlib.Path(__file__).parent / "exported"
    folder.mkdir(exist_ok=True)
    program = torch.export.export(
        Tiny().train(), (torch.ones(2, 1, 4, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    shorten(program)
    version = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    torch.export.save(program, folder / f"tiny-{version}.pt2")
    if version == "2.15":
        write_constants(folder / "constants.json")


if __name__ == "__main__":
    main()
