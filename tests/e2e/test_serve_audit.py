"""The audit log: every change and refusal, under the client's own address, without secrets."""

from __future__ import annotations

import json
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support import raw
from support.cli import binary
from support.served import fill
from support.server import Server, create_token

REPO = "/api/v1/repos/ada/gpt"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAME = "eve\n\x1b[2J\x9b"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root", "ada/gpt", "audited")
    return tmp_path / "root"


def lines(path: Path) -> list[dict[str, Any]]:
    """The log's lines; nothing in it moves a terminal's cursor."""
    data = path.read_bytes()
    assert all(byte == 10 or 32 <= byte < 127 for byte in data)
    return [json.loads(line) for line in data.decode().splitlines()]


def told(path: Path, /, **fields: Any) -> list[dict[str, Any]]:
    return [line for line in lines(path) if all(line.get(k) == v for k, v in fields.items())]


def test_every_change_and_every_refusal_has_a_line_without_secrets(root: Path) -> None:
    writer = create_token(root, "write", "ada/*", name=NAME)
    admin, foreign = create_token(root, "admin", "**", name="root"), create_token(root, "write", "bob/*", name="bob")
    bad = "mdl_0123456789ab_" + "7" * 64
    with Server(root) as server:
        log = root / ".mdl-serve" / "audit.jsonl"

        def ask(method: str, path: str, token: str, document: Any = None) -> dict[str, str]:
            answer = server.send(method, path, document, Authorization=f"Bearer {token}")
            return {"request": answer.headers["x-request-id"], "status": answer.status}

        by = {"kind": "token", "id": writer.split("_")[1], "name": NAME}
        moved = ask("PUT", f"{REPO}/refs/heads/topic", writer, {"target": "main"})
        (line,) = told(log, **moved)
        assert (line["event"], line["caller"], line["right"], line["repository"]) == ("change", by, "write", "ada/gpt")
        assert (line["method"], line["path"], line["peer"]) == ("PUT", f"{REPO}/refs/heads/topic", "127.0.0.1")
        assert line["route"] == "/api/v1/repos/{owner}/{name}/refs/{kind}/{*ref}" or line["route"].startswith(
            "/api/v1/repos/{owner}"
        )
        assert line["time"].startswith("20")
        conflict = ask("PUT", f"{REPO}/refs/heads/topic", writer, {"target": "main", "expected": None})
        assert told(log, **conflict)[0]["status"] == 409
        made = ask("POST", "/api/v1/repos", admin, {"name": "ada/made"})
        assert [told(log, **made)[0][k] for k in ("event", "right", "repository", "status")] == [
            "change",
            "admin",
            "ada/made",
            201,
        ]
        assert told(log, **ask("PATCH", REPO, admin, {"anonymous_read": False}))[0]["right"] == "admin"
        refused = ask("PUT", f"{REPO}/refs/heads/x", foreign, {"target": "main"})
        assert [told(log, **refused)[0][k] for k in ("event", "status")] == ["refused", 403]
        assert told(log, **ask("GET", REPO, foreign))[0]["event"] == "refused"
        assert told(log, **ask("GET", REPO, bad))[0]["event"] == "token_refused"
        assert told(log, request=ask("GET", REPO, writer)["request"]) == [], "reading is in the other log"
        assert server.send("POST", f"{REPO}/sync/offer", {}, Authorization=f"Bearer {writer}").status == 200
        assert not told(log, path=f"{REPO}/sync/offer"), "reading by POST is no change"
        assert server.ask("POST", "/login", f"token={admin}".encode(), FORM).status == 200
        assert server.ask("POST", "/login", f"token={bad}".encode(), FORM).status == 401
        (signed,) = told(log, event="sign_in")
        assert signed["caller"] == {"kind": "session", "id": admin.split("_")[1], "name": "root"}
        assert len(told(log, event="token_refused")) == 2
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        text = log.read_text()
        for secret in (writer, admin, foreign, bad):
            assert secret.split("_")[2] not in text
        link = json.dumps({"operation": "upload", "objects": [{"oid": "1" * 64, "size": 1}]}).encode()
        head = {"Authorization": f"Bearer {writer}", "Content-Type": "application/json"}
        batch = server.ask("POST", "/ada/gpt.git/info/lfs/objects/batch", link, head).json()
        href = batch["objects"][0]["actions"]["upload"]["href"].removeprefix(server.url)
        assert server.ask("PUT", href, b"x").status == 422
        (linked,) = told(log, method="PUT", status=422)
        assert (linked["caller"]["kind"], linked["caller"]["id"]) == ("link", by["id"])
        assert href.split("sig=")[1] not in log.read_text()


