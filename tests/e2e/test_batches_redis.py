"""Jobs whose batches come through Redis and their machine's agent: the same weights, one connection, and losses of either."""
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import FARTHING, PATIENCE_S, SMALL, environment, tensors, wait_for
from coordinator_client import RUNTIME, Coordinator

PASSWORD = "opens-the-cache"


class Redis:
    """redis-server on a port of its own, with a password and without files."""

    def __init__(self, folder):
        self.folder, self.process = folder, None
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir",
                                         self.folder, "--requirepass", PASSWORD], stdout=subprocess.DEVNULL)
        wait_for(self.answers, "redis-server starts")
        return self

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(f"AUTH {PASSWORD}\r\n".encode())
                return connection.recv(100).startswith(b"+OK")
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def redis(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server: apt-get install redis-server")
    server = Redis(tmp_path).start()
    yield server
    server.kill()


def agents(port):
    """The agents of a coordinator on this machine, by their process numbers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"batches-agent" in words and f"http://127.0.0.1:{port}".encode() in words:
            found.append(int(path.parent.name))
    return found


def zombies(parent):
    """Children that have ended and were not collected."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(its_parent) == parent:
            found.append(path.parent.name)
    return found


def connections(port):
    """Connections that a port of this machine has accepted."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


@pytest.fixture
def coordinator(tmp_path, tiny, redis):
    server = Coordinator(tmp_path, "--data", f"tiny={tiny}", "--cache", f"redis://127.0.0.1:{redis.port}",
                         env={"FARTHING_REDIS_PASSWORD": PASSWORD})
    with server:
        yield server
    for agent in agents(server.port):
        os.kill(agent, signal.SIGKILL)


def job(farthing, server, name, *arguments):
    return subprocess.Popen(
        [FARTHING, "train", *SMALL, "--data", f"batches://127.0.0.1:{server.port}/tiny", "--batch", "16", "--runs", name,
         *arguments], cwd=farthing.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(XDG_RUNTIME_DIR=RUNTIME.name, FARTHING_REDIS_PASSWORD=PASSWORD))


def weights(farthing, name):
    (path,) = (farthing.folder / name).glob("*/last.safetensors")
    return tensors(path)


def test_jobs_through_redis_train_the_same_weights_over_one_connection(farthing, tiny, coordinator):
    farthing("train", *SMALL, "--data", tiny, "--batch", 16, "--epochs", 6, "--runs", "plain")
    jobs = [job(farthing, coordinator, f"job{i}", "--epochs", "6") for i in range(2)]
    for process in jobs:
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, out
    for i in range(2):
        assert weights(farthing, f"job{i}") == weights(farthing, "plain")
    assert len(agents(coordinator.port)) == 1
    wait_for(lambda: connections(coordinator.port) == 1, "jobs leave the agent's connection alone behind")
    status = coordinator.status
    assert status["work"]["prepared"] > 0
    assert PASSWORD not in coordinator.log.read_text() and PASSWORD not in str(status)


def test_a_run_survives_the_loss_of_redis_and_of_its_agent(farthing, tiny, coordinator, redis):
    slow = ["--model", "mnist-cnn", "--epochs", "40"]
    process = job(farthing, coordinator, "job", *slow)

    def reached(step):
        def look():
            assert process.poll() is None, process.stdout.read()
            return any(row["next"] >= step for row in coordinator.status["jobs"])
        return look

    wait_for(reached(30), "training begins")
    redis.kill()
    wait_for(reached(70), "training goes on without Redis")
    redis.start()
    wait_for(reached(110), "training goes on")
    (agent,) = agents(coordinator.port)
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: process.poll() is not None or agents(coordinator.port) not in ([], [agent]), "another agent is started")
    wait_for(reached(180), "training goes on with another agent")
    assert zombies(process.pid) == []  # the agent that was killed is collected by who started it
    redis.process.send_signal(signal.SIGSTOP)
    wait_for(reached(220), "training goes on while Redis is paused")
    redis.process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    farthing("train", *SMALL, *slow, "--data", tiny, "--batch", 16, "--runs", "plain")
    assert weights(farthing, "job") == weights(farthing, "plain")
