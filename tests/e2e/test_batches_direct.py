"""Jobs of the batch cache that read their data directly: when their batches do not fit into the cache, and when it cannot make them."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from batches_server import Coordinator
from conftest import FARTHING, PATIENCE_S, ROOT, SANITIZED, png, wait_for
from fault_proxy import FaultProxy, Rule

pytest.importorskip("numpy")
LIBRARY = FARTHING.parent / "libfarthing_batches.so"
pytestmark = [pytest.mark.skipif(not LIBRARY.exists(), reason="libfarthing_batches.so was not built"),
              pytest.mark.skipif(SANITIZED, reason="a sanitized library does not load into a Python that is not")]
os.environ["FARTHING_BATCHES_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "python"))
from farthing_batches import Reader  # noqa: E402

SIDE, BATCH = 64, 256


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """300 images of 64 × 64: a decoded batch of 256 takes 3.1 MB."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(320):
        path = folder / ("val" if i % 16 == 0 else "train") / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(SIDE, SIDE, i % 256))
    return folder


@pytest.mark.parametrize("form, share", [("auto", "order"), ("decoded", "none"), ("batches", "none")])
def test_batches_that_do_not_fit_are_read_directly_and_said_once(photos, tmp_path, monkeypatch, capfd, form, share):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = dict(batch_size=BATCH, image_size=SIDE, form=form, share=share, timeout=60)
    with Coordinator(tmp_path, "--data", f"photos={photos}", "--cache-memory", "1m", "--prefetch", "threads:2") as coordinator:
        with Reader(coordinator.address("photos"), **options) as reader:
            assert reader.next() is not None
            began = time.monotonic()
            for _ in range(7):
                assert reader.next() is not None
            assert time.monotonic() - began < 14  # it took 14 s for each
            figures = reader.figures()
        failures = [each for each in coordinator.status()["failures"] if "read" in each["error"]]
    assert figures["misses"] > 0 and figures["wait_s"] < 4, figures
    assert len(failures) == 1 and "--cache-memory" in failures[0]["error"], json.dumps(failures)
    log = coordinator.errors.read_text()
    assert log.count("--cache-memory") == 1, log
    assert capfd.readouterr().err.count("reading the data directly") == 1


# ---- a bucket that fails ----

JOB = """
import sys, time
from farthing_batches import BatchError, Reader
reader = Reader(sys.argv[1], batch_size=16, share=sys.argv[2], image_size=32, timeout=float(sys.argv[3]))
try:
    reader.next()
except BatchError as error:
    print("status", error.status, flush=True)
    print("error", error, flush=True)
"""


@pytest.fixture(scope="module")
def failing(s3_server, photos):
    """A bucket of 64 images behind a proxy, and what its clients' environment is."""
    bucket = s3_server.create_bucket()
    for path in sorted(photos.rglob("*.png"))[:64]:
        s3_server.client().upload_file(str(path), bucket, str(path.relative_to(photos)))
    with FaultProxy(s3_server.port) as proxy:
        yield proxy, f"s3://{bucket}/", s3_server.environment(proxy.endpoint)


@pytest.mark.parametrize("share, rule, word, status", [
    ("none", Rule("status", code=500), "answered 500", "timeout"),
    ("order", Rule("status", code=500, target="png"), "png: the server answered 500", "timeout"),
    ("order", Rule("hold"), "no answer for", "timeout"),
    ("none", Rule("hold", target="png"), "png: no answer for", "timeout"),
    ("order", Rule("refuse"), "Empty reply", "timeout"),
    ("none", Rule("status", code=403), "AccessDenied", "io"),
    ("order", Rule("status", code=403), "AccessDenied", "io")],
    ids=["500", "500-of-images", "hangs", "hanging-images", "refuses", "403-batches", "403-samples"])
def test_a_failing_bucket_is_named_in_time_and_all_processes_end(failing, tmp_path, share, rule, word, status):
    proxy, address, environment = failing
    timeout_s = 6
    proxy.rules = []
    python = str(ROOT / "python")
    with Coordinator(tmp_path, "--data", f"photos={address}", "--cache-memory", "64m", "--prefetch", "threads:2",
                     environment=environment) as coordinator:
        proxy.rules = [rule]
        began = time.monotonic()
        job = subprocess.run([sys.executable, "-c", JOB, coordinator.address("photos"), share, str(timeout_s)], capture_output=True, text=True,
                             env={**coordinator.environment, "PYTHONPATH": python}, timeout=PATIENCE_S)
        took = time.monotonic() - began
        failures = coordinator.status()["failures"]
        began = time.monotonic()
        assert coordinator.kill(signal.SIGTERM) == 0
        ended = time.monotonic() - began
    assert f"status {status}" in job.stdout and word in job.stdout, job.stdout + job.stderr
    assert "cannot be read," not in job.stdout  # these are no bad images
    assert took < timeout_s + 3 + PATIENCE_S / 10 and ended < 3 + PATIENCE_S / 10
    if rule.kind != "hold":  # which fails later
        assert failures and "s3://" in failures[0]["error"], failures


def test_a_coordinator_that_cannot_open_its_data_ends_when_told(failing, tmp_path):
    proxy, address, environment = failing
    proxy.rules = [Rule("hold")]
    before = len(proxy.requests)
    process = subprocess.Popen([FARTHING, "serve", "batches", "--data", f"photos={address}", "--port", "0", "--state", tmp_path / "state"],
                               env={**os.environ, **environment, "XDG_RUNTIME_DIR": str(tmp_path)}, cwd=tmp_path, stderr=subprocess.PIPE)
    wait_for(lambda: len(proxy.requests) > before, "a request")
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - began < 3 + PATIENCE_S / 10


def test_samples_are_fetched_side_by_side_as_batches_are(failing, tmp_path):
    """A store is asked for as many objects at once for a job that needs samples as for one that needs batches."""
    proxy, address, environment = failing
    proxy.rules = []
    with Coordinator(tmp_path, "--data", f"photos={address}", "--cache-memory", "64m", "--prefetch", "threads:2",
                     environment=environment) as coordinator:
        proxy.rules = [Rule("hold", target="png", skip=1)]  # the first is made alone: it says how large they are
        before = proxy.count("hold")
        job = subprocess.Popen([sys.executable, "-c", JOB, coordinator.address("photos"), "order", "3"], stdout=subprocess.DEVNULL,
                               env={**coordinator.environment, "PYTHONPATH": str(ROOT / "python")})
        wait_for(lambda: proxy.count("hold") - before >= 28, "32 requests at once")
        job.communicate(timeout=PATIENCE_S)


def test_a_job_whose_only_prefetcher_fails_reads_directly_after_its_first_failure(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Coordinator(tmp_path, "--data", f"photos={photos}", "--cache-memory", "64m", "--prefetch", "http://127.0.0.1:9/") as coordinator:
        with Reader(coordinator.address("photos"), batch_size=32, image_size=SIDE, share="order", timeout=60) as reader:
            assert reader.next() is not None
            before = reader.figures()["wait_s"]
            for _ in range(12):
                assert reader.next() is not None
            assert reader.figures()["wait_s"] - before < 4  # a single stall takes that
