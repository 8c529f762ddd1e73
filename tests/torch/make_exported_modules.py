#!/usr/bin/env python3
"""Makes tests/torch/exported/modules: small modules as torch.export writes them, with a batch and what PyTorch computes of it.

    make_exported_modules.py [FOLDER]        needs PyTorch 2.9 or later and safetensors

For each module NAME.pt2, and NAME.safetensors with input0, input1, ..., and labels or targets; the loss (cross entropy, or the mean
squared error) in f64, the output, and the gradient of every parameter under "gradient." and its name. tests/e2e/test_exported_modules.py
compares with them where there is no PyTorch.
"""
import copy
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from make_exported_fixtures import shorten
from safetensors.torch import save_file
from torch import nn

BATCH = 3


class SqueezeExcite(nn.Module):
    """Grouped convolution, batch norm with a residual, gates for channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.grouped, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(8)
        self.down, self.up, self.head = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1), nn.Linear(8, 5)

    def forward(self, x):
        x = F.hardswish(self.norm1(self.stem(x)))
        y = self.norm2(self.grouped(x))
        y = y * torch.sigmoid(self.up(F.silu(self.down(y.mean((2, 3), keepdim=True)))))
        return self.head(F.adaptive_avg_pool2d(F.gelu(x + y), 1).flatten(1))


class Decoder(nn.Module):
    """Transposed convolution, concatenation, group and instance norm, upsampling."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.b, self.instance = nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.InstanceNorm2d(6, affine=True)
        self.up, self.out = nn.ConvTranspose2d(6, 4, 2, 2), nn.Conv2d(14, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.norm(self.a(x)), 0.1)
        b = F.elu(self.instance(self.b(a)))
        wide = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([a, self.up(b), wide], 1))


class Shuffle(nn.Module):
    """Pixel and channel shuffle, dilation, chunk, padding, pooling."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding="same"), nn.Conv2d(2, 4, 3, dilation=2, padding=2, groups=2)

    def forward(self, x):
        y = F.pixel_shuffle(F.channel_shuffle(self.a(x), 4), 2)
        a, b = self.b(y).chunk(2, 1)
        return a * torch.sigmoid(b) + F.avg_pool2d(F.pad(y, (1, 1, 1, 1)), 3, 1)


class Transformer(nn.Module):
    """PyTorch's own attention, sequence first, as nn.TransformerEncoder has it by default."""

    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(4, 8), nn.Linear(8, 3)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x):
        return self.out(self.layers(self.inside(x).transpose(0, 1)).mean(0))


class Causal(nn.Module):
    """Tied embeddings, causal attention once by PyTorch's function and once spelled out."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions, self.norm = nn.Embedding(11, 8), nn.Embedding(6, 8), nn.LayerNorm(8)
        self.qkv, self.project, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))

    def split(self, x):
        return (part.view(*x.shape[:2], 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).split(8, dim=2))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        q, k, v = self.split(x)
        x = x + self.project(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        q, k, v = self.split(x)
        scores = (q @ k.transpose(-2, -1) / 2).masked_fill(self.mask == 0, float("-inf")).softmax(-1)
        return self.head(x + self.project((scores @ v).transpose(1, 2).reshape(x.shape)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.lstm = nn.LSTM(4, 5, bidirectional=True, batch_first=True)
        self.gru, self.out = nn.GRU(10, 6), nn.Linear(6, 3)

    def forward(self, ids):
        y, _ = self.lstm(self.embed(ids))
        return self.out(self.gru(y.transpose(0, 1))[0][-1])


class Cosine(nn.Module):
    """A scalar parameter, normalized rows, a product with a transposed parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.weight, self.scale = nn.Linear(6, 5), nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.scale.exp() * F.normalize(self.first(x), dim=-1) @ F.normalize(self.weight, dim=-1).t()


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.q, self.k = nn.Parameter(torch.randn(6, 4) / 3), nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x):
        q, k = self.q(x).unflatten(-1, (2, 4)), self.k(x).unflatten(-1, (2, 4))
        seen = torch.einsum("bihd,bjhd->bhij", q, k).softmax(-1)
        return torch.einsum("bhij,bjhd->bihd", seen, (x @ self.weight).unsqueeze(2).expand(-1, -1, 2, -1)).flatten(2)


class Two(nn.Module):
    """Two inputs, buffers as a mean and an order, statistics spelled out."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(7, 6), nn.Linear(5, 6), nn.Linear(18, 3)
        self.register_buffer("middle", torch.randn(7))
        self.register_buffer("order", torch.randperm(7))

    def forward(self, x, y):
        a = F.mish(self.a((x - self.middle)[:, self.order]))
        b = F.softplus(self.b(y))
        a = (a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True) + 1e-3).sqrt()
        return self.out(torch.cat([a, b, a * b + b.amax(-1, keepdim=True)], -1))


class Signal(nn.Module):
    """One-dimensional layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 6, 5, 2, 2), nn.BatchNorm1d(6)
        self.up, self.rms, self.out = nn.ConvTranspose1d(6, 4, 4, 2, 1), nn.RMSNorm(4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.up(F.selu(self.norm(self.conv(x))))
        return self.out(self.rms(F.adaptive_avg_pool1d(x, 1).squeeze(-1)))


def images(*shape):
    return torch.randn(BATCH, *shape)


def ids(most, length):
    return torch.randint(most, (BATCH, length))


MODULES = {  # the module, its inputs, and labels where it has any
    SqueezeExcite: lambda: ([images(3, 8, 8)], torch.randint(5, (BATCH,))),
    Decoder: lambda: ([images(3, 8, 8)], None),
    Shuffle: lambda: ([images(3, 6, 6)], None),
    Transformer: lambda: ([images(5, 4)], torch.randint(3, (BATCH,))),
    Causal: lambda: ([ids(11, 6)], torch.randint(11, (BATCH, 6))),
    Recurrent: lambda: ([ids(9, 7)], torch.randint(3, (BATCH,))),
    Cosine: lambda: ([images(6)], torch.randint(4, (BATCH,))),
    Einsum: lambda: ([images(5, 6)], None),
    Two: lambda: ([images(7), images(5)], None),
    Signal: lambda: ([images(4, 12)], None),
}


def make(kind, inputs_of, folder):
    torch.manual_seed(1)
    module = kind().train()
    inputs, labels = inputs_of()
    dynamic = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    name = kind.__name__.lower()
    program = torch.export.export(copy.deepcopy(module), tuple(inputs), dynamic_shapes=dynamic)
    shorten(program)
    torch.export.save(program, folder / f"{name}.pt2")
    exact = copy.deepcopy(module).double()
    output = exact(*(x.double() if x.is_floating_point() else x for x in inputs))
    batch = {f"input{i}": x if x.is_floating_point() else x.int() for i, x in enumerate(inputs)}
    if labels is None:
        batch["targets"] = torch.randn(output.shape)
        loss = F.mse_loss(output, batch["targets"].double())
    else:
        batch["labels"] = labels.flatten().int()
        loss = F.cross_entropy(output.flatten(0, -2), labels.flatten())
    loss.backward()
    found = {f"gradient.{name}": p.grad.float() for name, p in exact.named_parameters()}
    save_file({**batch, **found, "loss": loss.detach().reshape(1).float(), "output": output.detach().float()},
              folder / f"{name}.safetensors")


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "exported" / "modules")
    folder.mkdir(parents=True, exist_ok=True)
    for kind, inputs_of in MODULES.items():
        make(kind, inputs_of, folder)


if __name__ == "__main__":
    main()
