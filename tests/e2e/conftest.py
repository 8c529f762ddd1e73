"""What the end-to-end tests share: the program, small data sets, runs to look at."""
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import time
import zlib
from pathlib import Path

import pytest
import s3_server as s3_module

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
needs_gloo = pytest.mark.skipif(not (FARTHING.parent / "farthing_gloo.so").exists(),
                                reason="farthing_gloo.so was not built")
SANITIZED = FARTHING.exists() and any(name in FARTHING.read_bytes() for name in (b"__asan_init", b"__tsan_init"))
SMALL = ["--model", "linear"]  # where the network does not matter
PATIENCE_S = 120 * (4 if SANITIZED else 1)

# Under nohup, or behind `&` in a script, these are ignored, which programs inherit and farthing respects.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def environment(**extra):
    # The Python package, once loaded, names itself as what starts agents.
    changed = ("FARTHING_ASCII", "NO_COLOR", "COLUMNS", "FARTHING_BATCHES_AGENT")
    clean = {k: v for k, v in os.environ.items() if k not in changed}
    # Threads that spin while they wait are slow on a machine that has other work.
    return {**clean, "LC_ALL": "C.UTF-8", "TERM": "xterm", "OMP_WAIT_POLICY": "passive", **extra}


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def events(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def end(self):
        assert self.events[-1]["event"] == "end"
        return self.events[-1]


class Program:
    """Runs farthing in a folder of its own."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __call__(self, *arguments, code=0, env=None, **options):
        done = subprocess.run([FARTHING, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=PATIENCE_S, env=environment(**(env or {})), stdin=subprocess.DEVNULL, **options)
        result = Result(done.returncode, done.stdout, done.stderr)
        assert code is None or result.code == code, f"exit {result.code}\n{result.out}\n{result.err}"
        return result

    def start(self, *arguments, **options):
        return subprocess.Popen([FARTHING, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
                                env=environment(), text=True,
                                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def runs(self):
        return sorted(path.parent for path in self.folder.glob("runs/*/run.json"))

    def only_run(self):
        (run,) = self.runs()
        return run


@pytest.fixture
def farthing(tmp_path):
    return Program(tmp_path)


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def checkpoints(run):
    """The whole checkpoints of a run, oldest first: manifests are written last."""
    return sorted(run.glob("checkpoints/step-*.json"))


def record(run):
    lines = (run / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def events_of(path):
    """The whole lines of a file of events; none if there is no such file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def leader_of(events):
    """The process that leads the newest group."""
    return [event for event in events if event["event"] == "group"][-1]["members"][0]["process"]


def tensors(path):
    """Names and bytes of the tensors in a safetensors file."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    return {name: (info["dtype"], tuple(info["shape"]), body[slice(*info["data_offsets"])])
            for name, info in header.items() if name != "__metadata__"}


# ---- data ----

def idx(shape, values, magic=None):
    kind = struct.pack(">HBB", 0, 8, len(shape)) if magic is None else magic
    return kind + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def write_mnist(folder, train=256, test=64, compressed=False, seed=7):
    """Ten classes that can be learned: a bright square whose place tells the label, in noise."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        labels = [draw.randrange(10) for _ in range(count)]
        pixels = bytearray(draw.randbytes(count * 784))
        for i in range(len(pixels)):
            pixels[i] >>= 2
        for number, label in enumerate(labels):
            top, left = 3 + 12 * (label // 5), 1 + 5 * (label % 5)
            for row in range(top, top + 6):
                start = number * 784 + row * 28 + left
                pixels[start:start + 5] = b"\xf0" * 5
        files = {f"{part}-images-idx3-ubyte": idx((count, 28, 28), pixels),
                 f"{part}-labels-idx1-ubyte": idx((count,), labels)}
        for name, content in files.items():
            if compressed:
                (folder / (name + ".gz")).write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return folder


def png(width, height, value):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    row = b"\0" + bytes((value, 255 - value, x % 256)[c] for x in range(width) for c in range(3))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b""))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("data") / "tiny")


# ---- disks ----

@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk in memory that holds `size_kib`; skips, saying why, where that is not allowed."""
    mounted = []

    def mount(size_kib):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "farthing-test", str(folder)],
                              capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here (root can): {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# ---- object stores ----

@pytest.fixture(scope="session")
def s3_server():
    """A real S3 server (s3_server.py); skips, saying why, where it cannot be run."""
    pytest.importorskip("boto3", reason="no boto3: apt-get install python3-boto3")
    server = s3_module.S3Server()
    try:
        server.start()
    except s3_module.Unavailable as error:
        pytest.skip(str(error))
    yield server
    server.stop()


class Bucket:
    """A fresh bucket: its URL, the environment that reaches it, and boto3's view of it."""

    def __init__(self, server):
        self.server, self.name, self.boto = server, server.create_bucket(), server.client()
        self.url, self.environment = f"s3://{self.name}", server.environment()

    def keys(self, prefix=""):
        pages = self.boto.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def read(self, key):
        return self.boto.get_object(Bucket=self.name, Key=key)["Body"].read()

    def write(self, key, content):
        self.boto.put_object(Bucket=self.name, Key=key, Body=content)


@pytest.fixture
def bucket(s3_server):
    return Bucket(s3_server)


# ---- runs ----

@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny):
    """A finished run: its program, folder and events."""
    program = Program(tmp_path_factory.mktemp("trained"))
    program.result = program("train", "--data", tiny, "--batch", 32, "--epochs", 3, "--threads", 2, "--json")
    program.run = program.only_run()
    return program


class Repeated:
    """One configuration, trained without interruption, to compare interrupted ones with."""

    def __init__(self, folder, data):
        self.arguments = ["train", "--data", data, "--batch", 16, "--steps", 150, "--checkpoint-every", 5,
                          "--threads", 2, "--seed", 3, "--resume"]
        program = Program(folder)
        program(*self.arguments)
        self.weights = tensors(program.only_run() / "last.safetensors")


@pytest.fixture(scope="session")
def repeated(tmp_path_factory, tiny):
    return Repeated(tmp_path_factory.mktemp("repeated"), tiny)


def stop(process, number=signal.SIGINT):
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return Result(process.returncode, out, err)
