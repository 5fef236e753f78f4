"""Who may do what with a running server, and what strangers can make it do: tokens, paths, webhooks, pages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html.parser
import http.server
import json
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from support import raw
from support.cli import Mdl, binary
from support.raw import FORM, form, member, tar_of
from support.routes import HUB, OF_NO_REPOSITORY, OPEN, PAGES, described, in_sources, of_a_repository, registered
from support.server import Answer, Server, create_token
from support.tensors import Tensor, write_safetensors

SECRET = "kept-between-us"
"""In every name, message and file of the repositories that are not for everybody."""
SCOPES = ("read", "write", "admin")


def fill(root: Path, name: str, mark: str) -> Mdl:
    """A repository of two versions, the mark in everything."""
    mdl = Mdl.init(root / name, "--bare")
    folder = root.parent / "folder" / name
    for step in (1, 2):
        values = np.arange(512, dtype=np.float32) + step
        write_safetensors(folder / "model.safetensors", [Tensor.of(f"{mark}.weight", values)], {"format": "pt"})
        (folder / "README.md").write_text(f"# {mark}\n")
        (folder / f"{mark}.txt").write_text(mark * 3)
        mdl.commit(folder, f"{mark} {step}", "--step", str(step), "--metric", f"{mark}={step}")
    return mdl


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("house") / "root"
    root.mkdir()
    for name, mark in (("ada/gpt", SECRET), ("bob/gpt", SECRET), ("ada/open", "for-everybody")):
        fill(root, name, mark)
    admin = create_token(root)
    with Server(root, token=admin) as server:
        opened = server.send("PATCH", "/api/v1/repos/ada/open", {"anonymous_read": True})
        assert opened.status == 200, opened.body
        yield House(root, server)


class House:
    """A server with a repository of Ada's and one of Bob's, one that everybody may read, and tokens of all kinds."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root, self.server = root, server
        self.tokens = {scope: create_token(root, scope, "ada/*", name=scope) for scope in SCOPES}
        self.elsewhere = create_token(root, "admin", "bob/*", name="bob")
        self.bad = {
            "wrong": "mdl_0123456789ab_" + "0" * 64,
            "half": self.tokens["admin"][:-1],
            "expired": self.expired(),
            "revoked": self.revoked(),
            "empty": "",
        }
        self.document: dict[str, Any] = server.get("/api/v1/openapi.json").json()
        self.routes = of_a_repository(self.document)

    def expired(self) -> str:
        token = create_token(self.root, "admin", "**", expires="1h", name="over")
        file = self.root / ".mdl-serve" / "tokens.json"
        stored = json.loads(file.read_text())
        (over,) = [t for t in stored["tokens"] if t["name"] == "over"]
        over["expires_ms"] = int(time.time() * 1000) - 1
        file.write_text(json.dumps(stored))
        return token

    def revoked(self) -> str:
        token = create_token(self.root, "admin", "**", name="revoked")
        assert self.ask("GET", "/api/v1/repos/ada/gpt", token).status == 200
        argv = [str(binary()), "token", "revoke", "--root", str(self.root), token.split("_")[1]]
        subprocess.run(argv, check=True, capture_output=True)
        return token

    def ask(self, method: str, path: str, token: str | None, body: bytes | None = None, **headers: str) -> Answer:
        """As a caller with this token, or none; what is asked is never what a route would do something with."""
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if method not in ("GET", "HEAD") and body is None:
            body = b""
        return Server(self.root, url=self.server.url).ask(method, path, body, {**shown, **headers})


def keeps_the_secret(answer: Answer) -> None:
    said = answer.body + str(answer.headers).encode()
    assert SECRET.encode() not in said, said[:500]


def test_the_list_of_routes_is_whole(house: House) -> None:
    document = {line.split()[1] for line in described(house.document)}
    assert document == in_sources(), "what the sources describe is in the document, and nothing else"
    listed = {line.split()[1] for line in [*HUB, *PAGES, *OF_NO_REPOSITORY, *OPEN]} - document
    assert listed == registered() - {"/api/v1"}, "every route is in support/routes.py"
    assert len(house.routes) > 50


@pytest.mark.parametrize("bad", ["wrong", "half", "expired", "revoked", "empty"])
def test_a_token_that_is_no_good_opens_nothing(house: House, bad: str) -> None:
    token = house.bad[bad]
    asked = [(r.method, r.path("ada", name)) for r in house.routes for name in ("gpt", "open", "absent")]
    others = [line.replace("{owner}", "ada").replace("{asset}", "none.css").split() for line in OF_NO_REPOSITORY]
    basic = base64.b64encode(f"me:{token}".encode()).decode()
    for method, path in [*asked, *map(tuple, others)]:
        answer = house.ask(method, path, token)
        assert answer.status == 401, f"{method} {path}: {answer.status} {answer.body[:300]!r}"
        keeps_the_secret(answer)
    for header in (
        f"Basic {basic}",
        f"bearer {token}",
        f"BEARER  {token}",
        "Bearer",
        "Digest x",
        "Basic !",
        "Basic eA==",
    ):
        answer = house.ask("GET", "/api/v1/repos/ada/gpt", None, Authorization=header)
        assert answer.status == 401, header
        keeps_the_secret(answer)
    cookie = house.ask("GET", "/ada/gpt", None, Cookie=f"mdl_token={token}")
    assert cookie.status == 401
    keeps_the_secret(cookie)


