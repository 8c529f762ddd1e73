"""What `data inspect` makes of sets that are not as they should be."""
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
