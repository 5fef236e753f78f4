"""Access control of a server: tokens, cookies, other sites, host names, rate limits."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import raw
from support.cli import binary
from support.routes import OF_NO_REPOSITORY, described, listed, of_a_repository
from support.served import fill
from support.server import Answer, Server, create_token

SECRET = "kept-between-us"
"""In every name, message and file of the private repositories."""
SCOPES = ("read", "write", "admin")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("house") / "root"
    root.mkdir()
    for name, mark in (("ada/gpt", SECRET), ("bob/gpt", SECRET), ("ada/open", "for-everybody")):
        fill(root, name, mark)
    admin = create_token(root)
    # What is no good is shown far more often here than anywhere else.
    with Server(root, ("--token-failures", "0"), token=admin) as server:
        opened = server.send("PATCH", "/api/v1/repos/ada/open", {"anonymous_read": True})
        assert opened.status == 200, opened.body
        yield House(root, server)


class House:
    """A server with private repositories of Ada and Bob, one readable without a token, and tokens of all kinds."""

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
        self.routes = of_a_repository()

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


def test_the_document_says_what_the_list_of_routes_says(house: House) -> None:
    known = {f"{method} {path}": need for method, path, need in listed()}
    document = described(house.document)
    assert document == {route: known.get(route) for route in document}
    own = {route for route in known if "/api/v1/" in route and not route.endswith("openapi.json")}
    assert own == set(document)
    assert len(house.routes) > 50


@pytest.mark.parametrize("bad", ["wrong", "half", "expired", "revoked", "empty"])
def test_a_token_that_is_no_good_opens_nothing(house: House, bad: str) -> None:
    token = house.bad[bad]
    asked = [(r.method, r.path("ada", name)) for r in house.routes for name in ("gpt", "open", "absent")]
    others = [line.replace("{owner}", "ada").replace("{asset}", "none.css").split() for line in OF_NO_REPOSITORY]
    basic = base64.b64encode(f"me:{token}".encode()).decode()
    for method, path in [*asked, *map(tuple, others)]:
        answer = house.ask(method, path, token)
        # hf_xet sends an empty one where it has none: nobody's, as without.
        wanted = 401 if token else house.ask(method, path, None).status
        assert answer.status == wanted, f"{method} {path}: {answer.status} {answer.body[:300]!r}"
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
    for name in ("mdl_session", "__Host-mdl_session", "mdl_token"):
        cookie = house.ask("GET", "/ada/gpt", None, Cookie=f"{name}={token}")
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
    signed = raw.request(
        house.server.url,
        "POST",
        "/login",
        body=f"token={house.tokens['admin']}&next=//evil.example/".encode(),
        kind="application/x-www-form-urlencoded",
    )
    headers = signed.split(b"\r\n\r\n")[0].lower()
    assert raw.status(signed) == 303
    assert b"location: /\r\n" in headers + b"\r\n", headers
    assert b"httponly" in headers
    assert b"samesite=strict" in headers
    assert house.tokens["admin"].encode() not in signed
    cookie = {"Cookie": headers.split(b"set-cookie: ")[1].split(b";")[0].decode()}
    assert house.ask("GET", "/ada/gpt", None, **cookie).status == 200
    for route in house.routes:
        looks = (
            route.method in ("GET", "HEAD") and not route.template.startswith("/api/") and "/lfs/" not in route.template
        )
        answer = house.ask(route.method, route.path("ada", "gpt"), None, **cookie)
        assert answer.status in ((200, 404) if looks else (401,)), f"{route}: {answer.status}"


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


@pytest.mark.xdist_group("timing")
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