def test_nobody_without_a_token_sees_or_changes_anything(house: House) -> None:
    for route in house.routes:
        answers = [house.ask(route.method, route.path("ada", name), None) for name in ("gpt", "none")]
        for answer in answers:
            assert answer.status == 401, f"{route}: {answer.status} {answer.body[:300]!r}"
            assert "realm=" in answer.headers["www-authenticate"], route
            keeps_the_secret(answer)
        assert answers[0].body.replace(b"gpt", b"none") == answers[1].body, f"{route} tells what exists"
    for line in OF_NO_REPOSITORY:
        method, path = line.split()
        body = b'{"name": "ada/made"}' if "repos" in path else None
        answer = house.ask(
            method,
            path.replace("{owner}", "ada").replace("{asset}", "x"),
            None,
            body,
            **{"Content-Type": "application/json"},
        )
        assert answer.status < 500, f"{line}: {answer.status}"
        keeps_the_secret(answer)
        assert b"ada/gpt" not in answer.body, f"{line} names a repository that is not for everybody"
    assert not (house.root / "ada" / "made").exists()
    assert house.ask("GET", "/metrics", None).status == 401


def test_a_token_for_another_repository_opens_nothing(house: House) -> None:
    for route in house.routes:
        answers = [house.ask(route.method, route.path("ada", name), house.elsewhere) for name in ("gpt", "none")]
        for answer in answers:
            assert answer.status == 403, f"{route}: {answer.status} {answer.body[:300]!r}"
            keeps_the_secret(answer)
        assert answers[0].body.replace(b"gpt", b"none") == answers[1].body, f"{route} tells what exists"
    listed = house.ask("GET", "/api/v1/repos", house.elsewhere)
    assert [r["name"] for r in listed.json()["repos"]] == ["ada/open", "bob/gpt"]
    for path in ("/api/models", "/"):
        assert b"ada/gpt" not in house.ask("GET", path, house.elsewhere).body
    for path, body in (("/api/v1/repos", {"name": "ada/made"}), ("/api/repos/create", {"name": "ada/made"})):
        made = house.ask(
            "POST", path, house.elsewhere, json.dumps(body).encode(), **{"Content-Type": "application/json"}
        )
        assert made.status == 403, path
    assert not (house.root / "ada" / "made").exists()


def test_a_token_allows_what_it_says_and_no_more(house: House) -> None:
    for route in house.routes:
        for scope in SCOPES[: SCOPES.index(route.scope)]:
            answer = house.ask(route.method, route.path("ada", "gpt"), house.tokens[scope])
            assert answer.status == 403, f"{route} with {scope}: {answer.status} {answer.body[:300]!r}"
            keeps_the_secret(answer)
        # It was the scope that was refused: with enough of it the answer is another.
        if route.method in ("GET", "HEAD"):
            answer = house.ask(route.method, route.path("ada", "gpt"), house.tokens[route.scope])
            assert answer.status in (200, 404), f"{route} with {route.scope}: {answer.status} {answer.body[:300]!r}"
    jobs = "/api/v1/repos/ada/gpt/jobs"
    for kind in ("gc", "compact"):
        body = json.dumps({"kind": kind}).encode()
        refused = house.ask("POST", jobs, house.tokens["write"], body, **{"Content-Type": "application/json"})
        assert refused.status == 403, kind
    upload = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": "0" * 64, "size": 1}]}
    lfs = "/ada/gpt.git/info/lfs/objects/batch"
    body, kind = json.dumps(upload).encode(), {"Content-Type": "application/json"}
    assert house.ask("POST", lfs, house.tokens["read"], body, **kind).status == 403
    assert house.ask("POST", lfs, house.tokens["write"], body, **kind).status == 200


def test_what_is_open_to_all_can_be_read_and_nothing_else(house: House) -> None:
    for route in house.routes:
        answer = house.ask(route.method, route.path("ada", "open"), None)
        if route.scope == "read":
            assert answer.status not in (401, 403), f"{route}: {answer.status}"
        else:
            assert answer.status == 401, f"{route}: {answer.status}"
        keeps_the_secret(answer)
    listed = house.ask("GET", "/api/v1/repos", None)
    assert [r["name"] for r in listed.json()["repos"]] == ["ada/open"]
    assert b"for-everybody" in house.ask("GET", "/ada/open/resolve/main/README.md", None).body


