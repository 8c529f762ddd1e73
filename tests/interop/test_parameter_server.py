"""A PyTorch model that trains against our parameter server: the example as users have it, beside a worker of our own."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("safetensors.torch", reason="needs the safetensors package")
requests = pytest.importorskip("requests", reason="needs the requests package")

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
EXAMPLE = ROOT / "examples" / "pytorch_worker.py"


@pytest.fixture
def server(tmp_path):
    def start(env=None, *arguments):
        process = subprocess.Popen([FARTHING, "serve", "parameters", "--model", "mnist-cnn", "--data-shape", "1x28x28",
                                    "--classes", "10", "--lr", "0.05", "--momentum", "0", "--port", "0", "--json",
                                    *arguments], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})})
        processes.append(process)
        return json.loads(process.stdout.readline())["url"]
    processes = []
    yield start
    for process in processes:
        process.terminate()
        process.wait(60)


def run_example(url, steps, env=None):
    done = subprocess.run([sys.executable, EXAMPLE, url, "--steps", str(steps)], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return [(float(loss), int(code)) for loss, code in re.findall(r"loss ([\d.]+), (\d+)", done.stdout)]


def test_the_example_is_short_and_learns(server):
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    url = server()
    steps = run_example(url, 25)
    assert [code for _, code in steps] == [200] * 25
    assert steps[-1][0] < 0.5 * steps[0][0]
    assert requests.get(url + "/getVersion", timeout=30).json()["version"] == 25


def test_the_example_signs_its_requests(server):
    key = {"FARTHING_ACCESS_KEY": "worker-key", "FARTHING_SECRET_KEY": "0123456789abcdef0123456789abcdef"}
    url = server({"FARTHING_KEYS": f"{key['FARTHING_ACCESS_KEY']} {key['FARTHING_SECRET_KEY']} train"})
    assert [code for _, code in run_example(url, 3, key)] == [200] * 3
    assert requests.get(url + "/getVersion", timeout=30).status_code == 401
