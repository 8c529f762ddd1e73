"""Lambda's custom-runtime loop against a Runtime API that checks all it is sent, and against ones that are hostile. Jobs of the
tests' own run in tests/programs/echo_function.c; `farthing worker lambda` and the name bootstrap are tested too."""
import http.server
import json
import queue
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import FARTHING, PATIENCE_S, environment, wait_for

ECHO = FARTHING.parent / "tests" / "echo_function"
ARN = "arn:aws:lambda:us-east-1:123456789012:function:train"
TRACE = "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=1"


class Event:
    """What the API gives as the next invocation. Headers that are None are left out."""

    def __init__(self, body, id="8476a536-e9f4-11e8-9739-2dfe598c3fcd", code=200, **headers):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.id, self.code = id, code
        self.headers = {"Lambda-Runtime-Aws-Request-Id": id,
                        "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 60000),
                        "Lambda-Runtime-Invoked-Function-Arn": ARN, "Lambda-Runtime-Trace-Id": TRACE,
                        **{f"Lambda-Runtime-{k.replace('_', '-')}": v for k, v in headers.items()}}


class RuntimeApi(http.server.ThreadingHTTPServer):
    """Hands out events and keeps answers; `code` is what it answers them with."""
    daemon_threads = True

    def __init__(self):
        self.events, self.answers, self.code, self.wrong, self.asked = queue.Queue(), queue.Queue(), 202, [], 0
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address):
        pass  # a function that was stopped has hung up

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.path != "/2018-06-01/runtime/invocation/next":
                self.server.wrong.append(f"GET {self.path}")
            self.server.asked += 1
            event = self.server.events.get()
            self.send_response(event.code)
            for name, value in event.headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(event.body)))
            self.end_headers()
            self.wfile.write(event.body)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = re.fullmatch(r"/2018-06-01/runtime/(?:invocation/([^/]+)/(response|error)|init/(error))", self.path)
            if not found or self.headers["Content-Type"] != "application/json":
                self.server.wrong.append(f"POST {self.path} {self.headers['Content-Type']}")
            kind = found.group(2) or "init"
            code = self.server.code
            if kind == "response" and code == 413:
                self.server.code = 202
            self.server.answers.put((kind, found.group(1), json.loads(body), self.headers["Lambda-Runtime-Function-Error-Type"]))
            text = b'{"status":"OK"}\n'
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)


@pytest.fixture
def api():
    server = RuntimeApi()
    yield server
    server.shutdown()
    server.server_close()
    assert server.wrong == []


