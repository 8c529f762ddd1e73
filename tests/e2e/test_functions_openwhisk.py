"""OpenWhisk's action contract, case by case, as OpenWhisk's own container tests look at it: codes, bodies, variables, and the
markers that end an activation's output. Jobs of the tests' own run in tests/programs/echo_function.c; hostile requests go to
the real `farthing worker openwhisk` too."""
import http.client
import json
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import FARTHING, PATIENCE_S, SANITIZED, environment, record, wait_for, write_mnist
from parameter_client import Client

MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX"
NO_SECOND_INIT = "Cannot initialize the action more than once."
MOST_BYTES = 8 << 20
ECHO = FARTHING.parent / "tests" / "echo_function"


class Answer:
    def __init__(self, code, body):
        self.code, self.body = code, body
        self.json = json.loads(body)

    @property
    def error(self):
        assert set(self.json) == {"error"}, self.json
        return self.json["error"]


class Action:
    """A process that is an action; its streams are files, as a platform reads them."""

    def __init__(self, folder, command, **env):
        self.out, self.err = folder / "action.out", folder / "action.err"
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(self.err, "wb"), env=environment(**env))
        line = self.process.stdout.readline()
        assert line, self.errors()
        self.port = int(json.loads(line)["port"] if line.startswith(b"{") else line)
        self.copied = threading.Thread(target=self.copy_output, daemon=True)
        self.copied.start()

    def copy_output(self):
        with open(self.out, "wb", buffering=0) as file:
            while piece := self.process.stdout.read1():
                file.write(piece)

    def post(self, path, body=None):
        data = json.dumps(body, ensure_ascii=False).encode() if body is not None and not isinstance(body, bytes) else body
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        result = Answer(answer.status, answer.read())
        connection.close()
        return result

    def init(self, body=None):
        return self.post("/init", body)

    def run(self, value=None, **others):
        return self.post("/run", {"value": value if value is not None else {}, **others})

    def output(self):
        wait_for(self.out.exists, "output")
        return self.out.read_text()

    def errors(self):
        return self.err.read_text()

    def markers(self):
        """How many end markers there are, on both streams; the pipe may be a little behind."""
        errors = self.errors().split("\n").count(MARKER)
        wait_for(lambda: self.output().split("\n").count(MARKER) >= errors, "markers on standard output", 10)
        assert self.output().split("\n").count(MARKER) == errors
        return errors

    def stop(self):
        """Asks it to end; gives its exit code."""
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self.copied.join()
        return code


def end(action):
    if action.process.poll() is None:
        action.process.kill()
    action.process.wait()
    action.copied.join()
    action.process.stdout.close()
    action.process.stdin.close()


@pytest.fixture
def start(tmp_path):
    actions = []

    def start_one(*command, **env):
        actions.append(Action(tmp_path, command or (ECHO, "openwhisk"), **env))
        return actions[-1]
    yield start_one
    for action in actions:
        end(action)


@pytest.fixture
def action(start):
    return start()


@pytest.fixture
def worker(start):
    """The real program."""
    return start(FARTHING, "worker", "openwhisk", "--port", "0", "--address", "127.0.0.1", "--json")


class ParameterServer:
    """Deals out three shards of a small set, and serves on when that is done."""

    def __init__(self, farthing, epochs):
        data = farthing.folder / "mnist"
        data.mkdir()
        write_mnist(data)
        farthing("data", "shard", "--data", data, "--parts", 3, "--to", farthing.folder / "shards")
        self.process = farthing.start("serve", "parameters", "--model", "linear", "--shards", farthing.folder / "shards",
                                      "--epochs", epochs, "--stay", "--name", "server", "--port", 0, "--json",
                                      "--unsigned")
        self.port = json.loads(self.process.stdout.readline())["port"]

    def version(self):
        return Client(self.port)("GET", "/getVersion").json["version"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)
        return 0 if self.process.returncode in (0, 75) else self.process.returncode


@pytest.fixture
def parameter_server(farthing, request):
    server = ParameterServer(farthing, getattr(request, "param", 2))
    yield server
    server.process.kill()
    server.process.wait()


# ---- /init ----

@pytest.mark.parametrize("body", [None, {}, {"value": {}}, {"value": {"name": "a", "main": "main", "code": "", "binary": False}},
                                  {"value": {"code": None, "env": None}}])
def test_init_of_an_image_with_its_own_code(action, body):
    assert action.init(body).code == 200
    assert action.markers() == 0


