#!/usr/bin/env python3
"""Where a training step's time goes on a CPU: the steps of farthing's plan by groups, in one run.

    bench/engine/groups.py [--isa avx2] [--precision bf16] [--farthing PROGRAM] [--threads 1] [--seconds 1] [--steps 10] [CASE...]

A group is an operation and what computes it: "convolution winograd", "convolution jit_1x1", "reorder". Then the slowest
steps with their layers. FARTHING_PROFILE=1 farthing bench lists them all.
"""
import argparse
import collections
import re
import sys

import cpu

STEP = re.compile(r" *([0-9.]+)% +([0-9.]+)  (.*)")  # the share, microseconds, and what: "convolution_grad_input, relu_grad jit:avx2  conv1"


def group_of(step):
    words = step.split("  ")[0].split()
    operation = words[0].rstrip(",")
    computed_by = words[-1] if ":" in words[-1] else ""
    if operation.startswith(("convolution", "linear")):
        return f"{operation} {computed_by.split(':avx')[0].split(':sse')[0]}".strip()
    return operation


def show(case, side, steps):
    answer, profile = side.run(case, FARTHING_PROFILE="1")
    found = [match.groups() for match in map(STEP.match, profile.splitlines()) if match]
    groups = collections.Counter()
    for _, time, step in found:
        if step != "all steps":
            groups[group_of(step)] += float(time)
    total = sum(groups.values())
    print(f"### {case}, {answer['precision']}: {answer['step_ms']:.2f} ms a step ({answer['device']})\n")
    for group, time in groups.most_common():
        if time >= 0.005 * total:
            print(f"    {100 * time / total:5.1f} % {time / 1e3:9.3f} ms  {group}")
    if steps:
        print()
    for share, time, step in found[:steps]:
        print(f"    {float(share):5.1f} % {float(time) / 1e3:9.3f} ms  {step}")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(cpu.CASES), metavar="CASE", help="of: " + ", ".join(cpu.CASES))
    parser.add_argument("--farthing", default=str(cpu.HERE.parent.parent / "build" / "farthing"), metavar="PROGRAM")
    parser.add_argument("--isa", default="native", choices=list(cpu.LEVELS))
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--steps", type=int, default=10, help="that are shown one by one")
    arguments = parser.parse_args()
    unknown = [c for c in arguments.cases if c not in cpu.CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]!r}; there are: {', '.join(cpu.CASES)}")
    for case in arguments.cases:
        show(case, cpu.Ours(arguments.farthing, arguments, arguments.precision), arguments.steps)


if __name__ == "__main__":
    main()