def test_links_to_upload_are_good_for_one_object_and_end_with_their_token(house: House) -> None:
    token = create_token(house.root, "write", "ada/*", name="linker")
    data = b"an object"
    oid = hashlib.sha256(data).hexdigest()
    body = json.dumps({"operation": "upload", "objects": [{"oid": oid, "size": len(data)}]}).encode()
    kind = {"Content-Type": "application/json"}
    batch = house.ask("POST", "/ada/gpt.git/info/lfs/objects/batch", token, body, **kind).json()
    href = batch["objects"][0]["actions"]["upload"]["href"].removeprefix(house.server.url)
    other = hashlib.sha256(b"another").hexdigest()
    for forged in (
        href.replace(oid, other),
        href.replace("ada/gpt", "bob/gpt"),
        href.replace(f"size={len(data)}", "size=7"),
        href.replace("until=", "until=9"),
        href[:-1] + ("0" if href[-1] != "0" else "1"),
        href.split("&sig=")[0],
        href.split("?")[0],
    ):
        assert house.ask("PUT", forged, None, b"another").status == 401, forged
    subprocess.run(
        [str(binary()), "token", "revoke", "--root", str(house.root), token.split("_")[1]],
        check=True,
        capture_output=True,
    )
    assert house.ask("PUT", href, None, data).status == 401, "a link outlived its token"


def test_a_cookie_is_for_looking_only(house: House) -> None:
    cookie = {"Cookie": f"mdl_token={house.tokens['admin']}"}
    assert house.ask("GET", "/ada/gpt", None, **cookie).status == 200
    for route in house.routes:
        if route.method not in ("GET", "HEAD"):
            assert house.ask(route.method, route.path("ada", "gpt"), None, **cookie).status == 401, route
    signed = raw.request(
        house.server.url,
        "POST",
        "/login",
        body=f"token={house.tokens['read']}&next=//evil.example/".encode(),
        kind="application/x-www-form-urlencoded",
    )
    headers = signed.split(b"\r\n\r\n")[0].lower()
    assert raw.status(signed) == 303
    assert b"location: /\r\n" in headers + b"\r\n", headers
    assert b"httponly" in headers
    assert b"samesite=strict" in headers


def test_passwords_and_headers_in_other_forms(house: House) -> None:
    token = house.tokens["read"]
    basic = base64.b64encode(f"anybody:{token}".encode()).decode()
    assert house.ask("GET", "/api/v1/repos/ada/gpt", None, Authorization=f"Basic {basic}").status == 200
    for second in (house.tokens["admin"], token, "x"):
        pairs = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {second}"), ("Connection", "close")]
        response = raw.exchange(house.server.url, raw.head("GET", "/api/v1/repos/ada/gpt", pairs))
        assert raw.status(response) in (400, 401), response[:200]
    refused = house.ask("GET", "/api/v1/repos/ada/gpt", "\xff\xfe")
    assert refused.status in (400, 401)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_other_sites_cannot_use_a_browser_as_their_hands(house: House, headers: dict[str, str]) -> None:
    body = json.dumps({"anonymous_read": True}).encode()
    kind = {"Content-Type": "application/json"}
    answer = house.ask("PATCH", "/api/v1/repos/ada/gpt", house.tokens["admin"], body, **kind, **headers)
    assert answer.status == 403
    assert house.ask("GET", "/api/v1/repos/ada/gpt", None).status == 401, "the repository is open now"
    login = house.ask("POST", "/login", None, f"token={house.tokens['read']}".encode(), **headers)
    assert login.status == 403, "another site signs people in"
    own = {"Origin": house.server.url, "Sec-Fetch-Site": "same-origin"}
    settings = json.dumps({"anonymous_read": False}).encode()
    assert house.ask("PATCH", "/api/v1/repos/ada/gpt", house.tokens["admin"], settings, **kind, **own).status == 200
    seen = house.ask("GET", "/api/v1/repos/ada/open", None, Origin="https://evil.example")
    assert "access-control-allow-origin" not in seen.headers


def test_without_tokens_names_that_lead_here_by_a_trick_of_dns_do_not(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root") as server:
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1].evil",
            "",
            "2130706433",
        ):
            answer = server.get("/api/v1/repos", Host=host) if host else None
            status = (
                answer.status
                if answer
                else raw.status(
                    raw.exchange(server.url, b"GET /api/v1/repos HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n")
                )
            )
            assert status in (400, 421), host
        for host in ("localhost:9", "127.0.0.1", "[::1]:80", "x.localhost"):
            assert server.get("/api/v1/repos", Host=host).status == 200, host


