#!/usr/bin/env python3
"""Writes the small networks that tests/e2e/test_exported.py trains: exported/NAME.pt2.

    python tests/torch/make_exported_networks.py"""

import pathlib

import torch
from make_exported_fixtures import shorten
from torch import nn


class Digits(nn.Module):
    """What most image classifiers are made of, for images of 28 × 28."""

    def __init__(self, width=4, dropout=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(width, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(8 * 7 * 7, 10)

    def forward(self, x):
        return self.head(self.drop(self.body(self.stem(x)).flatten(1)))


class Rows(nn.Module):
    """Rows of numbers; two layers share their weights, and a buffer is a constant."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(784, 16)
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)
        self.b.weight = self.a.weight
        self.last = nn.Linear(16, 10)
        self.register_buffer("order", torch.arange(16))

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.a(x))
        return self.last(torch.relu(self.b(x)))


class Bars(nn.Module):
    """For the 8 × 8 images of tests/unit/api_support.h."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(self.pool(torch.relu(self.conv(x))).flatten(1))


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def save(name, module, example, batch=True):
    shapes = ({0: torch.export.Dim("batch")},) if batch else None
    program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    shorten(program)
    torch.export.save(program, pathlib.Path(__file__).parent / "exported" / f"{name}.pt2")


def main():
    torch.manual_seed(1)
    image = torch.ones(2, 1, 28, 28)
    save("digits", Digits().train(), image)
    save("digits-wide", Digits(width=6).train(), image)
    save("digits-eval", Digits().eval(), image)
    save("digits-fixed", Digits().train(), image, batch=False)
    save("rows", Rows().train(), torch.ones(2, 784))
    save("bars", Bars().train(), torch.ones(2, 1, 8, 8))
    save("map", Map().train(), image)


if __name__ == "__main__":
    main()
