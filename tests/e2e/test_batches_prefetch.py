"""Who prepares batches for `farthing serve batches`: workers on other machines and functions over HTTP, when they work and in every way
they fail. A job has the numbers of a run without the cache whatever happens."""
import collections
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from batches_server import Coordinator
from conftest import FARTHING, PATIENCE_S, environment, png, wait_for
from test_functions_openwhisk import Action, end
from test_images import grey_png

JOB = ["--model", "linear", "--epochs", 1, "--batch", 100, "--json"]


class Worker:
    """`farthing worker prefetch`."""

    def __init__(self, folder, *arguments, env=None):
        self.log = folder / f"worker-{len(list(folder.glob('worker-*')))}.err"
        with open(self.log, "w") as errors:
            self.process = subprocess.Popen(
                [FARTHING, "worker", "prefetch", *map(str, arguments), "--threads", "2", "--json"], cwd=folder, stderr=errors,
                stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment(**(env or {})))

    def wait_until_it_works(self):
        wait_for(lambda: "prefetching for" in self.log.read_text() or self.process.poll() is not None, "the worker")
        return self

    def serving(self):
        """The URL of one with --port."""
        return json.loads(self.process.stdout.readline())["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


PHOTOS = ["--batch", 8, "--image-size", 16]


def write_photos(folder, count=60, grey=lambda i: i % 7 == 3):
    """Colour images, with some grey ones among them."""
    for i in range(count):
        path = folder / ("val" if i % 5 == 0 else "train") / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(grey_png(24, lambda x, y, i=i: (x * y + i) % 256) if grey(i) else png(20 + i % 5, 30, 4 * i))


class Function(http.server.ThreadingHTTPServer):
    """A function that is not ours: `answer` has an order, and gives a code and a body, or None to say nothing at all."""
    daemon_threads = True

    def __init__(self, answer):
        self.answer, self.orders, self.ended = answer, [], threading.Event()
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.orders.append(order)
            answer = self.server.answer(order)
            if answer is None:
                self.server.ended.wait(PATIENCE_S)
                return
            code, body = answer
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.shutdown()
        self.server_close()

    def tries(self):
        return collections.Counter(order["id"] for order in self.orders)


def prefetchers(coordinator):
    return {one["name"]: one for one in coordinator.status()["prefetchers"]}


@pytest.fixture
def job(farthing, tmp_path):
    """Trains on a data set of a coordinator: the last event."""
    def run(coordinator, name="digits", *more, query=""):
        env = {"XDG_RUNTIME_DIR": str(coordinator.folder)}
        return farthing("train", *JOB, "--data", coordinator.address(name, query), *more, env=env).end
    return run


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the job gives without a cache."""
    done = subprocess.run([FARTHING, "train", *map(str, JOB), "--data", "digits"], cwd=tmp_path_factory.mktemp("direct"),
                          capture_output=True, text=True, env=environment(), check=True)
    return json.loads(done.stdout.splitlines()[-1])


def same(end, expected):
    return (end["loss"], end["accuracy"], end["steps"]) == (expected["loss"], expected["accuracy"], expected["steps"])


# ---- workers ----


def test_a_worker_prepares_what_jobs_need(tmp_path, job, expected):
    with Coordinator(tmp_path, "--data", "digits", "--prefetch", "workers") as coordinator, \
            Worker(tmp_path, "--server", f"http://127.0.0.1:{coordinator.port}", "--name", "beta") as worker:
        worker.wait_until_it_works()
        assert same(job(coordinator), expected)
        status = coordinator.status()
        assert prefetchers(coordinator)["beta"]["done"] == status["work"]["prepared"] > 0
        assert all(one["misses"] == 0 for one in status["jobs"])
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(PATIENCE_S) == 0


def test_orders_of_a_killed_worker_go_to_another(tmp_path, job, expected):
    """The first worker is stopped while it waits for orders: it is given some, and never answers."""
    with Coordinator(tmp_path, "--data", "digits", "--prefetch", "workers") as coordinator:
        server = f"http://127.0.0.1:{coordinator.port}"
        with Worker(tmp_path, "--server", server, "--name", "stuck") as stuck:
            stuck.wait_until_it_works()
            stuck.process.send_signal(signal.SIGSTOP)
            with Worker(tmp_path, "--server", server, "--name", "well") as well:
                well.wait_until_it_works()
                assert same(job(coordinator), expected)
                names = prefetchers(coordinator)
                stuck.process.kill()
                assert names["well"]["done"] > 0 and names.get("stuck", {}).get("done", 0) == 0
                if names.get("stuck", {}).get("tries"):  # not if its request was cut off before
                    wait_for(lambda: "it has been silent" in prefetchers(coordinator)["stuck"]["last_failure"],
                             "the stuck worker's orders are taken back")


def test_a_worker_outlives_its_coordinator(tmp_path, job, expected):
    coordinator = Coordinator(tmp_path, "--data", "digits", "--prefetch", "workers")
    with coordinator, Worker(tmp_path, "--server", f"http://127.0.0.1:{coordinator.port}", "--name", "beta") as worker:
        worker.wait_until_it_works()
        coordinator.kill()
        coordinator.start()
        assert same(job(coordinator), expected)
        assert worker.process.poll() is None and prefetchers(coordinator)["beta"]["done"] > 0


def test_a_worker_without_the_data_does_not_spoil_it_for_others(tmp_path, farthing, job):
    """The coordinator has the folder open when its name changes; the worker, elsewhere, cannot open it."""
    write_photos(tmp_path / "photos")
    direct = farthing("train", *JOB, *PHOTOS, "--data", tmp_path / "photos").end
    with Coordinator(tmp_path, "--data", f"photos={tmp_path / 'photos'}", "--prefetch", "threads:1,workers") as coordinator:
        (tmp_path / "photos").rename(tmp_path / "elsewhere")
        with Worker(tmp_path, "--server", f"http://127.0.0.1:{coordinator.port}", "--name", "blind") as worker:
            worker.wait_until_it_works()
            assert same(job(coordinator, "photos", *PHOTOS), direct)
            blind = prefetchers(coordinator).get("blind", {"done": 0, "tries": 0})
            assert blind["done"] == 0 and blind["tries"] < 10
            assert coordinator.status()["work"]["failed_for_good"] == 0


def test_a_worker_says_what_is_wrong(tmp_path, farthing):
    assert "--server URL" in farthing("worker", "prefetch", code=2).err
    assert "did you mean" in farthing("worker", "prefetsch", code=2).err
    with Coordinator(tmp_path, "--data", "digits") as coordinator:
        refused = farthing("worker", "prefetch", "--server", f"http://127.0.0.1:{coordinator.port}", code=1)
        assert "--prefetch workers" in refused.err
        port = coordinator.port
    gone = farthing("worker", "prefetch", "--server", f"http://127.0.0.1:{port}", "--server-timeout", "0.2s", code=1)
    assert f"127.0.0.1:{port}" in gone.err


# ---- functions ----


def test_functions_are_called_and_paid_for(tmp_path, job, expected):
    with Worker(tmp_path, "--port", 0) as function:
        with Coordinator(tmp_path, "--data", "digits", "--prefetch", "functions", "--functions", function.serving() + "/run",
                         "--function-price", "0.0000166667", "--function-request-price", "0.0000002") as coordinator:
            assert same(job(coordinator), expected)
            (name, one), = prefetchers(coordinator).items()
            assert name.endswith("/run") and one["failures"] == 0 and one["done"] == coordinator.status()["work"]["prepared"]
            assert one["usd"] > one["done"] * 0.0000002
        function.process.send_signal(signal.SIGTERM)
        assert function.process.wait(PATIENCE_S) == 0


def test_an_action_of_openwhisk_prepares(tmp_path, job, expected):
    """Orders come as a platform passes them on: as the parameters of an activation."""
    action = Action(tmp_path, [FARTHING, "worker", "openwhisk", "--port", "0", "--address", "127.0.0.1", "--json"])

    def activate(order):
        answer = action.run(order, deadline=str(int((time.time() + PATIENCE_S) * 1000)))
        return answer.code, answer.body

    try:
        assert action.init().code == 200
        with Function(activate) as platform, \
                Coordinator(tmp_path, "--data", "digits", "--prefetch", platform.url) as coordinator:
            assert same(job(coordinator), expected)
            def all_is_counted():  # it still prefetches while it is asked
                (_, one), = prefetchers(coordinator).items()
                return one["failures"] == 0 and one["done"] == coordinator.status()["work"]["prepared"] > 0

            wait_for(all_is_counted, "the prefetcher's count is the coordinator's")
        assert "order" in action.run({"kind": "batch", "spec": {}, "cache": "shm"}).error
    finally:
        end(action)


def test_keys_are_asked_for_and_given(tmp_path, farthing, expected):
    """Function and coordinator each want signed requests of role train."""
    line = farthing("keys", "--role", "train").out.split()
    keys = tmp_path / "keys.txt"
    keys.write_text(" ".join(line) + "\n")
    keys.chmod(0o600)
    own = {"FARTHING_ACCESS_KEY": line[0], "FARTHING_SECRET_KEY": line[1]}
    with Worker(tmp_path, "--port", 0, "--keys", keys, env=own) as function:
        url = function.serving()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=PATIENCE_S)
        assert refused.value.code == 401
        with Coordinator(tmp_path, "--data", "digits", "--prefetch", f"{url},workers", "--keys", keys, environment=own) as coordinator:
            env = {"XDG_RUNTIME_DIR": str(tmp_path), **own}
            end = farthing("train", *JOB, "--data", coordinator.address("digits"), env=env).end
            assert same(end, expected)
            refused = farthing("worker", "prefetch", "--server", f"http://127.0.0.1:{coordinator.port}", code=1,
                               env={"FARTHING_ACCESS_KEY": "nobody", "FARTHING_SECRET_KEY": "0" * 32})
            assert "signature" in refused.err or "key" in refused.err


def test_an_envelope_is_opened(tmp_path):
    """As OpenWhisk's runtime asks: /init, then /run with {"value": ...}; what is no order is refused."""
    with Worker(tmp_path, "--port", 0, "--unsigned") as function:
        url = function.serving()

        def post(path, body):
            try:
                with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(body).encode(), method="POST"),
                                            timeout=PATIENCE_S) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        assert post("/init", {"value": {"code": ""}}) == (200, {"ok": True})
        assert post("/run", {"value": {"id": "x"}})[0] == 400
        assert "order" in post("/", {})[1]["error"]
        assert post("/", [])[0] == 400


