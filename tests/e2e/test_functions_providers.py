"""`farthing functions` on platforms' REST APIs: OpenWhisk's, by a stand-in that is strict (openwhisk_server.py), and Lambda's
as `moto` from PyPI serves it. What servers should not answer is tried too: too much, nonsense, redirections, nothing."""
import json
import os
import signal
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest
from conftest import FARTHING, PATIENCE_S, Program, environment, wait_for
from openwhisk_server import KEY, OpenWhisk
from pypi import python_with
from test_live_line import Terminal

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture
def openwhisk():
    with OpenWhisk() as server:
        yield server


def use(farthing, server, verb, *arguments, **options):
    result = farthing("functions", verb, "--provider", "openwhisk", *arguments, env={**server.environment, **options.pop("env", {})}, **options)
    for text in (result.out, result.err):
        assert KEY.split(":")[1] not in text and SECRET not in text
    return result


def deploy(farthing, server, *arguments, **options):
    return use(farthing, server, "deploy", "--name", "mnist", "--image", "me/farthing:1",
               *arguments, **options)


# ---- OpenWhisk ----

def test_an_action_is_made_listed_invoked_and_removed(farthing, openwhisk):
    result = deploy(farthing, openwhisk, "--memory", 128, "--timeout", "5s", "--env", "A=1,2", "--env", "FROM_HERE",
                    "--param", "epoch_n=3", "--param", "device=cpu", "--keys-from-environment", "--self-invoke",
                    env={"FROM_HERE": "x", "FARTHING_ACCESS_KEY": "reader", "FARTHING_SECRET_KEY": SECRET})
    assert result.out == "deployed mnist on openwhisk: 128 MB, 5s\n" or result.out.startswith("deployed mnist on openwhisk")
    action = openwhisk.actions["mnist"]
    assert action["exec"]["image"] == "me/farthing:1" and action["limits"] == {"timeout": 5000, "memory": 128}
    assert {p["key"]: p["value"] for p in action["parameters"] if p.get("init")} == {
        "A": "1,2", "FROM_HERE": "x", "FARTHING_ACCESS_KEY": "reader", "FARTHING_SECRET_KEY": SECRET}
    assert {p["key"]: p["value"] for p in action["parameters"] if not p.get("init")} == {"epoch_n": 3, "device": "cpu"}
    assert action["annotations"] == [{"key": "provide-api-key", "value": True}]

    (row,) = json.loads(use(farthing, openwhisk, "status", "--json").out)
    assert row["name"] == "mnist" and row["memory_mb"] == 128 and row["timeout_s"] == 5 and row["image"] == "me/farthing:1"
    assert row["updated"] == "2023-11-14T22:13:20Z" and "FARTHING_SECRET_KEY" in row["environment"]

    end = use(farthing, openwhisk, "invoke", "mnist", "--param", "text=a,b", "--param", 'list=[1,"x"]', "--json").end
    assert end["state"] == "done" and end["results"] == [{"ok": True}]
    assert openwhisk.invoked == [{"text": "a,b", "list": [1, "x"]}]
    shown = use(farthing, openwhisk, "status", "mnist").out
    assert "me/farthing:1" in shown and f"{0:032x}" in shown and "1.50 s" in shown

    logs = use(farthing, openwhisk, "logs", "mnist").out
    assert "stdout: invocation 0\n" in logs and "\\x1b[31mred" in logs and "\x1b" not in logs
    assert use(farthing, openwhisk, "logs", "mnist", f"{0:032x}").out == logs
    assert "has not ended" in use(farthing, openwhisk, "logs", "mnist", "f" * 32, code=1).err
    assert use(farthing, openwhisk, "remove", "mnist").out == "removed mnist from openwhisk\n"
    assert "does not exist" in use(farthing, openwhisk, "remove", "mnist", code=1).err
    assert "no functions" in use(farthing, openwhisk, "status").out
    assert "no action" in use(farthing, openwhisk, "status", "mnist", code=1).err


def test_training_parameters_are_the_prototypes_keys(farthing, openwhisk):
    deploy(farthing, openwhisk)
    use(farthing, openwhisk, "invoke", "mnist", "-n", 3, "--server", "http://10.0.0.5:29500", "--epochs", 2, "--batch", 64,
        "--update-interval", 5, "--device", "cpu", "--compress", "f16", "--server-pin", "sha256//x=", "--run", "r1",
        "--worker", "w")
    common = {"apihost": "http://10.0.0.5:29500", "epoch_n": 2, "batch_sz_train": 64, "update_intv": 5, "device": "cpu",
              "compress": "f16", "server_pin": "sha256//x=", "run": "r1"}
    assert sorted(openwhisk.invoked, key=lambda p: p["worker"]) == [{**common, "worker": f"w-{i}"} for i in (1, 2, 3)]


