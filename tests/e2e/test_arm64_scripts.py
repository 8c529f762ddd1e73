"""scripts/build-arm64 and its companions, with programs that stand for mmdebstrap, cmake and QEMU's namespace."""

import os
import pathlib
import platform
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="builds for arm64 on another machine")


def program(path, body):
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def build(tmp_path):
    """Runs scripts/build-arm64 for tmp_path/build; `log` has a line for each program that it ran."""
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    program(tools / "mmdebstrap", f"""echo mmdebstrap "$@" >>{log}
root=${{!#}}
mkdir -p "$root/usr/lib/aarch64-linux-gnu" "$root/usr/share/doc" "$root/usr/include" "$root/tmp" && ln -s usr/lib "$root/lib"
touch "$root/usr/lib/aarch64-linux-gnu/libz.so.1"
ln -s /lib/aarch64-linux-gnu/libz.so.1 "$root/usr/lib/aarch64-linux-gnu/libz.so"
[ ! -e {tmp_path}/broken ]""")
    program(tools / "cmake", f'echo cmake "$@" >>{log}')

    def run():
        log.write_text("")
        result = subprocess.run([SCRIPTS / "build-arm64", tmp_path / "build", "-j", "3", "--", "-DX=Y"], text=True,
                                env=dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}"), capture_output=True, timeout=60)
        return result, log.read_text().splitlines()
    return run


def test_the_libraries_are_those_of_the_native_build(build, tmp_path):
    result, log = build()
    assert result.returncode == 0, result.stderr
    listed = subprocess.run([SCRIPTS / "install-dependencies", "--list"], capture_output=True, text=True).stdout.split()
    wanted = {name for name in listed if name.startswith("lib")}
    include = next(word for word in log[0].replace("--include=", "\n").split("\n") if word.startswith("libc6-dev"))
    assert wanted and wanted <= set(include.split())
    assert "build-essential" not in log[0] and "--architectures=arm64" in log[0]
    sysroot = tmp_path / "build" / "sysroot"
    assert any(f"-DFARTHING_SYSROOT={sysroot}" in line and "-DX=Y" in line for line in log[1:])


def test_a_sysroot_hides_nothing_and_leads_nowhere_else(build, tmp_path):
    build()
    sysroot = tmp_path / "build" / "sysroot"
    assert sorted(path.name for path in sysroot.iterdir()) == ["lib", "made-from", "usr"]
    assert sorted(path.name for path in (sysroot / "usr").iterdir()) == ["include", "lib"]
    link = sysroot / "usr" / "lib" / "aarch64-linux-gnu" / "libz.so"
    assert not os.readlink(link).startswith("/") and link.resolve().is_relative_to(sysroot.resolve())


def test_a_sysroot_is_made_once_and_never_half(build, tmp_path):
    (tmp_path / "broken").touch()
    result, log = build()
    assert result.returncode != 0 and not (tmp_path / "build" / "sysroot").exists()
    (tmp_path / "broken").unlink()
    assert build()[1][0].startswith("mmdebstrap")
    assert build()[1][0].startswith("cmake")
    (tmp_path / "build" / "sysroot" / "made-from").write_text("another release\n")
    assert build()[1][0].startswith("mmdebstrap")


@pytest.mark.parametrize("arguments", [["build-arm64"], ["run-arm64"], ["run-arm64", "build-arm64"], ["test-arm64"], ["test-arm64", "nowhere"]])
def test_wrong_usage(arguments, tmp_path):
    result = subprocess.run([SCRIPTS / arguments[0], *arguments[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "FOLDER" in result.stderr


def test_a_folder_that_is_no_build_is_named(tmp_path):
    result = subprocess.run([SCRIPTS / "run-arm64", "nowhere", "true"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "nowhere is not a build for arm64" in result.stderr


def test_tests_are_counted(tmp_path):
    """The last line, and the exit code, of CTest's tests alone."""
    (tmp_path / "good").write_text("")
    (tmp_path / "CTestTestfile.cmake").write_text('add_test(one test -e good)\nadd_test(two test -e good)\n'
                                                  'set_tests_properties(two PROPERTIES DISABLED ON)\n')
    run = [SCRIPTS / "run-tests", tmp_path, "-R", "o"]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"
    (tmp_path / "good").unlink()
    result = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and result.stdout.splitlines()[-1] == "0 passed, 1 failed, 1 skipped"
