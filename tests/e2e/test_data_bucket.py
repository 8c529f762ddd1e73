"""--data in a bucket: class folders, tars and index files on a real S3 server; the disk cache; bad weather."""
import http.server
import io
import json
import subprocess
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import PATIENCE_S, Bucket, Program, png, tensors, wait_for
from fault_proxy import FaultProxy, Rule

TRAIN = ["train", "--model", "cifar-cnn", "--image-size", "16", "--batch", "8", "--threads", "1", "--seed", "3"]


def pictures(count=8):
    """Paths and bytes: classes that differ in colour, and pictures in size."""
    return {f"{split}/{name}/{number:03}.png": png(40 + number % 7, 36, (tone + 11 * number) % 200)
            for split, share in (("train", count), ("val", count // 2))
            for tone, name in ((20, "cat"), (120, "dog"), (180, "owl")) for number in range(share)}


def write_tree(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def fill(bucket, files, prefix=""):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: bucket.write(prefix + item[0], item[1]), files.items()))


class Data:
    """The same pictures as a folder, as objects, as tars, in WebDataset's way and with an index file."""

    def __init__(self, folder, server):
        self.bucket = Bucket(server)
        self.files = pictures()
        self.folder = write_tree(folder / "set", self.files)
        names = sorted({path.split("/")[1] for path in self.files})
        fill(self.bucket, self.files, "objects/")
        for number in range(3):
            self.bucket.write(f"tars/part-{number}.tar", tar(dict(list(self.files.items())[number::3])))
        samples = {"train": {}, "val": {}}
        for number, (path, content) in enumerate(self.files.items()):
            split, name, _ = path.split("/")
            samples[split][f"{number:06}.png"] = content
            samples[split][f"{number:06}.cls"] = str(names.index(name)).encode()
            samples[split][f"{number:06}.json"] = b"{}"
        for split, members in samples.items():
            self.bucket.write(f"wds/{split}-000000.tar", tar(members))
        rows = "".join(f"{path.replace('/', '-')},{path.split('/')[1]},{path.split('/')[0]}\n" for path in self.files)
        fill(self.bucket, {path.replace("/", "-"): content for path, content in self.files.items()}, "index/")
        self.bucket.write("index/index.csv", ("path,label,split\n" + rows).encode())
        self.index = rows


@pytest.fixture(scope="module")
def data(tmp_path_factory, s3_server):
    return Data(tmp_path_factory.mktemp("data"), s3_server)


@pytest.fixture
def program(farthing, data):
    """Runs farthing with the bucket's environment and a cache folder of the test's own."""
    def run(*arguments, env=None, **options):
        all_of_it = {**data.bucket.environment, "FARTHING_CACHE": str(farthing.folder / "cache"), **(env or {})}
        return farthing(*arguments, env=all_of_it, **options)
    run.folder = farthing.folder
    return run


# ---- what can be read ----

def test_training_is_the_same_wherever_the_data_lies(program, data):
    """Bit for bit, also where every picture comes from the disk."""
    def weights(name, address, *more):
        program(*TRAIN, "--data", address, "--epochs", 2, "--name", name, *more)
        return tensors(program.folder / "runs" / name / "last.safetensors")
    wanted = weights("folder", data.folder)
    assert weights("objects", data.bucket.url + "/objects") == wanted
    assert weights("tars", data.bucket.url + "/tars/") == wanted
    kept = ["--data-cache", "10m", "--data-cache-folder", "kept"]
    assert weights("cold", data.bucket.url + "/tars", *kept) == wanted
    assert len([path for path in (program.folder / "kept").glob("??/*") if path.name[0] != "."]) == len(data.files)
    assert weights("warm", data.bucket.url + "/tars", *kept) == wanted


@pytest.mark.parametrize("way", ["objects", "tars", "wds", "index", "index/index.csv"])
def test_inspect_and_doctor(program, data, way):
    address = f"{data.bucket.url}/{way}"
    seen = json.loads(program("data", "inspect", address, "--json").out)
    here = json.loads(program("data", "inspect", data.folder, "--json").out)
    for name in ("mean", "deviation"):
        assert seen.get(name) == here.get(name)
    assert "24 training and 12 validation" in program("data", "inspect", address).out
    checks = [json.loads(line) for line in program("doctor", "--data", address, "--json", code=None).out.splitlines()]
    (check,) = [check for check in checks if check["check"] == "data"]
    assert check["state"] == "ok" and "3 classes" in check["found"]


def test_a_web_server_with_an_index_file(program, data, tmp_path):
    folder = write_tree(tmp_path / "web", {path.replace("/", "-"): content for path, content in data.files.items()})
    (folder / "list.jsonl").write_text("".join(
        json.dumps(dict(zip(("path", "label", "split"), row.split(",")))) + "\n" for row in data.index.splitlines()))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=folder)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/list.jsonl"
        assert "24 training and 12 validation" in program("data", "inspect", address).out
        (folder / "train-cat-000.png").unlink()
        result = program("data", "inspect", address)
        assert "unreadable: 1" in result.out and "train-cat-000.png" in result.out
    finally:
        server.shutdown()
        server.server_close()


