"""Bad weather between farthing and a real S3 server: each trouble either succeeds late or fails with what to do, and nothing
is ever half there."""
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
from conftest import FARTHING, SANITIZED, environment, wait_for
from fault_proxy import FaultProxy, Rule
from test_store import make_file, store  # noqa: F401 (a fixture)

LARGE = 40_000_000  # five parts


@pytest.fixture
def proxy(s3_server):
    with FaultProxy(s3_server.port) as running:
        yield running


@pytest.fixture
def through(store, proxy):  # noqa: F811
    """`farthing store` through the proxy."""
    def run(*arguments, env=None, **options):
        return store(*arguments, env={"AWS_ENDPOINT_URL": proxy.endpoint, **(env or {})}, **options)
    run.folder = store.folder
    return run


@pytest.fixture
def large(tmp_path):
    return make_file(tmp_path / "large", LARGE)


# ---- trouble that passes ----

WEATHER = {
    "500 half the time": [Rule("status", code=500, chance=0.5)],
    "503 slow down": [Rule("status", code=503, headers={"Retry-After": "1"}, times=2), Rule("status", code=503, chance=0.3)],
    "connections cut in mid-part": [Rule("cut_request", after=1_000_000, method="PUT", chance=0.5),
                                    Rule("cut_answer", after=1_000_000, method="GET", chance=0.5)],
    "answers lost": [Rule("lose_answer", chance=0.3)],
    "connections refused": [Rule("refuse", chance=0.4)],
    "bits turned on the way": [Rule("flip", after=70_000, method="GET", times=2, skip=1)],
    "answers too short": [Rule("shorten", after=1000, method="GET", target="large", chance=0.3)],
    "late": [Rule("delay", seconds=0.5, chance=0.3)],
}


@pytest.mark.parametrize("name", WEATHER)
def test_succeeds_late(through, proxy, bucket, large, name):
    proxy.rules = WEATHER[name]
    through("cp", large, bucket.url + "/large")
    assert bucket.read("large") == large.read_bytes()
    through("cp", bucket.url + "/large", through.folder / "back")
    assert (through.folder / "back").read_bytes() == large.read_bytes()
    assert proxy.count("") < proxy.count(), "the weather was never bad"
    proxy.rules = []
    assert bucket.keys() == ["large"]


def uploads_of(bucket):
    return {each["UploadId"] for each in bucket.boto.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])}


def test_an_upload_begun_twice_leaves_none_behind(through, proxy, bucket, large):
    """Those of others to the same key stay: one begun long before, one that has a part, one beside it."""
    def begin(key="large"):
        return bucket.boto.create_multipart_upload(Bucket=bucket.name, Key=key)["UploadId"]
    old = begin()
    time.sleep(3.5)
    busy, beside = begin(), begin("large-too")
    bucket.boto.upload_part(Bucket=bucket.name, Key="large", UploadId=busy, PartNumber=1, Body=b"x")
    proxy.rules = [Rule("lose_answer", method="POST", target="uploads", times=2)]
    through("cp", large, bucket.url + "/large")
    assert proxy.count("lose_answer") == 2
    assert bucket.read("large") == large.read_bytes()
    assert uploads_of(bucket) == {old, busy, beside}
    fresh = begin()  # it could be ours as well: then neither is ended
    proxy.rules = [Rule("lose_answer", method="POST", target="uploads", times=1)]
    large.write_bytes(large.read_bytes()[::-1])
    through("cp", large, bucket.url + "/large")
    assert uploads_of(bucket) >= {old, busy, beside, fresh}


