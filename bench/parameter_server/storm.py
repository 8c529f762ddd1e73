#!/usr/bin/python3
"""A storm on the parameter server: many workers push at random, some of them die, send garbage, repeat themselves, go away in
the middle or are a hundred times slower; meanwhile /getVersion is asked all the time. Prints what /getVersion took, the
server's memory, and whether any push was lost or doubled.

    bench/parameter_server/storm.py [--workers 256] [--seconds 60] [--model linear] [--server 'chrt -r 50'] [serve's flags]

Each worker pushes 1 at a position of its own, at rate 1 without momentum: the parameters count the pushes."""
import argparse
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import numpy  # noqa: E402
from parameter_client import Client  # noqa: E402

FARTHING = os.environ.get("FARTHING", ROOT / "build" / "farthing")


def weight_of(tensors):
    return max(tensors, key=lambda name: tensors[name].size)


def gradient_at(position, tensors, dense):
    if dense:
        gradient = {name: numpy.zeros(t.shape, numpy.float32) for name, t in tensors.items()}
        gradient[weight_of(tensors)].reshape(-1)[position] = 1
        return gradient
    gradient = {}
    for name in tensors:
        there = name == weight_of(tensors)
        gradient[name + ".indices"] = numpy.array([position] if there else [], numpy.uint32)
        gradient[name + ".values"] = numpy.array([1] if there else [], numpy.float32)
    return gradient


def work(index, port, tensors, counts, until, failures):
    client, draw, kind, name, sequence = Client(port), random.Random(index), index % 8, f"w{index}", 1
    try:
        client.register(name)
        while time.monotonic() < until:
            time.sleep(draw.random() * (20 if kind == 1 else 0.2))
            if kind == 2 and draw.random() < 0.3:
                assert client("POST", "/putGradient", draw.randbytes(draw.randrange(20000))).code == 400
                continue
            if kind == 3 and draw.random() < 0.3:
                with socket.create_connection(("127.0.0.1", port)) as raw:
                    raw.sendall(b"POST /putGradient HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\nabc")
                continue
            answer = client.push(name, sequence, client.version(), gradient_at(index, tensors, kind == 7))
            if answer["code"] == 200:
                counts[index] += 1
                if kind == 4:
                    assert client.push(name, sequence, 0, gradient_at(index, tensors, False))["duplicate"]
                sequence += 1
            elif answer["reason"] == "stranger":
                sequence = client.register(name, f"again{sequence}-{time.time()}")["sequence"] + 1
            else:
                assert answer["reason"] == "busy", answer
            if kind == 5 and draw.random() < 0.01:
                return  # dies
    except Exception as error:  # noqa: BLE001
        failures.put(f"worker {index}: {error!r}")


def run_some(indices, port, tensors, counts, until, failures):
    threads = [threading.Thread(target=work, args=(i, port, tensors, counts, until, failures)) for i in indices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--data-shape", default="1x28x28")
    parser.add_argument("--server", default="", help="put before the server's command")
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [*options.server.split(), FARTHING, "serve", "parameters", "--unsigned", "--model", options.model, "--data-shape",
             options.data_shape, "--optimizer", "sgd", "--lr", "1", "--momentum", "0", "--lease", "10s",
             "--checkpoint-every", "10s", "--port", "0", "--json", *flags], cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        port = json.loads(server.stdout.readline())["port"]
        client = Client(port)
        tensors, _ = client.pull()
        counts, failures = multiprocessing.Array("q", options.workers, lock=False), multiprocessing.Queue()
        until, parts = time.monotonic() + options.seconds, 8
        processes = [multiprocessing.Process(target=run_some, args=(range(i, options.workers, parts), port, tensors, counts,
                                                                   until, failures)) for i in range(parts)]
        for process in processes:
            process.start()
        if options.server.startswith("chrt"):  # who measures is not to wait for the workers either
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(65))
        times, memory = [], 0
        raw = socket.create_connection(("127.0.0.1", port))
        while time.monotonic() < until:
            began = time.perf_counter()
            raw.sendall(b"GET /getVersion HTTP/1.1\r\nHost: x\r\n\r\n")
            raw.recv(4096)
            times.append(time.perf_counter() - began)
            if len(times) % 500 == 0:
                memory = max(memory, client.metrics()['farthing_memory_bytes{of="process"}'])
            time.sleep(0.005)
        for process in processes:
            process.join(120)
        after, version = client.pull()
        moved = (tensors[weight_of(tensors)] - after[weight_of(tensors)]).reshape(-1)[:options.workers]
        wrong = int((abs(moved - numpy.array(counts[:])) > 0.01 + 1e-5 * moved).sum())
        values = client.metrics()
        times.sort()
        print(json.dumps({
            "workers": options.workers, "pushes": sum(counts), "version": version, "lost_or_doubled": wrong,
            "refused": int(sum(v for k, v in values.items() if "refused" in k)),
            "duplicates": int(values["farthing_duplicates_total"]), "expired": int(values["farthing_leases_expired_total"]),
            "getVersion_ms": {"median": round(times[len(times) // 2] * 1e3, 2),
                              "p99": round(times[int(len(times) * 0.99)] * 1e3, 2), "max": round(times[-1] * 1e3, 2)},
            "asked": len(times), "memory_mb": round(memory / 1e6),
            "failures": [failures.get() for _ in range(failures.qsize())][:5]}, indent=1))
        server.terminate()
        server.wait(60)
        return 1 if wrong or version != sum(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