def test_others_are_not_let_in_by_accident(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    argv = [str(binary()), "serve", "--root", str(tmp_path / "root"), "--listen", "0.0.0.0:0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode not in (0, 101), done.stderr
    assert "listening" not in done.stdout
    assert "tokens" in done.stderr
    assert "--anonymous" in done.stderr
    with Server(tmp_path / "root", ("--anonymous", "none"), listen="0.0.0.0:0"):
        pass
    create_token(tmp_path / "root")
    with Server(tmp_path / "root", listen="0.0.0.0:0") as server:
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert server.get("/api/v1/repos").json()["repos"] == []
        assert server.send("POST", "/api/v1/repos", {"name": "ada/x"}).status == 401


# Paths

CANARY = "canary-outside-of-everything"
UP = (
    "..",
    "%2e%2e",
    "%2E.",
    "..%2f..",
    "%2e%2e%2f%2e%2e",
    "..%5c..",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%252e%252e",
    "..%00",
    "%ff",
    "%",
    "%2",
    "~",
    ".mdl-serve",
    "%2fetc",
    "C:%5c",
)


class Grounds:
    """A server for its administrator, with canaries around the repositories."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "root"
        self.root.mkdir()
        self.mdl = fill(self.root, "ada/gpt", "grounds")
        self.token = create_token(self.root)
        self.canaries = [top / "canary.txt", self.root / "canary.txt", self.root / ".mdl-serve" / "canary.txt"]
        self.canaries += [self.root / "ada" / "canary.txt", self.root / "ada/gpt" / "canary.txt"]
        for canary in self.canaries:
            canary.write_text(CANARY)

    def outside(self) -> dict[str, bytes]:
        """Every file that is in no repository and not the server's to change."""
        own = (self.root / "ada/gpt", self.root / ".mdl-serve" / "decoded", self.root / ".mdl-serve" / "lfs")
        files = [p for p in self.top.rglob("*") if p.is_file() and not any(o in p.parents for o in own)]
        skipped = ("server.log", ".lock", "webhooks.json")
        return {str(p): p.read_bytes() for p in files if not p.name.endswith(skipped)}


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Grounds, Server]]:
    grounds = Grounds(tmp_path_factory.mktemp("grounds"))
    with Server(grounds.root, token=grounds.token) as server:
        before, log = grounds.outside(), grounds.mdl.log()
        yield grounds, server
        assert grounds.outside() == before, "something outside of the repository changed"
        assert [c["id"] for c in grounds.mdl.log("--all")][-len(log) :] == [c["id"] for c in log]
    grounds.mdl.fsck()


def refuses(response: bytes, what: object) -> None:
    assert CANARY.encode() not in response, what
    assert b'"hash"' not in response, f"{what}: tokens.json"
    assert b"root:x:" not in response, what
    assert raw.status(response) < 500, f"{what}: {response[:300]!r}"


def test_no_path_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    files = ("canary.txt", ".mdl-serve/canary.txt", ".mdl-serve/tokens.json", "etc/passwd")
    for up in UP:
        for file in files:
            deep = "/".join([up] * 6)
            for target in (
                f"/{up}/{file}",
                f"/{deep}/{file}",
                f"/api/v1/repos/{up}/{up}",
                f"/api/v1/repos/ada/{up}",
                f"/api/v1/repos/{quote(f'../{file}', safe='')}/x",
                f"/api/v1/repos/ada/gpt/files/main/{deep}/{file}",
                f"/api/v1/repos/ada/gpt/files/{up}/{file}",
                f"/api/v1/repos/ada/gpt/tree/{up}?path={up}/{file}",
                f"/api/v1/repos/ada/gpt/tensor/main/{up}/{file}?name={up}",
                f"/api/v1/repos/ada/gpt/checkout/{up}",
                f"/api/v1/repos/ada/gpt/uploads/{up}",
                f"/api/v1/repos/ada/gpt/jobs/{up}",
                f"/ada/gpt/resolve/main/{deep}/{file}",
                f"/ada/{up}/resolve/main/{file}",
                f"/{up}/gpt/resolve/{up}/{file}",
                f"/ada/gpt/blob/main/{up}/{file}",
                f"/ada/gpt/tree/{up}/{up}",
                f"/ada/gpt.git/info/lfs/objects/{up}",
                f"/api/models/ada/{up}/tree/main/{up}",
                f"/api/models/ada/gpt/revision/{up}",
                f"/assets/{up}%2f{file}",
                f"http://evil.example/{up}/{file}",
                f"file:///{up}/{file}",
            ):
                response = raw.request(server.url, "GET", target, here.token)
                refuses(response, target)
                assert raw.status(response) not in (200, 206) or file == "etc/passwd" or up == "~", (
                    f"{target}: {response[:300]!r}"
                )
    for target in (
        b"/api/v1/repos/ada/gpt/files/main/\x00",
        b"/\xff\xfe",
        b"/ada/gpt/resolve/main/\xc0\xae\xc0\xae/x",
        b"*",
        b"",
    ):
        response = raw.request(server.url, "GET", target, here.token)
        refuses(response, target)
        assert 400 <= raw.status(response) < 500, f"{target!r}: {response[:200]!r}"