@pytest.mark.parametrize("body", [b"[]", b"3", b'"text"', b"{", b'{"value": 3}', b'{"value": []}'])
def test_init_of_what_is_no_object(action, body):
    assert action.init(body).code == 404
    assert action.markers() == 0
    assert action.init().code == 200  # it was none


@pytest.mark.parametrize("value", [{"code": "def main(args): return args"}, {"code": "UEsDBA==", "binary": True},
                                   {"code": {"a": 1}}, {"env": ["A=1"]}])
def test_init_that_fails(action, value):
    answer = action.init({"value": value})
    assert answer.code == 502
    assert ("code" in value) == ("its own code" in answer.error)
    assert action.markers() == 1
    assert "its own code" in action.errors() or "env" in action.errors()
    assert action.init().code == 200


def test_second_init_is_refused(action):
    assert action.init().code == 200
    answer = action.init({"value": {"env": {"A": "changed"}}})
    assert (answer.code, answer.error) == (403, NO_SECOND_INIT)
    assert NO_SECOND_INIT in action.output() + action.errors()
    assert action.markers() == 0
    assert "A" not in action.run().json["environment"]


def test_variables_of_init(action):
    action.init({"value": {"env": {"SOME": "xxx", "ANOTHER": "", "SNOW": "❄", "NUMBER": 3, "LIST": [1, "a"]}}})
    for _ in range(2):
        environment_ = action.run().json["environment"]
        assert environment_ == {"SOME": "xxx", "ANOTHER": "", "SNOW": "❄", "NUMBER": "3", "LIST": '[1,"a"]'}


# ---- /run ----

def test_run_without_init(action):
    assert action.run({"a": 1}).json["value"] == {"a": 1}


@pytest.mark.parametrize("body", [None, b"", b" \n", {}, {"activation_id": "x"}])
def test_run_without_a_value(action, body):
    answer = action.post("/run", body)
    assert (answer.code, answer.json["value"]) == (200, {})
    assert action.markers() == 1


@pytest.mark.parametrize("value", [3, "text", True, None, 1.5])
def test_run_with_a_value_that_is_no_object(action, value):
    answer = action.post("/run", {"value": value})
    assert answer.code == 404
    assert "dictionary or array" in answer.error
    assert action.markers() == 1


def test_run_with_an_array(action):
    answer = action.run([1, 2])
    assert (answer.code, "array" in answer.error) == (502, True)
    assert action.markers() == 1


def test_result_that_is_no_object(action):
    answer = action.run({"job": "text"})
    assert (answer.code, answer.error) == (502, "The action did not return a dictionary or array.")
    assert action.markers() == 1
    assert action.run({"job": "array"}).json == [1, 2]


def test_run_that_fails(action):
    answer = action.run({"job": "fail", "message": "no server ❄"}, activation_id="a1")
    assert (answer.code, answer.error) == (502, "no server ❄")
    assert action.errors() == f"farthing: error: activation a1: no server ❄\n{MARKER}\n"
    assert action.markers() == 1


def test_other_keys_are_variables(action):
    given = {"api_host": "https://host", "api_key": "uuid:key", "namespace": "guest", "action_name": "/guest/pack/train",
             "action_version": "0.0.1", "activation_id": "abc", "transaction_id": "tx", "deadline": 4102444800000,
             "own": {"a": 1}, "nothing": None}
    answer = action.run({"x": 1}, **given).json
    assert answer["environment"] == {
        "__OW_API_HOST": "https://host", "__OW_API_KEY": "uuid:key", "__OW_NAMESPACE": "guest",
        "__OW_ACTION_NAME": "/guest/pack/train", "__OW_ACTION_VERSION": "0.0.1", "__OW_ACTIVATION_ID": "abc",
        "__OW_TRANSACTION_ID": "tx", "__OW_DEADLINE": "4102444800000", "__OW_OWN": '{"a":1}'}
    assert (answer["id"], answer["function"], answer["platform"]) == ("abc", "pack/train", "openwhisk")
    assert answer["api_host"] == "https://host"
    assert action.run().json["environment"] == {}  # they were that activation's


def test_api_host_of_the_container(start):
    action = start(__OW_API_HOST="https://container")
    assert action.run().json["api_host"] == "https://container"
    assert action.run(api_host="https://run").json["api_host"] == "https://run"


@pytest.mark.parametrize("form", [int, str, float])
def test_deadline(action, form):
    left_s = action.run(deadline=form(int(time.time() * 1000) + 300000)).json["left_s"]
    assert 200 < left_s < 301
    assert action.run(deadline=form(1000)).json["left_s"] < 0
    assert "left_s" not in action.run().json


