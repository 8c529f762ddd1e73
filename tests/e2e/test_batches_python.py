"""The Python package without PyTorch: batches as NumPy arrays, out of the shared cache and read directly."""
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
from batches_server import Coordinator
from conftest import FARTHING, ROOT, SANITIZED

LIBRARY = FARTHING.parent / "libfarthing_batches.so"
pytestmark = [pytest.mark.skipif(not LIBRARY.exists(), reason="libfarthing_batches.so was not built"),
              pytest.mark.skipif(SANITIZED, reason="a sanitized library does not load into a Python that is not")]
os.environ["FARTHING_BATCHES_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "python"))
from farthing_batches import BatchError, Reader, numpy_batches  # noqa: E402

DATA = "digits"
OPTIONS = dict(batch_size=600, seed=3, split="validation", shuffle=True)  # 4000 samples: 7 batches, the last of 400
PER_EPOCH = 7


@pytest.fixture(scope="module")
def direct():
    """Two epochs as they are without a cache."""
    with Reader(DATA, **OPTIONS) as reader:
        return [(b.images.copy(), b.labels) for b in (reader.next() for _ in range(2 * PER_EPOCH))]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coordinator")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)  # where clients look for its socket
    with Coordinator(folder, "--data", f"digits={DATA}", "--cache-memory", "64m", "--prefetch", "threads:1") as running:
        yield running


def same(batch, expected):
    return numpy.array_equal(batch.images, expected[0]) and numpy.array_equal(batch.labels, expected[1])


def test_readers_in_turn_have_all_batches(direct):
    readers = [Reader(DATA, worker=w, workers=3, **OPTIONS) for w in range(3)]
    for number in range(2 * PER_EPOCH):
        batch = readers[number % 3].next()
        assert batch.number == number and batch.epoch == number // PER_EPOCH and same(batch, direct[number])


def test_ranks_have_all_of_every_batch(direct):
    readers = [Reader(DATA, rank=r, world_size=3, **OPTIONS) for r in range(3)]
    for number in range(PER_EPOCH):
        parts = [reader.next() for reader in readers]
        assert numpy.array_equal(numpy.concatenate([p.images for p in parts]), direct[number][0])
        assert numpy.array_equal(numpy.concatenate([p.labels for p in parts]), direct[number][1])


def test_samples_by_index_are_those_of_batches(direct):
    reader = Reader(DATA, by_index=True, **OPTIONS)
    for number in (0, PER_EPOCH + 1):
        plan = reader.plan(number)
        for i in (0, 17, len(plan) - 1):
            image, label = reader.get(plan[i], number)
            assert numpy.array_equal(image, direct[number][0][i]) and label == direct[number][1][i]


def test_arrays_stay_while_anything_refers_to_them(direct):
    reader = Reader(DATA, **OPTIONS)
    kept = [reader.next() for _ in range(PER_EPOCH)]
    view = kept[2].images[5:7]
    assert all(same(batch, direct[batch.number]) for batch in kept)
    del kept
    gc.collect()
    for _ in range(PER_EPOCH):  # would use memory that came back
        reader.next()
    reader.close()
    assert numpy.array_equal(view, direct[2][0][5:7])


def test_another_process_goes_on_at_the_same_place(direct):
    reader = Reader(DATA, **OPTIONS)
    reader.next()
    assert same(pickle.loads(pickle.dumps(reader)).next(), direct[1])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(reader.next().images.sum()))
    child.start()
    assert queue.get() == direct[1][0].sum()
    child.join()
    assert same(reader.next(), direct[1])  # the child has taken nothing of ours


def test_seek_and_end(direct):
    with Reader(DATA, batch_limit=PER_EPOCH, **OPTIONS) as reader:
        reader.seek(PER_EPOCH - 1)
        assert same(reader.next(), direct[PER_EPOCH - 1])
        assert reader.next() is None and reader.next() is None
    with pytest.raises(ValueError, match="closed"):
        reader.next()
    assert sum(len(labels) for _, labels in numpy_batches(DATA, epochs=2, **OPTIONS)) == 8000