def test_the_server_restarts_during_a_copy(store, bucket, s3_server, large):  # noqa: F811
    gate = FaultProxy(s3_server.port)
    with gate as proxy:
        proxy.rules = [Rule("delay", method="PUT", seconds=0.3)]
        env = {**bucket.environment, "AWS_ENDPOINT_URL": proxy.endpoint, "XDG_CACHE_HOME": str(store.folder)}
        process = subprocess.Popen([FARTHING, "store", "cp", large, bucket.url + "/large"], env=environment(**env),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(lambda: proxy.count(method="PUT") >= 2, "a part on its way")
        s3_server.kill_gateway()
        time.sleep(0.5)
        s3_server.start_gateway()
        assert process.wait(120) == 0
    assert bucket.read("large") == large.read_bytes()


@pytest.mark.skipif(not shutil.which("faketime") or SANITIZED, reason="no faketime, or a sanitizer that it breaks")
@pytest.mark.parametrize("skew", ["-3h", "+2h"])
def test_a_wrong_clock(store, bucket, large, skew):  # noqa: F811
    env = environment(**bucket.environment, XDG_CACHE_HOME=str(store.folder), FAKETIME_DONT_FAKE_MONOTONIC="1")

    def run(*arguments):
        return subprocess.run(["faketime", "-f", skew, FARTHING, "store", *map(str, arguments)], env=env, timeout=120,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
    done = run("cp", large, bucket.url + "/large")
    assert done.returncode == 0 and "clock" in done.stderr, done.stderr
    assert bucket.read("large") == large.read_bytes()
    assert run("cp", bucket.url + "/large", store.folder / "back").returncode == 0
    assert (store.folder / "back").read_bytes() == large.read_bytes()


# ---- trouble that stays ----

def refusal(store, *arguments, env=None, secret="testsecret"):  # noqa: F811
    result = store(*arguments, env=env, code=1)
    assert secret not in result.err and "Signature=" not in result.err
    return result.err


def test_credentials_that_are_wrong(store, bucket, proxy, large):  # noqa: F811
    bucket.write("a", b"x")
    target = bucket.url + "/a"
    for arguments in (["cat", target], ["ls", bucket.url], ["cp", large, target], ["rm", target]):
        assert "secret key" in refusal(store, *arguments, env={"AWS_SECRET_ACCESS_KEY": "wrongsecret"}, secret="wrongsecret")
        assert "AWS_ACCESS_KEY_ID" in refusal(store, *arguments, env={"AWS_ACCESS_KEY_ID": "nobody"})
    nothing = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    said = refusal(store, "cp", large, target, env=nothing)
    assert "AWS_ACCESS_KEY_ID" in said
    proxy.rules = [Rule("status", code=400, reason="ExpiredToken")]
    assert "expired" in refusal(store, "ls", bucket.url, env={"AWS_ENDPOINT_URL": proxy.endpoint})
    assert bucket.read("a") == b"x"


def test_what_is_missing(store, bucket, large):  # noqa: F811
    for arguments in (["ls", "s3://no-such-bucket"], ["cp", large, "s3://no-such-bucket/x"],
                      ["cat", "s3://no-such-bucket/x"]):
        assert "no-such-bucket" in refusal(store, *arguments)
    assert "no object" in refusal(store, "cat", bucket.url + "/none")
    assert "nothing" in refusal(store, "ls", bucket.url + "/none")
    assert "nothing below" in refusal(store, "cp", "-r", bucket.url + "/none", "x")


def test_nobody_answers(store, bucket, proxy, s3_server):  # noqa: F811
    begun = time.monotonic()
    proxy.rules = [Rule("hold")]
    assert refusal(store, "cat", bucket.url + "/a", "--timeout", "2s", env={"AWS_ENDPOINT_URL": proxy.endpoint})
    nobody = refusal(store, "cat", bucket.url + "/a", "--timeout", "2s", env={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert "connect" in nobody.lower() and "is the address right" in nobody
    assert refusal(store, "cat", bucket.url + "/a", "--timeout", "2s",
                   env={"AWS_ENDPOINT_URL": "http://no-such-host.invalid"})
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("kind", ["flip", "shorten", "cut_answer"])
def test_a_download_that_never_comes_right(through, proxy, bucket, kind):
    content = os.urandom(200_000)
    bucket.write("a", content)
    proxy.rules = [Rule(kind, method="GET", after=1000)]
    (through.folder / "old").write_bytes(b"old")
    through("cp", bucket.url + "/a", through.folder / "old", "--timeout", "2s", code=1)
    assert (through.folder / "old").read_bytes() == b"old"
    assert sorted(path.name for path in through.folder.iterdir() if path.name.startswith(".tmp")) == []


# ---- full disks ----

def test_a_full_disk(store, bucket, large):  # noqa: F811
    """As a limit on file sizes, which needs no rights; and as a small tmpfs where one can be mounted."""
    bucket.write("large", large.read_bytes())
    old = store.folder / "old"
    old.write_bytes(b"old")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
    result = store("cp", bucket.url + "/large", old, code=1, preexec_fn=limit)
    assert "ulimit" in result.err or "large" in result.err
    result = store("cp", large, store.folder / "copy" / "x", code=1, preexec_fn=limit)
    assert "ulimit" in result.err
    assert old.read_bytes() == b"old" and not list(store.folder.glob("copy/*"))

    small = store.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here; the rest passed")
    try:
        (small / "old").write_bytes(b"old")
        for source in (bucket.url + "/large", large):
            result = store("cp", source, small / "old", code=1)
            assert any(words in result.err for words in ("space", "disk full", "no room")), result.err
            assert [path.name for path in small.iterdir()] == ["old"] and (small / "old").read_bytes() == b"old"
    finally:
        subprocess.run(["umount", small], check=True)


# ---- being stopped ----

def start_copy(folder, bucket, endpoint, *arguments):
    env = {**bucket.environment, "AWS_ENDPOINT_URL": endpoint, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen([FARTHING, "store", "cp", *arguments], env=environment(**env), stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 75), (signal.SIGKILL, -9)])
def test_a_stopped_upload_is_taken_up_again(through, proxy, bucket, large, number, code):
    proxy.rules = [Rule("hold", method="PUT", target="partNumber", skip=2)]
    process = start_copy(through.folder, bucket, proxy.endpoint, large, bucket.url + "/large")
    notes = through.folder / "cache" / "farthing" / "uploads"
    wait_for(lambda: sum(note.read_text().count("part ") for note in notes.glob("*")) == 2, "two parts done and noted")
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == code, said
    assert "continues" in said or number == signal.SIGKILL
    assert bucket.keys() == []
    proxy.rules, proxy.requests = [], []
    through("cp", large, bucket.url + "/large")
    parts = sum("partNumber" in each.target for each in proxy.requests)
    assert parts == 3, f"{parts} parts of 5 were sent again"
    assert bucket.read("large") == large.read_bytes()
    assert not bucket.boto.list_multipart_uploads(Bucket=bucket.name).get("Uploads")


def test_a_stopped_download_leaves_nothing(through, proxy, bucket, large):
    bucket.write("large", large.read_bytes())
    proxy.rules = [Rule("hold", method="GET", skip=2)]
    process = start_copy(through.folder, bucket, proxy.endpoint, bucket.url + "/large", through.folder / "new")
    wait_for(lambda: proxy.count("hold") > 0, "a held part")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 75
    assert not (through.folder / "new").exists()
    assert not list(through.folder.glob(".tmp*"))
