"""farthing store against a real S3 server: what it writes boto3 reads and the other way round; links; refusals."""
import hashlib
import http.server
import os
import pty
import random
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import FARTHING, environment

STRANGE = ["plain", "with space", "ü/ö ñ", "a+b&c=d?e#f%20g", "q'uote\"<x>", "~tilde_.-", "deep/er/and/deeper"]


@pytest.fixture
def store(farthing, bucket):
    """Runs `farthing store` with the bucket's environment; notes of uploads go to the test's folder."""
    def run(*arguments, env=None, **options):
        all_of_it = {**bucket.environment, "XDG_CACHE_HOME": str(farthing.folder / "cache"), **(env or {})}
        return farthing("store", *arguments, env=all_of_it, **options)
    run.folder = farthing.folder
    return run


def make_file(path, size, seed=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


# ---- both directions ----

def test_boto3_reads_what_farthing_wrote(store, bucket):
    for number, name in enumerate(STRANGE):
        make_file(store.folder / "tree" / name, 1000 * number, number)
    store("cp", "-r", store.folder / "tree", bucket.url + "/t")
    assert sorted(bucket.keys()) == sorted("t/" + name for name in STRANGE)
    for name in STRANGE:
        assert bucket.read("t/" + name) == (store.folder / "tree" / name).read_bytes()


def test_farthing_reads_what_boto3_wrote(store, bucket):
    for number, name in enumerate(STRANGE):
        bucket.write("t/" + name, random.Random(number).randbytes(1000 * number))
    store("cp", "-r", bucket.url + "/t", store.folder / "back", "--verify")
    for number, name in enumerate(STRANGE):
        assert (store.folder / "back" / name).read_bytes() == random.Random(number).randbytes(1000 * number)
    assert sorted(store("ls", "-r", bucket.url + "/t").out.splitlines()) == sorted(STRANGE)


@pytest.mark.parametrize("size", [5 << 20, (16 << 20) + 1, 40_000_000])
def test_large_objects_in_parts(store, bucket, size):
    from boto3.s3.transfer import TransferConfig
    large = make_file(store.folder / "large", size)
    store("cp", large, bucket.url + "/ours")
    assert hashlib.sha256(bucket.read("ours")).digest() == hashlib.sha256(large.read_bytes()).digest()
    bucket.boto.upload_file(str(large), bucket.name, "theirs", Config=TransferConfig(multipart_chunksize=5 << 20))
    for key in ("ours", "theirs"):
        store("cp", f"{bucket.url}/{key}", store.folder / key)
        assert (store.folder / key).read_bytes() == large.read_bytes()
    assert not bucket.boto.list_multipart_uploads(Bucket=bucket.name).get("Uploads")


def test_copies_between_buckets_and_stores(store, bucket, s3_server):
    other = s3_server.create_bucket()
    make_file(store.folder / "in" / "small", 1000)
    make_file(store.folder / "in" / "large", 33 << 20)
    store("cp", "-r", store.folder / "in", bucket.url)
    store("cp", "-r", bucket.url, f"s3://{other}/x", "--verify")
    store("cp", "-r", f"s3://{other}/x", store.folder / "out", "--json")
    for name in ("small", "large"):
        assert (store.folder / "out" / name).read_bytes() == (store.folder / "in" / name).read_bytes()


def test_lists_of_many_pages(store, bucket):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: bucket.write(f"n/{number:04}", b"x" * number), range(1100)))
    bucket.write("na", b"beside, not below")
    lines = store("ls", "-r", bucket.url + "/n").out.splitlines()
    assert lines == [f"{number:04}" for number in range(1100)]
    assert store("ls", bucket.url).out.split() == ["n/", "na"]
    assert "1,101 objects" in store("ls", "-lr", bucket.url).out
    assert "1,100 objects" in (err := store("rm", "-r", "-y", bucket.url + "/n", code=1).err) and "--force" in err
    store("rm", "-r", "--force", bucket.url + "/n")
    assert bucket.keys() == ["na"]


def test_styles_of_addresses(store, bucket, s3_server):
    bucket.write("a", b"hello")
    bare = {"AWS_ENDPOINT_URL": "", "AWS_REGION": ""}
    for style in ("path", "host", "auto"):
        result = store("cat", bucket.url + "/a", "--s3-endpoint", f"http://localhost:{s3_server.port}", "--s3-style", style,
                       "--s3-region", "eu-central-1", env=bare)
        assert result.out == "hello"