def test_mistakes_are_said_in_one_line(tmp_path):
    with pytest.raises(BatchError, match="there is no file or folder") as caught:
        Reader(tmp_path / "nowhere", batch_size=4)
    assert "\n" not in str(caught.value) and caught.value.status == "invalid"
    with pytest.raises(BatchError, match="a batch of 0 samples"):
        Reader(DATA, batch_size=0)
    with pytest.raises(BatchError, match="unknown step|transform"):
        Reader(DATA, batch_size=4, transform="sharpen=3")
    with pytest.raises(ValueError, match="train"):
        Reader(DATA, batch_size=4, split="test")


def test_pip_installs_it(tmp_path):
    modules = subprocess.run([sys.executable, "-c", "import setuptools, wheel, pip"], capture_output=True)
    if modules.returncode != 0:
        pytest.skip("this Python has no pip, setuptools and wheel")
    # Of a copy: the build leaves folders behind.
    copy = tmp_path / "repository"
    shutil.copytree(ROOT / "python", copy / "python", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", copy)
    target = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index", "--target", target,
                    copy / "python"], check=True, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}, timeout=300)
    code = "import farthing_batches as f; print(f.__file__, f.Reader('digits', batch_size=8).next().images.shape)"
    environment = {k: v for k, v in os.environ.items() if k != "FARTHING_BATCHES_LIBRARY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
                          env={**environment, "PYTHONPATH": str(target)}, timeout=60)
    assert done.stdout.split(" ", 1)[1].strip() == "(8, 1, 28, 28)", done.stderr
    assert Path(done.stdout.split()[0]).parent.parent == target


def test_the_cache_has_the_same_numbers(coordinator, direct):
    """With share=none a job's batches are, bit for bit, those of a run without the cache, whatever is cached."""
    for form in ("batches", "decoded", "encoded"):
        with Reader(coordinator.address("digits"), share="none", form=form, batch_limit=2 * PER_EPOCH, **OPTIONS) as reader:
            got = [reader.next() for _ in range(2 * PER_EPOCH)]
            assert all(same(batch, expected) for batch, expected in zip(got, direct)), form
            assert reader.next() is None
            figures = reader.figures()
            assert figures["form"] == ("decoded" if form == "encoded" else form)  # digits are no files
            assert figures["corrupt"] == figures["direct"] == 0
            assert figures["hits"] + figures["waits"] >= 2 * PER_EPOCH


