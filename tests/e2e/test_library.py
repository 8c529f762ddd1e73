"""The installed library: what it exports, how programs find it, the embedding example built against it, and what it
leaves alone in the process that uses it."""
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FARTHING, PATIENCE_S, ROOT, SANITIZED
from conftest import environment as clean_environment

BUILD = FARTHING.parent
SANITIZER_FLAGS = ["-fsanitize=address,undefined"] if SANITIZED else []
HEADERS = sorted((ROOT / "include/farthing").glob("*.h"))


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE_S,
                          **options)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def symbols(path, *flags):
    """(name, version) of a library's dynamic symbols."""
    found = set()
    for line in run("nm", "-D", *flags, path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        found.add((name, version.lstrip("@")))
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An empty folder with farthing installed in it."""
    prefix = tmp_path_factory.mktemp("installed") / "far"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


@pytest.fixture
def environment(installed):
    library = next(installed.glob("lib*/**/libfarthing.so")).parent
    return clean_environment(PKG_CONFIG_PATH=str(library / "pkgconfig"), LD_LIBRARY_PATH=str(library))


def flags(environment, *words):
    return run("pkg-config", *words, "farthing", env=environment).split()


def test_only_documented_functions_are_exported():
    declared = set()
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        declared |= {re.search(r"(\w+)\(", each).group(1) for each in re.findall(r"^FTH_API [^;]+;", text, re.M)}
    assert len(declared) > 40
    for_plugins = [line for line in (ROOT / "src/backend/plugin_symbols.txt").read_text().splitlines()
                   if line.startswith("fth_")]
    exported = symbols(BUILD / "libfarthing.so", "--defined-only")
    by_version = {}
    for name, version in exported:
        by_version.setdefault(version, set()).add(name)
    versions = {name for name in by_version if name.startswith("FARTHING_")}
    public = min(versions - {"FARTHING_PRIVATE"})
    assert versions == {public, "FARTHING_PRIVATE"}
    assert by_version[public] - {public} == declared
    for name in by_version["FARTHING_PRIVATE"] - {"FARTHING_PRIVATE"}:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in for_plugins), name
    assert by_version.get("", set()) <= versions  # the versions themselves, and nothing without one

    listed = {line.split()[-1] for line in run("nm", "-g", "--defined-only", BUILD / "libfarthing.a").splitlines()
              if len(line.split()) == 3}
    assert {name for name in listed if not name.startswith("fth_")} == set()
    assert declared <= listed


def test_plugins_find_all_that_they_need():
    given = {name for name, _ in symbols(BUILD / "libfarthing.so", "--defined-only")}
    plugins = sorted(BUILD.glob("farthing_*.so"))
    assert plugins
    for plugin in plugins:
        needed = {name for name, _ in symbols(plugin, "--undefined-only") if name.startswith("fth_")}
        assert needed <= given, f"{plugin}: add to src/backend/plugin_symbols.txt"
        assert "libfarthing" not in run("readelf", "-d", plugin)  # or a program would have two copies


def test_the_cuda_plugin_will_find_all_that_it_needs():
    """Also where it is not built: by the names in its sources."""
    text = "".join(path.read_text() for path in (ROOT / "src/backend/cuda").glob("*.c*"))
    used = set(re.findall(r"\bfth_\w+", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))
    ours = {line.split()[-1] for library in BUILD.glob("libfth_*.a")
            for line in run("nm", "-g", "--defined-only", library).splitlines() if line}
    given = {name for name, _ in symbols(BUILD / "libfarthing.so", "--defined-only")}
    assert len(used & ours) > 20
    assert (used & ours) - given == set()


@pytest.mark.parametrize("compiler", [["cc", "-std=c99", "-x", "c"], ["c++", "-std=c++11", "-x", "c++"]],
                         ids=["c99", "c++11"])
def test_each_header_stands_alone(installed, compiler, tmp_path):
    names = [header.name for header in HEADERS] + ["version.h"]
    for name in names:
        (tmp_path / f"{name}.txt").write_text(f"#include <farthing/{name}>\nint main(void) {{ return 0; }}\n")
    run(*compiler, "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{installed}/include",
        *[tmp_path / f"{name}.txt" for name in names])


def test_the_example_is_short():
    assert len((ROOT / "examples/embed/embed.c").read_text().splitlines()) < 80


def test_the_example_is_built_with_pkg_config_alone(installed, environment, tmp_path):
    folder = tmp_path / "embed"
    shutil.copytree(ROOT / "examples/embed", folder)
    extra = " ".join(SANITIZER_FLAGS)
    run("make", "-C", folder, f"CFLAGS=-O1 -Wall -Wextra -Werror {extra} " + " ".join(flags(environment, "--cflags")),
        env=environment)
    done = subprocess.run([folder / "embed", "60"], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    match = re.search(r"trained: loss (\S+), accuracy (\S+) %, 60 steps, run (runs/embed-digits-\S+)", done.stdout)
    assert match and float(match[1]) < 2 and float(match[2]) > 40
    assert re.search(r"measured: loss (\S+), accuracy (\S+) %", done.stdout).groups() == (match[1], match[2])
    farthing = installed / "bin/farthing"
    assert "conv1.weight" in run(farthing, "weights", "embed.safetensors", cwd=folder, env=environment)
    assert "embed" in run(farthing, "report", match[3], cwd=folder, env=environment)
    for command in (["evaluate", "--data", "digits"], ["predict", "x.png"]):
        refused = subprocess.run([farthing, *command, "--weights", "embed.safetensors"], cwd=folder, env=environment,
                                 capture_output=True, text=True, timeout=PATIENCE_S)
        assert refused.returncode == 1 and "network embed, which is not built in" in refused.stderr
    assert (folder / "embed.onnx").stat().st_size > 100000

    run(farthing, "train", "--model", "linear", "--steps", "2", "--name", "first", cwd=folder, env=environment)
    picture = folder / "grey.png"
    run(sys.executable, "-c", GREY_PICTURE, picture)
    said = run(folder / "classify", "runs/first/best.safetensors", picture, cwd=folder, env=environment)
    assert re.fullmatch(r"\S+grey.png: \d \(\S+ %\)\n", said)


GREY_PICTURE = """
import struct, sys, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
header = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)
rows = b"".join(b"\\0" + bytes([99] * 28) for _ in range(28))
open(sys.argv[1], "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
                              + chunk(b"IEND", b""))
