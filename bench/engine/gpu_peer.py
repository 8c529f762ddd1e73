"""PyTorch's side of bench/engine on a GPU: one case in one way, and its milliseconds a step as one JSON line.

    gpu_peer.py CASE {eager,default,reduce-overhead} {bf16,f16,f32} SECONDS

Channels last, autocast (with a gradient scaler in f16; f32 with TF32), fused SGD, data on the device. Steps are queued without waiting; a
block of them ends with the loss on the host, and a block's time is divided by its steps. 0 seconds: compile and leave.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

from peer import MODELS

CASES = {  # name: (model, batch, classes)
    "mnist-cnn": ("mnist-cnn", 64, 10),
    "cifar-cnn": ("cifar-cnn", 64, 10),
    "resnet18-64": ("resnet18", 256, 200),
    "resnet50-224": ("resnet50", 256, 1000),
    "vgg19-224": ("vgg19", 128, 1000),
}
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def make(case):
    name, batch, classes = CASES[case]
    build, shape, _ = MODELS[name]
    if name == "vgg19":
        import torchvision
        build = lambda: torchvision.models.vgg19(num_classes=classes)  # noqa: E731
    torch.manual_seed(0)
    model = build().cuda().train().to(memory_format=torch.channels_last)
    images = torch.randn(batch, *shape, device="cuda").contiguous(memory_format=torch.channels_last)
    return model, images, torch.randint(0, classes, (batch,), device="cuda")


def main():
    case, mode, precision, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model, images, labels = make(case)
    forward = model if mode == "eager" else torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), 1e-8, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "f16")
    half = TYPES.get(precision)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=half, enabled=half is not None):
            loss = F.cross_entropy(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    begun = time.perf_counter()
    for _ in range(3):
        step().item()
    started = time.perf_counter() - begun
    if seconds <= 0:
        return
    for _ in range(10):
        loss = step()
    loss.item()
    begun = time.perf_counter()
    for _ in range(5):
        loss = step()
    loss.item()
    steps = max(1, round(0.1 / ((time.perf_counter() - begun) / 5)))
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begun = time.perf_counter()
        for _ in range(steps):
            loss = step()
        loss.item()
        times.append((time.perf_counter() - begun) / steps)
    print(json.dumps({"step_ms": 1e3 * sorted(times)[len(times) // 2], "first_steps_s": started,
                      "peer": f"PyTorch {torch.__version__}"}), flush=True)


if __name__ == "__main__":
    main()
