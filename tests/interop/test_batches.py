"""The batch cache in PyTorch: DataLoaders with any number of workers and start method, DDP, resuming, restarts of the coordinator.

Runs where a Python has torch ($FARTHING_TORCH_PYTHON names one for scripts/run-tests)."""
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
numpy = pytest.importorskip("numpy", reason="needs NumPy")
from torch.utils.data import DataLoader  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
LIBRARY = FARTHING.parent / "libfarthing_batches.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="libfarthing_batches.so was not built")
os.environ["FARTHING_BATCHES_LIBRARY"] = str(LIBRARY)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))  # for spawn
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "e2e")]
from batches_server import Coordinator  # noqa: E402
from conftest import png  # noqa: E402
from farthing_batches import BatchError, Batches, BatchOrder, Reader, SampleOrder, Samples  # noqa: E402

OPTIONS = dict(batch_size=600, seed=3, split="validation", shuffle=True)  # of digits, 4000 samples: 7 batches, the last of 400
PER_EPOCH = 7


@pytest.fixture(scope="module")
def direct():
    """Two epochs as farthing's own loader makes them."""
    with Reader("digits", **OPTIONS) as reader:
        return [[(torch.from_numpy(b.images.copy()), torch.from_numpy(b.labels)) for b in (reader.next() for _ in range(PER_EPOCH))]
                for _ in range(2)]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coordinator")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)  # where clients look for its socket
    with Coordinator(folder, "--data", "digits=digits", "--cache-memory", "64m", "--prefetch", "threads:1") as running:
        yield running


@pytest.fixture
def address(coordinator):
    return coordinator.address("digits")


def assert_same(got, expected):
    got = list(got)
    assert len(got) == len(expected)
    for (images, labels), (wanted, right) in zip(got, expected):
        assert torch.equal(labels, right) and torch.equal(images, wanted)


# Workers that are spawned import PyTorch, which takes seconds: those are kept.
WAYS = [(0, None, False), (2, "fork", False), (2, "fork", True), (2, "spawn", True), (2, "forkserver", True)]


@pytest.mark.parametrize("workers, method, kept", WAYS)
def test_every_way_of_starting_workers_has_the_same_batches(address, direct, workers, method, kept):
    batches = Batches(address, share="none", **OPTIONS)
    loader = DataLoader(batches, batch_size=None, num_workers=workers, multiprocessing_context=method, persistent_workers=kept)
    assert len(loader) == PER_EPOCH and batches.info.class_names == [str(i) for i in range(10)]
    assert_same(loader, direct[0])
    assert_same(loader, direct[1])
    batches.set_epoch(0)
    assert_same(loader, direct[0])


def test_without_a_cache_data_is_read_directly(direct):
    batches = Batches("digits", **OPTIONS)
    for workers in (0, 2):
        batches.set_epoch(0)
        assert_same(DataLoader(batches, batch_size=None, num_workers=workers), direct[0])