def test_each_function_has_one_of_the_urls(farthing, openwhisk, tmp_path):
    deploy(farthing, openwhisk)
    urls = [f"http://bucket/part-{i}.tar.gz?X-Amz-Signature={SECRET}" for i in range(3)]
    (tmp_path / "urls").write_text("\n".join(urls[1:]) + "\n")
    use(farthing, openwhisk, "invoke", "mnist", "--server", "h:1", "--data-url", urls[0], "--data-url", "@urls")
    assert sorted(p["dataset_url"] for p in openwhisk.invoked) == urls
    assert len({p["run"] for p in openwhisk.invoked}) == 1 and len({p["worker"] for p in openwhisk.invoked}) == 3
    wrong = use(farthing, openwhisk, "invoke", "mnist", "-n", 2, "--data-url", "@urls", "--data-url", urls[0], code=2)
    assert "-n 2 and 3 --data-url" in wrong.err


def test_each_function_has_a_range_of_its_url(farthing, openwhisk):
    deploy(farthing, openwhisk)
    urls = ["http://bucket/mnist.tar.gz#0:100", "http://bucket/mnist.tar.gz#100:", "http://bucket/other.tar.gz"]
    each = [argument for url in urls for argument in ("--data-url", url)]
    use(farthing, openwhisk, "invoke", "mnist", "--server", "h:1", *each)
    assert sorted((p["dataset_url"], p.get("range")) for p in openwhisk.invoked if "range" in p) == [
        ("http://bucket/mnist.tar.gz", "0:100"), ("http://bucket/mnist.tar.gz", "100:")]
    assert [p["dataset_url"] for p in openwhisk.invoked if "range" not in p] == ["http://bucket/other.tar.gz"]
    for wrong in ("#", "#:", "#5", "#1:2x", "#-1:2", "#part"):
        assert "#0:10000" in use(farthing, openwhisk, "invoke", "mnist", "--server", "h:1", "--data-url", f"http://b/x{wrong}", code=1).err


def test_what_fails_is_retried_and_what_stops_is_continued(farthing):
    def act(parameters, number):
        course = [p for p in server.invoked if p["worker"].split(".")[0] == parameters["worker"].split(".")[0]]
        if parameters["worker"].startswith("w-1") and len(course) == 1:
            raise RuntimeError("the container was killed for its memory")
        result = {"job": "train", "samples": 100, "loss": 0.25, "accuracy": 0.5, "peak_memory_bytes": 50 << 20}
        return {**result, "continuation": {"position": len(course)}} if len(course) < 3 else {**result, "finished": True}

    with OpenWhisk(act) as server:
        deploy(farthing, server)
        too_many = (429, [("Retry-After", "1")], {"error": "Too many requests", "code": "x"})
        server.answers = [None, None, too_many]  # after what invoke asks of the action
        result = use(farthing, server, "invoke", "mnist", "-n", 2, "--server", "h:1", "--worker", "w", "--json",
                     "--concurrency", 1)
        end = result.end
        first, second = end["functions"]
        assert (first["invocations"], first["failures"], first["throttled"], first["samples"]) == (3, 1, 1, 200)
        assert (second["invocations"], second["failures"], second["samples"]) == (3, 0, 300)
        assert first["seconds"] == 4.5 and first["peak_bytes"] == 50 << 20 and first["loss"] == 0.25
        assert end["samples"] == 500 and end["samples_per_s"] > 0
        assert [r["finished"] for r in end["results"]] == [True, True]
        mine = [p for p in server.invoked if p["worker"].startswith("w-1")]
        assert [p["worker"] for p in mine] == ["w-1", "w-1.1", "w-1.1"]
        assert [p.get("continuation") for p in mine] == [None, None, {"position": 2}]
        failed = [e for e in result.events if e["event"] == "invocation" and e["state"] == "failed"]
        assert len(failed) == 1 and "killed for its memory" in failed[0]["error"]
        table = use(farthing, server, "invoke", "mnist", "-n", 2, "--server", "h:1", "--worker", "v").out
        assert "per s" in table and "function 1: done, 300 samples in 3 invocations" in table
        assert any(line.split()[:3] == ["1", "done", "3"] for line in table.splitlines())
        assert any(line.split()[0:1] == ["all"] for line in table.splitlines())


