"""The prototype's failures, each by name: none of them may come back."""
import json
import shutil
import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import pytest
import test_batches_python as package
from batches_server import Coordinator
from conftest import SANITIZED, png
from test_batches_prefetch import JOB, Function, Worker, job, prefetchers, same, write_photos  # noqa: F401


def test_retry_limit_is_kept(tmp_path, farthing):
    """The prototype's limit did nothing, and its log grew for ever. Here nobody can prepare anything: each item is tried three times,
    the log says so a bounded number of times, and the job reads the data itself."""
    few = ["train", "--model", "linear", "--steps", 2, "--batch", 4000, "--json"]
    direct = farthing(*few, "--data", "digits").end
    with Function(lambda order: (500, b"no")) as function:
        with Coordinator(tmp_path, "--data", "digits", "--prefetch", function.url) as coordinator:
            env = {"XDG_RUNTIME_DIR": str(tmp_path)}
            assert same(farthing(*few, "--data", coordinator.address("digits"), env=env).end, direct)
            tries = function.tries()
            assert tries and max(tries.values()) <= 6  # or 3, where a busy machine did not make the job register again
            work = coordinator.status()["work"]
            assert work["prepared"] == 0 and work["failed_for_good"] <= len(tries)
            assert prefetchers(coordinator)[function.url]["tries"] <= 3 * len(tries) + 8  # those under way
        assert len(coordinator.errors.read_text().splitlines()) < 40


def test_cached_means_cached(tmp_path, farthing, job):  # noqa: F811
    """The prototype's functions said "cached" when they had failed at a grey image among colour ones. Here grey images are images, and
    what says that it has cached what it has not is not believed."""
    photos = tmp_path / "photos"
    write_photos(photos, 40, grey=lambda i: i == 13)
    more = ["--batch", 4, "--image-size", 16]
    direct = farthing("train", *JOB, "--data", photos, *more).end

    def lie(order):
        return 200, json.dumps({"id": order["id"], "preparation": {
            "receipt": [order["id"], 4096, "0123456789abcdef"], "fetch_s": 0, "decode_s": 0, "transform_s": 0, "fetched_bytes": 0,
            "samples": 4, "decoded": 4, "bad": 0, "bad_name": "", "bad_reason": ""}}).encode()

    with Function(lie) as liar, Worker(tmp_path, "--port", 0) as honest:
        url = honest.serving() + "/"
        with Coordinator(tmp_path, "--data", f"photos={photos}", "--prefetch", f"{liar.url},{url}") as coordinator:
            assert same(job(coordinator, "photos", *more), direct)
            prefetched, work = prefetchers(coordinator), coordinator.status()["work"]
            assert prefetched[liar.url]["done"] == 0 and prefetched[url]["done"] == work["prepared"] > 0
            assert prefetched[liar.url]["tries"] == 0 or "an item that is not cached" in prefetched[liar.url]["last_failure"]
            assert prefetched[url]["failures"] == 0 and work["bad_samples"] == 0


needs_package = pytest.mark.skipif(SANITIZED or not package.LIBRARY.exists(),
                                   reason="libfarthing_batches.so was not built, or does not load into this Python")
PROCESS_S = 60  # in which a process of a test has ended


@needs_package
def test_forked_data_workers_do_not_stall(tmp_path, monkeypatch):
    """The prototype's training stalled when data workers forked: they had a copy of the parent's connection. Here the parent has read
    already, with sockets, threads and a batch in its hands, when it forks; each worker has batches of the same job, and the parent goes on."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with package.Reader(package.DATA, **package.OPTIONS) as plain:
        direct = [plain.next().labels.tolist() for _ in range(package.PER_EPOCH)]

    def work(worker, job, address):
        with package.Reader(address, worker=worker, workers=3, job=job, batch_limit=package.PER_EPOCH, **options) as reader:
            for batch in reader:
                queue.put((batch.number, batch.labels.tolist()))

    for form in ("batches", "decoded"):
        with Coordinator(tmp_path, "--data", "digits", "--cache-memory", "64m", "--prefetch", "threads:1") as coordinator:
            options = dict(package.OPTIONS, share="none", form=form)
            parent = package.Reader(coordinator.address("digits"), **options)
            first = parent.next()
            workers = [context.Process(target=work, args=(w, parent.job, coordinator.address("digits"))) for w in range(3)]
            for worker in workers:
                worker.start()
            got = dict(queue.get() for _ in range(package.PER_EPOCH))
            for worker in workers:
                worker.join(PROCESS_S)
            assert [worker.exitcode for worker in workers] == [0, 0, 0]
            assert [got[n] for n in range(package.PER_EPOCH)] == direct, form
            assert first.labels.tolist() == direct[0] and parent.next().labels.tolist() == direct[1]
            parent.close()


def tcp_connections(port):
    """Established ones to a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and int(row[2].rsplit(":", 1)[1], 16) == port for row in rows)


