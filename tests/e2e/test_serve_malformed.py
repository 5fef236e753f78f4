"""Requests that are made to hurt, cut off or lie: refused, and nothing is left behind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator

import pytest
from support import raw
from support.cli import Mdl
from support.processes import resident, until
from support.raw import BOUNDARY, FORM, form, part
from support.served import COMMITS, HUB, LFS, REPO, checkpoint, ids, left_behind, new_root
from support.server import Answer, Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mdl, Server]]:
    """One server for all that must leave no trace: that is seen at the end."""
    top = tmp_path_factory.mktemp("faults")
    mdl = new_root(top)
    with Server(top / "root") as server:
        before, used = ids(server), resident(server.pid)
        yield mdl, server
        assert server.get("/healthz").status == 200
        assert ids(server) == before, "something was committed"
        assert until(lambda: not left_behind(server.root), 5), left_behind(server.root)
        assert resident(server.pid) < used + (300 << 20), "memory was not given back"
        assert server.log is not None
        assert "panicked" not in server.log.read_text()
    mdl.fsck()


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
    used, sent = resident(server.pid), 0
    with raw.connect(server.url) as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        while sent < 256 << 20:
            connection.sendall(b"X-Header: " + b"y" * 4096 + b"\r\n")
            sent += 4096
    assert sent < 64 << 20, "it was read on and on"
    assert resident(server.pid) < used + (32 << 20)


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
    used = resident(server.pid)
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
    assert resident(server.pid) < used + (200 << 20)


def assert_refused(server: Server, path: str, what: str, body: bytes, kind: str) -> None:
    """A long body may find its connection closed; a short one gets an answer."""
    response = raw.request(server.url, "POST", path, None, body, kind)
    assert raw.status(response) in (0, *range(400, 500)), f"{what}: {response[:300]!r}"
    if len(body) < 1 << 16:
        assert raw.status(response), f"{what}: no answer"


def test_a_commit_in_lines_that_is_made_to_hurt_is_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used = resident(server.pid)
    header = b'{"key": "header", "value": {"summary": "x"}}\n'
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
        assert_refused(server, f"{HUB}/commit/main", what, body, "application/x-ndjson")
    assert resident(server.pid) < used + (200 << 20)


def test_forms_that_are_made_to_hurt_are_refused(served: tuple[Mdl, Server]) -> None:
    _, server = served
    used = resident(server.pid)
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
        assert_refused(server, COMMITS, what, body, kind)
    assert resident(server.pid) < used + (64 << 20)


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
