#!/usr/bin/python3
"""Kills a run in its first seconds, again and again at another moment, and has the same command continue it. Every
continuation must end with exit code 0 and the weights of a run that was not killed.

    bench/checkpoint/early_kills.py                  train --checkpoints in a folder: killed after 0.05 s, 0.1 s, ... 5 s
    bench/checkpoint/early_kills.py no-store         train --name A --resume, without a store
    bench/checkpoint/early_kills.py hogwild          --strategy hogwild with processes; the weights need not be equal
    bench/checkpoint/early_kills.py launch           launch --workers 2; all its processes are killed at once
    bench/checkpoint/early_kills.py server           --strategy parameter-server, without a store; likewise

    --kills N (100)   --every SECONDS (0.05)   --twice: killed twice each time

The run is made long enough for the last kill. $FARTHING names the program (build/farthing)."""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from conftest import FARTHING, tensors, write_mnist  # noqa: E402

STORE = ["--checkpoints", "store", "--lease", "1s", "--watch", "none"]
HOW = {"store": (["train"], STORE, True),
       "no-store": (["train"], ["--resume"], True),
       "hogwild": (["train", "--strategy", "hogwild", "--processes", "2"], STORE, False),
       "launch": (["launch", "--workers", "2", "--"], STORE, True),
       "server": (["train", "--strategy", "parameter-server", "--workers", "2"], ["--resume"], False)}
PATIENCE_S = 120


def start(command, folder):
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT, start_new_session=True)


def kill_after(seconds, command, folder):
    """Whether there was something to kill."""
    process = start(command, folder)
    time.sleep(seconds)
    alive = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return alive


def finish(command, folder):
    """What went wrong, and the weights."""
    process = start(command, folder)
    try:
        output = process.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"does not end within {PATIENCE_S} s: {process.communicate()[0]}", None
    if process.returncode:
        return f"exit {process.returncode}: {output}", None
    return "", tensors(folder / "runs/A/last.safetensors")


def measure(command, folder, seconds):
    """The steps that take that long without a kill, and the weights they lead to."""
    steps = 10000
    while True:
        began = time.monotonic()
        place = folder / str(steps)
        place.mkdir()
        trouble, weights = finish([*command, "--steps", str(steps)], place)
        if trouble:
            sys.exit(trouble)
        took = time.monotonic() - began
        if took > 1.2 * seconds:
            return steps, weights
        steps = round(steps * max(1.5, min(10, 1.4 * seconds / took)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", nargs="?", default="store", choices=HOW)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--every", type=float, default=0.05)
    parser.add_argument("--twice", action="store_true")
    asked = parser.parse_args()
    begin, end, equal = HOW[asked.how]
    good = ended = 0
    with tempfile.TemporaryDirectory() as place:
        data = write_mnist(Path(place) / "data")
        command = [FARTHING, *begin, *([] if begin[0] == "train" else ["train"]), "--model", "linear", "--data", data,
                   "--batch", "16", "--checkpoint-every", "1s", "--validate-every", "200",
                   "--threads", "1", "--name", "A", *end]
        command = [str(word) for word in command]
        whole = Path(place) / "whole"
        whole.mkdir()
        steps, weights = measure(command, whole, asked.kills * asked.every)
        command += ["--steps", str(steps)]
        for kill in range(1, asked.kills + 1):
            seconds = kill * asked.every
            folder = Path(place) / str(kill)
            folder.mkdir()
            alive = kill_after(seconds, command, folder)
            if alive and asked.twice:
                alive = kill_after(1 + seconds / 2, command, folder)
            ended += not alive
            trouble, continued = finish(command, folder)
            if not trouble and equal and continued != weights:
                trouble = "other weights"
            good += not trouble
            if trouble:
                print(f"killed after {seconds:.2f} s: {trouble}", flush=True)
            subprocess.run(["rm", "-rf", folder], check=True)
    print(f"{asked.how}: {good} of {asked.kills} continued with the same command"
          f"{' and the same weights' if equal else ''}; {ended} had ended before")
    return good != asked.kills


if __name__ == "__main__":
    sys.exit(main())
