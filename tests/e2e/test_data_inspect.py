"""What `data inspect` makes of sets that are not as they should be."""
import gzip
import io
import struct
import tarfile
import zipfile
import zlib

import pytest
from conftest import Program, png

PLAIN = [f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(4)]


def write_archive(path, names):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as out:
            for i, name in enumerate(names):
                out.writestr(zipfile.ZipInfo(name), png(8, 8, 9 * i % 256))
    else:
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
            for i, name in enumerate(names):
                entry, body = tarfile.TarInfo(name), png(8, 8, 9 * i % 256)
                entry.size = len(body)
                out.addfile(entry, io.BytesIO(body))
    return path


@pytest.fixture
def inspect(tmp_path):
    program = Program(tmp_path)

    def run(path):
        done = program("data", "inspect", path, "--json", env={"FARTHING_CACHE": str(tmp_path / "cache")})
        (found,) = done.events
        counts = {c["name"]: c["training"] + c["validation"] for c in found["classes"]}
        return counts, done.err, {bad["name"]: bad["reason"] for bad in found["unreadable"]}
    return run


@pytest.mark.parametrize("ending", [".tar", ".zip"])
@pytest.mark.parametrize("names, counts, said", [
    (["/home/me/set/" + name for name in PLAIN], {"cat": 4, "dog": 4}, None),
    (["//" + name for name in PLAIN], {"cat": 4, "dog": 4}, None),
    ([*PLAIN, "/etc/evil.png"], {"cat": 4, "dog": 4}, "left out 1 image with an absolute path among relative ones: /etc\n"),
    ([*PLAIN, "../up/x.png", "cat/../bird/y.png"], {"cat": 4, "dog": 4}, "left out 2 images with .. in the path: ../up/x.png, ...\n"),
    ([*PLAIN, "cat../x.png", "dog/./y.png", "./dog//z.png"], {"cat": 4, "cat..": 1, "dog": 6}, None),
    ([*PLAIN, "cat/" + "d/" * 3000 + "x.png"], {"cat": 5, "dog": 4}, None),
])
def test_paths_in_archives(inspect, tmp_path, ending, names, counts, said):
    found, err, _ = inspect(write_archive(tmp_path / ("set" + ending), names))
    assert found == counts
    assert (said in err) if said else "left out" not in err


def test_a_path_too_long_is_named(inspect, tmp_path):
    found, err, _ = inspect(write_archive(tmp_path / "set.tar", [*PLAIN, "cat/" + "d/" * 40000 + "x.png"]))
    assert found == {"cat": 4, "dog": 4}
    assert "left out 1 image with a path of more than 65536 bytes: cat/d/d/" in err and "…" in err and "/x.png" in err


def test_folders_nested_too_deeply_are_named(inspect, tmp_path):
    for name in [*PLAIN, "dog/" + "d/" * 14 + "x.png"]:
        file = tmp_path / "set" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(8, 8, 1))
    found, err, _ = inspect(tmp_path / "set")
    assert found == {"cat": 4, "dog": 4} and "left out 1 folder nested too deeply" in err and ": dog/d/d/" in err


def damaged_png(damaged):
    """A PNG whose chunk `damaged` ("IDAT1": the second of that kind) has a wrong checksum."""
    pixels = zlib.compress((b"\0" + bytes(range(24))) * 8)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)), (b"tEXt", b"a\0b"), (b"IDAT", pixels[:10]),
              (b"IDAT", pixels[10:]), (b"tIME", bytes(7)), (b"IEND", b"")]
    out, seen = b"\x89PNG\r\n\x1a\n", {}
    for kind, body in chunks:
        number = seen[kind] = seen.get(kind, -1) + 1
        flip = f"{kind.decode()}{number}" == damaged
        if damaged != "end" or kind != b"IEND":
            out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ flip)
    return out


def test_png_checksums(inspect, tmp_path):
    """Those of the chunks that make up the picture count; others, and a missing end, do no harm."""
    folder = tmp_path / "set" / "cat"
    folder.mkdir(parents=True)
    for damaged in ("none", "IHDR0", "IDAT0", "IDAT1", "IEND0", "tEXt0", "tIME0", "end"):
        (folder / f"{damaged}.png").write_bytes(damaged_png(damaged))
    _, _, bad = inspect(tmp_path / "set")
    assert sorted(bad) == [f"cat/{name}.png" for name in ("IDAT0", "IDAT1", "IEND0", "IHDR0")]
    assert all(reason == "PNG: invalid chunk checksum" for reason in bad.values())


UNREAD = ["a.heic", "cat/b.WebP", "cat/c.gif", "cat/no-ending", "dog/d.tiff", "dog/e.bmp"]
COMPANIONS = [".DS_Store", "README", "LICENSE.md", "labels.csv", "cat/.hidden.heic", "cat/Thumbs.db", "dog/0.xml",
              "__MACOSX/cat/x.heic"]


def write_folder(folder, names):
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png(8, 8, 9 * i % 256) if name.endswith(".png") else b"x")
    return folder