def test_profiles(store, bucket):
    bucket.write("a", b"hello")
    files = {name: store.folder / name for name in ("credentials", "config")}
    files["credentials"].write_text(f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n\n[work]\n"
                                    f"aws_access_key_id={bucket.environment['AWS_ACCESS_KEY_ID']}\n"
                                    f"aws_secret_access_key = {bucket.environment['AWS_SECRET_ACCESS_KEY']}\n")
    files["config"].write_text("[profile work]\nregion = eu-west-1\n")
    env = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": str(files["credentials"]),
           "AWS_CONFIG_FILE": str(files["config"])}
    assert store("cat", bucket.url + "/a", "--profile", "work", env=env).out == "hello"
    assert store("cat", bucket.url + "/a", env={**env, "AWS_PROFILE": "work"}).out == "hello"
    assert "access key" in store("cat", bucket.url + "/a", env=env, code=1).err
    files["config"].write_text(f"[profile work]\nendpoint_url = {bucket.environment['AWS_ENDPOINT_URL']}\n[profile sso]\n"
                               f"sso_region = eu-west-1\n")
    env["AWS_ENDPOINT_URL"] = ""
    assert store("cat", bucket.url + "/a", "--profile", "work", env=env).out == "hello"
    assert "export-credentials" in store("cat", bucket.url + "/a", "--profile", "sso", env=env, code=1).err


# ---- names that only buckets have ----

SLASHES = ["/lead", "//two", "a//b", "a/c", "deep//er///x"]


def check_slashes(run, url, write, keys, folder):
    """Slashes of a bucket's names count as they are; write(key, bytes) and keys() are the second opinion."""
    for name in SLASHES:
        write(name, name.encode())
    assert run("ls", "-r", url).out.splitlines() == sorted(SLASHES)
    assert run("ls", url).out.splitlines() == ["/", "a/", "deep/"]
    assert run("ls", url + "//").out.splitlines() == ["/", "lead"]
    assert run("ls", url + "/a//").out.splitlines() == ["b"]
    for name in SLASHES:
        assert run("cat", f"{url}/{name}").out == name
    run("cp", "-r", url, url + "/copy//", "--verify")
    assert sorted(keys()) == sorted(SLASHES + ["copy//" + name for name in SLASHES])
    run("rm", "-r", "--yes", url + "/copy//")
    run("cp", "-r", url, folder / "tree")
    found = [str(path.relative_to(folder / "tree")) for path in (folder / "tree").rglob("*") if path.is_file()]
    assert sorted(found) == ["a/b", "a/c", "deep/er/x", "lead", "two"]
    run("cp", folder / "tree" / "lead", f"{url}//new")
    run("rm", f"{url}//lead")
    assert "/new" in keys() and "/lead" not in keys()
    write("a/b", b"another")
    said = run("cp", "-r", url, folder / "other", code=1).err
    assert "'a//b'" in said and "'a/b'" in said and not (folder / "other").exists()
    run("rm", f"{url}/a//b")
    assert "a/b" in keys() and "a//b" not in keys()


def test_slashes_count(store, bucket):
    check_slashes(store, bucket.url, bucket.write, bucket.keys, store.folder)


def test_markers_of_folders(store, bucket):
    for name in ("dir/", "dir/x", "empty/"):
        bucket.write(name, b"x" if name == "dir/x" else b"")
    assert store("ls", bucket.url).out.splitlines() == ["dir/", "empty/"]
    assert store("ls", bucket.url + "/dir").out.splitlines() == ["x"]
    store("cp", "-r", bucket.url, store.folder / "tree")
    assert [path.name for path in (store.folder / "tree").rglob("*") if path.is_file()] == ["x"]
    store("rm", "-r", "--yes", bucket.url + "/dir")
    assert bucket.keys() == ["empty/"]


def test_names_that_lead_elsewhere_are_left_out_and_counted(store, bucket):
    for name in ("a", "b/../../c", "./d"):
        bucket.write(name, b"x")
    result = store("cp", "-r", bucket.url, store.folder / "tree", code=1)
    assert "2 objects are left out" in result.err
    assert [path.name for path in store.folder.rglob("*") if path.is_file()] == ["a"]
    assert "cannot be a key" in store("cat", bucket.url + "/b/../../c", code=1).err


# ---- links ----

def test_links(store, bucket):
    bucket.write("a b", b"hello")
    link = store("presign", bucket.url + "/a b", "--expires", "10m").out.strip()
    assert urllib.request.urlopen(link).read() == b"hello"
    assert bucket.environment["AWS_SECRET_ACCESS_KEY"] not in link
    put = store("presign", bucket.url + "/new", "--method", "put").out.strip()
    urllib.request.urlopen(urllib.request.Request(put, data=b"put by a link", method="PUT"))
    assert bucket.read("new") == b"put by a link"
    for wrong in (link.replace("a%20b", "new"), put):  # another object; a link to put
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wrong)
        assert refused.value.code == 403
    brief = store("presign", bucket.url + "/a b", "--expires", "1s").out.strip()
    time.sleep(2.5)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(brief)
    # A link is itself a store for reading, and its signature stays out of messages.
    assert store("cat", link).out == "hello"
    store("cp", link, store.folder / "by-link")
    assert (store.folder / "by-link").read_bytes() == b"hello"
    result = store("cat", put, code=1)
    assert "Signature" not in result.err and "refuses" in result.err


