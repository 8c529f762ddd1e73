"""farthing store rm: no link is followed, what must stay is refused, and what goes is counted and asked for first."""
import os
import pty
import shutil
import subprocess

import pytest
from conftest import FARTHING, SMALL, environment


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def place(farthing):
    """A project, a home and a folder like the system's, all in the test's own folder; rm runs in the project."""
    top = farthing.folder
    for name in ("system/lib/sub", "home/user/photos", "project/copy/sub"):
        (top / name).mkdir(parents=True)
    for name in ("system/lib/a", "system/lib/sub/b", "home/user/photos/c", "project/copy/d", "project/copy/sub/e"):
        (top / name).write_text("x" * 10)
    farthing.folder = top / "project"

    def rm(*arguments, code=1, cwd=farthing.folder):
        before = {name: tree(top / name) for name in ("system", "home")}
        done = subprocess.run([FARTHING, "store", "rm", *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, env=environment(HOME=str(top / "home/user")))
        assert done.returncode == code, done.stderr
        assert {name: tree(top / name) for name in ("system", "home")} == before
        assert code == 0 or len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr if code else done.stdout
    rm.top, rm.project, rm.program = top, top / "project", farthing
    return rm


def test_no_link_is_followed(place):
    (place.project / "l").symlink_to(place.top / "system")
    system = place.top / "system"
    for address in ("l", "l/", "./l", "l/lib", "l/lib/", f"file://{place.project}/l", place.project / "l"):
        for more in ((), ("--force", "--all", "--confirm", address)):
            err = place("-r", "-y", *more, address)
            assert "symbolic link" in err and str(system) in err
    assert "symbolic link" in place("l/lib/a")
    assert '".."' in place("../system/lib/a")
    place("l", code=1)  # no object
    assert (place.project / "l").is_symlink()


def test_a_link_in_the_tree_goes_itself(place):
    (place.project / "copy/to-folder").symlink_to(place.top / "system/lib")
    (place.project / "copy/sub/to-file").symlink_to(place.top / "system/lib/a")
    place("-r", "-y", "--confirm", "copy", "copy", code=0)
    assert not (place.project / "copy").exists()


@pytest.mark.parametrize("address, words", [  # "/" is tried in a chroot alone
    (".", "current folder"), ("./", "current folder"), ("..", '".."'), ("../system", '".."'), ("copy/../copy", '".."'),
    ("{top}/project", "current folder"), ("{top}", "current folder"), ("{top}/home/user", "home folder"),
    ("{top}/home/user/", "home folder"), ("{top}/home", "home folder"), ("none", "no folder none"),
    ("copy/d", "no folder copy/d")])
def test_what_must_stay_is_refused(place, address, words):
    address = address.format(top=place.top)
    assert words in place("-r", "--force", "--all", "--confirm", address, address)
    assert (place.project / "copy/sub/e").exists()


def test_a_folder_that_is_no_run_is_named_twice(place):
    err = place("-r", "-y", "copy")
    assert "2 files, 20 B" in err and "--confirm copy" in err
    assert "does not name" in place("-r", "-y", "--confirm", "cop", "copy")
    outside = place.top / "elsewhere/old"
    shutil.copytree(place.project / "copy", outside)
    assert f"--confirm {outside}" in place("-r", "-y", outside)
    assert "--yes" in place("-r", "--confirm", outside, outside)
    assert "2 files, 20 B" in place("-r", "-y", "--confirm", f"{outside}/", outside, code=0)
    assert not outside.exists()
    place("-r", "-y", "--confirm", place.project / "copy", "copy", code=0)
    assert tree(place.project) == []


def test_runs_are_named_once(place):
    place.program("train", "--data", "digits", *SMALL, "--steps", 20, "--name", "a", "--checkpoints", "st/a")
    shutil.copytree(place.project / "runs", place.project / "more")
    shutil.copytree(place.project / "runs/a", place.project / "mine")
    (place.project / "mine/notes.txt").write_text("not a run's")
    assert "--confirm mine" in place("-r", "-y", "mine")
    assert "--yes" in place("-r", "st/a")
    for address in ("st/a/checkpoints", "st/a", "runs/a", "more"):
        place("-r", "-y", address, code=0)
        assert not (place.project / address).exists()


def test_many_files_need_force(place):
    for number in range(1001):
        (place.project / f"copy/{number}").touch()
    err = place("-r", "-y", "--confirm", "copy", "copy")
    assert "1,003 files" in err and "--force" in err
    place("-r", "--force", "--confirm", "copy", "copy", code=0)
    assert tree(place.project) == []


@pytest.mark.parametrize("answer, code", [("copy\n", 0), ("y\n", 1), ("cop\n", 1), ("\n", 1)])
def test_a_terminal_asks_for_the_name(place, answer, code):
    leader, follower = pty.openpty()
    process = subprocess.Popen([FARTHING, "store", "rm", "-r", "-y", "copy"], cwd=place.project, stdin=follower,
                               stderr=follower, stdout=subprocess.PIPE, env=environment())
    os.close(follower)
    asked = b""
    while not asked.endswith(b": "):
        asked += os.read(leader, 1000)
    assert b"2 files, 20 B" in asked and b"type copy" in asked
    os.write(leader, answer.encode())
    process.communicate(timeout=30)
    os.close(leader)
    assert process.returncode == code
    assert (place.project / "copy").exists() == (code != 0)


def test_a_mount_is_not_entered(place):
    """In a mount namespace of its own."""
    (place.project / "copy/mounted").mkdir()
    script = (f"mount --bind {place.top}/system copy/mounted && {FARTHING} store rm -r --force --confirm copy copy; "
              f"{FARTHING} store rm -r --force --confirm copy/mounted copy/mounted")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=place.project, capture_output=True, text=True,
                          timeout=60, env=environment(), stdin=subprocess.DEVNULL)
    if "mount" in done.stderr and "mounted" not in done.stderr or "unshare" in done.stderr:
        pytest.skip("no mount namespace: " + done.stderr.strip())
    assert done.stderr.count("something is mounted") == 2, done.stderr
    assert (place.top / "system/lib/sub/b").exists() and (place.project / "copy/d").exists()