"""

VERSION_PROGRAM = """
#include <farthing/farthing.h>
#include <cstdio>
int main() { std::puts(fth_version()); return fth_version()[0] == FTH_VERSION[0] ? 0 : 1; }
"""


def test_one_version_for_everything(installed, environment, tmp_path):
    source, program = tmp_path / "version.cc", tmp_path / "version"
    source.write_text(VERSION_PROGRAM)
    run("c++", source, *flags(environment, "--cflags", "--libs"), *SANITIZER_FLAGS, "-o", program)
    version = run(program, env=environment).strip()
    assert version == run("pkg-config", "--modversion", "farthing", env=environment).strip()
    assert run(installed / "bin/farthing", "--version") == f"farthing {version}\n"
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", BUILD / "libfarthing.so")).group(1)
    assert soname == f"libfarthing.so.{version.split('.')[0]}"
    assert (BUILD / f"libfarthing.so.{version}").exists()


def test_the_static_library_needs_no_other(environment, installed, tmp_path):
    library = Path(environment["LD_LIBRARY_PATH"]) / "libfarthing.a"
    needs = [flag for flag in flags(environment, "--static", "--libs") if flag != "-lfarthing"]
    program = tmp_path / "embed"
    run("cc", ROOT / "examples/embed/embed.c", *flags(environment, "--cflags"), library, *needs, *SANITIZER_FLAGS,
        "-o", program)
    assert "libfarthing" not in run("ldd", program)
    assert "trained: loss" in run(program, "1", cwd=tmp_path, env=environment)


def test_cmake_finds_it(environment, installed, tmp_path):
    (tmp_path / "version.c").write_text(VERSION_PROGRAM.replace("cstdio", "stdio.h").replace("std::", "")
                                        .replace("main()", "main(void)"))
    (tmp_path / "CMakeLists.txt").write_text("""