# ---- web servers ----

class Web(http.server.SimpleHTTPRequestHandler):
    """Python's own, which has no ranges; /moved/x leads to /x and /circle to itself."""

    def send_head(self):
        if self.path.startswith(("/moved/", "/circle")):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved", ""))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return super().send_head()

    def log_message(self, *_):
        pass


@pytest.fixture
def web(tmp_path):
    root = tmp_path / "web"
    root.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Web(*a, directory=str(root)))
    server.root, server.url = root, f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_web_servers_are_read(farthing, web):
    make_file(web.root / "sub" / "large", 20_000_000)
    (web.root / "small").write_text("hello")
    assert farthing("store", "cat", web.url + "/small").out == "hello"
    assert farthing("store", "cat", web.url + "/moved/small").out == "hello"
    farthing("store", "cp", web.url + "/sub/large", "got")
    assert (farthing.folder / "got").read_bytes() == (web.root / "sub" / "large").read_bytes()
    for arguments, words in ((["cat", web.url + "/none"], "no object"), (["cat", web.url + "/circle"], "sends on"),
                             (["ls", web.url + "/sub"], "listed"), (["rm", web.url + "/small"], "reading"),
                             (["cp", "got", web.url + "/new"], "reading"), (["presign", web.url + "/small"], "only buckets")):
        assert words in farthing("store", *arguments, code=1).err


# ---- the command itself ----

def test_wrong_usage(farthing):
    for arguments, words in (([], "ls, cat, cp, rm or presign"), (["move"], "move"), (["ls"], "address"), (["cp", "a"], "cp"),
                             (["ls", "a", "--s3-style", "wrong"], "auto, path, host"), (["ls", "--nonsense"], "nonsense"),
                             (["presign", "a", "--method", "post"], "get, put")):
        assert words in farthing("store", *arguments, code=2).err
    for arguments, words in ((["ls", "none"], "nothing"), (["cat", "none"], "no object"), (["cp", "none", "x"], "no object"),
                             (["ls", "ftp://x/y"], "ftp"), (["cp", ".", "x"], "-r"), (["rm", "none"], "no object"),
                             (["ls", "s3://"], "bucket")):
        assert words in farthing("store", *arguments, code=1, env={"AWS_EC2_METADATA_DISABLED": "true"}).err


def test_deleting_asks_first(store, bucket):
    for name in ("keep/a", "keep/b", "other"):
        bucket.write(name, b"x")
    assert "--yes" in store("rm", "-r", bucket.url + "/keep", code=1).err
    assert "--all" in store("rm", "-r", "--yes", bucket.url, code=1).err
    assert "-r" in store("rm", bucket.url + "/keep/", code=1).err
    assert "no object" in store("rm", bucket.url + "/keep", code=1).err
    assert len(bucket.keys()) == 3
    store("rm", "-r", "--yes", "--all", bucket.url)
    assert bucket.keys() == []


def test_a_bar_on_a_terminal(store, bucket):
    import subprocess
    large = make_file(store.folder / "large", 60_000_000)
    leader, follower = pty.openpty()
    done = subprocess.Popen([FARTHING, "store", "cp", large, bucket.url + "/large"], stdout=subprocess.PIPE, stderr=follower,
                            stdin=subprocess.DEVNULL, env=environment(**bucket.environment, XDG_CACHE_HOME=str(store.folder)))
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:
        pass  # the other end was closed
    os.close(leader)
    assert done.wait(60) == 0 and b"copied 1 object" in done.stdout.read()
    assert "█" in shown.decode() and "/s" in shown.decode() and "57" in shown.decode()
    assert shown.endswith(b"\r\x1b[K")  # and taken away


def test_the_doctor_uses_a_store(farthing, bucket, web):
    import json

    def examine(*addresses, code=0):
        lines = farthing("doctor", "--json", *addresses, env=bucket.environment, code=code).out.splitlines()
        return [(line["check"], line["state"]) for line in map(json.loads, lines) if line["check"].startswith("store")]
    fine = [("store", "ok"), ("store: writing", "ok"), ("store: conditions", "ok")]
    assert examine(bucket.url, "new-folder") == fine + fine
    assert bucket.keys() == [] and not (farthing.folder / "new-folder").exists()
    assert examine("s3://no-such-bucket", code=1) == [("store", "fail")]
    assert examine(web.url) == [("store", "warn"), ("store: writing", "warn")]  # nothing is written there, so no conditions


def test_ls_goes_on_after_one_that_is_missing(farthing):
    for name in ("a", "c"):
        (farthing.folder / name).mkdir()
        (farthing.folder / name / f"in-{name}").write_text("x")
    listed = farthing("store", "ls", "a", "b", "c", code=1)
    assert listed.out.split() == ["in-a", "in-c"]
    assert listed.err.splitlines() == ["farthing: error: there is nothing at b"]
