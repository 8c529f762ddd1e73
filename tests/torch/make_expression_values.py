#!/usr/bin/env python3
"""Writes expression_values.h: what PyTorch computes for each elementwise function, and for its derivatives, in double.

    make_expression_values.py > ../unit/expression_values.h"""
import math

import torch
import torch.nn.functional as F

INF, NAN = math.inf, math.nan
POINTS = [0.0, -0.0, 1e-30, 0.3, -0.3, 0.5, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 20.0, -20.0, 100.0, -100.0, INF, -INF, NAN]
POSITIVE = [p for p in POINTS if not p < 0]
PAIRS = [(a, b) for a in (0.0, 1.0, -1.0, 2.5, INF, NAN) for b in (0.0, 1.0, -1.0, 2.5)]
NUMBERS = {"ELU": (0.75,), "LEAKY_RELU": (0.1,), "CLAMP": (-1.0, 2.5), "HARDTANH": (-1.0, 2.5), "SOFTPLUS": (1.5, 20.0)}

ONE = {
    "NEG": torch.neg, "ABS": torch.abs, "EXP": torch.exp, "LOG": torch.log, "SQRT": torch.sqrt, "RSQRT": torch.rsqrt,
    "RECIPROCAL": torch.reciprocal, "SQUARE": torch.square, "SIGMOID": torch.sigmoid, "TANH": torch.tanh, "SILU": F.silu,
    "RELU": F.relu, "HARDSIGMOID": F.hardsigmoid, "HARDSWISH": F.hardswish, "MISH": F.mish, "GELU": F.gelu,
    "GELU_TANH": lambda a: F.gelu(a, approximate="tanh"), "ERF": torch.erf, "SIN": torch.sin, "COS": torch.cos,
    "LOG1P": torch.log1p, "EXPM1": torch.expm1, "SIGN": torch.sign, "FLOOR": torch.floor, "CEIL": torch.ceil,
    "ROUND": torch.round, "TRUNC": torch.trunc, "NOT": torch.logical_not, "NORMAL_CDF": torch.special.ndtr,
    "ELU": lambda a: F.elu(a, 0.75), "LEAKY_RELU": lambda a: F.leaky_relu(a, 0.1),
    "CLAMP": lambda a: torch.clamp(a, -1.0, 2.5), "HARDTANH": lambda a: F.hardtanh(a, -1.0, 2.5),
    "SOFTPLUS": lambda a: F.softplus(a, 1.5, 20.0)}
TWO = {
    "ADD": torch.add, "SUB": torch.sub, "MUL": torch.mul, "DIV": torch.div, "POW": torch.pow, "MIN": torch.minimum,
    "MAX": torch.maximum, "EQ": torch.eq, "NE": torch.ne, "LT": torch.lt, "LE": torch.le, "GT": torch.gt, "GE": torch.ge,
    "AND": torch.logical_and, "OR": torch.logical_or}


def text(number):
    if math.isnan(number):
        return "NAN"
    return ("-INFINITY" if number < 0 else "INFINITY") if math.isinf(number) else repr(number)


def row(name, function, operands, count):
    inputs = [torch.tensor(x, dtype=torch.double, requires_grad=True) for x in operands[:count]]
    value = function(*inputs)
    gradients = [0.0] * count
    if value.requires_grad:
        value.backward()
        gradients = [x.grad.item() for x in inputs]
    numbers = (list(operands) + [0.0] * 3)[:3] + [value.detach().double().item()] + (gradients + [0.0])[:2]
    print(f"    {{FTH_FUNCTION_{name}, {count}, {', '.join(text(x) for x in numbers)}}},")


print("/* What PyTorch computes, by tests/torch/make_expression_values.py: function, operands that have a gradient, operands, value,\n"
      " * gradients. */\n")
print("/* clang-format off */\nstatic const struct {\n    fth_expression_function function;\n    int count;\n"
      "    double operands[3], value, gradients[2];\n} expected[] = {".replace("operands[3], value, gradients[2]",
                                                                       "a, b, c, value, da, db"))
for name, function in ONE.items():
    for point in (POSITIVE if name in ("LOG", "SQRT", "RSQRT") else POINTS):
        row(name, function, (point, *NUMBERS.get(name, ())), 1)
for name, function in TWO.items():
    for a, b in PAIRS:
        row(name, function, (a, b), 2)
print("};\n/* clang-format on */")