def test_one_that_always_fails_fails_alone(farthing):
    def act(parameters, number):
        if parameters["worker"].startswith("w-2"):
            raise RuntimeError("no such data set")
        return {"samples": 1}

    with OpenWhisk(act) as server:
        deploy(farthing, server)
        result = use(farthing, server, "invoke", "mnist", "-n", 3, "--server", "h:1", "--worker", "w", "--max-failures", 2,
                     code=1)
        assert "1 of 3 functions failed; function 2: application error: no such data set" in result.err
        assert "function 1: done" in result.out and "function 3: done" in result.out
        assert sum(p["worker"].startswith("w-2") for p in server.invoked) == 2


def test_a_stop_leaves_what_runs_and_can_go_on(farthing, openwhisk):
    deploy(farthing, openwhisk)
    openwhisk.activations.clear()
    slow = openwhisk.post_actions

    def never_ends(name, query, parameters):
        code, answer = slow(name, query, parameters)
        openwhisk.activations[answer["activationId"]]["ready"] = float("inf")
        return code, answer

    openwhisk.post_actions = never_ends
    process = subprocess.Popen([FARTHING, "functions", "invoke", "mnist", "-n", "2", "--json",
                                "--provider", "openwhisk"], text=True,
                               env=environment(**openwhisk.environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: len(openwhisk.invoked) == 2, "two invocations")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 75, err
    assert json.loads(out.splitlines()[-1])["state"] == "interrupted" and "left running" in err


def test_a_terminal_gets_a_table(openwhisk, farthing, tmp_path, monkeypatch):
    deploy(farthing, openwhisk)
    for name, value in openwhisk.environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal("functions", "invoke", "mnist", "--provider", "openwhisk", "-n", 40, columns=70, folder=tmp_path)
    while terminal.read():
        pass
    assert terminal.process.wait(PATIENCE_S) == 0
    live, _, last = terminal.text.rpartition("\x1b[J")
    assert "\x1b[J" in live and "more\r\n" in live  # redrawn, and no more of it than fits
    assert "\x1b" not in last and last.count(" done ") == 40
    drawn = [line.split("\x1b[J")[-1] for line in live.split("\r\n") if "\x1b[?" not in line]
    assert max(len(line) for line in drawn) <= 80 and max(len(line) for line in last.splitlines()) <= 80


@pytest.mark.parametrize("answer, words", [
    ((200, [], b"<html>welcome</html>"), "not JSON"),
    ((200, [], b'{"activationId": ["x"]}'), "no activationId"),
    ((200, [], b'{"activationId": "' + b"x" * 1000 + b'"}'), "no activationId"),
    ((302, [("Location", "https://login.example/?token=" + SECRET)], b""), "https://login.example/"),
    ((401, [], b'{"error": "The supplied authentication is invalid"}'), "WHISK_AUTH"),
    ((200, [], b"[" * 100000), "not JSON"),
    ((200, [], b" " * (33 << 20)), "larger than"),
], ids=["html", "type", "long", "redirect", "key", "deep", "huge"])
def test_hostile_answers_are_one_line(farthing, openwhisk, answer, words):
    deploy(farthing, openwhisk)
    openwhisk.answers = [answer] * 3
    result = use(farthing, openwhisk, "invoke", "mnist", "--limit", "1s", "--max-failures", 1, code=1)
    errors = [line for line in result.err.splitlines() if "error:" in line]
    assert len(errors) == 1 and words in errors[0] and openwhisk.url in errors[0]
    assert openwhisk.invoked == []


def test_a_lost_answer_is_not_doubled_before_its_time(farthing, openwhisk):
    deploy(farthing, openwhisk)
    openwhisk.answers = ["hang up"]
    began = time.monotonic()
    end = use(farthing, openwhisk, "invoke", "mnist", "--limit", "700ms", "--json").end
    assert time.monotonic() - began >= 0.7
    assert end["state"] == "done" and end["functions"][0]["failures"] == 1 and len(openwhisk.invoked) == 1


def test_what_can_be_repeated_is(farthing, openwhisk):
    openwhisk.answers = [(503, [], {"error": "busy"}), "hang up"]
    deploy(farthing, openwhisk)
    assert len(openwhisk.requests) == 3 and "mnist" in openwhisk.actions


def test_keys_are_refused_on_the_command_line(farthing, openwhisk, tmp_path):
    refused = deploy(farthing, openwhisk, "--env", f"FARTHING_SECRET_KEY={SECRET}", code=1)
    assert "other users can see a command line" in refused.err and openwhisk.requests == []
    missing = deploy(farthing, openwhisk, "--keys-from-environment", code=1)
    assert "FARTHING_ACCESS_KEY" in missing.err
    (tmp_path / "env").write_text(f"# of the function\nFARTHING_SECRET_KEY={SECRET}\n\nB=x=y\n")
    deploy(farthing, openwhisk, "--env-file", "env")
    assert [p["value"] for p in openwhisk.actions["mnist"]["parameters"]] == [SECRET, "x=y"]


@pytest.mark.parametrize("arguments, words", [
    (("deploy", "--image", "x"), "--name"),
    (("deploy", "a", "--name", "b"), "one function"),
    (("invoke",), "missing the function's name"),
    (("invoke", "x", "-n", "0"), "-n"),
    (("invoke", "x", "-n", "many"), "-n"),
    (("invoke", "x", "--provider", "azure"), "openwhisk, lambda"),
    (("logs",), "missing the function's name"),
    (("remove",), "missing the function's name"),
])
def test_wrong_usage_is_exit_2(farthing, openwhisk, arguments, words):
    assert words in use(farthing, openwhisk, *arguments, code=2).err


# ---- both, by this machine's own platform ----

@pytest.fixture
def started(farthing):
    """Starts services and gives what they say first; they end with the test."""
    processes = []

    def start(*arguments):
        processes.append(farthing.start(*arguments, "--port", 0, "--json"))
        return json.loads(processes[-1].stdout.readline())

    yield start
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    Program(folder)("data", "shard", "--data", "digits", "--parts", 3, "--to", folder / "digits")
    return folder / "digits"


@pytest.mark.parametrize("provider", ["openwhisk", "lambda", "local"])
def test_functions_train_every_sample_once_an_epoch(farthing, started, shards, tmp_path, provider):
    server = started("serve", "parameters", "--model", "linear", "--shards", shards, "--epochs", 1, "--stay")
    env, where = {}, ["--provider", provider]
    if provider == "local":
        where += ["--host", tmp_path / "platform"]
    else:
        platform = started("serve", "functions", "--folder", tmp_path / "platform")
        key = Path(platform["key_file"]).read_text().strip()
        env = {"WHISK_APIHOST": platform["url"], "WHISK_AUTH": key, "AWS_ENDPOINT_URL": platform["url"],
               "AWS_ACCESS_KEY_ID": key.split(":")[0], "AWS_SECRET_ACCESS_KEY": key.split(":")[1], "AWS_REGION": "x-1"}
    more = {"openwhisk": ["--image", "farthing-function"], "lambda": ["--role", "arn:aws:iam::1:role/x"], "local": []}
    farthing("functions", "deploy", "m", "--memory", 128, "--timeout", "60s", *where, *more[provider], env=env)
    end = farthing("functions", "invoke", "m", "-n", 3, "--server", server["url"], "--batch", 100, "--json", *where,
                   env=env).end
    assert end["state"] == "done" and end["samples"] == 20000
    assert all(f["state"] == "done" and f["failures"] == 0 for f in end["functions"])
    assert max(result.get("accuracy", 0) for result in end["results"]) > 0.3
    farthing("functions", "remove", "m", *where, env=env)


# ---- Lambda, by moto ----

MOTO = "moto[server]==5.2.5"


@pytest.fixture(scope="session")
def moto_python():
    return python_with(MOTO.replace("[server]==", "-"), MOTO, "boto3")


PREPARE = """
import boto3, json
role = boto3.client("iam").create_role(RoleName="mnist", AssumeRolePolicyDocument=json.dumps(
    {"Version": "2012-10-17", "Statement": []}))
logs = boto3.client("logs")
logs.create_log_group(logGroupName="/aws/lambda/logged")
logs.create_log_stream(logGroupName="/aws/lambda/logged", logStreamName="2026/11/16/[$LATEST]abc")
import time
now = int(time.time() * 1000)
lines = ["START RequestId: one Version: 1", "first\\x1b[31m", "REPORT RequestId: one\\tDuration: 1 ms",
         "START RequestId: two Version: 1", "second", "END RequestId: two", "REPORT RequestId: two\\tDuration: 1 ms"]
logs.put_log_events(logGroupName="/aws/lambda/logged", logStreamName="2026/11/16/[$LATEST]abc",
                    logEvents=[{"timestamp": now + i, "message": line} for i, line in enumerate(lines)])
boto3.client("s3").create_bucket(Bucket="code")
print(role["Role"]["Arn"])
"""


class Moto:
    def __init__(self, python, folder):
        self.log = open(folder / "moto.log", "w+")
        # Port 0 is a free one, which it names in its log.
        self.process = subprocess.Popen([python.parent / "moto_server", "-H", "127.0.0.1", "-p", "0"], stdout=self.log,
                                        stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            wait_for(lambda: "Running on http://127.0.0.1:" in self.text(), "moto's start")
            self.url = "http://127.0.0.1:" + self.text().split("Running on http://127.0.0.1:")[1].split()[0]
            self.post("/moto-api/config", {"lambda": {"use_docker": False}})
            self.environment = {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_REGION": "us-east-1",
                                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
            done = subprocess.run([python, "-c", PREPARE], capture_output=True, text=True, timeout=PATIENCE_S,
                                  env={**os.environ, **self.environment})
            assert done.returncode == 0, done.stderr
            self.role = done.stdout.strip()
        except BaseException:
            self.stop()
            raise

    def text(self):
        return Path(self.log.name).read_text()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read()

    def set_results(self, *results):
        self.post("/moto-api/static/lambda-simple/response",
                  {"results": [json.dumps(r) for r in results], "region": "us-east-1"})

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="session")
def moto(moto_python, tmp_path_factory):
    server = Moto(moto_python, tmp_path_factory.mktemp("moto"))
    yield server
    server.stop()


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "function.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("bootstrap", "#!/bin/sh\n")
    return path


def use_lambda(farthing, moto, verb, *arguments, **options):
    result = farthing("functions", verb, *arguments, "--provider", "lambda",
                      env={**moto.environment, **options.pop("env", {})}, **options)
    assert SECRET not in result.out + result.err
    return result


def test_a_lambda_function_is_made_updated_invoked_and_removed(farthing, moto, package):
    assert "--role" in use_lambda(farthing, moto, "deploy", "mnist", "--zip", package, code=1).err
    use_lambda(farthing, moto, "deploy", "mnist", "--zip", package, "--role", moto.role, "--memory", 256, "--timeout",
               "2m", "--env", "FARTHING_SECRET_KEY", env={"FARTHING_SECRET_KEY": SECRET})
    (row,) = json.loads(use_lambda(farthing, moto, "status", "mnist", "--json").out)
    assert row["memory_mb"] == 256 and row["timeout_s"] == 120 and row["state"] == "Active"
    assert row["environment"] == ["FARTHING_SECRET_KEY"] and row["code_bytes"] == package.stat().st_size
    assert row["runtime"] == "provided.al2023" and row["role"] == moto.role

    use_lambda(farthing, moto, "deploy", "mnist", "--zip", package, "--memory", 512, "--timeout", "3s")
    (row,) = json.loads(use_lambda(farthing, moto, "status", "--json").out)
    assert row["memory_mb"] == 512 and row["timeout_s"] == 3 and "environment" not in row

    moto.set_results({"samples": 100, "loss": 1.5, "continuation": {"position": 7}}, {"samples": 50, "loss": 0.5})
    end = use_lambda(farthing, moto, "invoke", "mnist", "--server", "h:1", "--json").end
    assert end["state"] == "done" and end["samples"] == 150 and end["functions"][0]["invocations"] == 2
    assert end["results"] == [{"samples": 50, "loss": 0.5}]

    use_lambda(farthing, moto, "remove", "mnist")
    assert "Function not found" in use_lambda(farthing, moto, "remove", "mnist", code=1).err
    assert "no function" in use_lambda(farthing, moto, "invoke", "mnist", code=1).err
    assert "no functions" in use_lambda(farthing, moto, "status").out


def test_code_goes_by_way_of_a_bucket(farthing, moto, package):
    use_lambda(farthing, moto, "deploy", "stored", "--zip", package, "--role", moto.role, "--code-store", "s3://code/zips")
    (row,) = json.loads(use_lambda(farthing, moto, "status", "stored", "--json").out)
    assert row["code_bytes"] == package.stat().st_size
    use_lambda(farthing, moto, "remove", "stored")


def test_what_is_no_zip_is_not_sent(farthing, moto, tmp_path):
    (tmp_path / "f.zip").write_text("not a zip")
    refused = use_lambda(farthing, moto, "deploy", "x", "--zip", "f.zip", "--role", moto.role, code=1)
    assert "f.zip is not a zip file" in refused.err
    assert "functions invoke" in use_lambda(farthing, moto, "deploy", "x", "--zip", "f.zip", "--param", "a=1", code=1).err


def test_logs_are_cut_out_of_a_stream(farthing, moto):
    last = use_lambda(farthing, moto, "logs", "logged").out
    assert last.startswith("START RequestId: two") and "second\n" in last and "first" not in last
    one = use_lambda(farthing, moto, "logs", "logged", "one").out
    assert one.splitlines() == ["START RequestId: one Version: 1", "first\\x1b[31m",
                                "REPORT RequestId: one\\tDuration: 1 ms"]
    assert "does not exist" in use_lambda(farthing, moto, "logs", "nothing", code=1).err