@pytest.mark.parametrize("deadline", [-1, "-1", "soon", "", 1e18, "1e999", "nan", {}, True, "0x10"])
def test_deadline_that_is_no_time(action, deadline):
    answer = action.run(deadline=deadline)
    assert answer.code == 200 if deadline == "" else (answer.code == 502 and "deadline" in answer.error)
    assert action.markers() == 1


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's shadow memory needs more address space")
def test_memory_limit(start):
    action = start("/bin/sh", "-c", f"ulimit -v {1 << 20} && exec {ECHO} openwhisk")
    assert 0 < action.run().json["memory"] <= 1 << 30


def test_only_the_first_run_is_cold(action):
    assert [action.run().json["cold"] for _ in range(3)] == [True, False, False]


def test_waiting_for_an_invocation_is_no_part_of_it(start):
    begun = time.monotonic()
    action = start()
    startup_s = time.monotonic() - begun
    time.sleep(1)  # nothing to wait for: idle time is what is tested
    assert action.run().json["age_s"] < startup_s + 0.9


def test_each_run_ends_with_one_marker_after_its_output(action):
    for number in range(1, 4):
        assert action.run({"job": "print", "lines": 500}).code == 200
        assert action.markers() == number
    for stream, name in ((action.output(), "out"), (action.errors(), "err")):
        activations = stream.split(MARKER + "\n")
        assert activations.pop() == ""
        assert [a.count("\n") for a in activations] == [500] * 3
        assert all(name in line for a in activations for line in a.splitlines())


def test_long_argument(action):
    text = "a" * 1048561
    assert action.run({"text": text}).json["value"] == {"text": text}


def test_unicode_in_arguments_logs_and_results(action):
    answer = action.run({"winter": "❄ ☃ ❄", "log": "❄ ☃ ❄", "😀": "\u0001\n"})
    assert answer.json["value"]["winter"] == "❄ ☃ ❄"
    assert answer.json["value"]["😀"] == "\u0001\n"
    assert "❄ ☃ ❄" in action.errors()


def test_runs_do_not_overlap(action, tmp_path):
    until, answers = tmp_path / "go", []
    value = {"job": "wait", "until": str(until)}
    threads = [threading.Thread(target=lambda: answers.append(action.run(value))) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: "waiting" in action.errors(), "a run")
    until.touch()
    for thread in threads:
        thread.join()
    assert [a.json for a in answers] == [{"overlapped": False, "stopped": False}] * 4
    assert action.markers() == 4


def test_too_many_that_wait_are_refused(action, tmp_path):
    until, codes = tmp_path / "go", []
    value = {"job": "wait", "until": str(until)}
    threads = [threading.Thread(target=lambda: codes.append(action.run(value).code)) for _ in range(70)]
    for thread in threads:
        thread.start()
    wait_for(lambda: codes.count(503) >= 5, "refusals")
    until.touch()
    for thread in threads:
        thread.join()
    assert codes.count(200) + codes.count(503) == 70
    assert action.run().code == 200


