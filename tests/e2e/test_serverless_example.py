"""examples/serverless-mnist: the whole of it in a bucket, and the requests that its README shows."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import FARTHING, PATIENCE_S, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "serverless-mnist"


def test_six_functions_train_from_a_bucket(bucket, tiny, tmp_path):
    place = f"{bucket.url}/mnist"
    done = subprocess.run([EXAMPLE / "run", "--data", tiny, "--epochs", "2", "--timeout", "60s"], cwd=tmp_path, text=True,
                          env=environment(FARTHING=str(FARTHING), PLACE=place, **bucket.environment),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"wrote {place}: 6 parts of mnist, 256 samples" in done.stdout
    assert re.search(r"^ *all +\d+ +\d+ +512 ", done.stdout, re.MULTILINE), done.stdout  # every sample, twice
    assert re.search(r"^trained +2 epochs", done.stdout, re.MULTILINE) and "removed mnist from local" in done.stdout
    assert (tmp_path / "serverless-mnist" / "curves.svg").read_text().count("<svg") == 1
    assert sorted(bucket.keys("mnist/"))[-1] == "mnist/shards.json"
    secret = bucket.environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in done.stdout + done.stderr


@pytest.fixture
def services(farthing, tiny, tmp_path):
    """A parameter server, functions, and a shard; the variables that the README's lines use."""
    shards = farthing("data", "shard", "--data", tiny, "--parts", 2, "--to", tmp_path / "shards", "--presign", "1h")
    processes = [farthing.start("serve", "parameters", "--model", "mnist-cnn", "--data-shape", "1x28x28", "--classes", 10, "--port", 0,
                                "--json"),
                 farthing.start("serve", "functions", "--folder", tmp_path / "functions", "--port", 0, "--json")]
    server, functions = (json.loads(process.stdout.readline()) for process in processes)
    yield {"SERVER": server["url"], "APIHOST": functions["url"], "SHARD": shards.out.split()[0],
           "AUTH": Path(functions["key_file"]).read_text().strip()}
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl: apt-get install curl")
def test_the_readmes_curl_lines(services, tmp_path):
    text = (EXAMPLE / "README.md").read_text()
    block = next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if block.startswith("curl"))
    create, invoke = ("curl" + part for part in re.split(r"^curl", block, flags=re.MULTILINE)[1:])

    def run(line):
        done = subprocess.run(["bash", "-c", line.replace("curl ", "curl -sS ", 1)], cwd=tmp_path, text=True,
                              env=environment(**services), stdout=subprocess.PIPE, timeout=2 * PATIENCE_S)
        assert done.returncode == 0
        return json.loads(done.stdout)

    action = run(create)
    assert (action["name"], action["limits"]["memory"], action["limits"]["timeout"]) == ("mnist", 256, 300000)
    result = run(invoke)
    assert result["finished"] and result["samples"] == 128 and result["pushes"] == 1, result
    again = run(invoke)  # warm: the same process has the shard, and another run goes through it again
    assert again["finished"] and not again["cold"] and again["version"] >= result["version"], again
