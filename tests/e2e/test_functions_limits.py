"""What a function is told to do, and what it downloads, cannot make it exceed its memory limit or its time."""
import gzip
import io
import json
import struct
import tarfile
import time
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import FARTHING
from test_functions_openwhisk import Action, end
from test_functions_train import Files, fails, listen, serve, start  # noqa: F401

LIMIT = 256 << 20


class Liar(BaseHTTPRequestHandler):
    """A parameter server whose model is what the test says."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"code": 200, "worker": "w", "instance": "i", "version": 0, "sequence": 0, "lease_s": 30,
                           "consistency": "async", "normalization": None, "unfit": 0, **self.server.model}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def limited(tmp_path):
    """A function whose memory is limited as `--provider local` does it without control groups."""
    function = Action(tmp_path, ["prlimit", f"--data={LIMIT}", FARTHING, "worker", "openwhisk", "--port", "0", "--address",
                                 "127.0.0.1", "--json", "--cache", tmp_path / "cache"])
    assert function.init({"value": {}}).code == 200
    yield function
    end(function)


def peak_bytes(function):
    status = open(f"/proc/{function.process.pid}/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.parametrize("model, shape, batch", [("vgg19", "3x224x224", 1), ("mnist-cnn", "1x4096x4096", 1),
                                                 ("resnet101", "3x4096x4096", 32), ("mnist-cnn", "1x28x28", 65536)])
def test_a_model_that_does_not_fit_is_refused_before_it_is_made(limited, listen, model, shape, batch):  # noqa: F811
    liar = listen(Liar, model={"model": model, "input": shape, "classes": 10, "max_body_bytes": 1 << 33})
    before, began = peak_bytes(limited), time.monotonic()
    error = fails(limited, {"apihost": f"127.0.0.1:{liar.server_port}", "batch_sz_train": batch}, limit_s=10)
    assert f"{model} for images of {shape} needs" in error and '"batch_sz_train"' in error, error
    assert time.monotonic() - began < 10 and peak_bytes(limited) - before < 32 << 20


def bomb(gibibytes):
    """A tar with images of MNIST that are nothing but zeros: a compressed file of a thousandth of its size."""
    count = gibibytes << 20
    header = gzip.compress(struct.pack(">IIII", 0x803, count, 32, 32))
    zeros = gzip.compress(bytes(64 << 20), 9) * (16 * gibibytes)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        entry = tarfile.TarInfo("train-images-idx3-ubyte.gz")
        entry.size = len(header) + len(zeros)
        tar.addfile(entry, io.BytesIO(header + zeros))
    return content.getvalue()


def test_a_bomb_in_a_tar_stays_within_the_memory(limited, start, serve, listen):  # noqa: F811
    """Of 4 GiB in a file of 4 MB a function with a limit keeps what it has room for; one without takes no more than sets of that
    size do."""
    server, unlimited = serve("--data-shape", "1x32x32", "--classes", "10"), start()
    files = listen(Files, files={"/bomb.tar": bomb(4)}, asked=[])
    value = {"apihost": f"127.0.0.1:{server.port}", "dataset_url": f"http://127.0.0.1:{files.server_port}/bomb.tar"}
    began = time.monotonic()
    error = fails(limited, value, limit_s=30)
    assert "bytes of samples; ask for a range" in error or "bytes they may; ask for a range" in error, error
    assert "expands to more than" in fails(limited, {**value, "range": "4000000:"}, limit_s=30)
    assert "expands to more than" in fails(unlimited, value, limit_s=30)
    assert time.monotonic() - began < 30
    assert peak_bytes(limited) < LIMIT and peak_bytes(unlimited) < 512 << 20
