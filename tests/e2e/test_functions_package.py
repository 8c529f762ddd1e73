"""farthing functions package: the zip and the image hold all that a function needs, and run where nothing else is."""
import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from conftest import FARTHING, PATIENCE_S, ROOT, SANITIZED, Program, environment, wait_for, write_mnist
from test_parameter_server import Server

MEGABYTE = 1000 * 1000
ADDRESS = "127.0.0.1"
END_MARKER = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX"
SECRET = "c2VjcmV0LWluLXRoZS1lbnZpcm9ubWVudA"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A file of certificates, since the machine may have none; nobody is trusted by it here."""
    path = tmp_path_factory.mktemp("certificates") / "trusted.crt"
    path.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    return path


def write(folder, kind, certificates, *flags, **options):
    path = folder / f"function.{kind}"
    result = Program(folder)("functions", "package", f"--{kind}", path, "--certificates", certificates, "--json", *flags,
                             **options)
    return path, json.loads(result.out)


@pytest.fixture(scope="module")
def zip_package(tmp_path_factory, certificates):
    return write(tmp_path_factory.mktemp("zip"), "zip", certificates, env={"AWS_SECRET_ACCESS_KEY": SECRET})


@pytest.fixture(scope="module")
def image_package(tmp_path_factory, certificates):
    return write(tmp_path_factory.mktemp("image"), "image", certificates, env={"AWS_SECRET_ACCESS_KEY": SECRET})


def unpack(archive, folder):
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            opened.extract(entry, folder)
            os.chmod(folder / entry.filename, entry.external_attr >> 16)
    return folder


def free_port():
    with socket.socket() as found:
        found.bind((ADDRESS, 0))
        return found.getsockname()[1]


# ---- what is in them ----

def test_zip(zip_package, certificates):
    path, facts = zip_package
    content = path.read_bytes()
    assert facts["kind"] == "zip" and facts["size_bytes"] == len(content)
    assert facts["sha256"] == hashlib.sha256(content).hexdigest()
    with zipfile.ZipFile(path) as opened:
        assert opened.testzip() is None
        entries = {entry.filename: entry for entry in opened.infolist()}
        assert opened.read("ca-certificates.crt") == certificates.read_bytes()
    assert len(entries) == facts["files"]
    assert sum(entry.file_size for entry in entries.values()) == facts["content_bytes"]
    programs = {"bootstrap", "farthing-function", "lib/ld.so"}
    assert programs <= entries.keys() and "lib/libc.so.6" in entries
    for name, entry in entries.items():
        assert entry.external_attr >> 16 == (0o100755 if name in programs else 0o100644), name
        assert entry.date_time == (1980, 1, 1, 0, 0, 0), name
        assert name in programs or name == "ca-certificates.crt" or name.startswith("lib/lib"), name


@pytest.mark.skipif(SANITIZED, reason="a build with sanitizers is larger")
def test_size(zip_package, image_package):
    assert zip_package[1]["size_bytes"] <= 15 * MEGABYTE
    assert image_package[1]["layer_bytes"] <= 40 * MEGABYTE


@pytest.mark.skipif(SANITIZED, reason="a build with sanitizers names its sources")
def test_has_nothing_of_the_machine(zip_package):
    """No key of the environment, no path of the sources or of whoever built it, no oneDNN."""
    with zipfile.ZipFile(zip_package[0]) as opened:
        assert not [name for name in opened.namelist() if "dnnl" in name or "xml2" in name or "icu" in name]
        for name in ("bootstrap", "farthing-function"):
            content = opened.read(name)
            for text in (SECRET, str(ROOT), str(FARTHING.parent)):
                assert text.encode() not in content, (name, text)


def layer_of(image):
    """The image's layer as the layout leads to it, checked link by link, and its configuration."""
    with tarfile.open(image) as archive:
        def read(name):
            return archive.extractfile(name).read()

        def blob(descriptor):
            algorithm, digest = descriptor["digest"].split(":")
            content = read(f"blobs/{algorithm}/{digest}")
            assert hashlib.new(algorithm, content).hexdigest() == digest and len(content) == descriptor["size"]
            return content

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        (described,) = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(blob(described))
        configuration = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        compressed = blob(layer)
        (for_docker,) = json.loads(read("manifest.json"))
        assert for_docker["Config"].endswith(manifest["config"]["digest"].split(":")[1])
        assert [name.split("/")[-1] for name in for_docker["Layers"]] == [layer["digest"].split(":")[1]]
        assert for_docker["RepoTags"] == [described["annotations"]["org.opencontainers.image.ref.name"]]
    content = gzip.decompress(compressed)
    assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(content).hexdigest()]
    return content, configuration, described, len(compressed)