def test_a_mounted_file_is_found_before_anything_is_deleted(place):
    (place.project / "copy/mounted").touch()
    script = f"mount --bind {place.top}/system/lib/sub/b copy/mounted && {FARTHING} store rm -r --force --confirm copy copy"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=place.project, capture_output=True, text=True,
                          timeout=60, env=environment(), stdin=subprocess.DEVNULL)
    if "mount" in done.stderr and "mounted" not in done.stderr or "unshare" in done.stderr:
        pytest.skip("no mount namespace: " + done.stderr.strip())
    assert "something is mounted at" in done.stderr and done.returncode == 1
    assert (place.top / "system/lib/sub/b").exists() and (place.project / "copy/d").exists()


def test_copying_below_a_folder_replaces_a_link(farthing):
    """And does not write to where it leads."""
    for name in ("from", "to"):
        (farthing.folder / name).mkdir()
    (farthing.folder / "from/a").write_text("new")
    (farthing.folder / "kept").write_text("old")
    (farthing.folder / "to/a").symlink_to("../kept")
    farthing("store", "cp", "-r", "from", "to")
    assert (farthing.folder / "kept").read_text() == "old" and (farthing.folder / "to/a").read_text() == "new"


def test_a_copy_that_leaves_something_out_fails(farthing):
    folder = farthing.folder / "from"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a")
    farthing("store", "cp", "-r", "from", "to")
    (folder / "to-folder").symlink_to("sub")
    (folder / "broken").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    (folder / "new\nline").write_text("a")
    result = farthing("store", "cp", "-r", "--json", "from", "to", code=1)
    assert "4 entries skipped" in result.err and result.events[0]["left_out"] == 4
    assert tree(farthing.folder / "to") == ["a"]