def test_resuming_in_mid_epoch(address, direct):
    batches = Batches(address, share="none", **OPTIONS)
    iterator = iter(DataLoader(batches, batch_size=None))
    for _ in range(4):
        next(iterator)
    state = pickle.loads(pickle.dumps(batches.state_dict()))
    for workers in (0, 2):
        resumed = Batches(address, share="none", **OPTIONS)
        resumed.load_state_dict(state)
        loader = DataLoader(resumed, batch_size=None, num_workers=workers)
        assert_same(loader, direct[0][4:])
        if workers:
            with pytest.raises(ValueError, match="ahead of the training"):
                resumed.state_dict()
            assert resumed.state_dict(batches=5)["batch"] == 5
        assert_same(loader, direct[1])
    other = Batches(address, share="none", **dict(OPTIONS, batch_size=500))
    with pytest.raises(ValueError, match="600"):
        other.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_in_the_job_s_order_are_its_batches(address, direct, workers):
    samples = Samples(address, share="none", **OPTIONS)
    loader = DataLoader(samples, batch_sampler=BatchOrder(samples), num_workers=workers)
    assert_same(loader, direct[0])
    assert_same(loader, direct[1])
    assert len(samples) == len(SampleOrder(samples)) == 4000 == len(set(SampleOrder(samples)))
    order = BatchOrder(samples, drop_last=True)
    order.load_state_dict(BatchOrder(samples).state_dict(epoch=1, batches=3))
    assert_same(DataLoader(samples, batch_sampler=order, num_workers=workers), direct[1][3:-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_may_be_changed_in_place(address, direct, workers):
    loader = DataLoader(Batches(address, share="none", **OPTIONS), batch_size=None, num_workers=workers,
                        pin_memory=torch.cuda.is_available(), collate_fn=lambda batch: (batch[0].mul_(2), batch[1].add_(1)))
    for (images, labels), (expected, right) in zip(loader, direct[0]):
        assert torch.equal(images.div_(2), expected) and torch.equal(labels.sub_(1), right)
    batches = Batches(address, share="none", **OPTIONS)
    assert_same(DataLoader(batches, batch_size=None), direct[0])  # what others have is as it was


def test_without_a_copy_images_lie_in_shared_memory(address, direct):
    images, _ = next(iter(DataLoader(Batches(address, share="none", copy=False, **OPTIONS), batch_size=None)))
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [([int(x, 16) for x in line[0].split("-")], line[1]) for line in maps]
    assert [rights for (begin, end), rights in spans if begin <= images.data_ptr() < end] == ["r--s"]
    assert torch.equal(images, direct[0][0][0])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"batch_size": 64}])
def test_a_loader_that_would_collate_batches_is_refused(address, workers, options):
    with pytest.raises(ValueError, match="batch_size=None to DataLoader"):
        next(iter(DataLoader(Batches(address, **OPTIONS), num_workers=workers, **options)))


def test_jobs_beside_live_workers_have_the_same_order(address):
    """Workers that are kept, at the end of an epoch and in the middle of one: the cache has all that they have used."""
    def job(workers, count):
        loader = DataLoader(Batches(address, **OPTIONS), batch_size=None, num_workers=workers, persistent_workers=workers > 0)
        iterator = iter(loader)
        return [next(iterator) for _ in range(count)], (loader, iterator)

    first, alive = job(2, PER_EPOCH)
    second, also_alive = job(2, 3)
    assert_same(second, first[:3])
    for workers in (0, 2):
        third, _ = job(workers, PER_EPOCH)
        assert_same(third, first)
    del alive, also_alive


def test_dropping_the_last(address, direct):
    batches = Batches(address, share="none", drop_last=True, **OPTIONS)
    assert len(batches) == PER_EPOCH - 1
    assert_same(DataLoader(batches, batch_size=None, num_workers=2), direct[0][:-1])
    assert_same(DataLoader(batches, batch_size=None), direct[1][:-1])


def run_rank(rank, port, address, out):
    import torch.distributed
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    batches = Batches(address, **dict(OPTIONS, batch_size=300))
    labels, images = [], []
    for epoch in range(2):
        for x, y in DataLoader(batches, batch_size=None, num_workers=1):
            labels.append(y)
            images.append(x.sum(dim=(1, 2, 3), dtype=torch.float64))
    torch.save((labels, images), out)
    torch.distributed.destroy_process_group()