def test_image(image_package, zip_package):
    path, facts = image_package
    content, configuration, described, layer_bytes = layer_of(path)
    assert facts["kind"] == "image" and facts["size_bytes"] == path.stat().st_size
    assert facts["layer_bytes"] == layer_bytes
    version = Program(path.parent)("--version").out.split()[1]
    assert described["annotations"]["org.opencontainers.image.ref.name"] == f"farthing-function:{version}"
    assert configuration["config"]["Entrypoint"] == ["/var/task/bootstrap"]
    assert configuration["config"]["User"] not in ("", "0", "root", "0:0")
    with tarfile.open(fileobj=io.BytesIO(content)) as layer:
        entries = {entry.name: entry for entry in layer}
        assert b"files dns" in layer.extractfile("etc/nsswitch.conf").read()
    with zipfile.ZipFile(zip_package[0]) as opened:
        for name in opened.namelist():
            assert entries[f"var/task/{name}"].mode == opened.getinfo(name).external_attr >> 16 & 0o777
    assert all((entry.uid, entry.gid, entry.mtime) == (0, 0, 0) for entry in entries.values())
    assert {entry.mode for entry in entries.values() if entry.isfile()} == {0o644, 0o755}
    assert entries["tmp"].mode == 0o1777


def test_same_bytes_again(tmp_path, zip_package, image_package, certificates):
    """Whoever writes it, wherever and whenever."""
    (tmp_path / "elsewhere").mkdir()
    unlike = {"env": {"TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1700000000"}, "preexec_fn": lambda: os.umask(0o077)}
    for kind, (first, _) in (("zip", zip_package), ("image", image_package)):
        second, _ = write(tmp_path / "elsewhere", kind, certificates, **unlike)
        assert first.read_bytes() == second.read_bytes()


def test_finds_the_installed_program(tmp_path, zip_package, certificates):
    """In libexec/farthing, from bin: as `make install` and the Debian package put them."""
    installed = tmp_path / "prefix/libexec/farthing"
    installed.mkdir(parents=True)
    (tmp_path / "prefix/bin").mkdir()
    program = shutil.copy(FARTHING, tmp_path / "prefix/bin")
    command = [program, "functions", "package", "--zip", tmp_path / "function.zip", "--certificates", certificates]

    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 1 and "cannot find farthing-function" in done.stderr and "--program" in done.stderr
    for name in ("farthing-function", "farthing-bootstrap"):
        shutil.copy(FARTHING.parent / name, installed)
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "function.zip").read_bytes() == zip_package[0].read_bytes()


# ---- where nothing else is ----

def bare_root(root):
    """A command that runs what follows with `root` as all there is; skips, saying why, where that is not allowed."""
    chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin")
    command = [chroot, root] if os.geteuid() == 0 else [shutil.which("unshare"), "--map-root-user", chroot, root]
    if SANITIZED:
        pytest.skip("sanitizers need /proc")
    if None in command:
        pytest.skip("no chroot, or no unshare, to give it another root")
    done = subprocess.run([*command, "/var/task/bootstrap", "--version"], capture_output=True, text=True)
    if "ermission" in done.stderr or "not permitted" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no other root can be had here: {done.stderr.strip()}")
    assert done.returncode == 0 and done.stdout.startswith("farthing-function "), done.stderr
    return command


@contextlib.contextmanager
def running(command, env):
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.terminate()
        process.out, process.err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def wait_for_marker(stream):
    """Until the end of an activation is marked there; for a stream that nothing was read from."""
    text = b""

    def arrived():
        nonlocal text
        if select.select([stream], [], [], 0)[0]:
            text += os.read(stream.fileno(), 65536)
        return END_MARKER.encode() in text.splitlines()

    wait_for(arrived, "the mark of an activation's end", PATIENCE_S)


