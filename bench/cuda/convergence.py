#!/usr/bin/env python3
"""resnet18 on CIFAR-10 by one recipe: farthing in f32, bf16 and f16 on a GPU, in f32 on the CPU, and PyTorch in f32 and bf16.

    bench/cuda/convergence.py --data FOLDER [--seeds 5] [--epochs 12] [--cpu-seeds 2] [--cpu-threads 12]

SGD 0.05, momentum 0.9, weight decay 5e-4, cosine, batch 128, padded crop and flip; torchvision's resnet18, as it is for ImageNet. Prints a Markdown table:
the last epoch's training loss and the accuracy on the test images after it, mean and standard error over seeds.
PyTorch trains with data on the device, channels last, and validates in f32 and in its own precision.
"""
import argparse
import json
import lzma
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RATE, MOMENTUM, DECAY, BATCH = 0.05, 0.9, 5e-4, 128
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def read(folder, pattern):
    import numpy as np
    parts = []
    for path in sorted(pathlib.Path(folder).glob(pattern)):
        data = path.read_bytes()
        parts.append(np.frombuffer(lzma.decompress(data) if path.suffix == ".xz" else data, np.uint8).reshape(-1, 3073))
    return np.concatenate(parts)


def torch_side(arguments):
    """One process: all seeds of one precision, one after the other."""
    import torch
    import torch.nn.functional as F
    import torchvision
    half = torch.bfloat16 if arguments.torch == "bf16" else None
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # as farthing's f32
    mean, deviation = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (MEAN, DEVIATION))

    def load(pattern):
        records = torch.from_numpy(read(arguments.data, pattern).copy()).cuda()
        images = (records[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - mean) / deviation
        return images, records[:, 0].long()

    images, labels = load("data_batch_*")
    test_images, test_labels = load("test_batch*")
    black = (-mean / deviation).expand(1, 3, 40, 40)
    count = len(images)
    steps = math.ceil(count / BATCH) * arguments.epochs

    def augment(batch):
        n = len(batch)
        padded = black.expand(n, 3, 40, 40).clone()
        padded[:, :, 4:36, 4:36] = batch
        down, right = torch.randint(0, 9, (2, n), device="cuda")
        across = torch.arange(32, device="cuda")
        columns = torch.where(torch.rand(n, 1, device="cuda") < 0.5, across, across.flip(0)) + right[:, None]
        rows = across[None] + down[:, None]
        return padded[torch.arange(n, device="cuda")[:, None, None, None], torch.arange(3, device="cuda")[None, :, None, None],
                      rows[:, None, :, None], columns[:, None, None, :]]

    for seed in range(1, arguments.seeds + 1):
        torch.manual_seed(seed)
        model = torchvision.models.resnet18(num_classes=10).cuda().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=True)
        step = 0
        for _ in range(arguments.epochs):
            model.train()
            order, total = torch.randperm(count, device="cuda"), torch.zeros((), device="cuda")
            for begin in range(0, count, BATCH):
                chosen = order[begin:begin + BATCH]
                for group in optimizer.param_groups:
                    group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
                batch = augment(images[chosen]).contiguous(memory_format=torch.channels_last)
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=half, enabled=half is not None):
                    loss = F.cross_entropy(model(batch), labels[chosen])
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(chosen)
                step += 1
        model.eval()
        right = {}
        with torch.no_grad():
            for name, enabled in (("own", half is not None), ("f32", False)):
                with torch.autocast("cuda", dtype=half, enabled=enabled):
                    right[name] = sum((model(x).argmax(1) == y).sum().item()
                                      for x, y in zip(test_images.split(500), test_labels.split(500)))
        print(json.dumps({"loss": total.item() / count, "accuracy": right["own"] / len(test_labels),
                          "accuracy_in_f32": right["f32"] / len(test_labels)}), flush=True)


def start_ours(arguments, runs, precision, seed, device):
    name = f"{device}-{precision}-{seed}"
    command = [arguments.farthing, "train", "--model", "resnet18", "--data", arguments.data, "--epochs", str(arguments.epochs), "--batch",
               str(BATCH), "--lr", str(RATE), "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY), "--schedule", "cosine",
               "--augment", "flip-crop", "--precision", precision, "--seed", str(seed), "--device", device, "--runs", runs, "--name", name]
    if device == "cpu":
        command += ["--threads", str(arguments.cpu_threads)]
    return name, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def result_of(runs, name, process):
    message = process.communicate()[1]
    if process.returncode != 0:
        print(f"{name} failed: {message.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
        return None
    last = None
    for line in (pathlib.Path(runs) / name / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event.get("event") == "epoch":
            last = event
    return {"loss": last["train_loss"], "accuracy": last["validation_accuracy"],
            "seconds": last.get("elapsed_s")}


def show(rows):
    print("| | seeds | training loss | accuracy, % |\n| --- | --- | --- | --- |")
    for name, results in rows:
        results = [r for r in results if r]
        if not results:
            continue

        def text(key, factor, digits):
            values = [factor * r[key] for r in results if key in r]
            mean = sum(values) / len(values)
            spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values)) if len(values) > 1 else float("nan")
            return f"{mean:.{digits}f} ± {spread:.{digits}f}"
        print(f"| {name} | {len(results)} | {text('loss', 1, 4)} | {text('accuracy', 100, 2)} |")
        if any("accuracy_in_f32" in r for r in results) and "bf16" in name:
            print(f"| {name}, validated in f32 | {len(results)} | | {text('accuracy_in_f32', 100, 2)} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--farthing", default=str(HERE.parents[1] / "build" / "farthing"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cpu-seeds", type=int, default=2)
    parser.add_argument("--cpu-threads", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    parser.add_argument("--cpu-timeout", type=float, default=400)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--torch", choices=["f32", "bf16"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.torch:
        return torch_side(arguments)
    runs, begun = tempfile.mkdtemp(), time.monotonic()
    torch_sides = {p: subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--torch", p], stdout=subprocess.PIPE, text=True)
                   for p in ("f32", "bf16")}
    cpu, cpu_results = [start_ours(arguments, runs, "f32", 1, "cpu")] if arguments.cpu_seeds else [], []
    rows = []
    for precision in ("f32", "bf16", "f16"):
        results = []
        for seed in range(1, arguments.seeds + 1):
            results.append(result_of(runs, *start_ours(arguments, runs, precision, seed, "cuda")))
        rows.append((f"farthing {precision}", results))
        print(f"farthing {precision}: {results} after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    for precision, process in torch_sides.items():
        out = process.communicate()[0]
        rows.append((f"PyTorch {precision}", [json.loads(line) for line in out.splitlines()]))
    show(rows)
    while cpu:
        name, process = cpu.pop()
        try:
            process.wait(max(1, arguments.cpu_timeout - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            process.kill()
        cpu_results.append(result_of(runs, name, process))
        if len(cpu_results) < arguments.cpu_seeds and cpu_results[-1] and \
                time.monotonic() - begun + cpu_results[-1]["seconds"] < arguments.cpu_timeout:
            cpu.append(start_ours(arguments, runs, "f32", len(cpu_results) + 1, "cpu"))
    show([("farthing f32, CPU", cpu_results)])
    print(f"{time.monotonic() - begun:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