def test_ranks_have_each_sample_once(address, direct, tmp_path):
    """Another job is on its way through the order, at whose place a job joins: all ranks at the same."""
    other = iter(DataLoader(Batches(address, **dict(OPTIONS, seed=9)), batch_size=None))
    next(other), next(other)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    ranks = [context.Process(target=run_rank, args=(r, port, address, tmp_path / str(r))) for r in range(2)]
    [rank.start() for rank in ranks]
    [rank.join(120) for rank in ranks]
    assert [rank.exitcode for rank in ranks] == [0, 0]
    (labels0, images0), (labels1, images1) = (torch.load(tmp_path / str(r)) for r in range(2))
    assert [len(y) for y in labels0] == [len(y) for y in labels1] == ([300] * 6 + [200]) * 2
    everything = torch.cat([x.sum(dim=(1, 2, 3), dtype=torch.float64) for x, _ in direct[0]]).sort().values
    for epoch in range(2):
        mine = slice(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH)
        assert torch.equal(torch.cat(images0[mine] + images1[mine]).sort().values, everything)
    del other


def test_rank_and_world_size_as_arguments(address, direct):
    parts = [Batches(address, share="none", rank=r, world_size=2, **dict(OPTIONS, batch_size=300)) for r in range(2)]
    for (x0, y0), (x1, y1), (wanted, right) in zip(*parts, direct[0]):
        assert torch.equal(torch.cat([x0, x1]), wanted) and torch.equal(torch.cat([y0, y1]), right)
    with pytest.raises(ValueError, match="go together"):
        Batches(address, rank=1, **OPTIONS)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("back", [True, False])
def test_a_killed_coordinator_changes_nothing(tmp_path, direct, workers, back, monkeypatch):
    """Jobs go on by themselves, with the same batches, until it is back; and without it to the end."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Coordinator(tmp_path, "--data", "digits=digits", "--cache-memory", "64m", "--prefetch", "threads:1") as running:
        batches = Batches(running.address("digits"), share="none", **OPTIONS)
        loader = DataLoader(batches, batch_size=None, num_workers=workers, persistent_workers=bool(workers) and back)
        iterator = iter(loader)
        got = [tuple(t.clone() for t in next(iterator)) for _ in range(2)]
        running.kill(signal.SIGKILL)
        got += [tuple(t.clone() for t in next(iterator)) for _ in range(2)]
        if back:
            running.start()
        got += [tuple(t.clone() for t in batch) for batch in iterator]
        assert_same(got, direct[0])
        assert_same(loader, direct[1])


def test_access_is_checked_by_the_constructor(coordinator):
    with pytest.raises(BatchError, match="127.0.0.1:9"):
        Batches("batches://127.0.0.1:9/digits", **OPTIONS)
    with pytest.raises(BatchError, match="photos"):
        Batches(coordinator.address("photos"), **OPTIONS)
    assert "photos" in str(pickle.loads(pickle.dumps(BatchError("photos", "invalid"))))


def test_the_example_begins_each_measurement_with_an_empty_cache(tmp_path):
    """Both halves decode the same images, none of which the one before has left, and count cost the same way."""
    pytest.importorskip("torchvision", reason="the example needs torchvision")
    photos = tmp_path / "photos"
    for part, count in (("train", 16), ("val", 8)):
        for i in range(count):
            path = photos / part / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(28, 30, 9 * i))
    done = subprocess.run([sys.executable, ROOT / "examples" / "resnet18-tiny-imagenet" / "run", photos, "--farthing", FARTHING, "--python",
                           sys.executable, "--batch", "8", "--epochs", "1", "--workers", "1", "--jobs", "2", "--price", "3600", "--out",
                           tmp_path / "out"], cwd=tmp_path, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    decoded = re.findall(r"(\d+) \((\d) through (\w+)\)", done.stdout)
    assert [(count, through) for _, count, through in decoded] == [(n, t) for t in ("farthing", "PyTorch") for n in "12"]
    assert len({images for images, _, _ in decoded}) == 1 and int(decoded[0][0]) >= 24
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if re.match(r"\| \d of", line)]
    assert len(rows) == 6
    for row in rows:  # a second costs a dollar, of which each of the jobs has its share; all of a job's seconds count, also its start
        computed, cost = float(row[9]), float(row[4]) * int(row[0][-1])
        assert computed < cost
