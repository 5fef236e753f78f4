"""Raw HTTP over a socket, for malformed requests: sends bytes, and reads until the server is done."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import tarfile
import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit


def connect(url: str, timeout: float = 10) -> socket.socket:
    """A connection to the server of this address."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout)


def drain(connection: socket.socket, limit: int = 32 << 20) -> bytes:
    """What comes until the server closes, or nothing comes for the connection's timeout."""
    out = bytearray()
    with contextlib.suppress(OSError):
        while len(out) < limit and (chunk := connection.recv(1 << 16)):
            out += chunk
    return bytes(out)


def is_closed(connection: socket.socket, within: float) -> bool:
    """Whether the server closes the connection in time; reads what it sends before."""
    end = time.monotonic() + within
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            if not connection.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def exchange(url: str, data: bytes, timeout: float = 10) -> bytes:
    """Sends bytes as they are and returns everything that comes back."""
    with connect(url, timeout) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return drain(connection)


def status(response: bytes) -> int:
    """The status of the first response; 0 where the server just closed."""
    match = re.match(rb"HTTP/1\.[01] (\d{3})", response)
    return int(match[1]) if match else 0


def statuses(response: bytes) -> list[int]:
    """The statuses of all responses on a connection."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", response)]


def head(method: str, target: str | bytes, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> bytes:
    """A request's head; the target is sent as it is written."""
    target = target if isinstance(target, bytes) else target.encode()
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not any(name.lower() == "host" for name, _ in pairs):
        pairs.insert(0, ("Host", "localhost"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return method.encode() + b" " + target + b" HTTP/1.1\r\n" + lines.encode("latin-1") + b"\r\n"


def request(
    url: str, method: str, target: str | bytes, token: str | None = None, body: bytes = b"", kind: str | None = None
) -> bytes:
    """One request whose target no client library would send as it is; returns the response."""
    headers = {"Connection": "close"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body or method not in ("GET", "HEAD"):
        headers["Content-Length"] = str(len(body))
    if kind:
        headers["Content-Type"] = kind
    return exchange(url, head(method, target, headers) + body)


BOUNDARY = "a-boundary-between-parts"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    """One part of a form; the filename is sent as it is."""
    disposition = f'form-data; name="{name}"'
    if filename is not None:
        disposition += f'; filename="{filename}"'
    lines = f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n"
    return lines.encode("utf-8", "surrogateescape") + data + b"\r\n"


def form(meta: Mapping[str, object], files: Mapping[str, bytes]) -> bytes:
    """A commit as a form."""
    parts = [part("meta", json.dumps(meta).encode())]
    parts += [part("file", data, name) for name, data in files.items()]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """An archive of exactly these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A member's head."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info
