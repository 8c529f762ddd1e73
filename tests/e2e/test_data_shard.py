"""`farthing data shard --to`: parts of a set for functions, in folders and buckets, and their presigned addresses."""
import gzip
import hashlib
import io
import json
import signal
import tarfile
import urllib.error
import urllib.request

import pytest
from conftest import png, wait_for, write_mnist


def parts_of(read, names):
    return [tarfile.open(fileobj=io.BytesIO(read(name)), mode="r:gz") for name in names]


def idx_samples(tar):
    images = tar.extractfile("MNIST/raw/train-images-idx3-ubyte").read()
    labels = tar.extractfile("MNIST/raw/train-labels-idx1-ubyte").read()[8:]
    count = int.from_bytes(images[4:8], "big")
    side = int.from_bytes(images[8:12], "big") * int.from_bytes(images[12:16], "big")
    assert len(labels) == count and len(images) == 16 + count * side
    return [(images[16 + i * side:16 + (i + 1) * side], labels[i]) for i in range(count)]


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path / "mnist", train=200, test=20)
    return tmp_path / "mnist"


def read_mnist(folder):
    images = (folder / "train-images-idx3-ubyte").read_bytes()[16:]
    labels = (folder / "train-labels-idx1-ubyte").read_bytes()[8:]
    return [(images[i * 784:(i + 1) * 784], labels[i]) for i in range(len(labels))]


def read_manifest(folder):
    return json.loads((folder / "shards.json").read_text())


def test_every_sample_is_in_one_part(farthing, mnist, tmp_path):
    folder = tmp_path / "a" / "shards"
    done = farthing("data", "shard", "--data", mnist, "--parts", 3, "--to", folder)
    assert f"wrote {folder}: 3 parts of mnist, 200 samples" in done.out
    manifest = read_manifest(folder)
    assert {key: manifest[key] for key in ("format", "dataset", "classes", "channels", "height", "width", "samples")} == {
        "format": 1, "dataset": "mnist", "classes": 10, "channels": 1, "height": 28, "width": 28, "samples": 200}
    assert manifest["normalization"] == {"mean": [0.1307], "std": [0.3081]}
    for shard in manifest["shards"]:
        body = (folder / shard["name"]).read_bytes()
        assert shard["size_bytes"] == len(body) and shard["sha256"] == hashlib.sha256(body).hexdigest()
    assert [shard["samples"] for shard in manifest["shards"]] == [67, 67, 66]
    parts = [idx_samples(tar) for tar in parts_of(lambda name: (folder / name).read_bytes(),
                                                  [shard["name"] for shard in manifest["shards"]])]
    wanted = read_mnist(mnist)
    assert sorted(sample for part in parts for sample in part) == sorted(wanted)
    for label in range(10):
        counts = [sum(other == label for _, other in part) for part in parts]
        assert max(counts) - min(counts) <= 1
    assert any(part != sorted(part, key=lambda sample: sample[1]) for part in parts)  # classes are mixed


def test_repeated_replaced_and_refused(farthing, mnist, tmp_path):
    folder = tmp_path / "shards"
    command = ("data", "shard", mnist, "--to", folder, "--json")
    (first,) = farthing(*command, "--parts", 4).events
    assert first["uploaded"] == 4 and first["samples"] == 200 and "url" not in first["shards"][0]
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    (again,) = farthing(*command, "--parts", 4).events
    assert again["uploaded"] == 0 and again["shards"] == first["shards"]
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    other = farthing(*command, "--parts", 3, code=1)
    assert "has other shards already: 4 parts of mnist; give --replace" in other.err
    other = farthing(*command, "--parts", 4, "--seed", 2, code=1)
    assert "has other shards already" in other.err
    write_mnist(mnist, train=200, test=20, seed=8)
    other = farthing(*command, "--parts", 4, code=1)
    assert "has other shards already" in other.err
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    (folder / "mine.txt").write_text("stays")
    (replaced,) = farthing(*command, "--parts", 3, "--replace").events
    assert replaced["uploaded"] == 3
    assert sorted(path.name for path in folder.iterdir()) == [
        "mine.txt", "part-0001.tar.gz", "part-0002.tar.gz", "part-0003.tar.gz", "shards.json"]
    (folder / "shards.json").write_text("{}")
    assert "shards.json" in farthing(*command, "--parts", 3, code=1).err
    assert farthing(*command, "--parts", 3, "--replace").events[0]["uploaded"] == 3
    assert read_manifest(folder)["samples"] == 200


def test_listed_parts_that_are_lost_or_cut_off_are_uploaded_again(farthing, mnist, tmp_path):
    folder = tmp_path / "shards"
    command = ("data", "shard", mnist, "--to", folder, "--parts", 4, "--json")
    farthing(*command)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "part-0001.tar.gz").unlink()
    (folder / "part-0002.tar.gz").write_bytes(before["part-0002.tar.gz"][:100])
    (folder / "part-0003.tar.gz").unlink()
    (folder / "part-0003.tar.gz").symlink_to(tmp_path / "elsewhere")
    assert farthing(*command).events[0]["uploaded"] == 3
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert not (tmp_path / "elsewhere").exists()


def test_addresses_of_a_folder(farthing, mnist, tmp_path):
    folder = tmp_path / "with space"
    done = farthing("data", "shard", "--data", mnist, "--parts", 2, "--to", folder, "--presign", "1h")
    urls = done.out.split()
    assert urls == [f"file://{str(folder).replace(' ', '%20')}/part-000{i}.tar.gz" for i in (1, 2)]
    assert all(urllib.request.urlopen(url).read(2) == b"\x1f\x8b" for url in urls)


