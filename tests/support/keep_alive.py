"""HTTP over one keep-alive connection: requests as bytes, answers parsed no further than a test needs."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

LONGEST = 64 << 20
"""Bytes of an answer that are read; what is longer is cut off and the connection closed."""


@dataclass(frozen=True)
class Reply:
    """What came back: head and body, without interpretation."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        found = re.search(rb"(?im)^" + name.encode() + rb":[ \t]*([^\r\n]*)", self.head)
        return found[1].decode("latin-1") if found else ""


class NoReply(Exception):
    """The server closed the connection, or did not answer in time."""


class Connection:
    """Sends requests one after the other; connects again where the server closed in between."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 80)
        self.timeout = timeout
        self.socket: socket.socket | None = None
        self.rest = b""

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket, self.rest = None, b""

    def exchange(self, head: bytes, body: bytes, *, is_head: bool = False) -> Reply:
        """One request and its answer.

        Raises `TimeoutError` where none comes in time and `NoReply` where the connection ends without one.
        """
        kept = self.socket is not None
        try:
            return self._once(head, body, is_head)
        except (NoReply, OSError) as error:
            self.close()
            if isinstance(error, TimeoutError) or not kept:
                raise
            # It was closed while nothing was under way.
            return self._once(head, body, is_head)

    def _once(self, head: bytes, body: bytes, is_head: bool) -> Reply:
        if self.socket is None:
            self.socket = socket.create_connection(self.address, self.timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broken = None
        try:
            self.socket.sendall(head + body)
        except TimeoutError:
            raise
        except OSError as error:
            # A server that refuses a long body says so and closes: its answer may be there.
            broken = error
        try:
            reply = self._read(is_head)
        except (NoReply, OSError) as error:
            self.close()
            raise (broken or error) from None
        if broken or "close" in reply.header("connection").lower():
            self.close()
        return reply

    def _more(self) -> bytes:
        assert self.socket is not None
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise NoReply("the connection was closed")
        return chunk

    def _until(self, end: bytes) -> bytes:
        while end not in self.rest:
            self.rest += self._more()
        found, self.rest = self.rest.split(end, 1)
        return found

    def _take(self, count: int) -> bytes:
        parts, have = [self.rest], len(self.rest)
        while have < count:
            parts.append(self._more())
            have += len(parts[-1])
        data = b"".join(parts)
        self.rest = data[count:]
        return data[:count]

    def _read(self, is_head: bool) -> Reply:
        while True:
            head = self._until(b"\r\n\r\n")
            status = int(head[9:12])
            if status >= 200:
                break
        reply = Reply(status, head, b"")
        if is_head or status in (204, 304):
            return reply
        if "chunked" in reply.header("transfer-encoding").lower():
            return Reply(status, head, self._chunks())
        length = int(reply.header("content-length") or 0)
        if length > LONGEST:
            body = self._take(LONGEST)
            self.close()
            return Reply(status, head, body)
        return Reply(status, head, self._take(length))

    def _chunks(self) -> bytes:
        out, have = [], 0
        try:
            while size := int(self._until(b"\r\n").split(b";")[0], 16):
                out.append(self._take(size))
                have += size
                self._until(b"\r\n")
                if have > LONGEST:
                    self.close()
                    return b"".join(out)
            self._until(b"\r\n")
        except NoReply:
            # An answer that breaks off is whole as far as it goes: what was already said counts.
            self.close()
        return b"".join(out)
