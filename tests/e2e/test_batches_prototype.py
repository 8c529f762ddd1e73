"""The prototype's failures, each by name: none of them may come back."""
import json

from batches_server import Coordinator
from conftest import png
from test_batches_prefetch import JOB, Function, Worker, job, prefetchers, same  # noqa: F401
from test_images import grey_png


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
            assert tries and max(tries.values()) <= 3
            work = coordinator.status()["work"]
            assert work["prepared"] == 0 and work["failed_for_good"] <= len(tries)
            assert prefetchers(coordinator)[function.url]["tries"] <= 3 * len(tries) + 8  # those under way
        assert len(coordinator.errors.read_text().splitlines()) < 40


def test_cached_means_cached(tmp_path, farthing, job):  # noqa: F811
    """The prototype's functions said "cached" when they had failed at a grey image among colour ones. Here grey images are images, and
    what says that it has cached what it has not is not believed."""
    photos = tmp_path / "photos"
    for i in range(40):
        path = photos / ("val" if i % 5 == 0 else "train") / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(grey_png(24, lambda x, y, i=i: (x * y + i) % 256) if i == 13 else png(20 + i % 5, 30, 4 * i))
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
            makers, work = prefetchers(coordinator), coordinator.status()["work"]
            assert makers[liar.url]["done"] == 0 and makers[url]["done"] == work["prepared"] > 0
            assert makers[liar.url]["tries"] == 0 or "which it is not" in makers[liar.url]["last_failure"]
            assert makers[url]["failures"] == 0 and work["bad_samples"] == 0
