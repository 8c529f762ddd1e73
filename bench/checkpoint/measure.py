#!/usr/bin/python3
"""What checkpoints cost, and whether a notice is enough. Each part prints its figures and a ratio to its bar.

    bench/checkpoint/measure.py stall      how long training waits for a checkpoint of resnet50 with momentum, against a plain
                                           copy of as many bytes in the same minute
    bench/checkpoint/measure.py overhead   processor time of a checkpoint beside training, as a share of a minute
    bench/checkpoint/measure.py notice     from a notice to "stored and exited", 20 times at random moments, on Ceph's S3
                                           gateway on loopback (--count N, --folder for a folder instead)
    bench/checkpoint/measure.py overlap    on a GPU: what a checkpoint takes from training, against its bytes' way over the bus
    bench/checkpoint/measure.py take-over  from kill -9 to the standby's first step, in lease periods (--count N)

$FARTHING names the program (build/farthing)."""
import argparse
import ctypes
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
RESNET = ["--model", "resnet50", "--data", "shapes", "--batch", "4"]


def train(folder, *arguments, env=None):
    """The events of a run, and the processor seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([FARTHING, "train", *map(str, arguments), "--json"], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 75):
        sys.exit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [json.loads(line) for line in done.stdout.splitlines()], cpu


def copy_seconds(size, buffers={}):
    """One copy of `size` bytes between two buffers that were touched before."""
    if size not in buffers:
        buffers[size] = (ctypes.create_string_buffer(size), ctypes.create_string_buffer(size))
        for buffer in buffers[size]:
            ctypes.memset(buffer, 1, size)
    begin = time.perf_counter()
    ctypes.memmove(*buffers[size], size)
    return time.perf_counter() - begin


def stall(options):
    stalls, copies = [], []
    for _ in range(options.count or 3):
        with tempfile.TemporaryDirectory() as folder:
            events, _ = train(folder, *RESNET, "--steps", 24, "--checkpoint-every", 4)
        saves = [event for event in events if event["event"] == "checkpoint"]
        stalls += [event["stall_s"] for event in saves]
        copies += [copy_seconds(saves[0]["bytes"]) for _ in range(8)]
    ours, plain = statistics.median(stalls), statistics.median(copies)
    print(f"{saves[0]['bytes'] / 1e6:.0f} MB: stall {1e3 * ours:.1f} ms (largest {1e3 * max(stalls):.1f}) of "
          f"{len(stalls)}, plain copy {1e3 * plain:.1f} ms: ratio {ours / plain:.2f} (bar 1.2)")


def overhead(options):
    """By processor time, which other work on the machine changes little; a core that saves cannot train."""
    costs, stalls = [], []
    for _ in range(options.count or 3):
        cpu = {}
        for every in (1000, 3):
            with tempfile.TemporaryDirectory() as folder:
                events, cpu[every] = train(folder, *RESNET, "--steps", 31, "--checkpoint-every", every)
            saves = [event for event in events if event["event"] == "checkpoint"]
        costs.append((cpu[3] - cpu[1000]) / (len(saves) - 1))
        stalls += [event["stall_s"] for event in saves]
    cost, cores = statistics.median(costs), os.cpu_count()
    share = (cost / cores + statistics.median(stalls)) / 60
    print(f"a checkpoint takes {cost:.2f} s of processor time ({', '.join(f'{value:.2f}' for value in costs)}); one a minute "
          f"on {cores} cores is {100 * share:.2f} % of the time (bar 1 %)")


def bus_seconds(size):
    """One copy of `size` bytes from the GPU into pinned memory, by PyTorch."""
    import torch
    there, here = torch.empty(size, dtype=torch.uint8, device="cuda"), torch.empty(size, dtype=torch.uint8, pin_memory=True)
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        here.copy_(there)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def overlap(options):
    """Steps with and without checkpoints, in turn. Validations, the same in both, are left out."""
    every, steps = options.every, 10 * options.every
    arguments = ["--model", "resnet50", "--data", "shapes", "--batch", 256, "--device", "cuda", "--precision", options.precision,
                 "--steps", steps, "--watch", "none", "--validate-every", 1000000]
    costs, step_times, stalls, size = [], [], [], 0
    for _ in range(options.count or 5):
        step_s = {}
        for saving in (True, False):
            with tempfile.TemporaryDirectory(dir=options.on) as folder:
                events, _ = train(folder, *arguments, "--checkpoint-every", every if saving else 1000000)
            told = [event for event in events if event["event"] == "step" and every // 2 < event["step"] < steps]
            taken = [event["elapsed_s"] - event["evaluate_s"] for event in told]
            step_s[saving] = (taken[-1] - taken[0]) / (told[-1]["step"] - told[0]["step"])
            if saving:
                saves = [event for event in events if event["event"] == "checkpoint"]
                size = saves[0]["bytes"]
                stalls += [event["stall_s"] for event in saves[1:-1]]
        costs.append(every * (step_s[True] - step_s[False]))
        step_times.append(step_s[False])
    cost, step, bus = statistics.median(costs), statistics.median(step_times), bus_seconds(size)
    print(f"{size / 1e6:.0f} MB every {every} steps of {1e3 * step:.2f} ms: training's thread waits "
          f"{1e3 * statistics.median(stalls):.3f} ms (largest {1e3 * max(stalls):.3f}); a checkpoint takes {1e3 * cost:.2f} ms from "
          f"training ({', '.join(f'{1e3 * value:.2f}' for value in costs)}), its bytes' way over the bus {1e3 * bus:.2f} ms")


class Place:
    """Where runs live for a measurement."""

    def __init__(self, folder):
        self.server = None
        if not folder:
            from s3_server import S3Server
            self.server = S3Server().start()
            self.bucket, self.env = self.server.create_bucket(), self.server.environment()
        self.folder, self.count = tempfile.TemporaryDirectory(), 0

    def fresh(self):
        self.count += 1
        if self.server:
            return f"s3://{self.bucket}/run{self.count}", {**os.environ, **self.env}
        return f"{self.folder.name}/store{self.count}", dict(os.environ)

    def forget(self, url, env):
        """The server keeps everything in memory."""
        subprocess.run([FARTHING, "store", "rm", "-r", "--yes", "--confirm", url, url], env=env, capture_output=True)

    def close(self):
        if self.server:
            self.server.stop()
        self.folder.cleanup()


def begin(folder, url, env, *arguments, command="train"):
    return subprocess.Popen([FARTHING, command, *map(str, arguments), "--checkpoints", url, "--json"], cwd=folder, env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def notice(options):
    draw, place = random.Random(options.seed), Place(options.folder)
    used, kept = [], 0
    count = options.count or 20
    try:
        for number in range(count):
            folder = tempfile.mkdtemp(prefix="farthing-notice-")
            url, env = place.fresh()
            process = begin(folder, url, env, *RESNET, "--steps", 40, "--checkpoint-every", "2s", "--watch",
                            "file:preempt.txt")
            # Start-up, steps, saves, and the validation at the end, which takes longer than the steps.
            time.sleep(draw.uniform(0.1, options.longest))
            (Path(folder) / "preempt.txt").write_text("30\n")
            asked = time.monotonic()
            out, err = process.communicate(timeout=120)
            seconds = time.monotonic() - asked
            events = [json.loads(line) for line in out.splitlines()]
            told = [event for event in events if event["event"] == "notice"]
            where = events[-2]["event"] if len(events) > 1 else "start-up"
            fitted = process.returncode == 75 and (not told or told[0]["fitted"])
            kept += fitted
            used.append(seconds)
            step = told[0]["step"] if told else 0
            print(f"  {number + 1}: {seconds:.2f} s, exit {process.returncode}, step {step}, "
                  f"{'all saved' if fitted else 'NOT all saved: ' + err[-400:]} (last event {where})", flush=True)
            subprocess.run(["rm", "-rf", folder])
            place.forget(url, env)
    finally:
        place.close()
    print(f"{kept} of {count} notices used; from notice to exit median {statistics.median(used):.2f} s, "
          f"longest {max(used):.2f} s (bar 3 s)")


def take_over(options):
    place, taken = Place(options.folder), []
    period = 10
    try:
        for _ in range(options.count or 3):
            url, env = place.fresh()
            arguments = ["--batch", 64, "--epochs", 1000, "--checkpoint-every", "1s", "--lease", f"{period}s", "--watch", "none"]
            folders = [tempfile.mkdtemp(prefix="farthing-take-over-") for _ in range(2)]
            owner = begin(folders[0], url, env, *arguments)
            waiting = begin(folders[1], url, env, *arguments, command="standby")
            for line in owner.stdout:
                if json.loads(line)["event"] == "checkpoint":
                    break
            time.sleep(2)
            owner.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            for line in waiting.stdout:
                if json.loads(line)["event"] == "step":
                    break
            taken.append(time.monotonic() - killed)
            waiting.kill()
            for process in (owner, waiting):
                process.communicate()
            subprocess.run(["rm", "-rf", *folders])
    finally:
        place.close()
    print(f"a standby's first step {', '.join(f'{value:.1f}' for value in taken)} s after kill -9: "
          f"{max(taken) / period:.2f} lease periods (bar 2)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stall", "overhead", "overlap", "notice", "take-over"])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=11, help="latest moment of a notice, in seconds")
    parser.add_argument("--every", type=int, default=400, help="steps between two checkpoints (overlap)")
    parser.add_argument("--precision", default="bf16", help="(overlap)")
    parser.add_argument("--on", help="folder for runs (overlap)")
    parser.add_argument("--folder", action="store_true")
    options = parser.parse_args()
    {"stall": stall, "overhead": overhead, "overlap": overlap, "notice": notice, "take-over": take_over}[options.what](options)


if __name__ == "__main__":
    main()
