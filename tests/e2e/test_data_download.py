"""Data sets by address: downloaded once, checked, and taken up again where a transfer broke off."""
import hashlib
import http.server
import io
import json
import shutil
import ssl
import subprocess
import tarfile
import threading

import pytest
from conftest import Program, png


def archive(seed=0):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for part in ("train", "val"):
            for kind in ("cat", "dog"):
                for i in range(20):
                    entry = tarfile.TarInfo(f"{part}/{kind}/{i}.png")
                    body = png(24, 24, (seed + i * 7) % 256)
                    entry.size = len(body)
                    tar.addfile(entry, io.BytesIO(body))
    return out.getvalue()


class Server:
    """Serves /set.tar. `breaks` transfers end after a third of what is left; `ranges` says whether it can resume;
    what it resumes begins `shift` bytes before what was asked for."""

    def __init__(self, body, breaks=0, ranges=True, tag='"one"', context=None, shift=0):
        self.body, self.breaks, self.ranges, self.tag, self.shift = body, breaks, ranges, tag, shift
        self.requests = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                server.requests.append(dict(self.headers))
                if self.path == "/moved.tar":
                    self.send_response(302)
                    self.send_header("Location", "/set.tar")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if self.path.split("?")[0] != "/set.tar":
                    self.send_error(404)
                    return
                begin = 0
                asked = self.headers.get("Range")
                same = self.headers.get("If-Range") in (None, server.tag)
                if asked and server.ranges and same:
                    begin = int(asked[len("bytes="):].rstrip("-")) - server.shift
                rest = server.body[begin:]
                if begin:
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {begin}-{len(server.body) - 1}/{len(server.body)}")
                else:
                    self.send_response(200)
                if server.tag:
                    self.send_header("ETag", server.tag)
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                if server.breaks > 0:
                    server.breaks -= 1
                    self.wfile.write(rest[:len(rest) // 3])
                    self.close_connection = True
                else:
                    self.wfile.write(rest)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.address = f"{'https' if context else 'http'}://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve():
    servers = []

    def start(*arguments, **options):
        servers.append(Server(*arguments, **options))
        return servers[-1]
    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def inspect(tmp_path):
    program = Program(tmp_path)

    def run(address, code=0):
        env = {"FARTHING_CACHE": str(tmp_path / "cache"), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
        return program("data", "inspect", address, "--json", code=code, env=env)
    return run


def cached(tmp_path):
    return sorted(p.name for p in (tmp_path / "cache").iterdir())


def test_downloads_once(serve, inspect, tmp_path):
    server = serve(archive())
    first = json.loads(inspect(server.address + "/set.tar").out)
    assert first["training_samples"] == 40 and first["validation_samples"] == 40
    assert [c["name"] for c in first["classes"]] == ["cat", "dog"]
    assert len(server.requests) == 1 and len(cached(tmp_path)) == 1
    server.stop()
    assert json.loads(inspect(server.address + "/set.tar").out) == first
    server.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), None)  # for the fixture to stop
    threading.Thread(target=server.http.serve_forever, daemon=True).start()


def test_follows_a_redirect_and_names_what_is_missing(serve, inspect):
    server = serve(archive())
    assert json.loads(inspect(server.address + "/moved.tar").out)["training_samples"] == 40
    failed = inspect(server.address + "/nothing.tar", code=1)
    assert "404" in failed.err and "nothing.tar" in failed.err


def test_tells_no_secrets(serve, inspect):
    server = serve(archive(), breaks=1)
    address = server.address.replace("//", "//me:password@") + "/{}.tar?X-Amz-Signature=signature"
    for name, code in (("set", 0), ("nothing", 1)):
        said = inspect(address.format(name), code=code).err
        assert f"/{name}.tar" in said and "password" not in said and "signature" not in said
    assert all("Basic" in request["Authorization"] for request in server.requests)


def test_goes_on_where_a_transfer_broke_off(serve, inspect, tmp_path):
    body = archive()
    server = serve(body, breaks=3)
    sha = hashlib.sha256(body).hexdigest()
    assert json.loads(inspect(f"{server.address}/set.tar#sha256={sha}").out)["training_samples"] == 40
    begins = [int(r.get("Range", "bytes=0-")[6:-1]) for r in server.requests]
    assert len(begins) == 4 and begins == sorted(begins) and begins[1] > 0
    assert all(r["If-Range"] == '"one"' for r in server.requests[1:])
    assert len(cached(tmp_path)) == 1  # nothing is left beside the file


def test_a_later_call_goes_on(serve, inspect, tmp_path):
    """Enough failures in a row without progress end a call; what it had stays."""
    body = archive()
    server = serve(body, breaks=1)
    original = server.http.RequestHandlerClass.do_GET

    def refuse_after_the_first(self):
        if server.requests:
            server.requests.append({})
            self.send_error(503)
        else:
            original(self)
    server.http.RequestHandlerClass.do_GET = refuse_after_the_first
    failed = inspect(server.address + "/set.tar", code=1)
    assert "503" in failed.err
    assert any(name.endswith(".part") for name in cached(tmp_path))
    server.http.RequestHandlerClass.do_GET = original
    server.requests.clear()
    assert json.loads(inspect(server.address + "/set.tar").out)["training_samples"] == 40
    assert int(server.requests[0]["Range"][6:-1]) == len(body) // 3


def test_begins_anew_where_the_file_changed_or_cannot_be_resumed(serve, inspect, tmp_path):
    for options in ({"ranges": False}, {"tag": None}):
        server = serve(archive(), breaks=2, **options)
        assert json.loads(inspect(server.address + "/set.tar").out)["training_samples"] == 40
    old, new = archive(0), archive(99)
    server = serve(old, breaks=1)
    original = server.http.RequestHandlerClass.do_GET

    def change_then_serve(self):
        if server.requests:
            server.body, server.tag = new, '"two"'
        original(self)
    server.http.RequestHandlerClass.do_GET = change_then_serve
    sha = hashlib.sha256(new).hexdigest()
    assert json.loads(inspect(f"{server.address}/set.tar#sha256={sha}").out)["training_samples"] == 40


def test_begins_anew_where_the_server_sends_another_part(serve, inspect, tmp_path):
    server = serve(archive(), breaks=1, shift=512)
    assert json.loads(inspect(server.address + "/set.tar").out)["training_samples"] == 40
    assert ["Range" in request for request in server.requests] == [False, True, False]
    assert len(cached(tmp_path)) == 1


def test_refuses_a_wrong_checksum(serve, inspect, tmp_path):
    body = archive()
    server = serve(body)
    failed = inspect(f"{server.address}/set.tar#sha256={'0' * 64}", code=1)
    assert hashlib.sha256(body).hexdigest() in failed.err
    assert cached(tmp_path) == []
    assert "64 hex digits" in inspect(f"{server.address}/set.tar#sha256=abc", code=1).err
    assert "https://" in inspect("ftp://127.0.0.1/set.tar", code=1).err


def test_an_error_page_is_no_data_set(serve, inspect):
    server = serve(b"<html>sign in first</html>")
    failed = inspect(server.address + "/set.tar", code=1)
    assert "neither a folder nor an archive" in failed.err and "remove it" in failed.err


def test_checks_certificates(serve, inspect, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = serve(archive(), context=context)
    assert "certificate" in inspect(server.address + "/set.tar", code=1).err
    assert server.requests == []
