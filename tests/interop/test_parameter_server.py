"""A PyTorch model that trains against our parameter server: the example as users have it, beside a worker of our own."""
import ast
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("safetensors.torch", reason="needs the safetensors package")

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


def version(url):
    """The server's, asked with the token that a server of this user has on this machine."""
    token = subprocess.run([FARTHING, "token", url], capture_output=True, text=True, check=True, timeout=30).stdout
    request = urllib.request.Request(url + "/getVersion", headers=dict([token.strip().split(": ")]))
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["version"]


def test_the_example_is_short_and_learns(server):
    assert len(EXAMPLE.read_text().splitlines()) <= 70
    url = server()
    steps = run_example(url, 25)
    assert [code for _, code in steps] == [200] * 25
    assert steps[-1][0] < 0.5 * steps[0][0]
    assert version(url) == 25


def test_the_example_waits_for_its_step(server):
    """sync: two examples at once; each step is made of one gradient of each, and none is pushed twice for a version."""
    url = server(None, "--consistency", "sync:2", "--lease", "600s")
    workers = [subprocess.Popen([sys.executable, EXAMPLE, url, "--steps", "3", "--seed", str(i)], stdout=subprocess.PIPE,
                                text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) for i in range(2)]
    codes = [re.findall(r"loss [\d.]+, (\d+)", w.communicate(timeout=300)[0]) for w in workers]
    assert [len(c) for c in codes] == [3, 3] and sorted(codes[0] + codes[1]) == ["200"] * 3 + ["201"] * 3
    assert version(url) == 3


def test_the_example_has_the_model_layer_for_layer():
    tree = ast.parse(EXAMPLE.read_text())
    parts = [node for node in tree.body if isinstance(node, (ast.ImportFrom, ast.ClassDef))]
    names = {"torch": torch}
    exec(compile(ast.Module(parts, []), str(EXAMPLE), "exec"), names)
    model = names["Net"]()
    source = (ROOT / "src" / "model" / "mnist_cnn.c").read_text()
    ours = [float(p) for p in re.findall(r"fth_layer_dropout\(graph, options, ([\d.]+)F", source)]
    assert [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)] == ours
    # Both are at work, on features: the first on what is flattened, the second on what the first linear layer gives.
    seen = []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.register_forward_hook(lambda m, inputs, output: seen.append((m.p, tuple(output.shape))))
    model(torch.zeros(2, 1, 28, 28))
    assert seen == [(0.25, (2, 9216)), (0.5, (2, 128))]


def test_the_example_signs_its_requests(server):
    key = {"FARTHING_ACCESS_KEY": "worker-key", "FARTHING_SECRET_KEY": "0123456789abcdef0123456789abcdef"}
    url = server({"FARTHING_KEYS": f"{key['FARTHING_ACCESS_KEY']} {key['FARTHING_SECRET_KEY']} train"})
    assert [code for _, code in run_example(url, 3, key)] == [200] * 3
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url + "/getVersion", timeout=30)