class RuntimeApi(http.server.BaseHTTPRequestHandler):
    """One invocation, whatever it comes to; then nothing to do."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        state = self.server.state
        if self.path == "/2018-06-01/runtime/invocation/next" and not state["given"]:
            state["given"] = True
            body = json.dumps(state["event"]).encode()
            self.send_response(200)
            for name, value in (("Lambda-Runtime-Aws-Request-Id", "id-1"),
                                ("Lambda-Runtime-Deadline-Ms", "99999999999999"),
                                ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        else:
            state["ended"].wait(PATIENCE_S)  # as the real one holds a function until there is work
            self.close_connection = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.state["answers"].append((self.path, json.loads(body)))


@pytest.fixture
def runtime_api():
    server = http.server.ThreadingHTTPServer((ADDRESS, 0), RuntimeApi)
    server.daemon_threads = True
    server.state = {"event": {"job": "no such job"}, "given": False, "answers": [], "ended": threading.Event()}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.state["ended"].set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def task(tmp_path, zip_package):
    """A root in which there is nothing but the package, as in Lambda in /var/task, /tmp and names of hosts."""
    root = tmp_path / "root"
    unpack(zip_package[0], root / "var/task")
    (root / "tmp").mkdir()
    (root / "etc").mkdir()
    (root / "etc/hosts").write_text(f"{ADDRESS} runtime.api.example\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files\n")
    return root


def invoke(root, api, event):
    """One invocation of the package in that root; gives where the answer was sent, and the answer."""
    api.state["event"] = event
    env = {"AWS_LAMBDA_RUNTIME_API": f"runtime.api.example:{api.server_port}", "LAMBDA_TASK_ROOT": "/var/task",
           "LD_LIBRARY_PATH": "/lib64:/usr/lib64:/var/runtime:/var/task"}
    with running([*bare_root(root), "/var/task/bootstrap"], env) as process:
        wait_for(lambda: api.state["answers"] or process.poll() is not None, "an answer", PATIENCE_S)
        assert process.poll() is None, process.communicate()
    assert process.returncode == 0, process.err
    ((path, answer),) = api.state["answers"]
    assert path.startswith("/2018-06-01/runtime/invocation/id-1/")
    return path.split("/")[-1], answer


def test_bootstrap_in_a_bare_root(task, runtime_api):
    kind, answer = invoke(task, runtime_api, {"job": "no such job"})
    assert kind == "error" and "no such job" in answer["errorMessage"]


@pytest.mark.parametrize("trusted", [True, False])
def test_trains_in_a_bare_root(tmp_path, task, runtime_api, trusted):
    """Over TLS: whom it trusts is what the package says."""
    bare_root(task)
    with tarfile.open(task / "tmp/shard.tar.gz", "w:gz") as shard:
        for path in sorted(write_mnist(tmp_path / "raw", 96, 1).glob("train-*")):
            shard.add(path, path.name)
    server = Server(tmp_path, "--data-shape", "1x28x28", "--model", "mnist-cnn", "--tls", "--stay").start()
    try:
        if trusted:
            shutil.copy(tmp_path / "runs/tls/certificate.pem", task / "var/task/ca-certificates.crt")
        kind, answer = invoke(task, runtime_api, {"apihost": f"https://{ADDRESS}:{server.port}", "epoch_n": 1,
                                                  "batch_sz_train": 32, "dataset_url": "file:///tmp/shard.tar.gz"})
        if trusted:
            assert kind == "response" and answer["samples"] == 96 and answer["pushes"] > 0, answer
        else:
            assert kind == "error" and "certificate" in answer["errorMessage"], answer
    finally:
        server.kill()


def test_bootstrap_from_any_folder(tmp_path, zip_package):
    """With hostile variables too: libraries come from the package alone."""
    folder = unpack(zip_package[0], tmp_path / "a folder with spaces")
    (tmp_path / "libcurl.so.4").write_bytes(b"not a library")
    env = environment(LD_LIBRARY_PATH=str(tmp_path))
    for program in (folder / "bootstrap", "a folder with spaces/bootstrap"):
        done = subprocess.run([program, "--version"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("farthing-function "), done.stderr
    done = subprocess.run([folder / "bootstrap", "--nonsense"], env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "--nonsense" in done.stderr
    shutil.rmtree(folder / "lib")
    done = subprocess.run([folder / "bootstrap"], capture_output=True, text=True)
    assert done.returncode == 1 and "lib/ld.so" in done.stderr and "unpack the whole package" in done.stderr


# ---- images, with the tools of others ----

def needs_tool(name):
    return pytest.mark.skipif(not shutil.which(name), reason=f"no {name}: apt-get install {name}")


@needs_tool("skopeo")
@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
def test_skopeo_reads_the_image(image_package, transport):
    done = subprocess.run(["skopeo", "inspect", f"{transport}:{image_package[0]}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["Os"] == "linux" and len(seen["Layers"]) == 1


class Podman:
    """Podman with storage of its own; with no network of its own, since a container's needs more rights than tests have."""

    def __init__(self, folder):
        self.options = ["--root", folder / "root", "--runroot", folder / "run", "--tmpdir", folder / "tmp",
                        "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]

    def command(self, *arguments):
        return ["podman", *map(str, self.options), *map(str, arguments)]

    def __call__(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def podman():
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:  # 50 characters at most
        podman = Podman(Path(folder))
        yield podman
        podman("rm", "--all", "--force", "--time", "0")
        podman("rmi", "--all", "--force")


def post(port, path, body):
    request = urllib.request.Request(f"http://{ADDRESS}:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def last_line(text):
    return (text.strip().splitlines() or ["no reason was given"])[-1]


def is_forbidden(done):
    """What containers need is not allowed on this machine; anything else that fails is ours."""
    return re.search(r"permi|cgroup|namespace|newuidmap|subuid|mount|sysctl|netavark|seccomp|potentially insufficient",
                     done.stderr, re.I)


@needs_tool("podman")
def test_podman_runs_the_image(image_package, podman):
    loaded = podman("load", "--input", image_package[0])
    assert loaded.returncode == 0 or is_forbidden(loaded), loaded.stderr
    if loaded.returncode:
        pytest.skip(f"podman cannot load images here: {last_line(loaded.stderr)}")
    name = loaded.stdout.split()[-1]
    assert "farthing-function" in name
    # Which runtime can do it depends on the machine's control groups, and what a limit may be on who starts it.
    flags = ["run", "--rm", "--network", "host", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"]
    reasons = []
    for runtime in filter(shutil.which, ("crun", "runc")):
        started = podman("--runtime", runtime, *flags, name, "--version")
        if started.returncode == 0:
            break
        assert is_forbidden(started), started.stderr
        reasons.append(last_line(started.stderr))
    else:
        pytest.skip(f"podman cannot run containers here: {'; '.join(reasons) or 'neither crun nor runc is installed'}")
    assert started.stdout.startswith("farthing-function ")
    port = free_port()
    with running(podman.command("--runtime", runtime, *flags, "--read-only", name, "--port", port), None) as process:
        wait_for(lambda: listens(port) or process.poll() is not None, "a server", PATIENCE_S)
        assert post(port, "/init", {"value": {}})[0] == 200
        status, answer = post(port, "/run", {"value": {"job": "no such job"}})
        assert status == 502 and "no such job" in answer["error"]
        for stream in (process.stdout, process.stderr):  # podman may lose what it has not passed on when it is stopped
            wait_for_marker(stream)
    assert process.returncode == 0, process.err


# ---- what is refused ----

def refuse(farthing, *arguments, code=1):
    result = farthing("functions", "package", *arguments, code=code)
    (line, *rest) = result.err.strip().splitlines()
    assert code == 2 or not rest, result.err
    return line


def test_wrong_usage(farthing):
    assert "either --zip FILE or --image FILE" in refuse(farthing, code=2)
    assert "either --zip FILE or --image FILE" in refuse(farthing, "--zip", "a", "--image", "b", code=2)
    assert "flags only" in refuse(farthing, "--zip", "a", "b", code=2)


def test_bad_inputs(farthing, tmp_path, certificates):
    bootstrap = FARTHING.parent / "farthing-bootstrap"
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\nexit 0\n")
    zip_flags = ("--zip", "out.zip", "--certificates", certificates)
    assert "not a program" in refuse(farthing, *zip_flags, "--program", text)
    assert "names no loader" in refuse(farthing, *zip_flags, "--program", bootstrap)
    assert "No such file" in refuse(farthing, *zip_flags, "--program", tmp_path / "absent")
    assert "No such file" in refuse(farthing, "--zip", "out.zip", "--certificates", "absent.crt")
    assert "cannot name an image" in refuse(farthing, "--image", "out.tar", "--name", "Not A Name")
    assert "absent/out.zip" in refuse(farthing, "--zip", "absent/out.zip", "--certificates", certificates)
    assert not list(tmp_path.glob("*out*")) and not list(tmp_path.glob(".tmp-*"))


def test_damaged_programs(farthing, tmp_path, certificates):
    """Headers that lie end as errors: offsets and counts beyond the file, a loader that is none."""
    whole = (FARTHING.parent / "farthing-function").read_bytes()
    program = tmp_path / "damaged"
    interpreter = whole.index(b"/ld-linux")
    start = whole.rindex(b"\0", 0, interpreter) + 1
    damages = {
        "cut in its header": whole[:40],
        "cut before its segments": whole[:70],
        "segments beyond the end": whole[:32] + b"\xff" * 8 + whole[40:],
        "more segments than there are": whole[:56] + b"\xff\xff" + whole[58:4096],
        "segments of another size": whole[:54] + b"\x01\x00" + whole[56:],
        "another processor": whole[:18] + b"\x08\x00" + whole[20:],
        "a loader that is not there": whole[:start] + b"/nowhere" + whole[start + 8:],
    }
    for damage, content in damages.items():
        program.write_bytes(content)
        assert refuse(farthing, "--zip", "out.zip", "--certificates", certificates, "--program", program), damage
    assert not (tmp_path / "out.zip").exists()
