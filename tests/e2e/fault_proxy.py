#!/usr/bin/python3
"""An HTTP proxy that makes bad weather between a client and a real server, by rules a test sets while it runs.

    with FaultProxy(server.port) as proxy:
        proxy.rules = [Rule("status", code=503, method="PUT", chance=0.5)]
        ... use proxy.endpoint ...
        assert proxy.count("status") > 0

    fault_proxy.py --to PORT --rule status,code=500,chance=0.5 -- COMMAND ...   # with AWS_ENDPOINT_URL set

The first rule that matches a request acts on it; a request no rule matches passes. What a rule does:

    status        answers with `code` (and S3's error code `reason`) instead of passing the request on
    refuse        closes the connection before the request's body is read
    cut_request   passes `after` bytes of the request's body on, then cuts both connections
    cut_answer    passes `after` bytes of the answer's body on, then cuts the connection
    lose_answer   the server acts on the whole request, but the client never hears of it
    shorten       leaves the last `after` bytes of the answer's body out and claims that this is all of it
    flip          turns a bit of the answer's body at offset `after`
    delay         waits `seconds` before passing the request on
    late          takes the whole request, and passes it on when the test says so (release), whoever is gone by then
    hold          never answers, until the proxy ends

Only HTTP/1.1 with Content-Length or chunked answers is understood, which is what S3 servers and clients speak."""
import asyncio
import os
import random
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field

KINDS = ("status", "refuse", "cut_request", "cut_answer", "lose_answer", "shorten", "flip", "delay", "late", "hold")
REASONS = {400: "InvalidRequest", 403: "AccessDenied", 404: "NoSuchKey", 429: "TooManyRequests", 500: "InternalError",
           501: "NotImplemented", 503: "SlowDown"}


@dataclass
class Rule:
    kind: str
    method: str = ""        # "PUT"; "": any
    target: str = ""        # a regular expression found in path and query; "": any
    chance: float = 1.0
    times: float = float("inf")
    skip: int = 0           # lets that many matching requests pass first
    code: int = 500
    reason: str = ""
    after: int = 0
    seconds: float = 1.0
    headers: dict = field(default_factory=dict)  # of the answer that `status` makes
    used: int = 0

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"no fault is called {self.kind!r}: {', '.join(KINDS)}")

    def applies(self, method, target, draw):
        if self.method not in ("", method) or not re.search(self.target, target) or self.used >= self.times:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if draw.random() >= self.chance:
            return False
        self.used += 1
        return True


@dataclass
class Request:
    method: str
    target: str
    headers: dict  # names in lower case
    fault: str     # "" when it passed
    code: int = 0  # of the server's answer


class Cut(Exception):
    """The connection is to be cut here."""


def parse_head(head):
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return first, {name.strip().lower(): value.strip() for name, value in pairs}