def test_no_name_of_a_ref_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    body = json.dumps({"target": "main"}).encode()
    kind = "application/json"
    for up in (
        *UP,
        quote("../../../canary.txt", safe=""),
        "a%2f..%2f..%2fx",
        "x.lock",
        "-x",
        "HEAD%0a",
        "%20",
        "a%0d%0ax",
    ):
        for method, target, data in (
            ("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{up}", body),
            ("PUT", f"/api/v1/repos/ada/gpt/refs/tags/{up}", body),
            ("PUT", f"/api/v1/repos/ada/gpt/refs/{up}/x", body),
            ("DELETE", f"/api/v1/repos/ada/gpt/refs/heads/{up}", b""),
            ("POST", f"/api/models/ada/gpt/branch/{up}", b"{}"),
            ("DELETE", f"/api/models/ada/gpt/branch/{up}", b""),
            ("POST", "/api/models/ada/gpt/tag/main", json.dumps({"tag": up}).encode()),
        ):
            response = raw.request(server.url, method, target, here.token, data, kind)
            refuses(response, (method, target))
    own = {p.name for p in (here.root / "ada" / "gpt").iterdir()}
    assert not {"x", "passwd", "etc"} & own


def test_no_id_of_an_upload_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    for up in (*UP, quote("../../../tokens.json", safe=""), quote("../../canary.txt", safe=""), "tokens", "canary.txt"):
        target = f"/api/v1/repos/ada/gpt/uploads/{up}"
        for method in ("GET", "HEAD", "DELETE"):
            response = raw.request(server.url, method, target, here.token)
            refuses(response, (method, up))
            assert 400 <= raw.status(response) < 500, (method, up, response[:200])
        headers = [
            ("Authorization", f"Bearer {here.token}"),
            ("Upload-Offset", "0"),
            ("Content-Length", "4"),
            ("Connection", "close"),
        ]
        refuses(raw.exchange(server.url, raw.head("PATCH", target, headers) + b"gone"), ("PATCH", up))
        oid = f"/ada/gpt.git/info/lfs/objects/{up}"
        response = raw.request(server.url, "PUT", oid, here.token, b"gone")
        assert 400 <= raw.status(response) < 500, (up, response[:200])
        named = json.dumps({"message": "x", "uploads": [{"path": "x", "upload": up}]}).encode()
        response = raw.request(
            server.url, "POST", "/api/v1/repos/ada/gpt/commits", here.token, named, "application/json"
        )
        assert 400 <= raw.status(response) < 500, (up, response[:200])


NAMES = (
    "../x",
    "a/../../x",
    "/etc/x",
    "a/./b",
    "a//b",
    "",
    ".",
    "..",
    "a\\..\\b",
    "\u0000",
    "a\nb",
    ".mdl/x",
    "a/",
    "x" * 300,
)


def commits(server: Server) -> list[str]:
    listed = server.get("/api/v1/repos/ada/gpt/log?all=true").json()
    return [c["commit"] for c in listed["commits"]]


