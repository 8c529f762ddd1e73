"""bench/engine/run --device cuda: farthing against the best of PyTorch's ways, on one GPU, in one run.

PyTorch's ways are eager, compiled `default` and compiled `reduce-overhead`, in bf16 and f16 (small networks also in f32, where it has been faster).
All are compiled ahead, side by side, into one cache. Then each case is measured: farthing, every way of PyTorch, farthing again. The ratio is
that of the faster of farthing's precisions (mean of both times) to the fastest way of PyTorch.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LARGE = [("eager", "bf16"), ("default", "bf16"), ("reduce-overhead", "bf16"), ("default", "f16"), ("reduce-overhead", "f16")]
SMALL = [("eager", "f32"), ("eager", "bf16"), ("default", "f32"), ("default", "bf16"), ("reduce-overhead", "f32"),
         ("reduce-overhead", "bf16"), ("reduce-overhead", "f16")]
CASES = {  # name: (arguments of farthing bench, wanted ratio, PyTorch's ways)
    "resnet50-224": ("--model resnet50 --batch 256 --height 224 --width 224 --classes 1000", 1.15, LARGE),
    "resnet18-64": ("--model resnet18 --batch 256 --height 64 --width 64 --classes 200", 1.25, LARGE),
    "vgg19-224": ("--model vgg19 --batch 128 --height 224 --width 224 --classes 1000", 1.15, LARGE),
    "mnist-cnn": ("--model mnist-cnn --batch 64", 5.0, SMALL),
    "cifar-cnn": ("--model cifar-cnn --batch 64", 5.0, SMALL),
}
OURS = ["bf16", "f16"]


def ours(case, precision, arguments):
    command = [arguments.farthing[0], "bench", "--device", "cuda", *CASES[case][0].split(), "--precision", precision,
               "--seconds", str(arguments.seconds)]
    reply = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if reply.returncode != 0:
        sys.exit(f"farthing bench failed: {reply.stderr.strip()}")
    return json.loads(reply.stdout)["step_ms"]


def peer_command(case, mode, precision, seconds, arguments):
    return [arguments.python, str(HERE / "gpu_peer.py"), case, mode, precision, str(seconds)]


def compile_ahead(cases, arguments):
    """Side by side, the large ones first; a way that does not end in time is compiled again when it is measured."""
    left = [(case, mode, p) for case in cases for mode, p in CASES[case][2] if mode != "eager"]
    running, begun = [], time.monotonic()
    while (left or running) and time.monotonic() - begun < arguments.compile_seconds:
        while left and len(running) < 12:
            running.append(subprocess.Popen(peer_command(*left.pop(0), 0, arguments), stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))
        running = [p for p in running if p.poll() is None]
        time.sleep(0.2)
    for process in running:
        process.kill()
    print(f"compiled ahead in {time.monotonic() - begun:.0f} s, {len(left) + len(running)} ways left out", file=sys.stderr, flush=True)


def peer(case, mode, precision, arguments):
    try:
        reply = subprocess.run(peer_command(case, mode, precision, arguments.seconds, arguments), capture_output=True, text=True,
                               timeout=arguments.peer_timeout)
        return json.loads(reply.stdout.strip().splitlines()[-1])["step_ms"]
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        print(f"{case} {mode} {precision}: no figure ({type(error).__name__})", file=sys.stderr, flush=True)
        return None


def main(arguments):
    cases = arguments.cases or list(CASES)
    unknown = [c for c in cases if c not in CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    compile_ahead(cases, arguments)
    if arguments.only_compile:
        return
    rows = []
    for case in cases:
        first = {p: ours(case, p, arguments) for p in OURS}
        theirs = {way: peer(case, *way, arguments) for way in CASES[case][2]}
        second = {p: ours(case, p, arguments) for p in OURS}
        mean = {p: statistics.mean([first[p], second[p]]) for p in OURS}
        best_ours = min(mean, key=mean.get)
        known = {way: ms for way, ms in theirs.items() if ms}
        if not known:
            sys.exit(f"{case}: PyTorch gave no figure at all; does --python name a Python with torch and torchvision?")
        best = min(known, key=known.get)
        print(f"{case}: ours {first} {second}; theirs " + ", ".join(f"{m} {p} {ms:.3f}" for (m, p), ms in known.items()),
              file=sys.stderr, flush=True)
        rows.append((case, mean, best_ours, best, known[best], known[best] / mean[best_ours], CASES[case][1]))
    print("| case | farthing bf16, f16, ms a step | the best of PyTorch, ms a step | ratio | wanted |\n| --- | --- | --- | --- | --- |")
    for case, mean, best_ours, best, ms, ratio, wanted in rows:
        print(f"| {case} | {mean['bf16']:.3f}, {mean['f16']:.3f} | {ms:.3f} ({best[0]}, {best[1]}) | {ratio:.2f}× ({best_ours}) | {wanted}× |")