@needs_package
def test_one_connection_for_all_workers(monkeypatch):
    """The prototype had a connection for every data worker of every job. Here a machine has one, whatever it runs; on the
    coordinator's own there is none."""
    context = multiprocessing.get_context("fork")
    jobs, workers = 3, 3

    def work(address, job, worker, read, end):
        with package.Reader(address, worker=worker, workers=workers, job=job, **options) as reader:
            reader.next()
            read.release()
            end.wait(PROCESS_S)
            reader.next()

    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as other, \
            Coordinator(here, "--data", "digits", "--cache-memory", "64m", "--prefetch", "threads:1") as coordinator:
        for folder, expected in ((here, 0), (other, 1)):  # short: a socket's path has 107 characters at most
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))  # another one is as another machine: its socket is not there
            options = dict(package.OPTIONS, share="order")
            address, processes = coordinator.address("digits"), []
            read, end = context.Semaphore(0), context.Event()
            for seed in range(jobs):
                options["seed"] = seed
                with package.Reader(address, first_batch=1, batch_limit=1, **options) as first:
                    job = first.job
                processes += [context.Process(target=work, args=(address, job, w, read, end)) for w in range(workers)]
                for process in processes[-workers:]:
                    process.start()
            assert all(read.acquire(timeout=PROCESS_S) for _ in processes)
            most = max(tcp_connections(coordinator.port) for _ in range(20))
            end.set()
            for process in processes:
                process.join(PROCESS_S)
            assert [process.exitcode for process in processes] == [0] * len(processes)
            assert most == expected, folder
            assert len(coordinator.status()["agents"]) == expected
        for pid in agents_of(other):  # it ends by itself after half a minute without clients
            os.kill(pid, signal.SIGTERM)


def agents_of(folder):
    """Processes that were started as agents for clients whose sockets are in `folder`."""
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            if b"--url" in words and f"XDG_RUNTIME_DIR={folder}".encode() in status.read_bytes().split(b"\0"):
                yield int(status.parent.name)
        except OSError:
            pass


def write_pictures(folder, count=24):
    for i in range(count):
        path = folder / ("val" if i % 4 == 0 else "train") / "abc"[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(20 + i % 5, 30, 10 * i))
    return folder


def test_ids_come_from_the_data_not_a_bucket_name(tmp_path, farthing):
    """The prototype made ids of a hard-coded bucket's name, so nothing was ever hit. Here a copy of the data, somewhere else and under
    another name, has the same ids; data that was changed has others, also where everything about it is called as before."""
    photos, copy = write_pictures(tmp_path / "photos"), tmp_path / "elsewhere" / "pictures"
    shutil.copytree(photos, copy)  # with the times of its files
    run = ["train", "--model", "linear", "--batch", 6, "--image-size", 16, "--epochs", 2, "--json"]
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with Coordinator(tmp_path, "--data", f"one={photos},two={copy}", "--cache-memory", "64m") as coordinator:
        versions = {data["name"]: data["version"] for data in coordinator.status()["data"]}
        assert versions["one"] == versions["two"]
        first = farthing(*run, "--data", coordinator.address("one", "?form=batches"), env=env)
        prepared = coordinator.status()["work"]["prepared"]
        second = farthing(*run, "--data", coordinator.address("two", "?form=batches"), env=env)
        assert same(first.end, second.end)
        assert coordinator.status()["work"]["prepared"] == prepared  # all of it was there: nobody needed the room
        figures = [event for event in second.events if event["event"] == "batch_cache"][-1]
        assert figures["misses"] == 0 and figures["hits"] > 0 and figures["decoded_for_it"] == 0
    (copy / "train/b/1.png").write_bytes(png(21, 30, 99))
    with Coordinator(tmp_path, "--data", f"one={photos},two={copy}", "--cache-memory", "64m") as coordinator:
        changed = {data["name"]: data["version"] for data in coordinator.status()["data"]}
        assert changed["one"] == versions["one"] != changed["two"]


def test_access_is_checked_before_a_run(tmp_path, farthing):
    """In the prototype, access that was missing showed in mid-run. Here doctor, and training before it writes anything, say within
    a moment what cannot be reached: the coordinator, the data set, with a key or without."""
    photos, keys = write_pictures(tmp_path / "photos"), tmp_path / "keys"
    keys.write_text("AKREAD secretsecretsecretsecret01 read data=other\n")
    keys.chmod(0o600)
    run = ["train", "--model", "linear", "--batch", 6, "--image-size", 16, "--epochs", 1]
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with Coordinator(tmp_path, "--data", f"photos={photos}") as coordinator:
        port = coordinator.port
        wrong = farthing(*run, "--data", coordinator.address("fotos"), env=env, code=None)
        assert wrong.code in (1, 2) and "fotos" in wrong.err and "photos" in wrong.err
        assert farthing("doctor", "--data", coordinator.address("photos"), env=env).code == 0
    gone = farthing(*run, "--data", f"batches://127.0.0.1:{port}/photos", env=env, code=1)
    assert f"cannot reach the batch cache at 127.0.0.1:{port}" in gone.err and "farthing serve batches" in gone.err
    assert "cannot reach the batch cache" in farthing("doctor", "--data", f"batches://127.0.0.1:{port}/photos", env=env,
                                                      code=1).out
    # From another machine, as an empty folder for sockets is: through an agent, whose key may not read the data set.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    with Coordinator(tmp_path, "--data", f"photos={photos}", "--keys", keys) as coordinator:
        for access in ({}, {"FARTHING_ACCESS_KEY": "AKREAD", "FARTHING_SECRET_KEY": "secretsecretsecretsecret01"}):
            refused = farthing(*run, "--data", coordinator.address("photos"), env={"XDG_RUNTIME_DIR": str(elsewhere), **access},
                               code=1)
            assert "photos" in refused.err or "key" in refused.err, refused.err
    assert not list(tmp_path.glob("runs/*"))  # nothing was begun
