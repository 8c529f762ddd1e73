"""farthing train --data batches://...: the weights of a run without the cache, bit for bit, whatever happens to the coordinator; jobs that
share; resuming; bad images; what doctor and report say."""
import json
import os
import signal
import subprocess
import time

import pytest
from batches_server import Coordinator
from conftest import FARTHING, PATIENCE_S, checkpoints, environment, png, record, tensors, wait_for

TRAINING, VALIDATION = 48, 12
QUICK = ["--model", "linear", "--image-size", "24", "--batch", "8", "--seed", "5", "--loader-threads", "2"]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Three classes of colours, in pictures of several sizes."""
    folder = tmp_path_factory.mktemp("photos")
    for part, count in (("train", TRAINING), ("val", VALIDATION)):
        for i in range(count):
            path = folder / part / "abc"[i % 3] / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(28 + i % 7, 30, (i * 5 + i % 3 * 80) % 256))
    return folder


@pytest.fixture
def coordinator(tmp_path, photos):
    with serve(tmp_path, photos) as started:
        yield started


def serve(folder, photos, *arguments):
    # Sockets have short paths.
    return Coordinator(folder, "--data", f"photos={photos}", "--cache-memory", "64m", "--prefetch", "threads:2", *arguments)


def train(coordinator, farthing, *arguments, **options):
    return farthing("train", *arguments, env={"XDG_RUNTIME_DIR": str(coordinator.folder)}, **options)


def start(coordinator, farthing, *arguments):
    return subprocess.Popen([FARTHING, "train", *map(str, arguments)], cwd=farthing.folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env=environment(XDG_RUNTIME_DIR=str(coordinator.folder)))


def finish(process, code=0):
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, messages
    return messages


def weights(farthing, name):
    return tensors(farthing.folder / "runs" / name / "last.safetensors")


def cache_figures(farthing, name):
    return [event for event in record(farthing.folder / "runs" / name) if event["event"] == "batch_cache"][-1]


# ---- the same numbers ----

@pytest.mark.parametrize("form", ["batches", "encoded"])
def test_weights_are_those_of_a_run_without_the_cache(farthing, coordinator, photos, form):
    run = [*QUICK, "--epochs", 3]
    farthing("train", *run, "--data", photos, "--name", "plain")
    train(coordinator, farthing, *run, "--data", coordinator.address("photos", f"?form={form}"), "--name", "cached")
    assert weights(farthing, "cached") == weights(farthing, "plain")
    figures = cache_figures(farthing, "cached")
    assert figures["form"] == form
    assert figures["hits"] + figures["waits"] > 0
    assert figures["misses"] == 0
    assert figures["bytes"] > 0

    report = json.loads(farthing("report", "cached", "--json").out)
    assert report["batch_cache"]["hits"] == figures["hits"]
    text = farthing("report", "cached").out
    for line in ("there when needed", "waiting for the cache", "fetched by itself", "decoded by itself", "decoded for it",
                 "cache and functions", "waiting for data", "samples/s", "validation"):
        assert line in text, line


@pytest.mark.parametrize("start_with", [["launch", "--workers", 2, "--", "train"], ["train", "--accumulate", 2]])
def test_parts_of_batches_and_several_batches_an_update(farthing, coordinator, photos, start_with):
    run = [*start_with, *QUICK, "--epochs", 2]
    farthing(*run, "--data", photos, "--name", "plain")
    farthing(*run, "--data", coordinator.address("photos"), "--name", "cached",
             env={"XDG_RUNTIME_DIR": str(coordinator.folder)})
    assert weights(farthing, "cached") == weights(farthing, "plain")


def test_workers_of_a_parameter_server_have_their_shares(farthing, coordinator):
    train(coordinator, farthing, *QUICK, "--strategy", "parameter-server", "--workers", 2, "--epochs", 2, "--data",
          coordinator.address("photos"), "--name", "cached")
    jobs = coordinator.status()["jobs"]
    assert sum(job["split"] == "train" for job in jobs) >= 2 and not any(job["misses"] for job in jobs)


def test_hogwild_workers_get_batches_of_the_cache(farthing, coordinator):
    train(coordinator, farthing, *QUICK, "--strategy", "hogwild", "--workers", "2", "--epochs", 2, "--data",
          coordinator.address("photos"), "--name", "cached")
    assert cache_figures(farthing, "cached")["misses"] == 0


def test_evaluate_reads_the_cache(farthing, coordinator, photos):
    farthing("train", *QUICK, "--data", photos, "--epochs", 1, "--name", "plain")
    model = ["--model", "linear", "--image-size", "24", "--weights", "runs/plain/last.safetensors", "--json"]
    plain = farthing("evaluate", *model, "--data", photos)
    cached = farthing("evaluate", *model, "--data", coordinator.address("photos"),
                      env={"XDG_RUNTIME_DIR": str(coordinator.folder)})
    assert [json.loads(r.out)[key] for r in (plain, cached) for key in ("accuracy", "loss")][:2] == \
           [json.loads(cached.out)[key] for key in ("accuracy", "loss")]


# ---- jobs that share ----

@pytest.mark.parametrize("jobs", [2, 4])
def test_jobs_share_what_is_decoded(farthing, coordinator, jobs):
    epochs = 4
    running = [start(coordinator, farthing, *QUICK, "--lr", 0.01 * (i + 1), "--seed", i, "--epochs", epochs, "--data",
                     coordinator.address("photos", "?share=all&form=batches"), "--name", f"job-{i}")
               for i in range(jobs)]
    for process in running:
        finish(process)
    figures = [cache_figures(farthing, f"job-{i}") for i in range(jobs)]
    assert all(f["misses"] == 0 for f in figures)
    # Each epoch of the order once for all of them, and one more for who joined in the middle of the first; alone, every
    # job would decode (epochs * TRAINING) + its validation.
    assert coordinator.status()["work"]["decoded_images"] <= (epochs + jobs) * (TRAINING + VALIDATION)
    assert sum(f["decoded_by_others"] for f in figures) > 0


# ---- faults ----

def long_run(photos_or_address, name):
    return [*QUICK, "--epochs", 80, "--data", photos_or_address, "--name", name, "--checkpoint-every", "100"]


def has_steps(farthing, name):
    path = farthing.folder / "runs" / name / "events.jsonl"
    return path.exists() and any(e["event"] == "epoch" for e in record(path.parent))


@pytest.mark.parametrize("form", ["batches", "encoded"])
def test_killing_the_coordinator_changes_nothing(farthing, tmp_path, photos, form):
    farthing("train", *long_run(photos, "plain"))
    with serve(tmp_path, photos) as coordinator:
        job = start(coordinator, farthing, *long_run(coordinator.address("photos", f"?form={form}"), "cached"))
        wait_for(lambda: has_steps(farthing, "cached"), "an epoch")
        coordinator.kill()
        coordinator.start()
        finish(job)
    assert weights(farthing, "cached") == weights(farthing, "plain")


def test_a_coordinator_that_hangs_is_not_waited_for(farthing, coordinator, photos):
    farthing("train", *long_run(photos, "plain"))
    job = start(coordinator, farthing, *long_run(coordinator.address("photos"), "cached"))
    wait_for(lambda: has_steps(farthing, "cached"), "an epoch")
    os.kill(coordinator.process.pid, signal.SIGSTOP)
    try:
        finish(job)
    finally:
        os.kill(coordinator.process.pid, signal.SIGCONT)
    assert weights(farthing, "cached") == weights(farthing, "plain")


def test_a_run_is_resumed_with_the_order_that_it_had(farthing, coordinator, photos):
    farthing("train", *long_run(photos, "plain"))
    address = coordinator.address("photos")
    job = start(coordinator, farthing, *long_run(address, "cached"))
    wait_for(lambda: has_steps(farthing, "cached"), "an epoch")
    job.terminate()
    finish(job, code=75)
    run = farthing.folder / "runs/cached"
    chosen = json.loads((run / "run.json").read_text())["data"]["batch_cache"]
    assert chosen["form"] in ("encoded", "decoded", "batches") and chosen["rotation"] == 0
    train(coordinator, farthing, "--resume", "cached")
    assert json.loads((run / "run.json").read_text())["data"]["batch_cache"] == chosen
    assert json.loads((run / "run.json").read_text())["configuration"]["data"] == address
    if chosen["form"] != "decoded":
        assert weights(farthing, "cached") == weights(farthing, "plain")
    report = json.loads(farthing("report", "cached", "--json").out)
    events = [e for e in record(run) if e["event"] == "batch_cache"]
    assert report["batch_cache"]["hits"] > events[-1]["hits"]  # of both processes


# ---- bad images ----

@pytest.mark.parametrize("form", ["batches", "encoded"])
def test_bad_images_count_as_ever(farthing, tmp_path, photos, form):
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", photos, broken], check=True)
    (broken / "train/b/004.png").write_bytes(b"no picture")
    farthing("train", *QUICK, "--epochs", 2, "--data", broken, "--max-bad-images", 0.1, "--name", "plain")
    with serve(tmp_path, broken, "--max-bad-images", "0.1") as coordinator:
        address = coordinator.address("photos", f"?form={form}")
        train(coordinator, farthing, *QUICK, "--epochs", 2, "--data", address, "--max-bad-images", 0.1, "--name", "cached")
        assert weights(farthing, "cached") == weights(farthing, "plain")
        (event,) = [e for e in record(farthing.folder / "runs/cached") if e["event"] == "bad_images"]
        assert [image["name"] for image in event["images"]] == ["train/b/004.png"]
        strict = train(coordinator, farthing, *QUICK, "--epochs", 2, "--data", address, "--max-bad-images", 0, code=1)
        assert "cannot be read" in strict.err and "004.png" in strict.err


# ---- before a run ----

def doctor(farthing, coordinator, address, code):
    result = farthing("doctor", "--data", address, "--json", code=code, env={"XDG_RUNTIME_DIR": str(coordinator.folder)})
    (check,) = [json.loads(line) for line in result.out.splitlines() if json.loads(line)["check"] == "data"]
    return check


def test_doctor_looks_at_coordinator_data_set_and_data(farthing, tmp_path, photos):
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", photos, data], check=True)
    with serve(tmp_path, data) as coordinator:
        check = doctor(farthing, coordinator, coordinator.address("photos"), 0)
        assert check["state"] == "ok" and "48" in check["found"]
        check = doctor(farthing, coordinator, coordinator.address("fotos"), 1)
        assert check["state"] == "fail" and "fotos" in check["found"]
        data.rename(tmp_path / "away")
        check = doctor(farthing, coordinator, coordinator.address("photos"), 0)
        assert check["state"] == "warn" and "cannot read the data itself" in check["found"]
    check = doctor(farthing, coordinator, coordinator.address("photos"), 1)
    assert check["state"] == "fail" and "cannot reach the batch cache at 127.0.0.1" in check["found"]


def test_wrong_addresses_are_refused(farthing):
    for address in ("batches://host/name", "batches://host:1/name?form=other", "batches://host:1"):
        assert "batches://host:port/NAME" in farthing("train", *QUICK, "--data", address, code=None).err


def test_jobs_agree_on_the_split(tmp_path, farthing):
    """Also jobs that began with an older version, which held out samples at random."""
    folder = tmp_path / "uneven"
    for number, (name, count) in enumerate((("many", 40), ("few", 10))):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i:03d}.png").write_bytes(png(24, 24, number * 99 + i))
    ends = {}
    for split in ("stratified", "random"):
        direct = ["--data", folder, "--validation-split", split, "--name", f"direct-{split}"]
        farthing("train", "--model", "linear", "--batch", 8, "--threads", 1, "--image-size", 24, "--steps", 4, *direct)
        (tmp_path / split[0]).mkdir()  # sockets have short paths
        with Coordinator(tmp_path / split[0], "--data", f"photos={folder}", "--validation-split", split) as coordinator:
            job = ["--model", "linear", "--batch", 8, "--threads", 1, "--image-size", 24, "--data",
                   coordinator.address("photos", "?share=none&form=encoded")]
            train(coordinator, farthing, *job, "--steps", 4, "--name", split)
            run = json.loads((farthing.folder / "runs" / split / "run.json").read_text())
            assert run["configuration"]["validation-split"] == split
            ends[split] = record(farthing.folder / "runs" / split)[-1]["loss"]
            assert weights(farthing, split) == weights(farthing, f"direct-{split}")
            assert ends[split] == record(farthing.folder / "runs" / f"direct-{split}")[-1]["loss"]
            other = {"stratified": "random", "random": "stratified"}[split]
            assert f"--validation-split {other}" in train(coordinator, farthing, *job, "--steps", 4, "--validation-split",
                                                          other, code=1).err
    assert ends["stratified"] != ends["random"]