cmake_minimum_required(VERSION 3.18)
project(finds C)
find_package(farthing 0.1 REQUIRED)
add_executable(shared version.c)
target_link_libraries(shared PRIVATE farthing::farthing)
add_executable(static version.c)
target_link_libraries(static PRIVATE farthing::static)
""")
    extra = " ".join(SANITIZER_FLAGS)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}",
        f"-DCMAKE_C_FLAGS={extra}")
    run("cmake", "--build", tmp_path / "build")
    environment.pop("LD_LIBRARY_PATH")  # CMake sets the path of a build tree's programs
    for program in ("shared", "static"):
        assert re.fullmatch(r"\d+\.\d+\.\d+\n", run(tmp_path / "build" / program, env=environment))


EMBEDDED = """
import ctypes, pathlib, sys
def handled():  # below 32: the next two are the C library's own, for threads
    lines = [line.split() for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]
    return [int(mask, 16) & 0x7fffffff for _, mask in lines]
library = ctypes.CDLL(sys.argv[1])  # for itself alone: plugins must be found to use it nevertheless
library.fth_error_message.restype = ctypes.c_char_p
training = ctypes.c_void_p()
def check(status):
    assert status == 0, library.fth_error_message()
before = handled()
check(library.fth_training_create(ctypes.byref(training)))
for name, value in (("model", "linear"), ("device", "reference"), ("steps", "2"), ("batch", "8")):
    check(library.fth_training_set(training, name.encode(), value.encode()))
check(library.fth_training_run(training))
library.fth_training_free(training)
assert handled() == before, (before, handled())
maps = pathlib.Path("/proc/self/maps").read_text()
files = {line.split()[-1] for line in maps.splitlines() if "farthing" in line and ".so" in line}
print(len(files))
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer cannot be loaded into Python")
def test_a_process_that_loads_it_keeps_its_signals_and_finds_plugins(environment, tmp_path):
    library = Path(environment["LD_LIBRARY_PATH"]) / "libfarthing.so"
    environment.pop("FARTHING_PLUGINS", None)
    assert run(sys.executable, "-c", EMBEDDED, library, cwd=tmp_path, env=environment) == "2\n"


def test_uninstall_leaves_nothing(tmp_path):
    where = dict(os.environ, DESTDIR=str(tmp_path / "root"))
    run("cmake", "--install", BUILD, "--prefix", "/opt/far", env=where)
    other = tmp_path / "root/opt/far/lib/other.txt"
    other.write_text("of somebody else")
    assert (tmp_path / "root/opt/far/bin/farthing").exists()
    run(ROOT / "scripts/uninstall", BUILD, "/opt/far", env=where)
    assert [path for path in (tmp_path / "root").rglob("*") if not path.is_dir()] == [other]
    assert not [path for path in (tmp_path / "root").rglob("farthing")]


def test_pages_completions_and_documents_are_installed(installed):
    share = installed / "share"
    for path in ("man/man1/farthing.1", "man/man1/farthing-train.1", "bash-completion/completions/farthing",
                 "zsh/site-functions/_farthing", "fish/vendor_completions.d/farthing.fish", "farthing/prices.yaml",
                 "doc/farthing/LICENSE", "doc/farthing/docs/LIBRARY.md", "doc/farthing/examples/embed/embed.c"):
        assert (share / path).stat().st_size > 0, path
    version = run(installed / "bin/farthing", "--version").split()[1]
    assert version in (share / "man/man1/farthing.1").read_text()
