#!/usr/bin/env python3
"""Where a training step's time goes on the GPU: kernels by group, with ncu, of the last of a few steps.

    bench/cuda/groups.py [--farthing PROGRAM] [--precision bf16] [--names] CASE...

For each group: time, share, bytes to and from memory a second; for convolutions and products also operations a second, counted from the shapes.
"""
import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engine"))
from gpu import CASES  # noqa: E402

GROUPS = [  # the first pattern that fits a kernel's name
    ("batch norm: statistics", r"::statistics_kernel"),
    ("batch norm: normalize", r"::apply_kernel"),
    ("batch norm: gradient sums", r"::reduce_kernel"),
    ("batch norm: gradient", r"::gradient_kernel"),
    ("ReLU and bias gradients", r"column_sums_kernel|::bias_kernel"),
    ("max pool", r"max_pool"),
    ("average pool", r"average_pool"),
    ("spreading, conversions", r"fold_kernel|patch_kernel|planes_to_pixels|convert_kernel|copy_channels"),
    ("casts of weights and their gradients", r"cast_"),
    ("update", r"sgd_kernel|adam_kernel|judge"),
    ("loss", r"cross_entropy"),
    ("dropout, activations, sums", r"dropout_kernel|elementwise_kernel|::add_kernel"),
    ("run values", r"run_values_kernel"),
    ("convolutions and products", r"."),
]
# Multiplications of a forward pass a sample, in millions: twice that forward, four times backward. The first layer has no gradient of its input.
MULTIPLICATIONS = {"resnet50-224": (4089.2, 118.0), "resnet18-64": (148.0, 9.6), "vgg19-224": (19632.1, 86.7),
                   "mnist-cnn": (12.0, 0.19), "cifar-cnn": (0.65, 0.35)}
BATCH = {"resnet50-224": 256, "resnet18-64": 256, "vgg19-224": 128, "mnist-cnn": 64, "cifar-cnn": 64}
METRICS = "gpu__time_duration.sum,dram__bytes.sum"
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def profile(case, arguments):
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--graph-profiling", "node", "--csv", "--page", "raw", "--metrics", METRICS, arguments.farthing,
               "bench", "--device", "cuda", *CASES[case][0].split(), "--precision", arguments.precision, "--seconds", "0.001"]
    reply = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout, env=dict(os.environ, OMP_NUM_THREADS="4"))
    lines = [line for line in reply.stdout.splitlines() if line.startswith('"')]
    if len(lines) < 3:
        sys.exit(f"ncu gave nothing: {reply.stdout[-500:]} {reply.stderr[-500:]}")
    rows = list(csv.DictReader(lines))
    units, rows = rows[0], rows[1:]
    kernels = []
    for row in rows:
        us, size = (float(row[m].replace(",", "")) * UNITS.get(units[m], 1) for m in METRICS.split(","))
        kernels.append((row["Kernel Name"], us, size))
    begins = [i for i, k in enumerate(kernels) if "run_values_kernel" in k[0]]
    return kernels[begins[-1]:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--farthing", default=str(HERE.parents[1] / "build" / "farthing"))
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--names", action="store_true", help="also the slowest kernels by name")
    parser.add_argument("--timeout", type=float, default=200)
    arguments = parser.parse_args()
    for case in arguments.cases:
        kernels = profile(case, arguments)
        total = sum(us for _, us, _ in kernels)
        forward, first = MULTIPLICATIONS[case]
        operations = BATCH[case] * 1e6 * 2 * (3 * forward - first)
        print(f"\n{case}, {arguments.precision}: {len(kernels)} kernels, {total / 1e3:.3f} ms in them\n\n| group | kernels | ms | share | TB/s | TFLOP/s |\n| --- | --- | --- | --- | --- | --- |")
        groups = {name: [] for name, _ in GROUPS}
        for kernel in kernels:
            groups[next(name for name, pattern in GROUPS if re.search(pattern, kernel[0]))].append(kernel)
        for name, found in sorted(groups.items(), key=lambda g: -sum(k[1] for k in g[1])):
            us, size = sum(k[1] for k in found), sum(k[2] for k in found)
            if not found:
                continue
            rate = f"{operations / us / 1e6:.0f}" if name.startswith("convolutions") else ""
            print(f"| {name} | {len(found)} | {us / 1e3:.3f} | {100 * us / total:.1f} % | {size / us / 1e6:.2f} | {rate} |")
        if arguments.names:
            for name, us, size in sorted(kernels, key=lambda k: -k[1])[:40]:
                print(f"  {us:8.1f} us {size / us / 1e6:5.2f} TB/s  {name[:110]}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