def test_an_archive_is_downloaded_once(program, data):
    data.bucket.write("one/set.tar", tar(data.files))
    address = data.bucket.url + "/one/set.tar"
    for number in range(2):
        result = program("data", "inspect", address)
        assert "24 training and 12 validation" in result.out
        assert ("downloading" in result.err) == (number == 0)


# ---- what goes wrong ----

def test_one_clear_line(program, data):
    name = data.bucket.name
    data.bucket.write("text/readme.txt", b"nothing here")
    for address, env, message in (
            ("s3://no-such-bucket-here/x", {}, "no-such-bucket-here"),
            (f"s3://{name}/nothing", {}, f"s3://{name}/nothing is empty"),
            (f"s3://{name}/text", {}, f"s3://{name}/text holds no images"),
            (f"s3://{name}/objects", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key does not fit the access key"),
            (f"s3://{name}/gone.tar", {}, f"there is no s3://{name}/gone.tar")):
        result = program("data", "inspect", address, env=env, code=1)
        assert message in result.err and result.err.count("\n") == 1, result.err
        assert "testsecret" not in result.err


def test_an_object_that_is_replaced_or_removed_in_mid_run(program, data, s3_server, monkeypatch):
    """A bad image each, named, and never the new pixels; more than allowed of them end the run."""
    bucket = Bucket(s3_server)
    fill(bucket, {f"{split}/{name}/{number:03}.png": png(40, 36, 20 + number)
                  for split, count in (("train", 60), ("val", 4)) for name in ("a", "b") for number in range(count)})
    for name, value in {**bucket.environment, "FARTHING_CACHE": str(program.folder / "cache")}.items():
        monkeypatch.setenv(name, value)
    process = Program(program.folder).start(*TRAIN, "--data", bucket.url, "--epochs", 100000, "--name", "run",
                                            "--max-bad-images", "0.02", stdout=subprocess.DEVNULL)
    said = []
    reader = threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")))
    reader.start()
    try:
        wait_for(lambda: (program.folder / "runs/run/events.jsonl").exists(), "the run")
        bucket.write("train/a/001.png", png(40, 36, 250))
        bucket.boto.delete_object(Bucket=bucket.name, Key="train/b/002.png")
        wait_for(lambda: sum("cannot be read" in line for line in said) == 2, "two bad images")
        lines = " ".join(said)
        assert "train/a/001.png" in lines and "replaced meanwhile" in lines
        assert "train/b/002.png" in lines and "any more" in lines
        assert process.poll() is None
        bucket.boto.delete_object(Bucket=bucket.name, Key="train/b/003.png")
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        process.wait()
        reader.join()
    assert "3 of 128 images cannot be read, more than the share of 0.02 allowed" in said[-1]


def test_weather(program, data, s3_server):
    """Broken connections and errors are tried again; what comes is right."""
    with FaultProxy(s3_server.port) as proxy:
        proxy.rules = [Rule("status", code=503, method="GET", chance=0.1), Rule("cut_answer", method="GET", after=50,
                       chance=0.1), Rule("refuse", method="GET", chance=0.1)]
        program(*TRAIN, "--data", data.bucket.url + "/tars", "--epochs", 1, "--name", "bad",
                env=s3_server.environment(proxy.endpoint))
        assert sum(proxy.count(kind) for kind in ("status", "cut_answer", "refuse")) > 5
    program(*TRAIN, "--data", data.folder, "--epochs", 1, "--name", "good")
    both = [tensors(program.folder / "runs" / name / "last.safetensors") for name in ("bad", "good")]
    assert both[0] == both[1]


def test_objects_are_checked_against_their_etags(program, data, s3_server):
    """A flipped bit in three of ten answers is noticed, and the object fetched again, before it is used or kept."""
    with FaultProxy(s3_server.port) as proxy:
        proxy.rules = [Rule("flip", method="GET", target=r"/objects/.*\.png", chance=0.3, after=60)]
        program(*TRAIN, "--data", data.bucket.url + "/objects", "--data-cache", "10m", "--epochs", 2, "--name", "flipped",
                env=s3_server.environment(proxy.endpoint))
        assert proxy.count("flip") > 3
    program(*TRAIN, "--data", data.folder, "--epochs", 2, "--name", "whole")
    both = [tensors(program.folder / "runs" / name / "last.safetensors") for name in ("flipped", "whole")]
    assert both[0] == both[1]
