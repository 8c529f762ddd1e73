"""Passwords and signatures in the address of the data open it, and appear nowhere."""
import base64
import re
import signal
import subprocess
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import FARTHING, ROOT, Program, environment, record, wait_for
from test_data_download import Server, archive

USER, PASSWORD = "somebody", "pa55word"
SIGNATURES = ["51gnature-one", "51gnature-two"]


def presign(server, number):
    return (f"{server.address}/set.tar?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK1A%2Fus&"
            f"X-Amz-Date=2026111{number}T000000Z&X-Amz-Signature={SIGNATURES[number]}")


@pytest.fixture
def private(tmp_path):
    """Serves the set to those who have a signature or the password."""
    server = Server(archive())
    original = server.http.RequestHandlerClass.do_GET
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    def check(self):
        given = parse_qs(urlsplit(self.path).query).get("X-Amz-Signature", [""])[0]
        if given in SIGNATURES or self.headers.get("Authorization") == expected:
            original(self)
        else:
            self.send_error(403)
    server.http.RequestHandlerClass.do_GET = check
    yield server
    server.stop()


class Machine(Program):
    """A folder with a cache of its own; keeps all that the program has said."""

    def __init__(self, folder):
        folder.mkdir()
        super().__init__(folder)
        self.said = ""

    def env(self, **more):
        return {"FARTHING_CACHE": str(self.folder / "cache"), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1", **more}

    def __call__(self, *arguments, env=None, **options):
        result = super().__call__(*arguments, env=self.env(**(env or {})), **options)
        self.said += result.out + result.err
        return result

    def saved(self):
        return sum(e["event"] == "checkpoint" for run in self.runs() for e in record(run))

    def interrupt(self, *arguments, env=None):
        """Trains until there is a new checkpoint; gives what was printed."""
        before = self.saved()
        process = subprocess.Popen([FARTHING, "train", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   env=environment(**self.env(**(env or {}))), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: process.poll() is not None or self.saved() > before, "a checkpoint")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 75, (out, err)
        self.said += out + err
        return out

    def check_secrets(self, *folders):
        files = [f for folder in (self.folder, *folders) for f in folder.rglob("*")]
        texts = [self.said, *map(str, files), *(f.read_bytes().decode("latin-1") for f in files if f.is_file())]
        for secret in (PASSWORD, USER, "AK1A", *SIGNATURES):
            assert not any(secret in text for text in texts), secret


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "machine")


JOB = ["--model", "linear", "--batch", 8, "--steps", 6, "--image-size", 16, "--checkpoint-every", 2, "--threads", 1]


@pytest.mark.parametrize("how", ["signature", "password"])
def test_a_run_records_no_secret(private, machine, how):
    address = presign(private, 0) if how == "signature" else private.address.replace("//", f"//{USER}:{PASSWORD}@") + "/set.tar"
    machine("train", "--data", address, *JOB)
    run = machine.only_run()
    assert record(run)[0]["data"] == private.address + "/set.tar"
    machine("report", run)
    machine("data", "inspect", address)
    machine("evaluate", run)
    machine("doctor", "--data", address, code=None)
    machine("train", "--data", address + "#sha256=" + "0" * 64, *JOB, code=1)
    machine.check_secrets()
    assert len([r for r in private.requests]) == 2  # once, and once for the other checksum


def test_a_fresh_link_is_the_same_configuration(private, machine):
    machine("train", "--data", presign(private, 0), *JOB, "--resume")
    again = machine("train", "--data", presign(private, 1), *JOB, "--resume")
    assert "already finished" in again.out
    assert len(machine.runs()) == 1 and len(private.requests) == 1
    machine.check_secrets()


def test_a_secret_from_a_file_of_options(private, machine):
    (machine.folder / "run.yaml").write_text(f"data: {presign(private, 0)}\nmodel: linear\nbatch: 8\nsteps: 2\n")
    machine("train", "run.yaml")
    (machine.folder / "run.yaml").unlink()
    machine.check_secrets()


ENDLESS = ["--model", "linear", "--batch", "8", "--image-size", "16", "--steps", "10000000", "--checkpoint-every", "5"]


def test_the_command_that_resumes_has_no_secret(private, machine):
    out = machine.interrupt("--data=" + presign(private, 0), *ENDLESS)
    assert f"--data={private.address}/set.tar --model" in out and "FARTHING_DATA_URL" in out
    machine.check_secrets()


def test_another_machine_asks_for_the_secret(private, tmp_path, machine):
    """A run in a store goes on elsewhere, where the data have to be fetched again."""
    job = [*ENDLESS, "--checkpoints", str(tmp_path / "store" / "run")]
    machine.interrupt("--data", presign(private, 0), *job)
    other, plain = Machine(tmp_path / "other"), ["--data", private.address + "/set.tar"]
    failed = other("train", *plain, *job, code=1)
    assert "403" in failed.err and "--data" in failed.err and "FARTHING_DATA_URL" in failed.err
    out = other.interrupt(*plain, *job, env={"FARTHING_DATA_URL": presign(private, 1)})
    assert "continuing after step" in out
    assert len(other.runs()) == 1
    machine.check_secrets(tmp_path / "store")
    other.check_secrets()


def test_an_endpoint_takes_no_password(machine):
    refused = machine("train", "--s3-endpoint", f"http://{USER}:{PASSWORD}@localhost:9", code=2)
    assert "--s3-endpoint" in refused.err and "without user" in refused.err
    failed = machine("store", "ls", "s3://bucket", code=1,
                     env={"AWS_ENDPOINT_URL": f"http://{USER}:{PASSWORD}@localhost:9", "AWS_ACCESS_KEY_ID": "a",
                          "AWS_SECRET_ACCESS_KEY": "b"})
    assert "without user" in failed.err
    machine.check_secrets()


def test_a_server_with_a_password(machine, tiny):
    gone = machine("train", "--strategy", "parameter-server", "--data", tiny, "--model", "linear", "--server-timeout", "1s",
                   "--server", f"http://{USER}:{PASSWORD}@127.0.0.1:9", code=None)
    assert gone.code != 0 and "127.0.0.1:9" in gone.err
    machine.check_secrets()


@pytest.mark.parametrize("words", [
    ["runs", "rm", "ADDRESS"], ["runs", "--runs", "ADDRESS"], ["train", "--resume", "ADDRESS"],
    ["train", "--name", "ADDRESS"], ["train", "--model", "ADDRESS"], ["train", "--transform", "ADDRESS"], ["ADDRESS"],
    ["train", "ADDRESS"], ["train", "--watch", "ADDRESS"], ["train", "--prices", "ADDRESS"], ["train", "--runs", "ADDRESS"],
    ["train", "file.yaml"], ["predict", "--weights", "nosuch", "ADDRESS"]], ids=" ".join)
def test_an_address_in_the_wrong_place_is_told_without_its_secret(machine, words):
    for address in (f"http://{USER}:{PASSWORD}@127.0.0.1:9/set.tar",
                    f"http://127.0.0.1:9/set.tar?X-Amz-Credential=AK1A&X-Amz-Signature={SIGNATURES[0]}"):
        (machine.folder / "file.yaml").write_text(f"? '{address}'\n: x\n")
        failed = machine(*[address if word == "ADDRESS" else word for word in words], code=None)
        (machine.folder / "file.yaml").unlink()
        assert failed.code in (1, 2) and "error: " in failed.err
    machine.check_secrets()


def test_no_example_puts_a_key_on_a_command_line():
    """Where every user of the machine sees it; a shell's own echo is no command line."""
    passed = re.compile(r"(?:--param|-p|--data|-d)\b[^\n]*secret_key")
    assert passed.search("wsk action invoke mnist --param access_key a --param secret_key s")
    assert passed.search("""curl -d '{"value": {"secret_key": "s"}}' localhost""")
    for folder in ("examples", "docs", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in ("", ".md", ".sh", ".yaml", ".sbatch"):
                found = passed.search(path.read_text().replace("\\\n", " "))
                assert not found, f"{path}: {found.group()}"
