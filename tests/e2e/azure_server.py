"""A small Azure blob service for tests, written to the protocol's documentation; Debian has none to run.

It keeps blobs in memory and refuses what the service refuses: signatures that do not fit the key, the container or the time, a
missing version or blob type, wrong checksums, conditions that do not hold, block lists that name unknown blocks. It was
written beside the client, so it can share the client's misreadings of the documentation; it is no proof against Azure."""
import base64
import email.utils
import hashlib
import hmac
import itertools
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

ACCOUNT, CONTAINER = "testaccount", "box"
KEY = base64.b64encode(hashlib.sha512(b"a test's key").digest()).decode()


def make_sas(permissions="racwdl", seconds=600, resource="c", name=None, key=KEY, container=CONTAINER):
    """A service SAS, as the documentation of version 2020-12-06 says."""
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    canonical = f"/blob/{ACCOUNT}/{container}" + (f"/{name}" if name else "")
    fields = [permissions, "", expiry, canonical, "", "", "", "2020-12-06", resource, "", "", "", "", "", "", ""]
    signature = hmac.new(base64.b64decode(key), "\n".join(fields).encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode({"sv": "2020-12-06", "se": expiry, "sr": resource, "sp": permissions,
                                   "sig": base64.b64encode(signature).decode()})


class Refused(Exception):
    def __init__(self, status, code):
        self.status, self.code = status, code


class Blob:
    counter = itertools.count(1)

    def __init__(self, content, headers, md5=None, blocks=None):
        self.content, self.headers, self.md5, self.blocks = content, headers, md5, blocks or {}
        self.etag = f"0x8D{next(Blob.counter):012X}"
        self.modified = email.utils.formatdate(usegmt=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        try:
            url = urllib.parse.urlsplit(self.path)
            self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            parts = urllib.parse.unquote(url.path).lstrip("/").split("/", 2)
            if parts[0] != ACCOUNT:
                raise Refused(400, "InvalidUri")
            self.container, self.name = parts[1], parts[2] if len(parts) > 2 else None
            self.server.requests.append((self.command, self.name, self.query.get("comp")))
            self.check_signature()
            if not self.headers.get("x-ms-version") and "Mozilla" not in self.headers.get("User-Agent", ""):
                if self.command != "GET":  # plain links carry no such header
                    raise Refused(400, "MissingRequiredHeader")
            if self.container != CONTAINER:
                raise Refused(404, "ContainerNotFound")
            with self.server.lock:
                getattr(self, f"do_{self.command.lower()}_{self.query.get('comp', 'blob')}")()
        except Refused as refused:
            body = f"<?xml version='1.0'?><Error><Code>{refused.code}</Code></Error>".encode()
            self.answer(refused.status, body, {"x-ms-error-code": refused.code, "Content-Type": "application/xml"})

    do_GET = do_PUT = do_HEAD = do_DELETE = handle_any

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # ---- who may do what ----

    def check_signature(self):
        query = self.query
        if "sig" not in query:
            raise Refused(401, "NoAuthenticationInformation")
        name = self.name if query.get("sr") == "b" else None
        canonical = f"/blob/{ACCOUNT}/{self.container}" + (f"/{name}" if name else "")
        fields = [query.get("sp", ""), query.get("st", ""), query.get("se", ""), canonical, query.get("si", ""),
                  query.get("sip", ""), query.get("spr", ""), query.get("sv", ""), query.get("sr", ""), "", "", "", "", "",
                  "", ""]
        expected = hmac.new(base64.b64decode(KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
        expired = query.get("se", "") <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if base64.b64encode(expected).decode() != query["sig"] or expired:
            raise Refused(403, "AuthenticationFailed")
        comp = query.get("comp")
        needed = {"GET": "l" if comp == "list" else "r", "HEAD": "r", "DELETE": "d", "PUT": "cw"}[self.command]
        if not set(needed) & set(query.get("sp", "")):
            raise Refused(403, "AuthorizationPermissionMismatch")

    def check_conditions(self):
        blob = self.server.blobs.get(self.name)
        if self.headers.get("If-None-Match") == "*" and blob:
            raise Refused(409, "BlobAlreadyExists")
        match = self.headers.get("If-Match")
        if match and (not blob or match != f'"{blob.etag}"'):
            raise Refused(412, "ConditionNotMet")

    def check_md5(self):
        told = self.headers.get("Content-MD5")
        found = base64.b64encode(hashlib.md5(self.body).digest()).decode()
        if told and told != found:
            raise Refused(400, "Md5Mismatch")
        return found

    def find(self):
        blob = self.server.blobs.get(self.name)
        if not blob:
            raise Refused(404, "BlobNotFound")
        return blob

    def kept_headers(self):
        return {name: value for name, value in self.headers.items()
                if name.lower().startswith("x-ms-meta-") or name.lower() == "content-type"}

    # ---- blobs ----

    def do_put_blob(self):
        if self.headers.get("x-ms-blob-type") != "BlockBlob":
            raise Refused(400, "MissingRequiredHeader")
        md5 = self.check_md5()
        self.check_conditions()
        blob = self.server.blobs[self.name] = Blob(self.body, self.kept_headers(), md5)
        self.server.uncommitted.pop(self.name, None)
        self.answer(201, headers={"ETag": f'"{blob.etag}"', "Content-MD5": md5})

    def do_get_blob(self):
        blob = self.find()
        self.check_conditions()
        headers = {**blob.headers, "ETag": f'"{blob.etag}"', "Last-Modified": blob.modified, "Accept-Ranges": "bytes"}
        span = self.headers.get("x-ms-range") or self.headers.get("Range")
        if not span:
            if blob.md5:
                headers["Content-MD5"] = blob.md5
            self.answer(200, blob.content, headers)
            return
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", span).groups())
        part = blob.content[first:last + 1]
        if not part:
            raise Refused(416, "InvalidRange")
        if self.headers.get("x-ms-range-get-content-md5") == "true":
            if last + 1 - first > 4 << 20:
                raise Refused(400, "OutOfRangeInput")
            headers["Content-MD5"] = base64.b64encode(hashlib.md5(part).digest()).decode()
        headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(blob.content)}"
        self.answer(206, part, headers)

    def do_head_blob(self):
        blob = self.find()
        self.answer(200, headers={**blob.headers, "ETag": f'"{blob.etag}"', "Last-Modified": blob.modified,
                                  "Content-Length": str(len(blob.content))})

    def do_delete_blob(self):
        self.find()
        del self.server.blobs[self.name]
        self.answer(202)

    # ---- blocks ----

    def do_put_block(self):
        self.check_md5()
        blocks = self.server.uncommitted.setdefault(self.name, {})
        block_id = self.query["blockid"]
        if any(len(other) != len(block_id) for other in blocks):
            raise Refused(400, "InvalidBlobOrBlock")
        blocks[block_id] = self.body
        self.answer(201)

    def do_get_blocklist(self):
        blocks = self.server.uncommitted.get(self.name)
        if blocks is None:
            self.find()
        listed = "".join(f"<Block><Name>{name}</Name><Size>{len(data)}</Size></Block>" for name, data in (blocks or {}).items())
        self.answer(200, ("\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><UncommittedBlocks>" + listed +
                          "</UncommittedBlocks></BlockList>").encode())

    def do_put_blocklist(self):
        self.check_md5()
        self.check_conditions()
        committed = self.server.blobs[self.name].blocks if self.name in self.server.blobs else {}
        known = {**committed, **self.server.uncommitted.get(self.name, {})}  # "Latest": the uncommitted one first
        names = [name.decode() for name in re.findall(rb"<Latest>([^<]*)</Latest>", self.body)]
        if any(name not in known for name in names):
            raise Refused(400, "InvalidBlockList")
        blocks = {name: known[name] for name in names}
        content = b"".join(known[name] for name in names)
        headers = self.kept_headers()
        headers["Content-Type"] = self.headers.get("x-ms-blob-content-type", "application/octet-stream")
        blob = self.server.blobs[self.name] = Blob(content, headers, blocks=blocks)
        self.server.uncommitted.pop(self.name, None)
        self.answer(201, headers={"ETag": f'"{blob.etag}"'})

    def do_get_list(self):
        names = sorted(name for name in self.server.blobs if name.startswith(self.query.get("prefix", "")))
        marker = self.query.get("marker")
        begin = int(base64.b64decode(marker)) if marker else 0
        page = names[begin:begin + self.server.page]
        following = base64.b64encode(str(begin + len(page)).encode()).decode() if begin + len(page) < len(names) else ""
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{blob.modified}</Last-Modified><Etag>{blob.etag}"
            f"</Etag><Content-Length>{len(blob.content)}</Content-Length></Properties><OrMetadata /></Blob>"
            for name, blob in ((name, self.server.blobs[name]) for name in page))
        self.answer(200, ("\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"x\">"
                          f"<Blobs>{blobs}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>").encode())


class AzureServer(ThreadingHTTPServer):
    daemon_threads = True
    page = 5  # small, so that lists have several

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs, self.uncommitted, self.requests, self.lock = {}, {}, [], threading.Lock()
        self.url = f"az://{ACCOUNT}/{CONTAINER}"

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}/{ACCOUNT}"

    def environment(self, **extra):
        return {"FARTHING_AZURE_ENDPOINT": self.endpoint, "AZURE_STORAGE_SAS_TOKEN": "", "AZURE_STORAGE_KEY": "", **extra}

    def handle_error(self, request, client_address):
        """Clients and proxies that hang up are part of the tests."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