def test_no_name_of_a_file_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    before = commits(server)
    target = "/api/v1/repos/ada/gpt/commits"
    for name in NAMES:
        answer = raw.request(server.url, "POST", target, here.token, form({"message": "x"}, {name: b"gone"}), FORM)
        assert 400 <= raw.status(answer) < 500, f"multipart {name!r}: {answer[:300]!r}"
        header = {"key": "header", "value": {"summary": "x"}}
        line = {"key": "file", "value": {"path": name, "content": "eA==", "encoding": "base64"}}
        ndjson = f"{json.dumps(header)}\n{json.dumps(line)}\n".encode()
        answer = raw.request(
            server.url, "POST", "/api/models/ada/gpt/commit/main", here.token, ndjson, "application/x-ndjson"
        )
        assert 400 <= raw.status(answer) < 500, f"hub {name!r}: {answer[:300]!r}"
    meta = quote_plus(json.dumps({"message": "x"}))
    heads = [member(name) for name in NAMES if "\u0000" not in name]
    heads += [
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../../canary.txt"),
        member("link", tarfile.LNKTYPE, "../../canary.txt"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
        member("disk", tarfile.BLKTYPE),
        member("../dir", tarfile.DIRTYPE),
    ]
    for info in heads:
        archive = tar_of((info, b"" if info.type != tarfile.REGTYPE else b"gone"))
        answer = raw.request(server.url, "POST", f"{target}?meta={meta}", here.token, archive, "application/x-tar")
        shown = (info.name, info.type)
        # A directory by itself is nothing to commit; everything else is refused by its name or kind.
        assert 400 <= raw.status(answer) < 500 or info.name in ("a/./b", "a//b", "a/"), f"tar {shown}: {answer[:300]!r}"
        refuses(answer, shown)
    # Only tars whose names are cleaned of `.` and empty parts were taken, if any.
    assert len(set(commits(server)) - set(before)) <= 3


# Webhooks


class Ears(http.server.ThreadingHTTPServer):
    """Listens on a port of its own, notes what arrives, answers as it is told."""

    daemon_threads = True

    def __init__(self, answer: int = 200, location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Ear)
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.connections = 0
        self.answer, self.location = answer, location

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.connections += 1
        return True

    @property
    def port(self) -> int:
        return self.server_address[1]


class Ear(http.server.BaseHTTPRequestHandler):
    server: Ears

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((dict(self.headers), body))
        self.send_response(self.server.answer)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(answer: int = 200, location: str = "") -> Iterator[Ears]:
    with Ears(answer, location) as ears:
        thread = threading.Thread(target=ears.serve_forever, daemon=True)
        thread.start()
        try:
            yield ears
        finally:
            ears.shutdown()


HOOKS = "/api/v1/repos/ada/gpt/webhooks"
NOT_PUBLIC = """
127.0.0.1 127.1 127.9.9.9 0 0.0.0.0 2130706433 0x7f000001 0x7f.1 017700000001 0177.0.0.1
127.0.0.1. 10.0.0.1 10.1 172.16.0.1 172.31.255.255 192.168.0.1 169.254.169.254 0xa9fea9fe
2852039166 100.64.0.1 100.100.100.200 198.18.0.1 192.0.0.192 224.0.0.1 255.255.255.255
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [fe80::1] [fc00::1]
[fd00:ec2::254] [64:ff9b::127.0.0.1] [2002:7f00:1::] [ff02::1] [0:0:0:0:0:0:0:1]
ⓗ127.0.0.1 １２７.0.0.1 127。0.0.1
"""
"""This machine and its neighbours, in the ways that addresses can be written."""


def move(server: Server, name: str) -> None:
    moved = server.send("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{name}", {"target": "main"})
    assert moved.status == 200, moved.body


def test_webhooks_do_not_reach_this_machine_or_its_neighbours(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fill(root, "ada/gpt", "hooks")
    with Server(root, token=create_token(root)) as server, listening() as ears:
        for host in NOT_PUBLIC.split():
            answer = server.send("POST", HOOKS, {"url": f"http://{host}:{ears.port}/"})
            assert answer.status in (400, 422), f"{host}: {answer.status} {answer.body!r}"
        for url in (
            f"http://me:secret@example.com:{ears.port}/",
            f"http://127.0.0.1:{ears.port}#@example.com/",
            f"http://example.com@127.0.0.1:{ears.port}/",
            f"http://127.0.0.1:{ears.port}\\@example.com/",
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "ftp://127.0.0.1/",
            "http://example.com:22/",
            "//127.0.0.1/",
            "",
            "http://" + "a" * 5000,
        ):
            answer = server.send("POST", HOOKS, {"url": url})
            assert answer.status in (400, 422), f"{url}: {answer.status} {answer.body!r}"
        # Names are looked at when it is delivered: they may lead elsewhere by then.
        names = ("localhost", "LOCALHOST", "localhost.", "ip6-localhost", "ip6-loopback", os.uname().nodename)
        for name in names:
            answer = server.send("POST", HOOKS, {"url": f"http://{name}:{ears.port}/{name}"})
            assert answer.status in (201, 400, 422), f"{name}: {answer.status}"
        move(server, "moved")
        time.sleep(2)
        assert ears.connections == 0, "a webhook reached this machine"
        # Once one was allowed: what the operator allows now counts, not what was allowed when it was made.
        file = root / ".mdl-serve" / "webhooks.json"
        stored = json.loads(file.read_text())
        stored["ada/gpt"] = [{**stored["ada/gpt"][0], "url": f"http://127.0.0.1:{ears.port}/old"}]
        file.write_text(json.dumps(stored))
        move(server, "again")
        time.sleep(1)
        assert ears.connections == 0, "a webhook of earlier reached this machine"


def test_webhooks_to_neighbours_where_the_operator_wants_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fill(root, "ada/gpt", "hooks")
    options = ("--private-webhooks",)
    with Server(root, options, token=create_token(root)) as server, listening() as ears, listening(302) as bouncer:
        bouncer.location = f"http://127.0.0.1:{ears.port}/bounced"
        made = server.send("POST", HOOKS, {"url": f"http://localhost:{ears.port}/hook", "secret": "of two"})
        assert made.status == 201, made.body
        assert server.send("POST", HOOKS, {"url": f"http://127.0.0.1:{bouncer.port}/"}).status == 201
        assert b"of two" not in server.get(HOOKS).body
        move(server, "moved")
        deadline = time.monotonic() + 10
        while not (ears.heard and bouncer.heard) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        assert [len(ears.heard), len(bouncer.heard)] == [1, 1], "a redirect was followed, or nothing came"
        headers, body = ears.heard[0]
        wanted = "sha256=" + hmac.new(b"of two", body, hashlib.sha256).hexdigest()
        shown = {k.lower(): v for k, v in headers.items()}
        assert shown["x-mdl-signature-256"] == wanted
        assert "authorization" not in shown
        assert json.loads(body)["ref"] == "refs/heads/moved"


# Pages

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "</title><svg onload=alert(1)>",
    "javascript:alert(1)",
)
CARD = """---
license: <script>alert(1)</script>
tags: ["<img src=x onerror=alert(1)>"]
---
# <script>alert(1)</script> <b onclick="alert(1)">x</b>
<script src=//evil.example/x.js></script><svg onload=alert(1)><script>alert(1)</script></svg>
<iframe src="javascript:alert(1)"></iframe><embed src=x>
<object data="data:text/html,<script>alert(1)</script>"></object>
<img src=x onerror=alert(1)><a href="javascript:alert(1)">a</a> [b](javascript:alert(1)) [c](JaVaScRiPt&#58;alert(1))
[d](data:text/html;base64,PHNjcmlwdD4=) [e](vbscript:x) ![f](javascript:alert(1)) <https://ok.example/"onmouseover="alert(1)>
<form action=//evil.example><input name=token><button formaction="javascript:alert(1)">go</button></form>
<style>*{background:url(//evil.example)}</style><base href=//evil.example>
<meta http-equiv=refresh content="0;url=//evil.example">
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;"></math>
<div style="background:url(javascript:alert(1))" onmouseover=alert(1)>x</div> <a href="//ok.example" target=_blank>y</a>

| <svg/onload=alert(1)> | `</code><script>alert(1)</script>` |
|---|---|
| <details open ontoggle=alert(1)> | &lt;script&gt; |
"""
ACTIVE = {
    "iframe",
    "object",
    "embed",
    "base",
    "applet",
    "frame",
    "frameset",
    "portal",
    "math",
    "foreignobject",
    "template",
}


class Looker(html.parser.HTMLParser):
    """Notes everything on a page that a browser would run or be led away by."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[str | None] = []
        self.script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ACTIVE:
            self.found.append(f"<{tag}>")
        given = dict(attrs)
        self.script = tag == "script"
        if tag == "script":
            self.scripts.append(given.get("src"))
        if (
            tag == "meta"
            and given.get("http-equiv", "").lower() == "refresh"
            and "url" in (given.get("content") or "").lower()
        ):
            self.found.append("<meta refresh>")
        if tag == "form" and not (given.get("action") or "/").startswith("/"):
            self.found.append(f"<form action={given['action']}>")
        for name, value in attrs:
            text = "".join((value or "").split()).lower()
            if name.startswith("on") or name in ("srcdoc", "formaction", "ping"):
                self.found.append(f"<{tag} {name}>")
            if name in ("href", "src", "action", "xlink:href", "data", "poster", "background") and text.startswith(
                ("javascript:", "vbscript:", "data:text", "data:application", "data:image/svg")
            ):
                self.found.append(f"<{tag} {name}={value}>")
            if name == "style" and ("url(" in text or "expression" in text):
                self.found.append(f"<{tag} style={value}>")

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        self.script = False

    def handle_data(self, data: str) -> None:
        if self.script and data.strip():
            self.found.append(f"a script on the page: {data[:80]}")


def evil_repository(root: Path) -> None:
    """Everything that strangers may name, named to do harm."""
    mdl = Mdl.init(root / "ada/gpt", "--bare")
    mdl.run("config", "user.name", EVIL[1])
    mdl.run("config", "user.email", EVIL[3])
    folder = root.parent / "evil"
    sub = folder / "<img src=x onerror=alert(1)>"
    sub.mkdir(parents=True)
    for step in (1, 2, 3):
        tensors = [Tensor.of(f"{evil}.{n}", np.full(64, step + n, np.float32)) for n, evil in enumerate(EVIL)]
        write_safetensors(folder / "model.safetensors", tensors, {evil: evil for evil in EVIL})
        (folder / "README.md").write_text(CARD)
        for n, evil in enumerate(EVIL):
            (folder / f"{n}{evil.replace('/', '_')}.txt").write_text(f"{evil} {step}\n")
        (sub / "page.html").write_text("<script>alert(1)</script>")
        (folder / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
        (folder / "config.json").write_text(json.dumps({evil: evil for evil in EVIL}))
        options = [x for evil in EVIL for x in ("--meta", f"{evil}={evil}")]
        options += [x for evil in EVIL for x in ("--metric", f"{evil.replace('=', ':')}={step}")]
        mdl.commit(
            folder,
            f"{EVIL[0]}\n\n{' '.join(EVIL)}",
            "--step",
            str(step),
            *options,
        )


def test_nothing_that_strangers_name_runs_on_a_page(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    evil_repository(root)
    token = create_token(root, name=EVIL[0])
    with Server(root, token=token) as server:
        for evil in ("<script>alert(1)<", 'x"onload=alert(1)'):
            server.send("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{quote(evil, safe='')}", {"target": "main"})
            server.send(
                "PUT",
                f"/api/v1/repos/ada/gpt/refs/tags/t{quote(evil, safe='')}",
                {"target": "main", "annotate": True, "message": evil},
            )
        meta = {
            "message": EVIL[0],
            "base": "parent",
            "metrics": dict.fromkeys(EVIL, 4.0),
            "meta": dict.fromkeys(EVIL, EVIL[1]),
        }
        made = raw.request(server.url, "POST", "/api/v1/repos/ada/gpt/commits", token, form(meta, {"new": b"x"}), FORM)
        assert raw.status(made) == 201, made
        tree = server.get("/api/models/ada/gpt/tree/main?recursive=true").json()
        files = [quote(entry["path"]) for entry in tree]
        pages = [
            "/",
            "/login",
            "/login?next=%22%3E%3Cscript%3E",
            "/ada/gpt",
            "/ada/gpt/commits/main",
            "/ada/gpt/commit/main",
        ]
        pages += [
            "/ada/gpt/tree/main",
            "/ada/gpt/compare",
            "/ada/gpt/compare/main~1/main",
            "/ada/gpt/compare/main~2/main",
        ]
        pages += [f"/ada/gpt/blob/main/{f}" for f in files] + [f"/ada/gpt/tree/main/{f}" for f in files]
        pages += [
            "/ada/%3Cscript%3E",
            "/ada/gpt/commit/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
            "/ada/gpt/blob/main/%22%3E%3Cscript%3E",
        ]
        pages += ["/?q=%3Cscript%3E", "/ada/gpt/commits/main?after=%3Cscript%3E", "/%3Cscript%3Ealert(1)%3C/script%3E"]
        shown = set()
        for page in pages:
            answer = server.get(page, Accept="text/html")
            assert answer.status in (200, 400, 404), f"{page}: {answer.status} {answer.body[:300]!r}"
            kind = answer.headers["content-type"]
            policy = answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff", page
            assert "default-src 'none'" in policy, page
            assert "unsafe" not in policy, page
            if not kind.startswith("text/html"):
                continue
            shown.add(answer.status)
            looker = Looker()
            looker.feed(answer.body.decode())
            assert not looker.found, f"{page}: {looker.found}"
            assert all(s and s.startswith("/assets/mdl-") for s in looker.scripts), f"{page}: {looker.scripts}"
            assert len(looker.scripts) <= 1, page
        assert shown >= {200, 404}, "no pages were seen"
        assert "alert(1)" in server.get("/ada/gpt/commit/main", Accept="text/html").body.decode(), (
            "nothing hostile was shown"
        )
        for file in files:
            for raw_path in (f"/ada/gpt/resolve/main/{file}", f"/api/v1/repos/ada/gpt/files/main/{file}"):
                answer = server.get(raw_path, Accept="text/html")
                if answer.status != 200:
                    continue
                assert "html" not in answer.headers["content-type"], raw_path
                assert (
                    "xml" not in answer.headers["content-type"]
                    or "sandbox" in answer.headers["content-security-policy"]
                ), raw_path
                assert "default-src 'none'" in answer.headers["content-security-policy"], raw_path
                assert answer.headers["x-content-type-options"] == "nosniff", raw_path


# Rates


def test_whoever_asks_too_often_has_to_wait_and_is_served_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fill(root, "ada/gpt", "rates")
    loud, quiet = create_token(root), create_token(root)
    with Server(root, ("--rate", "5"), token=loud) as server:
        answers = [server.get("/api/v1/repos/ada/gpt") for _ in range(60)]
        refused = [a for a in answers if a.status == 429]
        assert {a.status for a in answers} == {200, 429}
        assert len(refused) >= 20
        assert all(int(a.headers["retry-after"]) >= 1 for a in refused)
        assert refused[0].headers["content-type"] == "application/problem+json"
        assert server.ask("GET", "/api/v1/repos/ada/gpt", headers={"Authorization": f"Bearer {quiet}"}).status == 200
        assert server.get("/healthz").status == 200
        time.sleep(1.1)
        assert server.get("/api/v1/repos/ada/gpt").status == 200
