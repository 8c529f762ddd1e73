"""A coordinator of the batch cache (`farthing serve batches`) for tests and measurements.

    with Coordinator(folder, "--data", f"photos={images}") as coordinator:
        coordinator.address("photos"), coordinator.status(), coordinator.kill(), coordinator.start()   # on the same port
"""
import json
import os
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()


def access_flags(arguments, environment):
    """A server without keys answers anyone in most tests; test_local_token.py has its token."""
    keyed = "--keys" in arguments or "FARTHING_KEYS" in environment or "FARTHING_ACCESS_KEY" in environment
    return [] if keyed else ["--unsigned"]


class Coordinator:
    def __init__(self, folder, *arguments, port=0, environment=None, token=False):
        self.folder, self.arguments, self.port = Path(folder), arguments, port
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "OMP_WAIT_POLICY": "passive", **(environment or {})}
        self.process, self.token = None, token
        self.errors = self.folder / "coordinator.err"

    def start(self):
        """Starts it, on the port that it had before, and waits until it serves."""
        with open(self.errors, "a") as errors:
            self.process = subprocess.Popen(
                [FARTHING, "serve", "batches", *map(str, self.arguments), "--port", str(self.port), "--state",
                 str(self.folder / "state"), "--json",
                 *([] if self.token else access_flags(self.arguments, self.environment))], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=errors,
                stdin=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the coordinator ended with {self.process.wait()}: {self.errors.read_text()}")
        self.port = json.loads(line)["port"]
        # What it prints later is not waited for by anybody, and must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return self

    def address(self, name, query=""):
        return f"batches://127.0.0.1:{self.port}/{name}{query}"

    def status(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/status", timeout=30) as answer:
            return json.load(answer)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.kill(signal.SIGTERM)
