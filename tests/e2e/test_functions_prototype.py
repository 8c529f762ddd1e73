"""The README of the prototype that functions come from, line by line: its archives, which hold the whole of MNIST and a program that
selects a part, its curl lines, and its six workers."""
import io
import json
import shutil
import subprocess
import tarfile

import pytest
from conftest import PATIENCE_S, environment, write_mnist
from test_functions_train import Files, fails, listen, serve, start  # noqa: F401

PARTS, EACH = 6, 20
PROGRAM = '''"""__dataset__.py"""
import torch
import torchvision

_raw_dataset = torchvision.datasets.MNIST(
        './dataset_dl/data/',
        train=True,
        download=True,
        transform=torchvision.transforms.Compose([
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize((0.1307, ), (0.3081, ))
        ]))
# Split dataset using torch.utils.data.Subset api
dataset = torch.utils.data.Subset(_raw_dataset, {selection})
'''
INIT = '"""__init__.py"""\nfrom .__dataset__ import dataset as Dataset\n'
needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="no curl: apt-get install curl")


def archive(raw, selection):
    """As `tar -zcvf dataset_dl_1.tar.gz ./dataset_dl` makes it; the program may come after the data."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path in sorted(raw.iterdir()):
            tar.add(path, f"./dataset_dl/data/MNIST/raw/{path.name}")
        for name, text in (("__init__.py", INIT), ("__dataset__.py", PROGRAM.replace("{selection}", selection))):
            entry = tarfile.TarInfo(f"./dataset_dl/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prototype") / "raw"
    write_mnist(folder, PARTS * EACH, 10, compressed=True)
    return write_mnist(folder, PARTS * EACH, 10)


@pytest.fixture
def urls(raw, listen):  # noqa: F811
    files = {f"/mnist-dataset/dataset_dl_{i + 1}.tar.gz": archive(raw, f"range({i * EACH}, {(i + 1) * EACH})") for i in range(PARTS)}
    server = listen(Files, files=files, asked=[])
    return [f"http://127.0.0.1:{server.server_port}{path}" for path in files]


def curl(line, **variables):
    done = subprocess.run(["bash", "-c", line.replace("curl ", "curl -sS ", 1)], env=environment(**variables), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


RUN = r"""curl -X POST \
     -d '{"value":{"batch_sz_train": 32, "epoch_n": 32, "apihost": "'$SERVER_HOST'","update_intv": 8, "dataset_url": "'$DATASET_URL'","device": "cpu"}}' \
     -H 'Content-Type: application/json' $WORKER_HOST/run"""


@needs_curl
def test_the_curl_line_trains_on_the_selected_part_each_time(serve, start, urls):  # noqa: F811
    server, function = serve("--data-shape", "1x28x28", "--classes", "10"), start()
    lines = {"SERVER_HOST": f"http://127.0.0.1:{server.port}", "WORKER_HOST": f"http://127.0.0.1:{function.port}"}
    results = [curl(RUN, DATASET_URL=url, **lines) for url in (urls[0], urls[0], urls[5])]
    assert [result["samples"] for result in results] == [32 * EACH] * 3, results
    assert all(result["finished"] for result in results) and len({result["run"] for result in results}) == 3
    assert server.client().version() == sum(result["pushes"] for result in results) == 96


def test_six_workers_train_on_all_samples_once_an_epoch(serve, start, urls):  # noqa: F811
    server, functions = serve("--data-shape", "1x28x28", "--classes", "10"), [start() for _ in range(2)]
    results = []
    for i, url in enumerate(urls):
        answer = functions[i % 2].run({"apihost": f"http://127.0.0.1:{server.port}", "dataset_url": url, "batch_sz_train": "32",
                                       "epoch_n": "1", "update_intv": "8", "device": "cpu:0"})
        assert answer.code == 200, answer.body
        results.append(answer.json)
    assert sum(result["samples"] for result in results) == PARTS * EACH
    parts = server.client()("GET", "/shards")
    assert parts.code == 200 and {part["samples"] for part in parts.json["shards"]} == {EACH}, parts.body


def test_a_selection_that_is_not_understood_is_an_error_that_names_range(serve, start, raw, listen):  # noqa: F811
    server, function = serve("--data-shape", "1x28x28", "--classes", "10"), start()
    files = listen(Files, files={"/a.tar.gz": archive(raw, "range(0, 120, 2)")}, asked=[])
    value = {"apihost": f"127.0.0.1:{server.port}", "dataset_url": f"http://127.0.0.1:{files.server_port}/a.tar.gz"}
    error = fails(function, value)
    assert "dataset_dl/__dataset__.py, line 14" in error and '"range"' in error and "\n" not in error
    answer = function.run({**value, "range": "100:"})
    assert answer.code == 200 and answer.json["samples"] == 20, answer.body
    assert "\"dataset_url\"" in fails(function, {**value, "dataset_url": value["dataset_url"] + "#0:10"})


def test_the_servers_requests(serve):  # noqa: F811
    client = serve("--data-shape", "1x28x28", "--classes", "10").client()
    assert client("GET", "/getVersion").json == {"code": 200, "version": 0, "accuracy": None}
    joined = client("POST", "/registerWorker", json.dumps({"id": 0, "description": "worker_0"}).encode())
    assert joined.code == 200 and joined.json["code"] == 200 and joined.json["worker"] == "0"
    assert client("POST", "/registerWorker", b'{"id":0}').code == 409  # it is there already
    assert client("POST", "/unregisterWorker", b'{"id":0}').json["code"] == 200
    assert client("POST", "/registerWorker", b'{"id":"w-1"}').json["worker"] == "w-1"
    for body in (b'{"id":-1.5}', b'{"id":[0]}', b'{"id":"a b"}', b'{"id":true}'):
        assert client("POST", "/registerWorker", body).code == 400
    assert client("POST", "/unregisterWorker", b'{"description":"worker_0"}').code == 400
