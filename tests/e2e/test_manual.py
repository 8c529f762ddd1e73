"""The manual pages, made from the tables of commands and options."""
import re
import shutil
import subprocess

import pytest
from conftest import FARTHING, ROOT, environment

# Set by farthing for its own children, or for its tests.
INTERNAL = {"FARTHING_PROGRESS_FILE", "FARTHING_PARENT_PROCESS", "FARTHING_CUDA_TEST_FAULT", "FARTHING_CUDA_PART_ELEMENTS",
            "FARTHING_LAUNCH_RUN", "FARTHING_LAUNCH_CONTROL", "FARTHING_LAUNCH_COMMAND", "FARTHING_LOCAL_RANK", "FARTHING_LOCAL_SIZE",
            "FARTHING_MEMORY_MB"}


PARTS = ("serve parameters", "serve batches", "serve functions", "worker prefetch", "worker openwhisk", "worker lambda",
         "functions deploy", "functions invoke", "functions status", "functions logs", "functions remove",
         "functions package")  # commands below others


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual") / "man"
    subprocess.run([FARTHING, "man", "--folder", folder], check=True, env=environment(SOURCE_DATE_EPOCH="86400"))
    return {path.stem: path for path in folder.iterdir()}


def plain(page):
    """The text without roff's escapes."""
    text = page.read_text().replace("\\-", "-").replace("\\(dq", '"').replace("\\(aq", "'").replace("\\(ti", "~")
    return re.sub(r"\\f.|\\&", "", text)


def commands(farthing):
    return re.findall(r"^  (\w+) +\w", farthing("--help").out, re.M)


def test_a_page_for_each_command(farthing, pages):
    assert set(pages) == {"farthing"} | {"farthing-" + name.replace(" ", "-") for name in [*commands(farthing), *PARTS]}
    assert ".TH FARTHING-TRAIN 1 1970-01-02" in pages["farthing-train"].read_text()


def test_every_flag_is_described(farthing, pages):
    for name in [*commands(farthing), *PARTS]:
        text = plain(pages["farthing-" + name.replace(" ", "-")])
        for flag in re.findall(r"^  (--(?:\[no-\])?[\w-]+)", farthing(*name.split(), "--help").out, re.M):
            assert f".TP\n{flag.replace('[no-]', '')}" in text, f"{name} {flag}"


def test_sections(pages):
    text = plain(pages["farthing-train"])
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"):
        assert re.search(rf'^\.SH "?{section}"?$', text, re.M), section
    assert '.SS "Model and data"' in text
    assert "adamw\n(lr 0.001 unless given)" in text
    assert "\n75\n" in text


def test_every_variable_is_described(pages):
    used = set()
    for source in [*ROOT.glob("src/**/*.c"), *ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cu")]:
        if source.name != "manual.c":
            used |= set(re.findall(r'"(FARTHING_[A-Z_0-9]+)"', source.read_text()))
    text = plain(pages["farthing"])
    assert used, "no variable was found in the sources"
    assert {name for name in used - INTERNAL if name not in text} == set()


def test_mandoc_has_no_complaints(pages):
    if not shutil.which("mandoc"):
        pytest.skip("there is no mandoc here; scripts/install-dependencies --tests installs it")
    done = subprocess.run(["mandoc", "-T", "lint", *pages.values()], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_man_has_no_warnings(pages):
    if not shutil.which("man"):
        pytest.skip("there is no man here; scripts/install-dependencies --tests installs it")
    for page in pages.values():
        done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True,
                              env=environment(MANWIDTH="80"))
        assert done.returncode == 0 and done.stderr == "", f"{page}: {done.stderr}"
        assert "EXIT STATUS" in done.stdout


def test_one_page_on_standard_output(farthing, pages):
    assert farthing("man", "serve", "parameters", env={"SOURCE_DATE_EPOCH": "86400"}).out == \
        pages["farthing-serve-parameters"].read_text()
    done = farthing("man", "trian", code=2)
    assert "did you mean 'train'?" in done.err
    assert "--folder" in farthing("man", "train", "--folder", "pages", code=2).err
