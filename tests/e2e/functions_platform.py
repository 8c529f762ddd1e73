"""`farthing serve functions` for tests, and small functions of others that run on it."""
import base64
import io
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from conftest import FARTHING, PATIENCE_S, environment

# What both test functions do with a value, by its "do".
BEHAVIOUR = '''
import json, os, signal, subprocess, sys, time

def act(value):
    do = value.get("do")
    if do == "sleep":
        time.sleep(value.get("seconds", 1000))
    if do == "eat":
        hoard = []
        for _ in range(1000):
            hoard.append(b"x" * (1 << 20))
    if do == "exit":
        os._exit(7)
    if do == "fail":
        raise ValueError("no such thing \\u2744")
    if do == "spawn":  # one that leaves the group and ignores what can be ignored
        child = subprocess.Popen([sys.executable, "-c", "import os, signal, time; os.setsid();"
                                  "[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)];"
                                  f"open({value['file'] + '.part'!r}, 'w').write(str(os.getpid()));"
                                  f"os.rename({value['file'] + '.part'!r}, {value['file']!r}); time.sleep(1000)"])
        time.sleep(1000)
    if do == "meet":  # all of them run at once, or none returns
        open(os.path.join(value["folder"], str(os.getpid())), "w").close()
        while len(os.listdir(value["folder"])) < value["count"]:
            time.sleep(0.005)
    if do == "hand in":  # what there is, when it is asked to stop
        got = []
        signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
        open(value["file"], "w").close()
        while not got:
            time.sleep(0.005)
    if do == "log":
        for _ in range(value.get("times", 1)):
            print(value["text"])
        print("to stderr", file=sys.stderr)
    return {"pid": os.getpid(), "environment": dict(os.environ), "value": value}
'''

OPENWHISK = '''#!/usr/bin/python3
"""An action: OpenWhisk's contract by the standard library."""
from http.server import BaseHTTPRequestHandler, HTTPServer
''' + BEHAVIOUR + '''
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        code, answer = 200, {"ok": True}
        if self.path == "/init":
            os.environ.update(body["value"].get("env", {}))
        if self.path == "/run":
            try:
                answer = act(body["value"])
                answer["run"] = {key: text for key, text in body.items() if key != "value"}
            except ValueError as error:
                code, answer = 502, {"error": str(error)}
            if body["value"].get("do") == "garbage":
                answer = "this is not"
        data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        if self.path == "/run":
            for stream in (sys.stdout, sys.stderr):
                print("XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX", file=stream, flush=True)
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''

BOOTSTRAP = '''#!/usr/bin/python3
"""A custom runtime of Lambda by the standard library."""
import urllib.request
''' + BEHAVIOUR + '''
api = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation/"
while True:
    with urllib.request.urlopen(api + "next") as event:
        name, value = event.headers["Lambda-Runtime-Aws-Request-Id"], json.load(event)
        headers = dict(event.headers)
    try:
        answer, where = act(value), "/response"
        answer["headers"] = headers
    except ValueError as error:
        answer, where = {"errorMessage": str(error), "errorType": "ValueError"}, "/error"
    sys.stdout.flush()
    sys.stderr.flush()
    urllib.request.urlopen(urllib.request.Request(api + name + where, json.dumps(answer).encode(), method="POST"))
'''


def zip_of(files):
    """A zip of {name: text}, whose files can be executed."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return data.getvalue()


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wait_until(what, why):
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, why
        time.sleep(0.005)


class Answer:
    def __init__(self, code, body, headers):
        self.code, self.body, self.headers = code, body, headers

    @property
    def json(self):
        return json.loads(self.body)


class Platform:
    """The service, with a key and the two APIs."""

    def __init__(self, folder, *flags):
        self.folder = Path(folder)
        self.process = subprocess.Popen(
            [FARTHING, "serve", "functions", "--folder", folder, "--port", "0", "--json", *map(str, flags)],
            stdout=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        assert line, "the service did not start"
        self.facts = json.loads(line)
        self.url = self.facts["url"]
        self.key = Path(self.facts["key_file"]).read_text()

    def ask(self, method, path, body=None, key="own", headers=None):
        """Of OpenWhisk's API, below the name space; or anywhere with a path that begins with /."""
        url = self.url + (path if path.startswith("/") else "/api/v1/namespaces/_/" + path)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers or {}, method=method)
        key = self.key if key == "own" else key
        if key:
            request.add_header("Authorization", "Basic " + base64.b64encode(key.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return Answer(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(), error.headers)

    def put(self, name, **limits):
        answer = self.ask("PUT", f"actions/{name}?overwrite=true", {
            "exec": {"kind": "blackbox", "image": "someone/something"}, "limits": {"timeout": 60000, "memory": 128, **limits}})
        assert answer.code == 200, answer.body
        return answer.json

    def run(self, name, value, code=200):
        answer = self.ask("POST", f"actions/{name}?blocking=true", value)
        assert answer.code == code, answer.body
        return answer.json

    def start(self, name, value):
        answer = self.ask("POST", f"actions/{name}", value)
        assert answer.code == 202, answer.body
        return answer.json["activationId"]

    def wait(self, name):
        wait_until(lambda: self.ask("GET", f"activations/{name}").code == 200, f"activation {name} does not end")
        return self.ask("GET", f"activations/{name}").json

    def record(self, name):
        return json.loads((self.folder / "activations" / name / "activation.json").read_text())

    def lambda_client(self, key=None):
        import boto3
        from botocore.config import Config
        first, second = (key or self.key).split(":")
        return boto3.client("lambda", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=first,
                            aws_secret_access_key=second,
                            config=Config(retries={"max_attempts": 0}, read_timeout=PATIENCE_S))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE_S) == 0
            assert not list(self.folder.glob("instances/*"))
        self.process.stdout.close()
