"""Faults of clients and networks, and kill -9: a server loses nothing, and leaves no files behind."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from support import raw, scale
from support.cli import Mdl
from support.ports import lasting
from support.raw import BOUNDARY, FORM, form, part
from support.server import Answer, Server
from support.tensors import Tensor, safetensors_bytes, write_safetensors

REPO = "/api/v1/repos/ada/gpt"
COMMITS = f"{REPO}/commits"
HUB = "/api/models/ada/gpt"
LFS = "/ada/gpt.git/info/lfs"
STALL = 2
SLACK = 6
"""Seconds beyond a time limit, on a machine with other things to do."""


def checkpoint(seed: int, elements: int = 4096) -> bytes:
    values = np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
    return safetensors_bytes([Tensor.of("weight", values)], {"format": "pt"})


def new_root(top: Path) -> Mdl:
    mdl = Mdl.init(top / "root" / "ada/gpt", "--bare")
    write_safetensors(
        top / "first" / "model.safetensors", [Tensor.of("weight", np.zeros(4096, np.float32))], {"format": "pt"}
    )
    mdl.commit(top / "first", "first", "--step", "0")
    return mdl


def state(root: Path) -> Path:
    return root / ".mdl-serve"


def left_behind(root: Path) -> list[str]:
    """Files of unfinished transfers: parts of requests, and uploads under way."""
    places = [state(root) / place for place in ("spool", "repos")]
    return sorted(str(p.relative_to(root)) for place in places for p in place.rglob("*") if p.is_file())


def ids(server: Server, rev: str = "main") -> list[str]:
    listed = server.get(f"{REPO}/log?rev={rev}&limit=1000").json()
    return [c["commit"] for c in listed["commits"]]


def until(what: Callable[[], object], seconds: float) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return bool(what())


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10


def handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mdl, Server]]:
    """One server for all that must leave no trace: that is seen at the end."""
    top = tmp_path_factory.mktemp("faults")
    mdl = new_root(top)
    with Server(top / "root") as server:
        before, used = ids(server), memory(server.pid)
        yield mdl, server
        assert server.get("/healthz").status == 200
        assert ids(server) == before, "something was committed"
        assert until(lambda: not left_behind(server.root), 5), left_behind(server.root)
        assert memory(server.pid) < used + (300 << 20), "memory was not given back"
        assert server.log is not None
        assert "panicked" not in server.log.read_text()
    mdl.fsck()


# Bombs


def test_heads_that_are_too_large_are_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    get = b"GET /api/v1/repos HTTP/1.1\r\nHost: localhost\r\n"
    end = b"Connection: close\r\n\r\n"
    for what, head in {
        "many headers": get + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + end,
        "a long header": get + b"X: " + b"y" * (200 << 10) + b"\r\n" + end,
        "a long name": get + b"y" * (200 << 10) + b": x\r\n" + end,
        "a long address": b"GET /" + b"a" * (200 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n" + end,
        "a long query": b"GET /api/v1/repos?" + b"a=b&" * (50 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n" + end,
    }.items():
        response = raw.exchange(server.url, head)
        assert raw.status(response) in (0, 400, 414, 431), f"{what}: {response[:200]!r}"
    fits = get + b"".join(b"X-%d: y\r\n" % n for n in range(60)) + end
    assert raw.status(raw.exchange(server.url, fits)) == 200
    long = b"GET /api/v1/repos?after=" + b"a" * (30 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n" + end
    assert raw.status(raw.exchange(server.url, long)) in (200, 400, 414)


def test_a_head_without_end_is_not_read_without_end(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used, sent = memory(server.pid), 0
    with raw.connect(server.url) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        while sent < 256 << 20:
            connection.sendall(b"X-Header: " + b"y" * 4096 + b"\r\n")
            sent += 4096
    assert sent < 64 << 20, "it was read on and on"
    assert memory(server.pid) < used + (32 << 20)


CANARY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST /api/v1/repos HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("what", "data"),
    {
        "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
        "two lengths in one": POST + b"Content-Length: 5, 0\r\n\r\n",
        "a signed length": POST + b"Content-Length: +5\r\n\r\nabcde",
        "a negative length": POST + b"Content-Length: -1\r\n\r\n",
        "a hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nabcde",
        "a huge length": POST + b"Content-Length: 18446744073709551616\r\n\r\n",
        "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "chunked not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "a space before the colon": POST + b"Content-Length : 5\r\n\r\nabcde",
        "a folded header": POST + b"X: a\r\n Content-Length: 5\r\n\r\n",
        "a nul in a header": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
        "a bare carriage return": POST + b"X: a\rContent-Length: 5\r\n\r\n",
        "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "no chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "a huge chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "a negative chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        "a chunk longer than it says": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        "extensions without end": POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * (1 << 20),
        "trailers without end": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * (1 << 17),
        "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }.items(),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_requests_that_two_readers_would_cut_differently_end_the_connection(
    served: tuple[Mdl, Server], what: str, data: bytes
) -> None:
    _, server = served
    with raw.connect(server.url, 5) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data + CANARY)
        response = raw.drain(connection)
    codes = raw.statuses(response)
    assert len(codes) <= 1, f"{what}: the request behind it was answered: {response!r}"
    assert all(400 <= c < 500 for c in codes), f"{what}: {codes}"


def test_whatever_is_no_http_is_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    close = b"Host: localhost\r\nConnection: close\r\n\r\n"
    for data in (
        b"\r\n\r\n\r\n",
        b"\0" * 100,
        os.urandom(4096),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n" + close,
        b"GET  / HTTP/1.1\r\n" + close,
        b"GET / x HTTP/1.1\r\n" + close,
        b"CONNECT localhost:22 HTTP/1.1\r\n" + close,
        b"TRACE / HTTP/1.1\r\n" + close,
        b"OPTIONS * HTTP/1.1\r\n" + close,
        b"get / HTTP/1.1\r\n" + close,
        b"X" * 5000 + b" / HTTP/1.1\r\n" + close,
        b"PROPFIND /ada/gpt HTTP/1.1\r\n" + close,
        b"DELETE / HTTP/1.1\r\n" + close,
        b"PUT /healthz HTTP/1.1\r\nContent-Length: 0\r\n" + close,
    ):
        with raw.connect(server.url, 5) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            response = raw.drain(connection)
        code = raw.status(response)
        assert code == 0 or 400 <= code < 500 or data.startswith(b"OPTIONS"), f"{data[:60]!r}: {response[:200]!r}"
        assert b"Max-Forwards" not in response


def test_documents_that_are_made_to_hurt_are_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used = memory(server.pid)
    deep = b"[" * 500_000
    nested = b'{"name":' * 100_000
    number = b"1" + b"0" * 100_000
    large = b'{"name": "' + b"a" * (10 << 20) + b'"}'
    routes = [
        ("POST", "/api/v1/repos", b'{"name": %s}'),
        ("PATCH", REPO, b'{"anonymous_read": %s}'),
        ("POST", COMMITS, b'{"message": %s}'),
        ("POST", COMMITS, b'{"message": "x", "metrics": {"loss": %s}}'),
        ("POST", f"{REPO}/uploads", b'{"size": %s}'),
        ("POST", f"{REPO}/jobs", b'{"kind": %s}'),
        ("POST", f"{REPO}/webhooks", b'{"url": %s}'),
        ("PUT", f"{REPO}/refs/heads/x", b'{"target": %s}'),
        ("POST", "/api/repos/create", b'{"name": %s}'),
        ("POST", f"{HUB}/preupload/main", b'{"files": %s}'),
        ("POST", f"{HUB}/paths-info/main", b'{"paths": %s}'),
        ("POST", f"{HUB}/tag/main", b'{"tag": %s}'),
        ("POST", f"{LFS}/objects/batch", b'{"operation": "download", "objects": %s}'),
        ("POST", f"{LFS}/verify", b'{"oid": "x", "size": %s}'),
    ]
    kind = {"Content-Type": "application/json"}
    for method, path, text in routes:
        for value in (
            deep,
            nested,
            number,
            b"1e999",
            b"-1",
            b"NaN",
            b'"\\ud800"',
            b'"\xff"',
            b"null",
            b'{"": {}}',
            b"",
            b"0.5",
        ):
            answer = server.ask(method, path, text % value, kind)
            if (value, method) == (b"null", "PATCH"):
                continue  # Nothing is to change.
            assert 400 <= answer.status < 500, f"{method} {path} {value[:20]!r}: {answer.status} {answer.body[:200]!r}"
            assert len(answer.body) < 64 << 10, "the answer is as large as the question"
        twice = server.ask(method, path, b"{" + (text % b"1")[1:-1] + b"," + (text % b"2")[1:], kind)
        assert 400 <= twice.status < 500, f"{method} {path}: keys that come twice"
    for method, path, _ in routes:
        with contextlib.suppress(OSError):  # It may close before it has read all.
            assert 400 <= server.ask(method, path, large, kind).status < 500, path
    assert memory(server.pid) < used + (200 << 20)


def test_a_commit_in_lines_that_is_made_to_hurt_is_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used = memory(server.pid)
    header = b'{"key": "header", "value": {"summary": "x"}}\n'
    kind = {"Content-Type": "application/x-ndjson"}
    for what, body in {
        "a deep line": header + b'{"key": "file", "value": ' + b"[" * 500_000,
        "an unknown key": header + b'{"key": "exec", "value": {}}\n',
        "no header": b'{"key": "deletedFile", "value": {"path": "model.safetensors"}}\n',
        "no base64": header + b'{"key": "file", "value": {"path": "x", "content": "\xc3\xa9", "encoding": "base64"}}\n',
        "an unknown encoding": header
        + b'{"key": "file", "value": {"path": "x", "content": "x", "encoding": "gzip"}}\n',
        "a broken end": header + b'{"key": "file", "value": {"path": "x", "cont',
        "an object nobody has": header
        + b'{"key": "lfsFile", "value": {"path": "x", "algo": "sha256", "oid": "%s", "size": 1}}\n' % (b"0" * 64),
        "an oid that is a path": header
        + b'{"key": "lfsFile", "value": {"path": "x", "algo": "sha256", "oid": "../../tokens.json"}}\n',
        "many lines": header + b'{"key": "deletedFile", "value": {"path": "x"}}\n' * 100_001,
        "a long line": header + b'{"key": "file", "value": {"path": "x", "content": "' + b"a" * (25 << 20) + b'"}}\n',
        "nothing": b"",
    }.items():
        response = raw.request(server.url, "POST", f"{HUB}/commit/main", None, body, kind["Content-Type"])
        assert raw.status(response) in (0, *range(400, 500)), f"{what}: {response[:300]!r}"
        if len(body) < 1 << 16:
            assert raw.status(response), f"{what}: no answer"
    assert memory(server.pid) < used + (200 << 20)


def test_forms_that_are_made_to_hurt_are_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used = memory(server.pid)
    meta = part("meta", b'{"message": "x"}')
    end = f"--{BOUNDARY}--\r\n".encode()
    for what, body, kind in (
        ("no meta", part("file", b"x", "x") + end, FORM),
        ("meta twice", meta + meta + end, FORM),
        ("a name twice", meta + part("file", b"x", "x") + part("file", b"y", "x") + end, FORM),
        ("no filename", meta + part("file", b"x") + end, FORM),
        ("an unknown part", meta + part("exec", b"x", "x") + end, FORM),
        ("no end", meta + part("file", b"x" * 100, "x"), FORM),
        ("no boundary", meta + end, "multipart/form-data"),
        ("another boundary", meta + end, "multipart/form-data; boundary=other"),
        ("a long head", meta + f"--{BOUNDARY}\r\nX: ".encode() + b"y" * (8 << 20), FORM),
        ("a long meta", part("meta", b'{"message": "' + b"x" * (4 << 20)), FORM),
        ("a file and a directory", meta + part("file", b"x", "a") + part("file", b"y", "a/b") + end, FORM),
        ("a broken tar", meta + part("tar", b"x" * 10240, "x.tar") + end, FORM),
        ("another kind", b"x", "text/plain"),
    ):
        response = raw.request(server.url, "POST", COMMITS, None, body, kind)
        assert raw.status(response) in (0, *range(400, 500)), f"{what}: {response[:300]!r}"
        if len(body) < 1 << 16:
            assert raw.status(response), f"{what}: no answer"
    assert memory(server.pid) < used + (64 << 20)


# Lies


def test_uploads_that_are_cut_or_lie_leave_nothing(served: tuple[Mdl, Server]) -> None:
    _, server = served
    data = checkpoint(1)
    whole = form({"message": "cut"}, {"model.safetensors": data})
    oid = hashlib.sha256(data).hexdigest()
    header = b'{"key": "header", "value": {"summary": "x"}}\n'
    line = header + b'{"key": "file", "value": {"path": "x", "content": "eA==", "encoding": "base64"}}\n'
    for target, method, kind, body in (
        (COMMITS, "POST", FORM, whole),
        (f"{LFS}/objects/{oid}", "PUT", "application/octet-stream", data),
        (f"{HUB}/commit/main", "POST", "application/x-ndjson", line),
    ):
        # Without its last four bytes a form has no end; the line break behind that is not part of it.
        for cut in (0, 1, len(body) // 2, len(body) - 4):
            length = raw.head(method, target, {"Content-Type": kind, "Content-Length": str(len(body))})
            chunked = raw.head(method, target, {"Content-Type": kind, "Transfer-Encoding": "chunked"})
            for sent in (
                length + body[:cut],
                chunked + b"%x\r\n" % len(body) + body[:cut],
                chunked + b"%x\r\n" % cut + body[:cut] if cut else chunked,
            ):
                with raw.connect(server.url) as connection:
                    connection.sendall(sent)
                    connection.shutdown(socket.SHUT_WR)
                    response = raw.drain(connection)
                assert raw.status(response) in (0, *range(400, 500)), f"{target} cut at {cut}: {response[:200]!r}"
    assert until(lambda: not left_behind(server.root), 5), left_behind(server.root)
    for lie in (data + b"x", data[:-1], b"", data[:-1] + bytes([data[-1] ^ 1])):
        assert server.ask("PUT", f"{LFS}/objects/{oid}", lie).status == 422
        assert server.ask("PUT", f"{LFS}/objects/{oid}?size={len(data)}", lie).status == 422
    assert server.ask("PUT", f"{LFS}/objects/{oid}?size={len(data) - 1}", data).status == 422
    verify = server.send("POST", f"{LFS}/verify", {"oid": oid, "size": len(data)})
    assert verify.status == 404, "a lie was kept"
    less = raw.head("PUT", f"{LFS}/objects/{oid}", {"Content-Length": str(len(data) - 8)})
    response = raw.exchange(server.url, less + data)
    assert raw.statuses(response)[:1] == [422]


def test_pieces_that_do_not_fit_are_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    data = checkpoint(2)
    right = hashlib.sha256(data).hexdigest()
    begun = server.send("POST", f"{REPO}/uploads", {"size": len(data), "sha256": "0" * 64})
    assert begun.status == 201, begun.body
    path = f"{REPO}/uploads/{begun.json()['id']}"

    def piece(offset: object, bytes_: bytes) -> Answer:
        return server.ask(
            "PATCH", path, bytes_, {"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"}
        )

    for offset in (1, len(data), 1 << 62, 1 << 64, -1, "x", "", "0x0", "1e3"):
        answer = piece(offset, data[:10])
        assert answer.status in (400, 409), f"{offset}: {answer.status}"
        assert server.get(path).json()["offset"] == 0
    assert piece(0, data + b"more").status in (400, 413, 422)
    assert server.get(path).json()["offset"] == 0, "a piece that is too long was taken"
    assert piece(0, data[:100]).status == 200
    again = piece(0, data[:100])
    assert again.status == 409
    assert again.headers["upload-offset"] == "100"
    early = server.send("POST", COMMITS, {"message": "x", "uploads": [{"path": "x", "upload": begun.json()["id"]}]})
    assert early.status == 409
    wrong = piece(100, data[100:])
    used = server.send("POST", COMMITS, {"message": "x", "uploads": [{"path": "x", "upload": begun.json()["id"]}]})
    assert 400 <= wrong.status < 500 or 400 <= used.status < 500, "another SHA-256 was taken"
    assert right != "0" * 64
    server.ask("DELETE", path)
    assert server.get(path).status == 404
    too_large = server.send("POST", f"{REPO}/uploads", {"size": 1 << 60})
    assert too_large.status == 413


# Slowness


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Server]:
    """A server that waits for few and not for long, with a file that fills every buffer on the way."""
    mdl = new_root(tmp_path)
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "big.bin").write_bytes(os.urandom(24 << 20))
    mdl.commit(folder, "big")
    with Server(tmp_path / "root", ("--stall", str(STALL), "--max-connections", "24")) as server:
        yield server
        assert not left_behind(server.root)


@pytest.mark.xdist_group("timing")
def test_slow_clients_are_let_go_and_keep_nobody_waiting(impatient: Server) -> None:
    server = impatient
    big = "/ada/gpt/resolve/main/big.bin"
    assert len(server.get(big).body) == 24 << 20
    handles_before, begin = handles(server.pid), time.monotonic()
    with contextlib.ExitStack() as stack:

        def connections(n: int) -> list[socket.socket]:
            return [stack.enter_context(raw.connect(server.url)) for _ in range(n)]

        dripping, stalling, reading = connections(7), connections(7), connections(7)
        for connection in stalling:
            connection.sendall(raw.head("POST", COMMITS, {"Content-Type": FORM, "Content-Length": "100000"}))
            connection.sendall(form({"message": "slow"}, {"x": b"y" * 1000})[:500])
        for connection in reading:
            connection.sendall(raw.head("GET", big))
            connection.recv(100)
        used = memory(server.pid)

        def drip() -> None:
            text = raw.head("GET", "/healthz", {"X": "y" * 200})
            for n in range(len(text)):
                for connection in dripping:
                    with contextlib.suppress(OSError):
                        connection.send(text[n : n + 1])
                if done.wait(1):
                    return

        done = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            dripper = pool.submit(drip)
            for _ in range(10):
                asked = time.monotonic()
                assert server.get("/readyz", Connection="close").status == 200
                assert time.monotonic() - asked < 3, "others were kept waiting"
            assert all(raw.is_closed(c, STALL + SLACK) for c in stalling), "a body that stalls holds its connection"
            # What is read of the rest empties the buffers: a dropped client gets less than the whole.
            assert until(lambda: handles(server.pid) <= handles_before + 7 + 4, STALL + SLACK), (
                "a reader that stalls holds its connection"
            )
            assert all(len(raw.drain(c)) < 24 << 20 for c in reading)
            left = max(0.0, begin + 10 + SLACK - time.monotonic())
            assert until(lambda: handles(server.pid) <= handles_before + 3, left), "headers may take forever"
            done.set()
            dripper.result()
    assert memory(server.pid) < used + (64 << 20)
    assert server.get("/readyz").status == 200


def test_more_connections_than_there_may_be_have_to_wait_and_are_served(tmp_path: Path) -> None:
    new_root(tmp_path)
    with Server(tmp_path / "root", ("--max-connections", "4")) as server, ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: server.get("/api/v1/repos", Connection="close").status, range(120)))
        assert answers == [200] * 120


# Ends


def begin_commit(server: Server, data: bytes) -> tuple[socket.socket, bytes]:
    """Sends half of a commit; returns the connection and the rest."""
    body = form({"message": "goes on"}, {"model.safetensors": data})
    connection = raw.connect(server.url, 20)
    connection.sendall(raw.head("POST", COMMITS, {"Content-Type": FORM, "Content-Length": str(len(body))}))
    half = len(body) // 2
    connection.sendall(body[:half])
    # The server must have seen it: a connection without a request may be closed at once.
    assert until(lambda: any((state(server.root) / "spool").glob("*/*")), 5)
    return connection, body[half:]


def is_refusing(server: Server) -> bool:
    with contextlib.suppress(OSError):
        raw.connect(server.url, 1).close()
        return False
    return True


@pytest.mark.xdist_group("timing")
def test_a_server_that_is_to_stop_lets_uploads_end(tmp_path: Path) -> None:
    mdl = new_root(tmp_path)
    server = Server(tmp_path / "root", ("--grace", "15")).start()
    process = server.process
    assert process is not None
    idle = raw.connect(server.url)
    connection, rest = begin_commit(server, checkpoint(3))
    with connection:
        process.send_signal(signal.SIGTERM)
        assert until(lambda: is_refusing(server), 5), "new connections are still accepted"
        connection.sendall(rest)
        response = raw.drain(connection)
    assert raw.status(response) == 201, response[:300]
    assert process.wait(15) == 0
    idle.close()
    commit = json.loads(response.split(b"\r\n\r\n", 1)[1])["commit"]
    commit = commit["id"] if isinstance(commit, dict) else commit
    assert mdl.log()[0]["id"] == commit
    mdl.fsck()


@pytest.mark.xdist_group("timing")
def test_a_server_that_is_to_stop_does_not_wait_for_ever(tmp_path: Path) -> None:
    mdl = new_root(tmp_path)
    server = Server(tmp_path / "root", ("--grace", "2")).start()
    process = server.process
    assert process is not None
    connection, _ = begin_commit(server, checkpoint(4))
    with connection:
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(2 + 2 + SLACK) == 0
        assert time.monotonic() - begin >= 1.5, "the grace was not given"
    assert len(mdl.log()) == 1
    mdl.fsck()
    with Server(tmp_path / "root") as again:
        assert not left_behind(again.root)
        assert len(ids(again)) == 1


# kill -9

KILLS, PROMISES = 8, 20
"""Both are reached, however slow the machine."""


@dataclass
class Promise:
    """A commit that was answered: it must be in the log, once, with these bytes."""

    commit: str
    path: str
    data: bytes


@dataclass
class Traffic:
    """Clients that commit until they are told to stop, whatever happens to the server."""

    server: Server
    token: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    promises: list[Promise] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    resumed: int = 0
    retried: int = 0

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer | None:
        """None where the connection broke, or the server is being started."""
        try:
            connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=20)
            with contextlib.closing(connection):
                connection.request(method, path, body, headers or {})
                response = connection.getresponse()
                return Answer(response.status, dict(response.headers), response.read())
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            return None

    def insist(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> Answer | None:
        """Again and again until there is an answer."""
        while not self.stop.is_set():
            answer = self.ask(method, path, body, headers)
            if answer is None or answer.status in (408, 503):
                self.retried += 1
                continue
            if answer.status >= 500:
                self.faults.append(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
            return answer
        return None

    def keep(self, answer: Answer | None, path: str, data: bytes, commit: Callable[[Answer], str]) -> None:
        if answer is None:
            return
        if answer.status in (200, 201):
            self.promises.append(Promise(commit(answer), path, data))
        else:
            self.faults.append(f"{path}: {answer.status} {answer.body[:300]!r}")

    def forms(self, seed: int) -> None:
        """Multipart commits with keys, sent again until they are answered."""
        for n in range(10_000):
            if self.stop.is_set():
                return
            name, data = f"form-{seed}.safetensors", checkpoint(1000 * seed + n, 20_000)
            body = form({"message": f"form {seed}.{n}", "base": "parent"}, {name: data})
            headers = {"Content-Type": FORM, "Idempotency-Key": f"{seed}-{n}-{uuid.uuid4()}"}
            self.keep(self.insist("POST", COMMITS, body, headers), name, data, made)

    def hub(self, seed: int) -> None:
        """As the Hugging Face clients do it: an object, then a commit that names it, to a branch of its own."""
        branch = f"hub-{seed}"
        self.insist("POST", f"{HUB}/branch/{branch}", b"{}", {"Content-Type": "application/json"})
        for n in range(10_000):
            if self.stop.is_set():
                return
            name, data = f"hub-{seed}.safetensors", checkpoint(2000 * seed + n, 20_000)
            oid = hashlib.sha256(data).hexdigest()
            put = self.insist("PUT", f"{LFS}/objects/{oid}", data)
            if put is None:
                return
            assert put.status == 200, put.body
            value = {"path": name, "algo": "sha256", "oid": oid, "size": len(data)}
            lines = [{"key": "header", "value": {"summary": f"hub {seed}.{n}"}}, {"key": "lfsFile", "value": value}]
            body = "".join(json.dumps(line) + "\n" for line in lines).encode()
            answer = self.insist("POST", f"{HUB}/commit/{branch}", body, {"Content-Type": "application/x-ndjson"})
            self.keep(answer, name, data, lambda a: a.json()["commitOid"])

    def pieces(self, seed: int) -> None:
        """Uploads in pieces that go on where the server says, then a commit of them."""
        kind = {"Content-Type": "application/json"}
        for n in range(10_000):
            name, data = f"pieces-{seed}.safetensors", checkpoint(3000 * seed + n, 60_000)
            plan = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            begun = self.insist("POST", f"{REPO}/uploads", json.dumps(plan).encode(), kind)
            if begun is None:
                return
            upload = begun.json()["id"]
            path, offset = f"{REPO}/uploads/{upload}", 0
            while offset < len(data):
                if self.stop.is_set():
                    return
                end = offset + 40_000
                sent = self.ask("PATCH", path, data[offset:end], {"Upload-Offset": str(offset)})
                if sent is None:
                    found = self.insist("HEAD", path, b"")
                    if found is None:
                        return
                    if found.status != 200:
                        self.faults.append(f"upload {upload} at {offset}: {found.status}")
                        return
                    self.resumed += 1
                    if int(found.headers["upload-offset"]) < offset:
                        self.faults.append(
                            f"bytes that were answered are gone: {found.headers['Upload-Offset']} < {offset}"
                        )
                    offset = int(found.headers["upload-offset"])
                elif sent.status in (200, 409) and "upload-offset" in sent.headers:
                    offset = int(sent.headers["upload-offset"])
                else:
                    self.faults.append(f"piece: {sent.status} {sent.body[:200]!r}")
                    return
            meta = {"message": f"pieces {seed}.{n}", "base": "parent", "uploads": [{"path": name, "upload": upload}]}
            headers = {**kind, "Idempotency-Key": f"pieces-{seed}-{n}-{uuid.uuid4()}"}
            self.keep(self.insist("POST", COMMITS, json.dumps(meta).encode(), headers), name, data, made)


def made(answer: Answer) -> str:
    """The commit that an answer names."""
    document = answer.json()
    commit = document.get("commit", document.get("id"))
    return commit["id"] if isinstance(commit, dict) else commit


@pytest.mark.xdist_group("timing")
def test_kill_9_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    mdl = new_root(tmp_path)
    chance = random.Random(20261122)
    server = Server(tmp_path / "root", listen=lasting()).start()
    traffic = Traffic(server)
    kills = 0
    with ThreadPoolExecutor(20) as pool:
        kinds = [traffic.forms] * 8 + [traffic.hub] * 6 + [traffic.pieces] * 6
        clients = [pool.submit(kind, seed) for seed, kind in enumerate(kinds, 1)]
        try:
            least = time.monotonic() + scale.rounds(8, 40)
            most = least + 60

            def enough() -> bool:
                return kills >= KILLS and len(traffic.promises) >= PROMISES and traffic.resumed > 0

            while time.monotonic() < least or (not enough() and time.monotonic() < most):
                time.sleep(chance.uniform(0.3, 2.5))
                server.kill()
                kills += 1
                if kills % 4 == 0:
                    checked = mdl.run("fsck")
                    assert checked.code == 0, f"after kill {kills}: {checked}"
                server.start()
            # All of them get an answer to what they are at.
            time.sleep(3)
        finally:
            traffic.stop.set()
        for client in clients:
            client.result(60)
    assert kills >= KILLS
    assert not traffic.faults, traffic.faults[:5]
    assert len(traffic.promises) >= PROMISES, "hardly anything was committed"
    assert traffic.retried > 0
    assert traffic.resumed > 0
    # No half requests stay, however often it was killed.
    server.stop()
    server.start()
    assert not list((state(server.root) / "spool").glob("*/*")), "the spool grows"
    reachable: list[dict[str, object]] = []
    for branch in ["main", *(f"hub-{n}" for n in range(9, 15))]:
        reachable += mdl.log(branch)
    messages = [c["message"] for c in {c["id"]: c for c in reachable}.values()]
    once = [m for m in messages if str(m).startswith(("form", "pieces"))]
    assert len(once) == len(set(once)), "a commit that was sent again was made twice"
    known = [str(c["id"]) for c in reachable]
    for promise in traffic.promises:
        found = [c for c in known if c.startswith(promise.commit)]
        assert found, f"{promise.commit} was answered and is gone"
    for promise in chance.sample(traffic.promises, min(40, len(traffic.promises))):
        got = server.get(f"/ada/gpt/resolve/{promise.commit}/{promise.path}")
        assert got.status == 200, got.body
        assert got.body == promise.data, f"{promise.path} at {promise.commit}"
    server.stop()
    mdl.fsck()