class Function:
    def __init__(self, folder, api, command, env):
        self.err = folder / "function.err"
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(self.err, "wb"), env=environment(AWS_LAMBDA_RUNTIME_API=api, **env))

    def errors(self):
        return self.err.read_text()

    def stop(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def wait(self):
        """Waits until it ends by itself; its input stays open."""
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(tmp_path):
    functions = []

    def start_one(api, *command, **env):
        address = api if isinstance(api, str) else api.address
        functions.append(Function(tmp_path, address, command or (ECHO, "lambda"), env))
        return functions[-1]
    yield start_one
    for function in functions:
        function.process.kill()
        function.process.wait()
        function.process.stdin.close()
        function.process.stdout.close()


def invoke(api, body, **options):
    """Gives the kind of the answer, its body and its error type."""
    event = Event(body, **options)
    api.events.put(event)
    kind, request_id, answer, error_type = api.answers.get(timeout=PATIENCE_S)
    assert request_id == event.id
    if kind == "error":
        assert set(answer) == {"errorMessage", "errorType"} and answer["errorType"] == error_type
    return kind, answer, error_type


def expect_service(api, function):
    """It still does its work, and then ends as it is asked to."""
    assert invoke(api, {"a": 1}, id="last")[1]["value"] == {"a": 1}
    assert function.stop() == 0


# ---- invocations ----

def test_invocations_and_their_answers(api, start):
    function = start(api, AWS_LAMBDA_FUNCTION_MEMORY_SIZE="256")
    for number in range(3):
        kind, answer, error_type = invoke(api, {"number": number, "winter": "❄"}, id=f"request-{number}")
        assert (kind, error_type) == ("response", None)
        assert answer["value"] == {"number": number, "winter": "❄"}
        assert answer["environment"] == {"_X_AMZN_TRACE_ID": TRACE}
        assert (answer["platform"], answer["function"], answer["id"]) == ("lambda", "train", f"request-{number}")
        assert (answer["cold"], answer["memory"]) == (number == 0, 256 << 20)
        assert 0 < answer["left_s"] <= 60
    assert function.stop() == 0
    assert function.errors() == ""


def test_failure_of_the_function(api, start):
    function = start(api)
    kind, answer, error_type = invoke(api, {"job": "fail", "message": "no server ❄"})
    assert (kind, answer["errorMessage"], error_type) == ("error", "no server ❄", "Function.PeerLost")
    assert "no server ❄" in function.errors()
    expect_service(api, function)


@pytest.mark.parametrize("arn, name", [(ARN, "train"), (ARN + ":$LATEST", "train"), (None, "named"), ("nonsense", "named"),
                                       ("a:b:c:d:e:f:" + "x" * 5000, "x" * 255)])
def test_name_of_the_function(api, start, arn, name):
    start(api, AWS_LAMBDA_FUNCTION_NAME="named")
    assert invoke(api, {}, Invoked_Function_Arn=arn)[1]["function"] == name


def test_without_a_trace_and_a_deadline(api, start):
    start(api)
    answer = invoke(api, {}, Trace_Id=None, Deadline_Ms=None)[1]
    assert answer["environment"] == {} and "left_s" not in answer


BAD_EVENTS = {"array": b"[1]", "number": b"3", "text": b'"a"', "null": b"null", "nothing": b"", "broken": b'{"a":',
              "deep": b"[" * 100000, "NUL": b'{"a": "\x00"}', "escaped NUL": b'{"a": "\\u0000"}', "a key twice": b'{"a": 1, "a": 2}',
              "invalid UTF-8": b'{"a": "\xff"}', "many values": b"[" + b"0," * 1000000 + b"0]"}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_events_that_are_no_objects(api, start, name):
    function = start(api)
    kind, answer, error_type = invoke(api, BAD_EVENTS[name])
    assert (kind, error_type) == ("error", "Runtime.BadEvent")
    assert answer["errorMessage"]
    expect_service(api, function)


@pytest.mark.parametrize("deadline", ["soon", "-5", "1e300", "99999999999999999999", "nan", "12 34"])
def test_deadlines_that_are_no_times(api, start, deadline):
    function = start(api)
    kind, answer, _ = invoke(api, {}, Deadline_Ms=deadline)
    assert kind == "error" and "deadline" in answer["errorMessage"]
    expect_service(api, function)


def test_a_deadline_that_has_passed(api, start):
    start(api)
    assert invoke(api, {}, Deadline_Ms="1000")[1]["left_s"] < 0


def test_large_event_and_result(api, start):
    start(api)
    text = "a" * (6 << 20)
    assert invoke(api, {"text": text})[1]["value"]["text"] == text


def test_a_result_that_lambda_does_not_take(api, start):
    function = start(api)
    api.code = 413
    event = Event({"text": "a" * 100000})
    api.events.put(event)
    assert api.answers.get(timeout=PATIENCE_S)[0] == "response"
    kind, _, _, error_type = api.answers.get(timeout=PATIENCE_S)
    assert (kind, error_type) == ("error", "Function.ResponseTooLarge")
    expect_service(api, function)


def test_an_answer_that_comes_too_late(api, start):
    function = start(api)
    api.code = 400
    invoke(api, {})
    wait_for(lambda: "rejected the answer (400)" in function.errors(), "a warning")
    api.code = 202
    expect_service(api, function)


def test_a_stop_ends_the_wait(api, start):
    function = start(api)
    wait_for(lambda: api.asked == 1, "the long poll")
    assert function.stop() == 0


def test_a_stop_ends_the_run_and_answers_it(api, start, tmp_path):
    function = start(api)
    api.events.put(Event({"job": "wait", "until": str(tmp_path / "never")}))
    wait_for(lambda: "waiting" in function.errors(), "the run")
    assert function.stop() == 0
    assert api.answers.get(timeout=PATIENCE_S)[2]["stopped"]


# ---- the Runtime API ----

def test_function_that_cannot_be_created(api, start):
    function = start(api, ECHO, "no-lambda")
    kind, request_id, answer, error_type = api.answers.get(timeout=PATIENCE_S)
    assert (kind, request_id, error_type) == ("init", None, "Runtime.StartFailed")
    assert answer == {"errorMessage": "no function here", "errorType": "Runtime.StartFailed"}
    assert function.wait() == 1


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_an_api_that_is_not_there(start):
    function = start(f"127.0.0.1:{free_port()}")
    assert function.wait() == 1
    assert "Failed to connect" in function.errors()


def test_an_api_that_comes_late(start):
    port = free_port()
    function = start(f"127.0.0.1:{port}", FARTHING, "worker", "lambda")
    with socket.create_server(("127.0.0.1", port)) as server:  # within the seconds that it is tried again
        server.settimeout(PATIENCE_S)
        client, _ = server.accept()
        with client:
            client.settimeout(PATIENCE_S)
            assert client.recv(4096).startswith(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n")
    assert function.process.poll() is None


def test_an_api_that_goes_away(start):
    server = RuntimeApi()
    function = start(server)
    invoke(server, {})
    wait_for(lambda: server.asked == 2, "the long poll")
    server.shutdown()
    server.socket.close()
    server.events.put(Event(b"", code=500))
    assert function.wait() == 1


@pytest.mark.parametrize("id", [None, "", "a/../../init", "a b", "x" * 200, "a%0d%0ab", "❄".encode().decode("latin-1")])
def test_invocations_without_a_usable_id(api, start, id):
    function = start(api)
    api.events.put(Event({}, id=id))
    assert function.wait() == 1
    assert "request id" in function.errors()


@pytest.mark.parametrize("code", [204, 301, 403, 404, 500])
def test_codes_that_are_no_invocation(api, start, code):
    function = start(api)
    api.events.put(Event({}, code=code) if code != 204 else Event(b"", code=code))
    assert function.wait() == 1
    assert f"answered {code}" in function.errors()


def test_an_api_that_fails_when_it_is_answered(api, start):
    function = start(api)
    api.code = 500
    invoke(api, {})
    assert function.wait() == 1
    assert "answered 500" in function.errors()


class RawApi:
    """Answers the first request with some bytes, over and over where there are pieces."""

    def __init__(self, first, piece=b"", count=0):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(first, piece, count), daemon=True)
        self.thread.start()

    def serve(self, first, piece, count):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(65536)
                    client.sendall(first)
                    for _ in range(count):
                        client.sendall(piece)
                except OSError:
                    pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


OK = b"HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: a\r\n"
RAW = {"a huge body": (OK + b"Content-Length: 1000000000\r\n\r\n", b"a" * 65536, 1000),
       "a body without an end": (OK + b"\r\n", b"a" * 65536, 1000),
       "headers without an end": (OK, b"X: " + b"a" * 60000 + b"\r\n", 1000),
       "no HTTP": (b"\x00\x01\x02 nonsense\r\n\r\n", b"", 0),
       "a cut body": (OK + b"Content-Length: 100\r\n\r\n{", b"", 0),
       "nothing": (b"", b"", 0)}


@pytest.mark.parametrize("name", RAW)
def test_hostile_answers(start, name):
    server = RawApi(*RAW[name])
    function = start(server.address)
    assert function.wait() == 1
    assert function.errors().startswith("farthing: error: ")
    server.close()


# ---- the program ----

@pytest.mark.parametrize("address", ["", "http://127.0.0.1:1/x", "user@host:1", "a b:1"])
def test_addresses_that_are_none(farthing, address):
    result = farthing("worker", "lambda", env={"AWS_LAMBDA_RUNTIME_API": address}, code=1)
    assert "HOST:PORT" in result.err


@pytest.mark.parametrize("name", ["bootstrap", "farthing"])
def test_program(api, start, tmp_path, name):
    """Started as bootstrap, as Lambda does, it needs no arguments."""
    program = tmp_path / name
    program.symlink_to(FARTHING)
    function = start(api, program, *(["worker", "lambda"] if name == "farthing" else []), FARTHING_SECRET_KEY="s3cret-of-env")
    said = ""
    for value in ({"job": "none"}, {"apihost": "127.0.0.1:1", "secret_key": "s3cret-of-value", "access_key": "k"},
                  {"secret_key": "s3cret-of-value"}):
        kind, answer, error_type = invoke(api, value, Deadline_Ms=str(int(time.time() * 1000) + 500))
        assert (kind, error_type.startswith("Function.")) == ("error", True)
        said += json.dumps(answer)
    function.process.send_signal(signal.SIGTERM)
    assert function.wait() == 0
    said += function.errors() + function.process.stdout.read().decode()
    assert "s3cret" not in said and "unknown job" in said