def test_batches_lie_in_shared_memory(coordinator):
    """Two readers of the same batches have them at the same place of the same memory, and cannot write there."""
    def place(array):
        address = array.__array_interface__["data"][0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if begin <= address < end:
                return line.split()[1], line.split()[4], int(line.split()[2], 16) + address - begin
        raise AssertionError("nowhere")

    readers = [Reader(coordinator.address("digits"), share="all", form="batches", **OPTIONS) for _ in range(2)]
    first, second = (reader.next() for reader in readers)
    assert place(first.images) == place(second.images) and place(first.images)[0] == "r--s"
    assert not first.images.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first.images[0] = 0


def test_data_workers_share_a_job(coordinator):
    """Each sample once an epoch, over processes that joined by the text of the first."""
    options = dict(OPTIONS, share="order")
    with Reader(coordinator.address("digits"), first_batch=1, batch_limit=1, **options) as first:
        job = first.job
    readers = [Reader(coordinator.address("digits"), worker=w, workers=2, job=job, batch_limit=PER_EPOCH, **options)
               for w in range(2)]
    assert readers[0].job == readers[1].job == job
    numbers, labels = [], []
    for n in range(PER_EPOCH):
        batch = readers[n % 2].next()
        numbers.append(batch.number)
        labels += list(batch.labels)
    assert numbers == list(range(PER_EPOCH))
    with Reader(DATA, **dict(OPTIONS, shuffle=False)) as plain:
        assert sorted(labels) == sorted(int(l) for _ in range(PER_EPOCH) for l in plain.next().labels)


def read_some(address, options, worker, count):
    reader = Reader(address, worker=worker, workers=2, **options)
    for _ in range(count):
        reader.next()
    os._exit(0)  # as PyTorch's data workers end: without a word


def test_the_status_counts_what_data_workers_took(coordinator):
    """Over two epochs with workers of their own each, and as a second job that finds everything there."""
    options = dict(OPTIONS, share="all", form="batches", seed=77)
    context = multiprocessing.get_context("fork")
    for job in range(2):
        # The reader of no batches by which the job is kept, as Batches has it.
        with Reader(coordinator.address("digits"), first_batch=1, batch_limit=1, **options) as keeper:
            number = json.loads(keeper.job)["job"]
            for epoch in range(2):
                workers = [context.Process(target=read_some, args=(
                    coordinator.address("digits"), dict(options, job=keeper.job, first_batch=epoch * PER_EPOCH), w, (PER_EPOCH + 1 - w) // 2))
                    for w in range(2)]
                [worker.start() for worker in workers]
                [worker.join(60) for worker in workers]
                assert [worker.exitcode for worker in workers] == [0, 0]
                row = until(coordinator, number, lambda row: row["processes"] == 0)
                assert row["samples"] == 4000 * (epoch + 1) and not row["finished"]
                assert row["hits"] + row["waits"] + row["misses"] == PER_EPOCH * (epoch + 1)
        row = until(coordinator, number, lambda row: row["finished"])
        assert row["samples"] == 8000 and row["processes"] == 0


def until(coordinator, job, wanted):
    """The job's row of the status, once it is as wanted."""
    end = time.monotonic() + 30
    while True:
        row = next((row for row in coordinator.status()["jobs"] if row["job"] == job), None)
        if row and wanted(row):
            return row
        assert time.monotonic() < end, row
        time.sleep(0.02)


def test_a_job_that_lives_on_hits_registers_again(tmp_path, monkeypatch):
    """Its batches are the same in every epoch, and all of them in the memory that the killed coordinator leaves."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Coordinator(tmp_path, "--data", f"digits={DATA}", "--cache-memory", "64m", "--prefetch", "threads:1") as running:
        with Reader(running.address("digits"), share="none", form="batches", **dict(OPTIONS, shuffle=False)) as reader:
            job = json.loads(reader.job)["job"]
            for number in range(PER_EPOCH):
                reader.next()
            running.kill(signal.SIGKILL)
            shutil.rmtree(tmp_path / "state")
            running.start()
            end = time.monotonic() + 30
            while not any(row["job"] == job and row["processes"] for row in running.status()["jobs"]):
                assert time.monotonic() < end
                reader.next()
                time.sleep(0.05)
            figures = reader.figures()
            assert figures["misses"] == figures["direct"] == 0


def test_a_restarted_coordinator_is_told_of_the_end(tmp_path, monkeypatch):
    """By the process that keeps a job, which asks for nothing and so has not noticed."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Coordinator(tmp_path, "--data", f"digits={DATA}", "--cache-memory", "64m", "--prefetch", "threads:1") as running:
        keeper = Reader(running.address("digits"), first_batch=1, batch_limit=1, **OPTIONS)
        running.kill(signal.SIGKILL)
        shutil.rmtree(tmp_path / "state")
        running.start()
        keeper.close()
        until(running, json.loads(keeper.job)["job"], lambda row: row["finished"])


def test_the_coordinators_url_is_an_address(coordinator, direct):
    address = coordinator.address("digits").replace("batches://", "http://")
    with Reader(address, share="none", **OPTIONS) as reader:
        assert same(reader.next(), direct[0])


def test_an_address_that_nobody_serves_is_said_at_once():
    with pytest.raises(BatchError) as caught:
        from farthing_batches import check
        check("batches://127.0.0.1:9/photos")
    assert "127.0.0.1:9" in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_data_set_is_said_at_once(coordinator):
    with pytest.raises(BatchError, match="photos"):
        Reader(coordinator.address("photos"), batch_size=4)
    assert json.dumps(coordinator.status())  # and it is still there
