"""PyTorch's side of bench/engine on a CPU: reads a line of JSON and answers with another.

    {"model": "resnet18", "batch": 64, "seconds": 4, "way": "channels last, fused", "precision": "f32"}

It stays alive between questions, so that starting Python is not measured, and sleeps while the other side runs.
Random data in memory; a step is forward, loss, backward and SGD with momentum, as in `farthing bench`. A way is a list of
what is done to be faster: "channels last" (the layout of images and weights), "fused" (the optimizer in one pass over the
memory), "compiled" (torch.compile); "eager" is none of them. bf16 means autocast.

`peer.py export NAME FILE` writes a network as a user would hand it to farthing.
"""
import json
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        return self.fc2(self.dropout2(F.relu(self.fc1(x))))


class CifarCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def torchvision_model(name, classes):
    import torchvision
    return getattr(torchvision.models, name)(num_classes=classes)


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


# Networks that farthing trains from a file that torch.export wrote (bench/networks).
EXPORTED = ("mobilenet_v2", "efficientnet_b0", "resnext50_32x4d", "densenet121", "convnext_tiny", "vit_b_16")

MODELS = {
    "mnist-cnn": (MnistCnn, (1, 28, 28), 10),
    "cifar-cnn": (CifarCnn, (3, 32, 32), 10),
    "resnet18": (lambda: torchvision_model("resnet18", 200), (3, 64, 64), 200),
    "resnet50": (lambda: torchvision_model("resnet50", 1000), (3, 224, 224), 1000),
    "vgg19": (lambda: torchvision_model("vgg19", 20), (3, 224, 224), 20),
    "mlp": (Mlp, (784,), 10),
    **{name: (lambda name=name: torchvision_model(name, 1000), (3, 224, 224), 1000) for name in EXPORTED},
}


class Job:
    def __init__(self, name, batch, way, precision):
        make, shape, classes = MODELS[name]
        wishes = way.split(", ")
        layout = torch.channels_last if "channels last" in wishes else torch.contiguous_format
        torch.manual_seed(0)
        self.model = make().train().to(memory_format=layout)
        self.forward = torch.compile(self.model) if "compiled" in wishes else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9, fused="fused" in wishes)
        self.images = torch.randn(batch, *shape)
        if len(shape) == 3:
            self.images = self.images.contiguous(memory_format=layout)
        self.labels = torch.randint(0, classes, (batch,))
        self.half = precision == "bf16"

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.half):
            loss = F.cross_entropy(self.forward(self.images), self.labels)
        loss.backward()
        self.optimizer.step()

    def measure(self, seconds):
        for _ in range(2):
            self.step()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            begun = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begun)
        return sorted(times)[len(times) // 2]


def export(name, path):
    make, shape, _ = MODELS[name]
    batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(make().train(), (torch.randn(2, *shape),), dynamic_shapes=batch), path)


def main():
    if sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3])
        return
    torch.set_num_threads(int(sys.argv[1]))
    key, job = None, None
    for line in sys.stdin:
        ask = json.loads(line)
        wanted = [ask[k] for k in ("model", "batch", "way", "precision")]
        if key != wanted:
            job = None  # frees the last one's memory first
            key, job = wanted, Job(*wanted)
        print(json.dumps({"step_ms": job.measure(ask["seconds"]) * 1e3, "peer": f"PyTorch {torch.__version__}",
                          "level": torch.backends.cpu.get_cpu_capability()}), flush=True)


if __name__ == "__main__":
    main()
