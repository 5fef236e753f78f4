"""A server that is asked to stop, or killed again and again: nothing that it answered is lost."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import random
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import raw, scale
from support.ports import lasting
from support.processes import until
from support.raw import FORM, form
from support.served import COMMITS, HUB, LFS, REPO, checkpoint, ids, left_behind, new_root, state_dir
from support.server import Answer, Server

SLACK = 6
"""Seconds beyond a time limit, on a machine with other things to do."""


def begin_commit(server: Server, data: bytes) -> tuple[socket.socket, bytes]:
    """Sends half of a commit; returns the connection and the rest."""
    body = form({"message": "goes on"}, {"model.safetensors": data})
    connection = raw.connect(server.url, 20)
    connection.sendall(raw.head("POST", COMMITS, {"Content-Type": FORM, "Content-Length": str(len(body))}))
    half = len(body) // 2
    connection.sendall(body[:half])
    # The server must have seen it: a connection without a request may be closed at once.
    assert until(lambda: any((state_dir(server.root) / "spool").glob("*/*")), 5)
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
    assert not list((state_dir(server.root) / "spool").glob("*/*")), "the spool grows"
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
