"""Jobs of the batch cache that read their data directly: when their batches do not fit into the cache, and when it cannot make them."""
import json
import os
import sys
import time

import pytest
from batches_server import Coordinator
from conftest import FARTHING, ROOT, SANITIZED, png

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