def test_a_bucket_and_presigned_addresses(farthing, mnist, bucket):
    env = bucket.environment
    command = ("data", "shard", "--data", mnist, "--parts", 3, "--to", f"{bucket.url}/mnist")
    (made,) = farthing(*command, "--presign", "10m", "--json", env=env).events
    assert made["uploaded"] == 3 and made["to"] == f"{bucket.url}/mnist"
    assert sorted(bucket.keys("mnist/")) == [f"mnist/part-000{i}.tar.gz" for i in (1, 2, 3)] + ["mnist/shards.json"]
    for shard in made["shards"]:
        body = urllib.request.urlopen(shard["url"]).read()
        assert hashlib.sha256(body).hexdigest() == shard["sha256"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(shard["url"].split("?")[0])
        assert refused.value.code == 403
    urls = farthing(*command, "--presign", "10m", env=env).out.split()
    assert len(urls) == 3 and all("X-Amz-Signature=" in url for url in urls)


def test_killed_and_repeated(farthing, tmp_path):
    """The list comes last: without one there are no shards yet, and the same command finishes. Of a built-in set."""
    folder = tmp_path / "shards"
    command = ("data", "shard", "--data", "digits", "--parts", 40, "--to", folder)
    process = farthing.start(*command)
    wait_for(lambda: (folder / "part-0002.tar.gz").exists(), "the second part")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "shards.json").exists()
    farthing(*command)
    manifest = read_manifest(folder)
    assert manifest["samples"] == 20000
    for shard in manifest["shards"]:
        assert hashlib.sha256((folder / shard["name"]).read_bytes()).hexdigest() == shard["sha256"]


def test_cifar(farthing, tmp_path):
    records = [bytes([i % 10]) + bytes([i]) * 3072 for i in range(50)]
    cifar = tmp_path / "cifar-10-batches-bin"
    cifar.mkdir()
    (cifar / "data_batch_1.bin").write_bytes(b"".join(records))
    (cifar / "test_batch.bin").write_bytes(records[0])
    folder = tmp_path / "shards"
    farthing("data", "shard", "--data", cifar, "--parts", 4, "--to", folder)
    manifest = read_manifest(folder)
    assert (manifest["channels"], manifest["height"], manifest["class_names"][3]) == (3, 32, "cat")
    found = []
    for tar in parts_of(lambda name: (folder / name).read_bytes(), [shard["name"] for shard in manifest["shards"]]):
        body = tar.extractfile("cifar-10-batches-bin/data_batch_1.bin").read()
        found += [body[i:i + 3073] for i in range(0, len(body), 3073)]
        assert tar.extractfile("cifar-10-batches-bin/batches.meta.txt").read().split()[0] == b"airplane"
    assert sorted(found) == sorted(records)


def write_photos(folder, counts):
    files = {}
    for number, (kind, count) in enumerate(counts.items()):
        for i in range(count):
            path = folder / "train" / kind / f"{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(12, 8 + i, 20 * number + i))
            files.setdefault(kind, []).append(path.read_bytes())
        (folder / "val" / kind).mkdir(parents=True)
        (folder / "val" / kind / "v.png").write_bytes(png(9, 9, 1))
    return files


def test_image_files_are_copied_as_they_are(farthing, tmp_path):
    files = write_photos(tmp_path / "photos", {"cat": 7, "dög": 5, "owl": 6})
    folder = tmp_path / "shards"
    farthing("data", "shard", "--data", tmp_path / "photos", "--parts", 3, "--to", folder)
    manifest = read_manifest(folder)
    assert manifest["class_names"] == ["cat", "dög", "owl"] and manifest["samples"] == 18
    found = {}
    for tar in parts_of(lambda name: (folder / name).read_bytes(), [shard["name"] for shard in manifest["shards"]]):
        kinds = set()
        for member in tar:
            kind = member.name.split("/")[0]
            kinds.add(kind)
            found.setdefault(kind, []).append(tar.extractfile(member).read())
        assert kinds == {"cat", "dög", "owl"}
    assert {kind: sorted(bodies) for kind, bodies in found.items()} == {
        kind: sorted(bodies) for kind, bodies in files.items()}

    few = farthing("data", "shard", "--data", tmp_path / "photos", "--parts", 6, "--to", tmp_path / "more", code=1)
    assert "the class 'dög' has 5 images, too few for 6 parts" in few.err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("arguments, code, said", [
    (["--parts", 300, "--to", "x"], 1, "200 training samples, too few for 300 parts"),
    (["--to", "x", "--format", "cifar"], 1, "does not fit the format cifar"),
    (["--to", "x", "--out", "y"], 1, "give one of them"),
    (["--to", "https://127.0.0.1:1/x", "--parts", 2], 1, "a web server is read-only"),
    (["--to", "x", "--presign", "soon"], 2, "not a duration"),
    (["--to", "x", "--parts", "0"], 2, "parts"),
    (["extra", "--to", "x"], 2, "not both"),
    ([], 1, "--to ADDRESS"),
])
def test_mistakes(farthing, mnist, arguments, code, said):
    done = farthing("data", "shard", "--data", mnist, *arguments, code=code)
    assert said in done.err


def test_compressed_files_give_the_same_bytes(farthing, tmp_path):
    for compressed in (False, True):
        write_mnist(tmp_path / f"m{compressed}", train=100, test=10, compressed=compressed)
        farthing("data", "shard", "--data", tmp_path / f"m{compressed}", "--parts", 2, "--to", tmp_path / f"s{compressed}")
    plain, packed = tmp_path / "sFalse", tmp_path / "sTrue"
    assert {p.name: p.read_bytes() for p in plain.iterdir()} == {p.name: p.read_bytes() for p in packed.iterdir()}
    assert gzip.decompress((plain / "part-0001.tar.gz").read_bytes())[:9] == b"MNIST/raw"
