"""OpenWhisk's REST API as far as `farthing functions` uses it, strict about what it is asked: a request that the real one
would refuse, or whose form is not the documented one, is remembered as a fault and fails the test."""
import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "23bc46b1-71f6-4ed5-8c54-816aa4f8c502:123zO3xZCLrMN6v2BKK1dXYFpXlPkccOFqm12CdAsMgRU4VrNZ9lyGVCGuMDGIwP"
BASE = "/api/v1/namespaces/_"


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # many functions connect at once, and a connection that is reset is an answer that is lost
    daemon_threads = True


class OpenWhisk:
    """`act(parameters, number)` makes an activation's response of the number-th invocation: a result, or an Exception for
    one that fails. `answers` has raw answers for the next requests, (code, headers, body), before the real ones."""

    def __init__(self, act=lambda parameters, number: {"ok": True}):
        self.act, self.answers, self.faults, self.requests = act, [], [], []
        self.actions, self.activations, self.invoked = {}, {}, []
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), self.make_handler())
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        assert not self.faults, self.faults

    @property
    def environment(self):
        return {"WHISK_APIHOST": self.url, "WHISK_AUTH": KEY, "WSK_CONFIG_FILE": "/nonexistent"}

    def make_handler(self):
        world = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, code, body, headers=()):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(code)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with world.lock:
                    world.requests.append(f"{self.command} {self.path}")
                    raw = world.answers.pop(0) if world.answers else None
                    if raw is None:
                        try:
                            code, answer = world.answer(self.command, self.path, self.headers, body)
                        except AssertionError as error:
                            world.faults.append(f"{self.command} {self.path}: {error}")
                            code, answer = 400, {"error": str(error), "code": "x"}
                if raw == "hang up":
                    self.close_connection = True
                elif raw:
                    self.send(raw[0], raw[2], raw[1])
                else:
                    self.send(code, answer)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any

        return Handler

    def answer(self, method, target, headers, body):
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        wanted = "Basic " + base64.b64encode(KEY.encode()).decode()
        if headers.get("Authorization") != wanted:
            return 401, {"error": "The supplied authentication is invalid", "code": "x"}
        assert url.path.startswith(BASE + "/"), "not in the default name space"
        kind, _, name = unquote(url.path[len(BASE) + 1:]).partition("/")
        if body:
            assert headers.get("Content-Type") == "application/json", "a body without its type"
        return getattr(self, f"{method}_{kind}".lower())(name, query, json.loads(body) if body else None)

    # ---- actions ----

    def put_actions(self, name, query, action):
        assert query == {"overwrite": "true"} and action["name"] == name and action["namespace"] == "_"
        assert set(action) == {"namespace", "name", "exec", "limits", "parameters", "annotations"}
        assert set(action["exec"]) == {"kind", "image"} and action["exec"]["kind"] == "blackbox"
        assert set(action["limits"]) == {"timeout", "memory"}
        assert all(isinstance(value, int) for value in action["limits"].values())
        if not 100 <= action["limits"]["timeout"] <= 300000:
            return 400, {"error": "The request content was malformed: timeout is not in the range", "code": "x"}
        for parameter in action["parameters"]:
            assert set(parameter) in ({"key", "value"}, {"key", "value", "init"})
        self.actions[name] = {**action, "version": "0.0.1", "updated": 1700000000000}
        return 200, self.actions[name]

    def get_actions(self, name, query, _):
        if not name:
            assert set(query) == {"limit", "skip"} and int(query["limit"]) <= 200
            return 200, list(self.actions.values())[int(query["skip"]):]
        assert query == {"code": "false"}
        return (200, self.actions[name]) if name in self.actions else self.missing()

    def delete_actions(self, name, query, _):
        assert not query
        return (200, self.actions.pop(name)) if name in self.actions else self.missing()

    def post_actions(self, name, query, parameters):
        assert not query, "blocking calls are cut off by gateways"
        if name not in self.actions:
            return self.missing()
        assert isinstance(parameters, dict)
        number = len(self.invoked)
        self.invoked.append(parameters)
        identifier = f"{number:032x}"
        try:
            response = {"status": "success", "success": True, "result": self.act(parameters, number)}
        except RuntimeError as error:
            response = {"status": "application error", "success": False, "result": {"error": str(error)}}
        self.activations[identifier] = {
            "activationId": identifier, "name": name, "start": 1700000000000, "duration": 1500, "statusCode": 0,
            "ready": time.monotonic() + 0.05, "annotations": [{"key": "initTime", "value": 20}], "response": response,
            "logs": [f"2023-11-14T22:13:20Z stdout: invocation {number}", "2023-11-14T22:13:21Z stderr: \x1b[31mred"]}
        return 202, {"activationId": identifier}

    # ---- activations ----

    def get_activations(self, name, query, _):
        if not name:
            assert set(query) == {"limit", "name"}
            return 200, [a for a in reversed(self.activations.values()) if a["name"] == query["name"]][:int(query["limit"])]
        assert not query
        identifier, _, part = name.partition("/")
        found = self.activations.get(identifier)
        if not found or found["ready"] > time.monotonic():  # a record exists once it has ended
            return self.missing()
        return 200, {"logs": found["logs"]} if part == "logs" else found

    def missing(self):
        return 404, {"error": "The requested resource does not exist.", "code": "x"}