def write_set(where, folder, names):
    """The address of the files in one of the places that images are read from."""
    if where == "folder":
        return write_folder(folder / "set", names)
    if where == "objects":
        return f"file://{write_folder(folder / 'set', names)}"
    if where == "index file":
        write_folder(folder / "set", [*names, "beside.heic"])
        rows = [f"{name},{'dog' if name.startswith('dog/') else 'cat'}" for name in names if name in PLAIN + UNREAD]
        (folder / "set/index.csv").write_text("\n".join(["path,label", *rows]))
        return f"file://{folder / 'set'}"
    if where == "tars":
        (folder / "set").mkdir()
        write_archive(folder / "set/0.tar", [f"./{name}" for name in names])
        return f"file://{folder / 'set'}"
    if where == "tar.gz":
        plain = write_archive(folder / "plain.tar", names)
        (folder / "set.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
        return folder / "set.tar.gz"
    return write_archive(folder / f"set.{where}", names)


@pytest.mark.parametrize("where", ["folder", "tar", "tar.gz", "zip", "objects", "tars", "index file"])
def test_formats_that_are_not_read_are_counted_and_named(farthing, tmp_path, where):
    address = write_set(where, tmp_path, [*PLAIN, *UNREAD, *COMPANIONS])
    for _ in range(2):  # the second time from what was unpacked or remembered
        done = farthing("data", "inspect", address, "--json", env={"FARTHING_CACHE": str(tmp_path / "cache")})
        (found,) = done.events
        assert found["skipped"] == {"count": 6, "names": UNREAD}
        assert found["png"] == 8 and found["unreadable"] == []
        assert f"skipped 6 files in formats that are not read: {', '.join(UNREAD)};" in done.err


def test_companions_of_images_are_not_reported(farthing, tmp_path):
    done = farthing("data", "inspect", write_folder(tmp_path / "set", [*PLAIN, *COMPANIONS]))
    assert "skipped, in formats that are not read: none" in done.out and "skipped" not in done.err


def test_the_first_ten_skipped_files_are_named_in_order(farthing, tmp_path):
    names = [f"cat/{i:02}.heic" for i in range(25)]
    long = "a" * 200 + ".heic"
    folder = write_folder(tmp_path / "set", [*reversed(names), *PLAIN, long])
    done = farthing("data", "inspect", folder, "--json")
    first, *others = done.events[0]["skipped"]["names"]
    assert others == names[:9] and first.endswith(".heic") and "…" in first and len(first) < len(long)
    assert done.events[0]["skipped"]["count"] == 26 and "cat/08.heic and 16 more;" in done.err
    assert "... and 16 more" in farthing("data", "inspect", folder).out


def test_members_of_webdataset_tars_in_other_formats_are_skipped(farthing, tmp_path):
    names = [f"{i:04}.{ending}" for i in range(8) for ending in ("png", "cls", "json")] + ["0009.webp", "0009.cls"]
    (tmp_path / "set").mkdir()
    with tarfile.open(tmp_path / "set/0.tar", "w") as out:
        for i, name in enumerate(names):
            body = png(8, 8, 9 * i) if name.endswith(".png") else b"%d" % (int(name[:4]) % 2)
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            out.addfile(entry, io.BytesIO(body))
    (tmp_path / "set/beside.avif").write_bytes(b"x")
    done = farthing("data", "inspect", f"file://{tmp_path / 'set'}", "--json",
                    env={"FARTHING_CACHE": str(tmp_path / "cache")})
    assert done.events[0]["skipped"] == {"count": 2, "names": ["0009.webp", "beside.avif"]}
    assert [c["training"] + c["validation"] for c in done.events[0]["classes"]] == [4, 4]


@pytest.mark.parametrize("where", ["folder", "zip"])
def test_a_set_of_other_formats_alone_says_so(farthing, tmp_path, where):
    done = farthing("data", "inspect", write_set(where, tmp_path, ["cat/a.heic", "dog/b.webp", "README.md"]), code=1,
                    env={"FARTHING_CACHE": str(tmp_path / "cache")})
    assert "skipped 2 files in formats that are not read: cat/a.heic, dog/b.webp" in done.err


def test_training_records_skipped_files(farthing, tmp_path):
    folder = write_folder(tmp_path / "set", [*PLAIN, *UNREAD])
    done = farthing("train", "--data", folder, "--model", "linear", "--epochs", 1, "--batch", 4, "--name", "run", "--json")
    assert done.events[0]["event"] == "start" and done.events[0]["skipped"] == {"count": 6, "names": UNREAD}
    assert "6 in formats that are not read: a.heic, ..." in farthing("report", "run").out
    done = farthing("predict", "--weights", "run", folder)
    assert f"skipped 6 files in formats that are not read: {folder}/a.heic, " in done.err
    for name in UNREAD:
        (folder / name).unlink()
    done = farthing("train", "--data", folder, "--model", "linear", "--epochs", 1, "--batch", 4, "--name", "two", "--json")
    assert "skipped" not in done.events[0] and "skipped files" not in farthing("report", "two").out
