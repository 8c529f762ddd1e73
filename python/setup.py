"""Builds libfarthing_batches.so by CMake from the repository that this folder lies in, or takes what $FARTHING_BATCHES_LIBRARY names or
`make` has left in build/, and puts it into the package. The version is the repository's."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "libfarthing_batches.so"


def build_library(folder):
    """The path of the library, built in `folder` if there is none."""
    named = os.environ.get("FARTHING_BATCHES_LIBRARY")
    if named:
        return Path(named)
    built = ROOT / "build" / LIBRARY
    if built.exists():
        return built
    if not shutil.which("cmake"):
        raise SystemExit(f"cmake is missing: install it (Debian: {ROOT}/scripts/install-dependencies) or run make first")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DFARTHING_BATCHES_ONLY=ON", *generator], check=True)
    subprocess.run(["cmake", "--build", folder, "--parallel", str(os.cpu_count())], check=True)
    return Path(folder) / LIBRARY


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        target = Path(self.build_lib) / "farthing_batches" / LIBRARY
        shutil.copyfile(build_library(Path(self.build_lib).parent.resolve() / "library"), target)


class BinaryDistribution(Distribution):
    """The wheel is this machine's, though no module is compiled for this Python."""

    def has_ext_modules(self):
        return True


version = re.search(r"project\(farthing VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
setup(version=version, cmdclass={"build_py": BuildWithLibrary}, distclass=BinaryDistribution)
