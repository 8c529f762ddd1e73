#!/usr/bin/env python3
"""Writes what PyTorch computes in one training step of each model, for the tests to compare with.

Needs torch, torchvision and numpy; the tests themselves need only the JSON files. Initial parameters, images, labels
and probe vectors come from farthing's own generator, done again here in numpy. README.md describes the format.

    python3 tests/torch/make_fixtures.py [FIXTURE...]
"""
import contextlib
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional

SEED = 1
MASK = (1 << 64) - 1
INITIALIZE, GENERATE = 1, 6  # fth_random_use
CHUNK = 1 << 22
NOISE = 1e-6  # a few times what rounding does to a sum of float32 products, Winograd's included
NOISY_STEPS = 2
CIFAR_RESNETS = [f"resnet{depth}" for depth in (20, 32, 44, 56, 110)]

# name: model, batch, channels, height, width, classes, label smoothing
FIXTURES = {
    "linear": ("linear", 5, 1, 28, 28, 10, 0.0),
    "mnist-cnn": ("mnist-cnn", 3, 1, 28, 28, 10, 0.0),
    "mnist-cnn-odd": ("mnist-cnn", 5, 2, 15, 22, 7, 0.0),
    "cifar-cnn": ("cifar-cnn", 4, 3, 32, 32, 10, 0.0),
    "cifar-cnn-odd": ("cifar-cnn", 5, 1, 37, 29, 7, 0.1),
    "resnet18": ("resnet18", 4, 3, 64, 64, 10, 0.0),
    "resnet18-odd": ("resnet18", 3, 1, 57, 71, 7, 0.1),
    "resnet34": ("resnet34", 4, 3, 64, 64, 10, 0.0),
    "resnet50": ("resnet50", 4, 3, 64, 64, 10, 0.0),
    "resnet101": ("resnet101", 4, 3, 64, 64, 10, 0.0),
}
for depth in (20, 56, 110):
    FIXTURES[f"resnet{depth}"] = (f"resnet{depth}", 4, 3, 32, 32, 10, 0.0)
FIXTURES["resnet20-odd"] = ("resnet20", 3, 1, 29, 22, 7, 0.1)
FIXTURES["resnet18-small"] = ("resnet18-small", 4, 3, 16, 16, 10, 0.0)
FIXTURES["resnet50-small"] = ("resnet50-small", 4, 3, 16, 16, 10, 0.0)
for depth in (11, 13, 16, 19):
    FIXTURES[f"vgg{depth}"] = (f"vgg{depth}", 2, 3, 32, 32, 10, 0.0)
    FIXTURES[f"vgg{depth}-bn"] = (f"vgg{depth}-bn", 4, 3, 32, 32, 10, 0.0)
# Of 4 images one has a hidden unit within two errors of float32 of zero: there a ReLU's gradient is a matter of luck.
FIXTURES["vgg16-bn"] = ("vgg16-bn", 3, 3, 32, 32, 10, 0.0)
SMOOTH = "-smooth"  # deep networks once more, without jumps: GELU for ReLU, averages for maxima
for deep in ("resnet18-odd", "resnet50", "resnet20-odd", "resnet56"):
    FIXTURES[deep + SMOOTH] = FIXTURES[deep]


