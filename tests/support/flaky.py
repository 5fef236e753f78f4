"""A faulty proxy: drops, cuts, delays and repeats requests and answers, and counts bytes."""

from __future__ import annotations

import http.client
import io
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import BinaryIO
from urllib.parse import urlsplit

KINDS = ("drop", "clip", "lose", "cut", "delay", "twice")
"""Not sent on; half of it sent on; sent on and not answered; half an answer; late; sent on twice."""

LINE = 128 << 10
"""Bytes that are on the line at once: what was passed on is at the other side, but for these."""


def shorten(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LINE)


class Flaky:
    """A proxy before a server; use it as a context. `rate` of all requests suffer one of KINDS."""

    def __init__(self, upstream: str, rate: float = 0.0, seed: int = 0) -> None:
        self.upstream = urlsplit(upstream)
        self.rate, self.random = rate, random.Random(seed)
        self.lock = threading.Lock()
        self.sent = 0
        """Bytes of requests' bodies that were passed on; of what is sent on twice, once."""
        self.received = 0
        """Bytes of answers' bodies that were passed on."""
        self.done: Counter[str] = Counter()
        self.under_way: set[object] = set()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                shorten(self.connection)

            def handle_any(self) -> None:
                proxy.handle(self)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_any

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        class Proxy(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignores errors: a killed process resets the connection that it kept."""

        self.server = Proxy(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Flaky:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()

    def settle(self, seconds: float = 60) -> None:
        """Waits until everything that is on the line now has arrived, or its receiver is gone."""
        with self.lock:
            now = set(self.under_way)
        until = time.monotonic() + seconds
        while self.under_way & now:
            assert time.monotonic() < until, "the line does not come to rest"
            time.sleep(0.005)

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        exchange = object()
        with self.lock:
            self.under_way.add(exchange)
        try:
            yield
        finally:
            with self.lock:
                self.under_way.discard(exchange)

    def choose(self) -> str:
        with self.lock:
            kind = self.random.choice(KINDS) if self.random.random() < self.rate else "none"
            self.done[kind] += 1
            return kind

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        with self.exchanging():
            self.relay(handler)

    def relay(self, handler: BaseHTTPRequestHandler) -> None:
        """Passes bytes on as they come, so that a killed sender leaves half a body on the line."""
        kind = self.choose()
        handler.close_connection = kind in ("drop", "clip", "lose", "cut")
        length = int(handler.headers.get("Content-Length") or 0)
        if kind == "delay":
            time.sleep(0.3)
        try:
            if kind == "twice":
                body = handler.rfile.read(length)
                self.exchange(handler, io.BytesIO(body), length, kind).close()
                self.count("sent", -length)
                self.answer(handler, self.exchange(handler, io.BytesIO(body), length, kind), kind)
            elif kind != "drop":
                upstream = self.exchange(handler, handler.rfile, length, kind)
                if kind not in ("clip", "lose"):
                    self.answer(handler, upstream, kind)
                upstream.close()
        except (OSError, http.client.HTTPException):
            handler.close_connection = True

    def exchange(self, handler: BaseHTTPRequestHandler, body: BinaryIO, length: int, kind: str) -> Upstream:
        """Sends a request on. An answer is waited for, unless the request was cut."""
        upstream = Upstream(self.upstream.hostname or "", self.upstream.port, timeout=120)
        upstream.connect()
        shorten(upstream.sock)
        upstream.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for key, value in handler.headers.items():
            if key.lower() not in ("connection", "host"):
                upstream.putheader(key, value)
        upstream.putheader("Host", self.upstream.netloc)
        upstream.endheaders()
        try:
            for chunk in chunks(body, length // 2 if kind == "clip" else length):
                upstream.send(chunk)
                self.count("sent", len(chunk))
        except ConnectionError:
            upstream.abandon()
            raise
        if kind == "clip":
            upstream.abandon()
        else:
            upstream.told = upstream.getresponse()
        if kind in ("lose", "twice"):
            upstream.content = upstream.told.read()
        return upstream

    def answer(self, handler: BaseHTTPRequestHandler, upstream: Upstream, kind: str) -> None:
        told = upstream.told
        if told.length is None:
            upstream.content = told.read()
        length = told.length if upstream.content is None else len(upstream.content)
        handler.send_response(told.status)
        for key, value in told.getheaders():
            if key.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                handler.send_header(key, value)
        # A HEAD's answer says how long the body would be, and has none.
        said = told.getheader("Content-Length", "0") if handler.command == "HEAD" else str(length)
        handler.send_header("Content-Length", said)
        handler.end_headers()
        content = told if upstream.content is None else io.BytesIO(upstream.content)
        for chunk in chunks(content, length // 2 if kind == "cut" else length):
            handler.wfile.write(chunk)
            self.count("received", len(chunk))

    def count(self, what: str, n: int) -> None:
        with self.lock:
            setattr(self, what, getattr(self, what) + n)


class Upstream(http.client.HTTPConnection):
    """A connection to the server, with its answer."""

    told: http.client.HTTPResponse
    content: bytes | None = None
    """The answer's body, where it was read already."""

    def abandon(self) -> None:
        """Sends no more, and waits until the server has read all that was sent: what was passed on has arrived."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
            while self.sock.recv(1 << 16):
                pass
        self.close()


def chunks(body: BinaryIO, length: int) -> Iterator[bytes]:
    """So many bytes as they come.

    Raises:
        ConnectionError: The other side is gone before all of them came.
    """
    while length > 0:
        chunk = body.read1(min(length, 1 << 16))
        if not chunk:
            raise ConnectionError("the line broke")
        length -= len(chunk)
        yield chunk
