"""Parts of the batch cache killed and paused at random while jobs read from it: a short run of bench/batches/faults, which says what is checked."""
import os
import shutil
import subprocess
import sys

import pytest
from conftest import FARTHING, PATIENCE_S, ROOT, SANITIZED

pytest.importorskip("numpy")
LIBRARY = FARTHING.parent / "libfarthing_batches.so"
pytestmark = [pytest.mark.skipif(not LIBRARY.exists(), reason="libfarthing_batches.so was not built"),
              pytest.mark.skipif(SANITIZED, reason="a sanitized library does not load into a Python that is not")]


@pytest.mark.parametrize("cache, count, seed", [("shm", 4, 35), ("redis", 5, 636)])
def test_jobs_have_every_sample_once_whatever_is_killed(cache, count, seed):
    if cache == "redis" and not shutil.which("redis-server"):
        pytest.skip("no redis-server: apt-get install redis-server")
    # How long a wait takes says little on a loaded machine: the program itself holds it against 5 s.
    done = subprocess.run([sys.executable, ROOT / "bench" / "batches" / "faults", "--count", str(count), "--seed", str(seed), "--cache", cache,
                           "--longest", "60"], capture_output=True, text=True, timeout=4 * PATIENCE_S,
                          env={**os.environ, "FARTHING": str(FARTHING), "FARTHING_BATCHES_LIBRARY": str(LIBRARY)})
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Nothing wrong" in done.stdout