def test_a_client_that_leaves_does_not_leave_the_log(root: Path) -> None:
    token = create_token(root, "write", "ada/*")
    log = root / ".mdl-serve" / "audit.jsonl"
    with Server(root) as server:
        head = raw.head(
            "POST",
            f"{REPO}/commits",
            {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                "Content-Length": "1000",
            },
        )
        with raw.connect(server.url) as connection:
            connection.sendall(head + b'{"message":')
            time.sleep(0.5)
        until = time.monotonic() + 30
        while not (left := told(log, path=f"{REPO}/commits")) and time.monotonic() < until:
            time.sleep(0.05)
        assert left, "a change that was begun is in no log"


def test_the_log_goes_where_it_is_told_and_on_after_it_was_moved_away(root: Path, tmp_path: Path) -> None:
    token = create_token(root)
    log = tmp_path / "logs" / "audit"
    log.parent.mkdir()
    with Server(root, ("--audit-log", str(log)), token=token) as server:
        for name in ("one", "two", "three", "four"):
            if name == "two":
                log.rename(log.with_name("audit.1"))
            if name == "three":
                log.rename(log.with_name("audit.2"))
                log.mkdir()
            if name == "four":
                log.rmdir()
            assert server.send("POST", "/api/v1/repos", {"name": f"ada/{name}"}).status == 201
        kept = [line["repository"] for file in ("audit.1", "audit.2", "audit") for line in lines(log.with_name(file))]
        assert kept == ["ada/one", "ada/two", "ada/four"], "what could not be written is lost, and the server is not"
        assert server.log is not None
        assert "the audit log cannot be written" in server.log.read_text()
    argv = [
        str(binary()),
        "serve",
        "--root",
        str(root),
        "--listen",
        "127.0.0.1:0",
        "--audit-log",
        str(tmp_path / "no" / "log"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode not in (0, 101)
    assert "audit log" in done.stderr


@pytest.mark.xdist_group("timing")
def test_only_trusted_proxies_say_for_whom_they_ask(root: Path) -> None:
    token = create_token(root)
    log = root / ".mdl-serve" / "audit.jsonl"

    def peer_of(server: Server, **headers: str) -> str:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        answer = server.send("PATCH", REPO, {}, Authorization=f"Bearer {token}", **named)
        assert answer.status == 200
        return str(told(log, request=answer.headers["x-request-id"])[0]["peer"])

    with Server(root) as server:
        assert peer_of(server, X_Forwarded_For="192.0.2.9", Forwarded="for=192.0.2.9") == "127.0.0.1"
    with Server(root, ("--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8", "--rate", "2")) as server:
        assert peer_of(server) == "127.0.0.1"
        assert peer_of(server, X_Forwarded_For="6.6.6.6, 192.0.2.9, 10.1.1.1") == "192.0.2.9"
        assert peer_of(server, Forwarded='for=6.6.6.6, for="[2001:db8::7]:99"') == "2001:db8::7"
        assert peer_of(server, X_Forwarded_For="192.0.2.9", Forwarded="for=6.6.6.6") == "127.0.0.1"
        one = [server.get(REPO, **{"X-Forwarded-For": "192.0.2.1"}).status for _ in range(30)]
        assert 429 in one
        assert server.get(REPO, **{"X-Forwarded-For": "192.0.2.2"}).status == 401, "another client has its own rate"
        spoofed = [server.get(REPO, **{"X-Forwarded-For": f"7.7.7.{n}, 192.0.2.1"}).status for n in range(30)]
        assert 429 in spoofed, "a client that invents addresses escapes"
