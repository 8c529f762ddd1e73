"""Programs of others from PyPI, in virtual environments that are kept in the user's cache folder. Where they cannot be had the
test is skipped, soon: without a network nobody waits for minutes."""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL_WITHIN_S = 150


def python_with(name, *requirements, system_packages=False):
    """The Python of an environment that has them, and Debian's packages if asked for, made at first. One process at a time makes it; `whole` says that it is."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farthing-tests" / \
        f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    # One try of ten seconds to connect and for each wait; a network that is there answers sooner.
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "10",
               *requirements]
    shared = ["--system-site-packages"] if system_packages else []
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "whole").exists() or not python.exists():
                for command in ([sys.executable, "-m", "venv", "--clear", *shared, folder], install):
                    subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_WITHIN_S)
                (folder / "whole").touch()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        pytest.skip(f"{name} cannot be installed from PyPI: {str(said).strip()[-200:]}")
    return python
