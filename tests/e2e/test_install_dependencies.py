"""scripts/install-dependencies on systems that are made up: an os-release file, and programs that stand for the system's."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "install-dependencies"
SYSTEMS = ["debian12", "debian13", "ubuntu22.04", "ubuntu24.04", "fedora"]
TOOLS = ["bash", "cat", "cut", "env", "fold", "grep", "sed", "tr", "true"]

MINT = 'ID=linuxmint\nVERSION_ID="22"\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n'
MINT_OF_DEBIAN = "ID=linuxmint\nVERSION_ID=6\nID_LIKE=debian\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n"
ROCKY = 'ID="rocky"\nVERSION_ID="9.4"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4"\n'


class System:
    """`missing` names the packages that are not installed, or is None if none is; sudo: None, "free", "password"."""

    def __init__(self, folder, release, missing=None, user=0, sudo=None):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        (folder / "os-release").write_text(release)
        (folder / "missing").write_text("".join(f"{name}\n" for name in missing or []))
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.program("dpkg-query", f'grep -qx -- "$4" {folder}/missing || echo installed')
        self.program("rpm", f'! grep -qx -- "$3" {folder}/missing')
        self.program("id", f"echo {user}")
        for manager in ("apt-get", "dnf"):
            self.program(manager, f'echo {manager} "$@" >>{folder}/log')
        if sudo == "free":
            self.program("sudo", '[ "$1" != -n ] || shift; echo sudo >>' + f'{folder}/log; exec "$@"')
        elif sudo == "password":
            self.program("sudo", "exit 1")

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self, *arguments):
        return subprocess.run([SCRIPT, *arguments], env={"PATH": str(self.bin), "OS_RELEASE": f"{self.folder}/os-release"},
                              cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def log(self):
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


def packages(*arguments):
    result = subprocess.run([SCRIPT, "--list", *arguments], capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_every_row(system):
    build, everything = packages("--for", system), packages("--for", system, "--tests", "--fuzz")
    assert build == everything[:len(build)] and len(everything) > len(build) + 15
    assert len(set(everything)) == len(everything)
    assert not {"=", "-"} & set(everything)
    assert "cmake" in build and "valgrind" in everything and "valgrind" not in build
    rpm = [name for name in everything if name.endswith("-devel")]
    assert rpm == [] if system != "fedora" else len(rpm) > 12


def test_what_is_not_packaged_is_said():
    result = subprocess.run([SCRIPT, "--list", "--for", "ubuntu22.04"], capture_output=True, text=True, check=True)
    assert "libdnnl-dev" not in result.stdout.split()
    assert "oneDNN" in result.stderr and "2.6" in result.stderr
    assert "libdnnl-dev" in packages("--for", "ubuntu24.04")


def test_nothing_is_installed_in_vain(tmp_path):
    system = System(tmp_path, 'ID=ubuntu\nVERSION_ID="22.04"\n', missing=["cmake"])
    result = system.run()
    assert result.returncode == 1 and system.log() == []
    assert result.stderr.startswith("oneDNN: Ubuntu 22.04 has 2.2, and farthing needs 2.6")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "farthing").touch()  # someone has built what it needs
    assert system.run().stdout == "installing cmake\n"


@pytest.mark.parametrize("release, like", [
    ('ID=debian\nVERSION_ID="12"\n', "debian12"),
    ('ID=debian\nVERSION_ID="13"\n', "debian13"),
    ("ID=debian\nVERSION_CODENAME=forky\n", "debian13"),
    ('ID=debian\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\n', "debian12"),
    ('ID=ubuntu\nVERSION_ID="22.04"\nID_LIKE=debian\n', "ubuntu22.04"),
    ('ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n', "ubuntu24.04"),
    ('ID=ubuntu\nVERSION_ID="26.04"\nID_LIKE=debian\n', "ubuntu24.04"),
    ('ID=raspbian\nVERSION_ID="12"\nID_LIKE=debian\nVERSION_CODENAME=bookworm\n', "debian12"),
    ('ID=pop\nVERSION_ID="22.04"\nID_LIKE="ubuntu debian"\nUBUNTU_CODENAME=jammy\n', "ubuntu22.04"),
    (MINT, "ubuntu24.04"),
    (MINT_OF_DEBIAN, "debian12"),
    ('ID=fedora\nVERSION_ID=43\n', "fedora"),
    (ROCKY, "fedora"),
])
def test_systems_are_recognized(tmp_path, release, like):
    result = System(tmp_path, release).run("--list", "--tests")
    assert result.returncode == 0
    assert result.stdout.split() == packages("--for", like, "--tests")


def test_nothing_is_said_or_done_where_all_is_there(tmp_path):
    system = System(tmp_path, MINT, user=1000)
    result = system.run("--tests")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert system.log() == []


def test_root_gets_what_is_missing(tmp_path):
    system = System(tmp_path, 'ID=debian\nVERSION_ID="13"\n', missing=["cmake", "libdnnl-dev", "valgrind"])
    result = system.run()
    assert (result.returncode, result.stdout) == (0, "installing cmake libdnnl-dev\n")
    assert system.log() == ["apt-get -qq update", "apt-get -qq install -y --no-install-recommends cmake libdnnl-dev"]


def test_fedora_installs_with_dnf(tmp_path):
    system = System(tmp_path, ROCKY, missing=["onednn-devel"], user=1000, sudo="free")
    result = system.run()
    assert result.returncode == 0
    assert result.stdout.startswith("farthing is not tested on Rocky Linux 9.4") and "fedora" in result.stdout
    assert system.log()[-2:] == ["sudo", "dnf -y -q install --setopt=install_weak_deps=False onednn-devel"]


@pytest.mark.parametrize("sudo, why", [(None, "no sudo"), ("password", "no terminal")])
def test_who_may_not_install_gets_the_command(tmp_path, sudo, why):
    system = System(tmp_path, 'ID=debian\nVERSION_ID="13"\n', missing=["ninja-build", "libspng-dev"], user=1000, sudo=sudo)
    result = system.run()
    assert result.returncode == 1
    assert why in result.stderr
    assert "\n  apt-get update && apt-get install --no-install-recommends ninja-build libspng-dev\n" in result.stderr
    assert system.log() == []


def test_a_failed_installation_is_a_failure(tmp_path):
    system = System(tmp_path, 'ID=debian\nVERSION_ID="13"\n', missing=["cmake"])
    system.program("apt-get", "exit 100")
    result = system.run()
    assert result.returncode == 1
    assert "apt-get install --no-install-recommends cmake" in result.stderr


def test_any_gnuplot_will_do(tmp_path):
    system = System(tmp_path, 'ID=debian\nVERSION_ID="12"\n', missing=["gnuplot-nox"])
    system.program("gnuplot", "")
    assert system.run().stdout == ""


def test_other_systems_get_the_names(tmp_path):
    system = System(tmp_path, 'ID=arch\nPRETTY_NAME="Arch Linux"\n', missing=["cmake"])
    result = system.run()
    assert result.returncode == 0 and system.log() == []
    assert result.stderr.startswith("farthing does not know the packages of Arch Linux")
    assert "libdnnl-dev" in result.stderr
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "farthing").touch()
    assert system.run().stderr == ""


@pytest.mark.parametrize("arguments, wrong", [(["--list", "--for", "plan9"], 'unknown system "plan9"'),
                                              (["--for", "debian12"], "--for names another system, so it needs --list"),
                                              (["cmake"], 'unknown option "cmake"')])
def test_wrong_usage(tmp_path, arguments, wrong):
    result = System(tmp_path, 'ID=debian\nVERSION_ID="12"\n').run(*arguments)
    assert result.returncode == 2 and wrong in result.stderr and result.stdout == ""


def test_help(tmp_path):
    result = System(tmp_path, 'ID=debian\nVERSION_ID="12"\n').run("--help")
    assert result.returncode == 0 and "--list" in result.stdout and result.stderr == ""
