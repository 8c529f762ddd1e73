"""Options that name an output write to what is there: no device, pipe or link is replaced by a file."""
import io
import os
import stat
import subprocess
import tarfile
import threading

import pytest
from conftest import FARTHING, Program, environment, png

COMMANDS = {
    "export": (["export", "--weights", "model.safetensors", "--to", "onnx", "--out"], b"farthing"),
    "export-safetensors": (["export", "--weights", "model.safetensors", "--to", "safetensors", "--out"], b"classes"),
    "chart": (["report", "run", "--chart"], b"\x89PNG"),
    "sheet": (["data", "inspect", "set", "--sheet"], b"\x89PNG"),
    "pack": (["data", "pack", "set", "--out"], b"ustar"),
    "cp": (["store", "cp", "model.safetensors"], b"classes"),
    "confusion": (["evaluate", "run", "--confusion"], b"predicted"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, trained):
    """A folder with a model, a run and a set of images."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "run").symlink_to(trained.run)
    (folder / "model.safetensors").write_bytes((trained.run / "last.safetensors").read_bytes())
    for kind in ("cat", "dog"):
        (folder / "set" / kind).mkdir(parents=True)
        for i in range(4):
            (folder / "set" / kind / f"{i}.png").write_bytes(png(8, 8, 40 * i))
    return Program(folder)


def output(folder, name, what):
    """The names of charts and of confusion matrices say their format."""
    return folder / (name + (".csv" if what == "confusion" else ".png"))


@pytest.mark.parametrize("what", COMMANDS)
def test_links_stay_and_their_targets_are_written(place, tmp_path, what):
    arguments, mark = COMMANDS[what]
    target, link = tmp_path / "below" / "target", output(tmp_path, "link", what)
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to("below/target")
    place(*arguments, link)
    assert link.is_symlink() and mark in target.read_bytes()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["below", link.name, "target"]  # no temporary stays


@pytest.mark.parametrize("what", COMMANDS)
def test_pipes_are_written_to(place, tmp_path, what):
    arguments, mark = COMMANDS[what]
    pipe, got = output(tmp_path, "pipe", what), []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    place(*arguments, pipe)
    reader.join(10)
    assert mark in got[0] and stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("what", COMMANDS)
def test_devices_are_written_to(place, tmp_path, what):
    null, full = output(tmp_path, "null", what), output(tmp_path, "full", what)
    try:
        os.mknod(null, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    except PermissionError:
        pytest.skip("making a device takes root")
    place(*COMMANDS[what][0], null)
    failed = place(*COMMANDS[what][0], full, code=1)
    assert "disk full" in failed.err and full.name in failed.err
    assert stat.S_ISCHR(null.lstat().st_mode) and stat.S_ISCHR(full.lstat().st_mode)


@pytest.mark.parametrize("what", [what for what in COMMANDS if what != "confusion"])
def test_a_dash_is_standard_output(place, what):
    """The data alone goes there; what is said goes to standard error."""
    arguments, mark = COMMANDS[what]
    done = subprocess.run([FARTHING, *arguments, "-"], cwd=place.folder, capture_output=True, timeout=60,
                          env=environment(), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert mark in done.stdout and done.stderr
    assert not (place.folder / "-").exists()
    if what == "pack":
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            assert len(tar.getnames()) == 8
    if what == "cp":
        assert done.stdout == (place.folder / "model.safetensors").read_bytes()
    if what in ("chart", "sheet"):
        assert done.stdout.endswith(b"IEND\xaeB`\x82")


def test_a_chart_on_standard_output_can_be_svg(place):
    done = place("report", "run", "--chart", "svg:-")
    assert done.out.startswith("<?xml") and done.out.rstrip().endswith("</svg>") and "accuracy" in done.err


def test_a_folder_is_refused(place, tmp_path):
    failed = place("export", "--weights", "model.safetensors", "--out", tmp_path, code=1)
    assert "it is a folder; name a file in it" in failed.err


def test_a_terminal_gets_no_binary_data(place):
    ours, theirs = os.openpty()
    done = subprocess.run([FARTHING, "store", "cp", "model.safetensors", "-"], cwd=place.folder, stdout=theirs,
                          stderr=subprocess.PIPE, timeout=60, env=environment(), text=True)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 1 and "standard output is a terminal" in done.stderr