# ---- src/base/random.h ----


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bits(key, counter):
    return mix((key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK)


def fork(key, number):
    return mix(bits(key, number) ^ 0x5851F42D4C957F2D)


def key_for(seed, use):
    return fork(mix((seed + 0x9E3779B97F4A7C15) & MASK), use)


def hash_name(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def bits_range(key, begin, end):
    """fth_random_bits(key, begin ... end - 1)"""
    z = np.arange(begin + 1, end + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(draws):
    return (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(draws):
    radius = ((draws >> np.uint64(32)).astype(np.float64) + 1) * 2.0**-32
    angle = (draws & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
    return np.sqrt(-2 * np.log(radius)) * np.cos(6.283185307179586 * angle)


def chunks(count):
    return ((begin, min(begin + CHUNK, count)) for begin in range(0, count, CHUNK))


def draw(key, count, function):
    values = np.empty(count, np.float32)
    for begin, end in chunks(count):
        values[begin:end] = function(bits_range(key, begin, end))
    return values


# ---- the same initial values as fth_graph_initialize gives ----


def initializer(model, module, parameter, name):
    """(kind, amount) of a module's parameter: see src/model/layers.c"""
    if isinstance(module, nn.BatchNorm2d):
        return "constant", 1.0 if name == "weight" else 0.0
    fan_in = module.weight[0].numel()
    if model in CIFAR_RESNETS and name == "weight":
        return "normal", math.sqrt(2.0 / fan_in)
    if model.startswith("resnet") and model not in CIFAR_RESNETS and isinstance(module, nn.Conv2d) or model.startswith("vgg"):
        if name == "bias":
            return "constant", 0.0
        if isinstance(module, nn.Linear):
            return "normal", 0.01
        return "normal", math.sqrt(2.0 / (parameter.numel() // parameter.shape[1]))
    return "uniform", 1 / math.sqrt(fan_in)


cache = {}  # VGGs share the values of their large classifier


def initial_values(full_name, count, kind, amount):
    if (full_name, count, kind, amount) not in cache:
        key = fork(key_for(SEED, INITIALIZE), hash_name(full_name))
        if kind == "constant":
            values = np.full(count, amount, np.float32)
        elif kind == "uniform":
            values = draw(key, count, lambda draws: amount * (2 * uniform(draws) - 1))
        else:
            values = draw(key, count, lambda draws: amount * normal(draws))
        if count < 1 << 24:
            return values
        cache[full_name, count, kind, amount] = values
    return cache[full_name, count, kind, amount]


def initialize(model, net):
    with torch.no_grad():
        for prefix, module in net.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                kind, amount = initializer(model, module, parameter, name)
                values = initial_values(f"{prefix}.{name}", parameter.numel(), kind, amount)
                parameter.copy_(torch.from_numpy(values).view(parameter.shape))


# ---- models ----


class MnistCnn(nn.Module):
    def __init__(self, channels, height, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.fc2 = nn.Linear(128, classes)
        self.active, self.pool = nn.ReLU(), nn.MaxPool2d(2)

    def forward(self, x):
        x = self.active(self.pool(self.conv2(self.active(self.conv1(x)))))
        return self.fc2(self.active(self.fc1(torch.flatten(x, 1))))


class CifarCnn(nn.Module):
    def __init__(self, channels, height, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        shrink = lambda size: ((size - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(16 * shrink(height) * shrink(width), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)
        self.active, self.pool = nn.ReLU(), nn.MaxPool2d(2)

    def forward(self, x):
        x = self.active(self.pool(self.conv1(x)))
        x = self.active(self.pool(self.conv2(x)))
        x = self.active(self.fc1(torch.flatten(x, 1)))
        return self.fc3(self.active(self.fc2(x)))


class Linear(nn.Module):
    def __init__(self, channels, height, width, classes):
        super().__init__()
        self.fc = nn.Linear(channels * height * width, classes)

    def forward(self, x):
        return self.fc(torch.flatten(x, 1))


class Shortcut(nn.Module):
    """Option A: every other row and column, channels of zeros around."""

    def forward(self, x):
        added = x.shape[1] // 2
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, added, added))


class CifarBlock(nn.Module):
    def __init__(self, inputs, filters):
        super().__init__()
        stride = 1 if inputs == filters else 2
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Identity() if stride == 1 else Shortcut()
        self.active1, self.active2 = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        y = self.bn2(self.conv2(self.active1(self.bn1(self.conv1(x)))))
        return self.active2(y + self.shortcut(x))


class CifarResnet(nn.Module):
    """With the names of akamaster's pytorch_resnet_cifar10."""

    def __init__(self, depth, channels, classes):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.active = nn.ReLU()
        for stage, (inputs, filters) in enumerate([(16, 16), (16, 32), (32, 64)], 1):
            setattr(self, f"layer{stage}", nn.Sequential(
                *(CifarBlock(inputs if i == 0 else filters, filters) for i in range(blocks))))
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        x = self.active(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def uninitialized():
    """What is made within has no memory yet, which saves seconds of initializing; before PyTorch 2 it has."""
    return torch.device("meta") if hasattr(torch.device, "__enter__") else contextlib.nullcontext()


def create(model, channels, height, width, classes):
    own = {"linear": Linear, "mnist-cnn": MnistCnn, "cifar-cnn": CifarCnn}
    with uninitialized():
        if model in own:
            return own[model](channels, height, width, classes)
        if model in CIFAR_RESNETS:
            return CifarResnet(int(model.removeprefix("resnet")), channels, classes)
        if model.endswith("-small"):
            net = getattr(torchvision.models, model.removesuffix("-small"))(num_classes=classes)
            net.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
            net.maxpool = nn.Identity()
            return net
        options = {"dropout": 0.0} if model.startswith("vgg") else {}
        net = getattr(torchvision.models, model.replace("-", "_"))(num_classes=classes, **options)
        if channels != 3:
            net.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        return net


def smooth(net):
    for module in net.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.GELU())
            elif isinstance(child, nn.MaxPool2d):
                setattr(module, name, nn.AvgPool2d(child.kernel_size, child.stride, child.padding))


# ---- one step ----


def digest(name, tensor):
    """The Euclidean norm and the dot product with the name's vector of ±1."""
    flat = tensor.detach().double().contiguous().view(-1).numpy()
    key = fork(key_for(SEED, GENERATE), hash_name(name))
    squares = dot = 0.0
    for begin, end in chunks(flat.size):
        part = flat[begin:end]
        signs = np.where(bits_range(key, begin, end) >> np.uint64(63), -1.0, 1.0)
        squares += float(part @ part)
        dot += float(part @ signs)
    return math.sqrt(squares), dot


def make_batch(batch, channels, height, width, classes):
    image_key, label_key = (fork(key_for(SEED, GENERATE), number) for number in (1, 2))
    images = draw(image_key, batch * channels * height * width, lambda draws: 2 * uniform(draws) - 1)
    labels = torch.tensor([(bits(label_key, i) * classes) >> 64 for i in range(batch)])
    return torch.from_numpy(images).view(batch, channels, height, width), labels


def step(net, images, labels, smoothing):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    net.zero_grad(set_to_none=True)
    net.train()
    logits = net(images)
    loss = functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    loss.backward()
    tensors = {("gradients", name): parameter.grad for name, parameter in net.named_parameters()}
    tensors |= {("buffers", name): buffer.clone() for name, buffer in net.named_buffers() if "running" in name}
    net.eval()
    with torch.no_grad():
        evaluated = net(images)
    return tensors | {("", "loss"): loss.detach(), ("", "logits"): logits.detach(), ("", "evaluated_logits"): evaluated}


def add_noise(net, seed):
    """Disturbs what each layer gives by NOISE times its root mean square."""
    generator = torch.Generator().manual_seed(seed)

    def disturb(module, inputs, output):
        noise = torch.randn(output.shape, generator=generator, dtype=output.dtype)
        return output + NOISE * output.detach().square().mean().sqrt() * noise

    return [module.register_forward_hook(disturb) for module in net.modules()
            if isinstance(module, (nn.Conv2d, nn.Linear))]


def measure_errors(net, net_f32, batch, smoothing, exact_tensors):
    """What float32 and noise of its size do to each tensor: the largest norm of the difference."""
    images, labels = batch
    errors = dict.fromkeys(exact_tensors, 0.0)

    def compare(tensors):
        for key, value in tensors.items():
            difference = torch.linalg.vector_norm(exact_tensors[key] - value.double()).item()
            errors[key] = max(errors[key], difference)

    compare(step(net_f32, images, labels, smoothing))
    for seed in range(NOISY_STEPS):
        hooks = add_noise(net, seed)
        compare(step(net, images.double(), labels, smoothing))
        for hook in hooks:
            hook.remove()
    return errors


def exact(number):
    return float(f"{number:.9g}")


def make(name):
    model, batch_size, channels, height, width, classes, smoothing = FIXTURES[name]
    nets = []
    for dtype in (torch.float64, torch.float32):
        nets.append(create(model, channels, height, width, classes).to_empty(device="cpu").to(dtype))
        initialize(model, nets[-1])
        if name.endswith(SMOOTH):
            smooth(nets[-1])
    batch = make_batch(batch_size, channels, height, width, classes)
    tensors = step(nets[0], batch[0].double(), batch[1], smoothing)
    errors = measure_errors(*nets, batch, smoothing, tensors)

    def describe(group, key, tensor_name):
        error = float(f"{errors[group, key]:.2g}")
        return [*map(exact, digest(tensor_name, tensors[group, key])), error]

    initial = [digest(key, parameter) for key, parameter in nets[0].named_parameters()]
    fixture = {
        "model": model, "batch": batch_size, "channels": channels, "height": height, "width": width,
        "classes": classes, "label_smoothing": smoothing, "smooth": name.endswith(SMOOTH),
        "initial": [exact(math.sqrt(sum(norm**2 for norm, _ in initial))), exact(sum(dot for _, dot in initial))],
        "loss": [exact(tensors["", "loss"].item()), float(f"{errors['', 'loss']:.2g}")],
        "logits": describe("", "logits", "logits"),
        "evaluated_logits": describe("", "evaluated_logits", "logits"),
        "first_logits": [exact(value) for value in tensors["", "logits"][0].tolist()],
    }
    for wanted in ("gradients", "buffers"):
        fixture[wanted] = {key: describe(wanted, key, key) for group, key in tensors if group == wanted}
    text = json.dumps(fixture, indent=0, separators=(",", ":"))
    lines = []  # the numbers of one entry on one line
    for line in text.split("\n"):
        if lines and (line[:1] in "-0123456789]" or lines[-1].endswith("[")):
            lines[-1] += line
        else:
            lines.append(line)
    (pathlib.Path(__file__).parent / f"{name}.json").write_text("\n".join(lines) + "\n")
    print(name, fixture["loss"], fixture["logits"], fixture["evaluated_logits"], flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)
    for requested in sys.argv[1:] or FIXTURES:
        make(requested)
