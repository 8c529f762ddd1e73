"""A coordinator of the batch cache for tests, and plain clients of it: HTTP, and the socket of its machine."""
import hashlib
import json
import mmap
import os
import re
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

from batches_server import access_flags
from conftest import FARTHING, PATIENCE_S, environment
from parameter_client import Client


# Of sockets, whose paths are short.
RUNTIME = tempfile.TemporaryDirectory(prefix="farthing-")


class Coordinator:
    """farthing serve batches in a folder, with a state of its own."""

    def __init__(self, folder, *arguments, port=0, env=None, key=None):
        self.folder, self.arguments, self.env, self.key = Path(folder), list(map(str, arguments)), env or {}, key
        self.port, self.process = port, None
        self.log = self.folder / "serve.log"

    def start(self):
        self.process = subprocess.Popen(
            [FARTHING, "serve", "batches", "--json", "--port", str(self.port), "--state", str(self.folder / "state"),
             "--cache-memory", "64m", "--prefetch", "threads:1", *self.arguments,
             *access_flags(self.arguments, self.env)],
            cwd=self.folder, env=environment(XDG_RUNTIME_DIR=RUNTIME.name, FARTHING_CACHE=str(self.folder / "cache"),
                                             **self.env),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log.open("a"), text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.serving = json.loads(line)
        self.port = self.serving["port"]
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process.stdout.close()
            self.process = None

    def stop(self):
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.process = None
        return code

    def http(self, key=None):
        return Client(self.port, key or self.key)

    def ask(self, method, target, body=None, code=200, key=None):
        client = self.http(key)
        answer = client(method, target, json.dumps(body).encode() if body is not None else b"")
        client.close()
        assert answer.code == code, (answer.code, answer.body)
        return answer.json

    @property
    def status(self):
        return self.ask("GET", "/v1/status")

    def job(self, number):
        return self.ask("GET", f"/v1/jobs/{number}")

    def metrics(self):
        client = self.http()
        text = client("GET", "/metrics").body.decode()
        client.close()
        return {name: float(value) for name, value in re.findall(r"^(farthing_\S+) (\S+)$", text, re.M)}

    def socket_path(self):
        digest = hashlib.sha256(f"\n{self.port}\n".encode()).hexdigest()[:16]
        return Path(RUNTIME.name) / "farthing" / f"batches-{digest}"


def spec(data, **changes):
    """A job's spec, as docs/batches.md has it."""
    return {"data": data, "version": "", "split": "train", "transform": "resize=28x28,normalize=0.1307/0.3081",
            "augmentation": {"flip": False, "crop_padding": 0}, "batch": 32, "shuffle": True, "sharing": "none",
            "order_seed": "1", "augment_seed": "1", "share": [0, 0], "part": [0, 0], "rotation": -1, "form": "auto",
            **changes}


class HostClient:
    """A process's end of the socket, and its slot of the board (src/batches/memory/board.c), in which it says where it is."""

    COUNTERS = ("hits", "waits", "misses", "wait_ns", "bytes", "fetch_ns", "decode_ns", "corrupt")

    def __init__(self, coordinator):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(coordinator.socket_path()))
        self.number, self.board, self.slot = 0, None, None

    def ask(self, **request):
        self.number += 1
        self.socket.send(json.dumps({"n": self.number, **request}).encode())
        text, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 4)
        answer = json.loads(text)
        if "large" in answer:
            answer = json.loads(os.pread(fds[0], answer["large"], 0))
            os.close(fds.pop(0))
        if len(fds) == 2:
            self.map_board(fds[1], answer["slot"])
        for fd in fds:
            os.close(fd)
        return answer

    def map_board(self, fd, slot):
        self.board = mmap.mmap(fd, os.fstat(fd).st_size)
        self.slot = 64 + slot * ((len(self.board) - 64) // 1024)

    def move(self, next, stride=1, end=0):
        at = self.slot + 64
        (version,) = struct.unpack_from("<Q", self.board, at)
        struct.pack_into("<Q", self.board, at, version + 1)
        struct.pack_into("<qqq", self.board, at + 8, next, stride, end)
        struct.pack_into("<Q", self.board, at, version + 2)

    def count(self, **amounts):
        for name, amount in amounts.items():
            at = self.slot + 64 + 40 + 8 * self.COUNTERS.index(name)
            struct.pack_into("<Q", self.board, at, struct.unpack_from("<Q", self.board, at)[0] + amount)

    def tell(self, **request):
        self.socket.send(json.dumps(request).encode())

    def close(self):
        if self.board:
            self.board.close()
        self.socket.close()
