"""A client of the parameter server with nothing but the standard library and numpy: what docs/parameter-server.md says."""
import hashlib
import hmac
import http.client
import json
import secrets
import struct
import time

import numpy

DTYPES = {"F32": numpy.float32, "F16": numpy.float16, "I32": numpy.int32, "U32": numpy.uint32, "I64": numpy.int64,
          "BF16": numpy.uint16}
NAMES = {numpy.dtype(v): k for k, v in DTYPES.items() if k != "BF16"}


def pack(tensors, metadata):
    """safetensors; a tensor is an array, or (array, "BF16")."""
    header, parts, offset = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, [], 0
    for name, value in tensors.items():
        array, dtype = value if isinstance(value, tuple) else (value, NAMES[numpy.asarray(value).dtype])
        array = numpy.ascontiguousarray(array)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        parts.append(array.tobytes())
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def unpack(body):
    (length,) = struct.unpack("<Q", body[:8])
    header, data = json.loads(body[8:8 + length]), body[8 + length:]
    metadata = header.pop("__metadata__", {})
    return {name: numpy.frombuffer(data[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}, metadata


def sign(key, secret, method, target, body, now=None, nonce=None):
    digest, now, nonce = hashlib.sha256(body).hexdigest(), int(now or time.time()), nonce or secrets.token_hex(16)
    text = f"FTH1\n{method}\n{target}\n{digest}\n{now}\n{nonce}"
    signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    return f"FTH1 key={key}, time={now}, nonce={nonce}, body={digest}, signature={signature}"


class Answer:
    def __init__(self, code, headers, body):
        self.code, self.headers, self.body = code, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """One connection, made again when it breaks."""

    def __init__(self, port, key=None, timeout=60, context=None):
        self.port, self.key, self.timeout, self.context, self.connection = port, key, timeout, context, None

    def __call__(self, method, target, body=b"", headers=None, signed=True):
        headers = dict(headers or {})
        if self.key and signed and "Authorization" not in headers:
            headers["Authorization"] = sign(*self.key, method, target, body)
        for fresh in (False, True):
            if self.connection is None:
                self.connection = (http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.timeout,
                                                               context=self.context) if self.context else
                                   http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout))
                fresh = True
            try:
                self.connection.request(method, target, body or None, headers)
                answer = self.connection.getresponse()
                return Answer(answer.status, answer.headers, answer.read())
            except (http.client.HTTPException, OSError):
                self.close()
                if fresh:
                    raise

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def version(self):
        return self("GET", "/getVersion").json["version"]

    def pull(self, query="", headers=None):
        answer = self("GET", "/getParameter" + query, headers=headers)
        assert answer.code == 200, answer.body
        tensors, metadata = unpack(answer.body)
        return tensors, int(metadata["version"])

    def register(self, worker, instance="one", code=200):
        answer = self("POST", "/registerWorker", json.dumps({"worker": worker, "instance": instance}).encode())
        assert answer.code == code, answer.body
        return answer.json

    def unregister(self, worker, code=200):
        answer = self("POST", "/unregisterWorker", json.dumps({"worker": worker}).encode())
        assert answer.code == code, answer.body
        return answer.json

    def push(self, worker, sequence, version, tensors, samples=1, code=None, **metadata):
        body = pack(tensors, {"worker": worker, "sequence": sequence, "version": version, "samples": samples, **metadata})
        answer = self("POST", "/putGradient", body)
        assert code is None or answer.code == code, (answer.code, answer.body)
        return answer.json

    def metrics(self):
        values = {}
        for line in self("GET", "/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values