@pytest.mark.parametrize("fault", ["500", "garbage", "other item", "cached", "silent", "closed"])
def test_functions_that_fail_leave_jobs_alone(tmp_path, job, expected, fault):
    """The threads make what a function does not; nothing is asked of it without end."""
    def answer(order):
        size = 64 + 1000
        receipt = [order["id"] if fault != "other item" else "0" * 32, size, "0123456789abcdef"]
        preparation = {"receipt": receipt, "fetch_s": 0.1, "decode_s": 0.1, "transform_s": 0.1, "fetched_bytes": 1, "samples": 1,
                       "decoded": 1, "bad": 0, "bad_name": "", "bad_reason": ""}
        said = json.dumps({"id": receipt[0], "preparation": preparation}).encode()
        return {"500": (500, b"out of order"), "garbage": (200, os.urandom(200)), "cached": (200, said), "other item": (200, said),
                "silent": None, "closed": (200, b'{"error": "the bucket is closed", "status": "invalid"}')}[fault]

    with Function(answer) as function:
        with Coordinator(tmp_path, "--data", "digits", "--prefetch", f"{function.url},threads:2") as coordinator:
            assert same(job(coordinator), expected)
            one = prefetchers(coordinator)[function.url]
            assert one["done"] == 0
            assert max(function.tries().values(), default=0) <= 3  # of one item
            if fault != "silent":
                assert one["failures"] == one["tries"] or one["tries"] - one["failures"] <= 8  # those under way
                if one["failures"]:
                    assert {"500": "answered 500", "garbage": "not JSON", "cached": "an item that is not cached", "other item": "another item",
                            "closed": "the bucket is closed"}[fault] in one["last_failure"]


def test_grey_images_among_colour_ones_come_through(tmp_path, farthing, job):
    """Through a worker and a function: the numbers of a run without the cache."""
    write_photos(tmp_path / "photos")
    direct = farthing("train", *JOB, "--data", tmp_path / "photos", *PHOTOS).end
    with Worker(tmp_path, "--port", 0) as function:
        with Coordinator(tmp_path, "--data", f"photos={tmp_path / 'photos'}", "--prefetch", f"{function.serving()},workers") \
                as coordinator, Worker(tmp_path, "--server", f"http://127.0.0.1:{coordinator.port}") as worker:
            worker.wait_until_it_works()
            for form in ("batches", "encoded", "decoded"):  # PNG is decoded in one way, so all give the same
                assert same(job(coordinator, "photos", *PHOTOS, query=f"?form={form}"), direct), form
            work = coordinator.status()["work"]
            assert work["failed_for_good"] == 0 and work["bad_samples"] == 0