def test_a_client_that_goes_away(action, tmp_path):
    until = tmp_path / "go"
    body = json.dumps({"value": {"job": "wait", "until": str(until)}}).encode()
    with socket.create_connection(("127.0.0.1", action.port)) as client:
        client.sendall(b"POST /run HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: "waiting" in action.errors(), "the run")
    until.touch()
    wait_for(lambda: action.errors().count(MARKER) == 1, "its end")
    assert action.run({"a": 1}).json["value"] == {"a": 1}


def test_a_stop_ends_the_run_and_answers_it(action, tmp_path):
    answers = []
    value = {"job": "wait", "until": str(tmp_path / "never")}
    run = threading.Thread(target=lambda: answers.append(action.run(value)))
    run.start()
    wait_for(lambda: "waiting" in action.errors(), "the run")
    assert action.stop() == 0
    run.join()
    assert answers[0].json["stopped"]
    assert action.markers() == 1


# ---- Knative ----

def test_knative_init_and_run_apart(action):
    assert action.post("/", {"init": {"env": {"A": "1"}}}).code == 200
    assert action.markers() == 0
    answer = action.post("/", {"activation": {"activation_id": "k1", "deadline": "4102444800000"}, "value": {"x": "❄"}}).json
    assert answer["value"] == {"x": "❄"}
    assert answer["environment"] == {"A": "1", "__OW_ACTIVATION_ID": "k1", "__OW_DEADLINE": "4102444800000"}
    assert answer["id"] == "k1"
    assert action.markers() == 1


def test_knative_init_and_run_in_one(action):
    answer = action.post("/", {"init": {"env": {"A": "1"}}, "activation": {"namespace": "n"}, "value": {"x": 1}})
    assert answer.json["environment"] == {"A": "1", "__OW_NAMESPACE": "n"}
    assert action.markers() == 1


def test_knative_second_init(action):
    assert action.init().code == 200
    answer = action.post("/", {"init": {}, "value": {}})
    assert (answer.code, answer.error) == (403, NO_SECOND_INIT)


@pytest.mark.parametrize("body", [b"[]", b'{"value": 3}', b'{"activation": []}', b"{"])
def test_knative_that_is_wrong(action, body):
    assert action.post("/", body).code == 404
    assert action.markers() == 1


def test_knative_code_is_not_run(action):
    answer = action.post("/", {"init": {"code": "import os"}, "value": {}})
    assert (answer.code, "its own code" in answer.error) == (502, True)


# ---- hostile requests ----

HOSTILE = {"broken": b'{"value": {', "deep": b"[" * 1000000, "deep object": b'{"a":' * 100000 + b"1" + b"}" * 100000,
           "a key twice": b'{"value": {"a": 1, "a": 2}}', "value twice": b'{"value": {}, "value": {"a": 2}}',
           "NUL": b'{"value": "\x00"}', "escaped NUL": b'{"value": {"a": "\\u0000"}}', "invalid UTF-8": b'{"value": {"a": "\xff\xfe"}}',
           "lone surrogate": b'{"value": {"a": "\\ud800"}}', "huge number": b'{"value": {"a": 1e999}}',
           "huge integer": b'{"value": {"a": ' + b"9" * 100000 + b"}}", "many values": b"[" + b"0," * 3000000 + b"0]",
           "long key": json.dumps({"k" * 100000: 1}).encode()}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json(action, name):
    answer = action.post("/run", HOSTILE[name])
    assert answer.code in (404, 502)
    assert answer.error and len(answer.error) < 500
    assert action.markers() == 1
    assert action.run({"a": 1}).json["value"] == {"a": 1}


def exchange_bytes(port, sent, more=b"", patience_s=10):
    """Sends bytes, and gives what came until the connection ended."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(patience_s)
        received = b""
        try:
            client.sendall(sent)
            for _ in range(20) if more else ():
                client.sendall(more)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                received += piece
        except OSError:
            pass
        return received


@pytest.mark.parametrize("target", ["/run", "/init", "/"])
def test_bodies_that_are_too_large(worker, target):
    announced = f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {100 << 20}\r\n\r\n".encode()
    received = exchange_bytes(worker.port, announced)
    assert b" 413 " in received.split(b"\r\n")[0]
    assert str(MOST_BYTES).encode() in received
    chunk = b"%x\r\n" % (1 << 20) + b"a" * (1 << 20) + b"\r\n"
    chunked = f"POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    received = exchange_bytes(worker.port, chunked, chunk)
    assert not received or b" 413 " in received.split(b"\r\n")[0]
    assert worker.init().code == 200


def test_a_body_of_the_most_bytes(action):
    body = b'{"value": {"text": "' + b"a" * (MOST_BYTES - 23) + b'"}}'
    assert len(body) == MOST_BYTES
    assert len(action.post("/run", body).json["value"]["text"]) == MOST_BYTES - 23


RUN = b'{"value":{"smuggled":1}}'
SMUGGLED = b"POST /run HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(RUN), RUN)


@pytest.mark.parametrize("headers", ["Content-Length: 4, Transfer-Encoding: chunked", "Transfer-Encoding: chunked, Content-Length: 4",
                                     "Content-Length: 0, Content-Length: 50", "Transfer-Encoding: xchunked",
                                     "Transfer-Encoding : chunked", "Content-Length: -1", "Content-Length: +5",
                                     "Content-Length: 0x10", "Content-Length: 99999999999999999999999"])
def test_smuggling(action, headers):
    """Headers of which two readers may make two things: no request behind them is run."""
    lines = headers.replace(", ", "\r\n").encode()
    received = exchange_bytes(action.port, b"POST /run HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n\r\n0\r\n\r\n" + SMUGGLED, patience_s=3)
    assert b"smuggled" not in received and b" 200 " not in received
    assert action.run({"a": 1}).json["value"] == {"a": 1}


def test_slow_clients_hold_nobody_up(action):
    slow = [socket.create_connection(("127.0.0.1", action.port)) for _ in range(40)]
    for number, client in enumerate(slow):
        client.sendall(b"POST /run HTTP/1.1\r\nHost: a\r\n" + (b"Content-Length: 100\r\n\r\n{" if number % 2 else b"X: "))
    assert action.run({"a": 1}).json["value"] == {"a": 1}
    for client in slow:
        client.close()


NO_REQUESTS = {"TLS": b"\x16\x03\x01\x02\x00\x01\x00", "zeros": b"\x00" * 1000,
               "GET": b"GET /run HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
               "dots": b"POST /../../etc/passwd HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
               "version": b"POST /run HTTP/9.9\r\n\r\n", "long target": b"POST " + b"/" * 300000 + b" HTTP/1.1\r\n\r\n"}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_of_the_platform(worker, name):
    received = exchange_bytes(worker.port, NO_REQUESTS[name], patience_s=3)
    assert b" 200 " not in received.split(b"\r\n")[0]
    assert worker.init().code == 200


def test_no_secret_is_said(worker):
    secrets = ["s3cret-of-init", "s3cret-of-value", "s3cret-of-run"]
    said = worker.init({"value": {"env": {"FARTHING_SECRET_KEY": secrets[0]}}}).body
    for value in ({"apihost": "127.0.0.1:1", "secret_key": secrets[1], "access_key": "k"}, {"secret_key": secrets[1]},
                  {"job": "none", "secret_key": secrets[1]}, [secrets[1]],
                  {"apihost": "127.0.0.1:1", "dataset_url": f"https://u:{secrets[1]}@127.0.0.1:1/x?X-Amz-Signature={secrets[2]}"}):
        said += worker.run(value, api_key=secrets[2], deadline=int(time.time() * 1000) + 500).body
    said += worker.post("/run", b'{"value": {"secret_key": "' + secrets[1].encode() + b'", broken').body
    said += worker.init({"value": {"env": {"FARTHING_SECRET_KEY": secrets[0]}}}).body
    said = said.decode() + worker.output() + worker.errors()
    assert not [secret for secret in secrets if secret in said]


# ---- the program ----

def test_training(worker, parameter_server, farthing):
    """Trains all there is for a real server, with shards of a folder; the record knows of the invocation."""
    worker.init({"value": {"env": {"FARTHING_SECRET_KEY": "s3cret-of-init"}}})
    value = {"apihost": f"127.0.0.1:{parameter_server.port}", "batch_sz_train": 16, "update_intv": 2}
    deadline = int(time.time() * 1000) + 100000
    answer = worker.run(value, activation_id="first", action_name="/guest/train", deadline=deadline)
    assert answer.code == 200, answer.body
    result = answer.json
    assert result["samples"] == 2 * 256 and result["pushes"] == 18 and result["finished"] and result["cold"]
    assert worker.markers() == 1
    assert worker.run(value, activation_id="late", deadline=deadline).json.get("samples", 0) == 0  # nothing is left
    assert worker.markers() == 2
    assert parameter_server.stop() == 0
    invocations = [e for e in record(farthing.folder / "runs" / "server") if e["event"] == "invocation"]
    assert [(e["provider"], e["function"], e["id"], e["ended"]) for e in invocations][:1] == [("openwhisk", "train", "first", "done")]
    assert "openwhisk train" in farthing("report", "server").out
    assert "s3cret" not in worker.errors() + worker.output()


@pytest.mark.parametrize("parameter_server", [100000], indirect=True)
def test_a_signal_ends_training_and_what_there_is_is_handed_in(worker, parameter_server):
    """The run is long: the server's epochs would take minutes."""
    answers = []
    value = {"apihost": f"127.0.0.1:{parameter_server.port}", "batch_sz_train": 1, "update_intv": 1}
    run = threading.Thread(target=lambda: answers.append(worker.run(value)))
    run.start()
    wait_for(lambda: parameter_server.version() > 5, "training")
    worker.process.send_signal(signal.SIGTERM)
    run.join()
    assert worker.process.wait(PATIENCE_S) == 0
    assert answers[0].code == 200, answers[0].body
    assert answers[0].json["samples"] > 5 and not answers[0].json["finished"] and answers[0].json["continuation"]


def test_signal_ends_the_worker(worker):
    assert worker.init().code == 200
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE_S) == 0


def test_port_in_use(worker, farthing):
    result = farthing("worker", "openwhisk", "--address", "127.0.0.1", "--port", worker.port, code=1)
    assert "cannot serve on 127.0.0.1" in result.err


def test_a_container_says_nothing_before_its_first_activation(farthing):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = farthing.start("worker", "openwhisk", "--address", "127.0.0.1", "--port", port)
    with socket.socket() as client:
        wait_for(lambda: process.poll() is not None or client.connect_ex(("127.0.0.1", port)) == 0, "the worker")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "", "")