class FaultProxy:
    def __init__(self, port, host="127.0.0.1", seed=1):
        self.upstream = (host, port)
        self.rules = []
        self.requests = []
        self._draw = random.Random(seed)
        self._tasks = set()
        self._released = asyncio.Event()

    # ---- a loop in a thread of its own ----

    def __enter__(self):
        started = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def listen():
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
            self.port = self._server.sockets[0].getsockname()[1]
            started.set()

        def run():
            self._loop.run_until_complete(listen())
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        if not started.wait(30):
            raise TimeoutError("the proxy did not start")
        return self

    def __exit__(self, *_):
        async def end():
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def release(self):
        self._loop.call_soon_threadsafe(self._released.set)

    def count(self, fault=None, method=None):
        """How many requests came; with `fault`, how many met it ("": none)."""
        return sum(fault in (None, each.fault) and method in (None, each.method) for each in self.requests)

    # ---- connections ----

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        upstream = None
        try:
            upstream = await asyncio.open_connection(*self.upstream, limit=1 << 20)
            while await self._exchange(reader, writer, *upstream):
                pass
        except (Cut, OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            for each in (writer, upstream[1] if upstream else None):
                if each:
                    each.transport.abort()  # a reset, as a dying machine leaves it
            self._tasks.discard(task)

    async def _exchange(self, reader, writer, server_reader, server_writer):
        head = await reader.readuntil(b"\r\n\r\n")
        first, headers = parse_head(head)
        method, target, _ = first.split(" ", 2)
        rule = next((each for each in self.rules if each.applies(method, target, self._draw)), None)
        kind = rule.kind if rule else ""
        request = Request(method, target, headers, kind)
        length = int(headers.get("content-length", 0))
        if kind != "late":
            self.requests.append(request)
        if kind == "refuse":
            raise Cut
        if kind == "hold":
            await asyncio.Event().wait()
        if headers.get("expect", "").lower() == "100-continue" and length:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?im)^expect:[^\r\n]*\r\n", b"", head)
        if kind == "status":
            await self._copy(reader, None, length)
            await self._answer(writer, rule, method)
            return True
        if kind == "delay":
            await asyncio.sleep(rule.seconds)
        if kind == "late":
            await writer.drain()
            head += await reader.readexactly(length)
            length = 0
            self.requests.append(request)
            await self._released.wait()
        server_writer.write(head)
        if kind == "cut_request":
            await self._copy(reader, server_writer, min(rule.after, length))
            raise Cut
        await self._copy(reader, server_writer, length)
        return await self._pass_answer(request, server_reader, writer, rule)

    async def _answer(self, writer, rule, method):
        reason = rule.reason or REASONS.get(rule.code, "Unknown")
        body = b"" if method == "HEAD" else (f"<?xml version='1.0'?><Error><Code>{reason}</Code><Message>"
                                             "made by the fault proxy</Message></Error>").encode()
        lines = [f"HTTP/1.1 {rule.code} {reason}", "Content-Type: application/xml", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in rule.headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    async def _pass_answer(self, request, reader, writer, rule):
        head = await reader.readuntil(b"\r\n\r\n")
        first, headers = parse_head(head)
        method, code = request.method, int(first.split(" ")[1])
        if code == 100:
            return await self._pass_answer(request, reader, writer, rule)
        request.code = code
        kind = rule.kind if rule else ""
        bodiless = method == "HEAD" or code in (204, 304)
        chunked = "chunked" in headers.get("transfer-encoding", "") and not bodiless
        length = 0 if bodiless else int(headers.get("content-length", 0))
        if kind == "lose_answer":
            raise Cut
        if kind == "shorten" and length:
            length_left = max(0, length - rule.after)
            head = re.sub(rb"(?im)^content-length:[^\r\n]*", b"Content-Length: %d" % length_left, head)
            writer.write(head)
            await self._copy(reader, writer, length_left)
            await self._copy(reader, None, length - length_left)
            return True
        writer.write(head)
        if kind == "cut_answer":
            await self._copy(reader, writer, min(rule.after, length))
            raise Cut
        if kind == "flip" and length > rule.after:
            await self._copy(reader, writer, rule.after)
            (byte,) = await reader.readexactly(1)
            writer.write(bytes([byte ^ 1]))
            await self._copy(reader, writer, length - rule.after - 1)
        elif chunked:
            await self._copy_chunks(reader, writer)
        else:
            await self._copy(reader, writer, length)
        await writer.drain()
        return "close" not in headers.get("connection", "").lower()

    async def _copy(self, reader, writer, length):
        while length > 0:
            data = await reader.read(min(length, 1 << 18))
            if not data:
                raise EOFError
            length -= len(data)
            if writer:
                writer.write(data)
                await writer.drain()

    async def _copy_chunks(self, reader, writer):
        while True:
            line = await reader.readuntil(b"\r\n")
            writer.write(line)
            size = int(line.split(b";")[0], 16)
            await self._copy(reader, writer, size)
            writer.write(await reader.readuntil(b"\r\n"))
            if size == 0:
                return


# ---- from a shell ----

def parse_rule(text):
    kind, *settings = text.split(",")
    rule = Rule(kind)
    for setting in settings:
        name, value = setting.split("=", 1)
        setattr(rule, name, type(getattr(rule, name))(value))
    return rule


def main(arguments):
    port, rules = None, []
    while arguments and arguments[0] in ("--to", "--rule"):
        if arguments[0] == "--to":
            port = int(arguments[1])
        else:
            rules.append(parse_rule(arguments[1]))
        arguments = arguments[2:]
    if not port or arguments[:1] != ["--"]:
        print(__doc__, file=sys.stderr)
        return 2
    with FaultProxy(port) as proxy:
        proxy.rules = rules
        return subprocess.run(arguments[1:], env={**os.environ, "AWS_ENDPOINT_URL": proxy.endpoint}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
