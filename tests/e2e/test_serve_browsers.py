"""Browser security: sessions end with their token, DNS rebinding, requests of other sites, shared caches."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.cli import binary
from support.served import fill
from support.server import Answer, Server, create_token

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PRIVATE, OPEN = "/ada/gpt", "/ada/open"
SECURE = "__Host-mdl_session"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browsers") / "root"
    fill(root, "ada/gpt", "kept-private")
    fill(root, "ada/open", "for-everybody").run("config", "serve.anonymous_read", "true")
    return root


@pytest.fixture(scope="module")
def token(root: Path) -> str:
    return create_token(root)


@pytest.fixture
def server(root: Path, token: str) -> Iterator[Server]:
    assert token
    with Server(root) as server:
        yield server


def send(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """One request, and its answer as it is: nothing is followed."""
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request(method, path, body or None, {k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer


def sign_in(server: Server, token: str, **headers: str) -> str:
    """The cookie that a browser gets for a token."""
    answer = send(server, "POST", "/login", f"token={token}&next=/".encode(), **FORM, **headers)
    assert answer.status == 303, answer.body
    said = next(value for name, value in answer.headers.items() if name.lower() == "set-cookie")
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    assert token not in said, "the cookie is the token"
    return said.split(";")[0]


def revoke(root: Path, token: str) -> None:
    argv = [str(binary()), "token", "revoke", "--root", str(root), token.split("_")[1]]
    subprocess.run(argv, check=True, capture_output=True)


def test_a_session_is_for_looking_and_ends_with_its_token(server: Server, root: Path) -> None:
    token = create_token(root, "admin", "ada/*")
    cookie = sign_in(server, token)
    assert send(server, "GET", PRIVATE, Cookie=cookie).status == 200
    assert send(server, "HEAD", f"{PRIVATE}/resolve/main/README.md", Cookie=cookie).status == 200
    secret = cookie.split("=")[1]
    for bearer in (f"Bearer {secret}", f"Bearer mdl_{secret}"):
        assert send(server, "GET", PRIVATE, Authorization=bearer).status == 401, "a session is no token"
    for path in (
        "/api/v1/repos/ada/gpt",
        "/api/models/ada/gpt",
        "/api/whoami-v2",
        "/metrics",
        "/api/v1/repos/ada/gpt/webhooks",
    ):
        assert send(server, "GET", path, Cookie=cookie).status == 401, path
    settings = json.dumps({"anonymous_read": True}).encode()
    assert send(server, "PATCH", "/api/v1/repos/ada/gpt", settings, Cookie=cookie).status == 401
    revoke(root, token)
    over = send(server, "GET", PRIVATE, Cookie=cookie)
    assert over.status == 401
    assert "Max-Age=0" in over.headers["set-cookie"], "the browser goes on with it"


def test_signing_out_ends_the_session_on_the_server(server: Server, token: str) -> None:
    cookie, other = sign_in(server, token), sign_in(server, token)
    assert cookie != other
    assert send(server, "POST", "/logout", Cookie=cookie).status == 303
    assert send(server, "GET", PRIVATE, Cookie=cookie).status == 401
    assert send(server, "GET", PRIVATE, Cookie=other).status == 200
    again = sign_in(server, token, Cookie=other)
    assert send(server, "GET", PRIVATE, Cookie=other).status == 401, "a browser has one session"
    assert send(server, "GET", PRIVATE, Cookie=again).status == 200


def test_sessions_of_a_token_are_bounded(server: Server, token: str) -> None:
    cookies = [sign_in(server, token) for _ in range(101)]
    assert send(server, "GET", PRIVATE, Cookie=cookies[0]).status == 401
    assert {send(server, "GET", PRIVATE, Cookie=cookie).status for cookie in cookies[1:]} == {200}


def test_where_browsers_come_by_https_the_cookie_is_for_this_host_alone(root: Path, token: str) -> None:
    with Server(root, ("--public-url", "https://models.example.org")) as server:
        answer = send(server, "POST", "/login", f"token={token}".encode(), **FORM)
        said = answer.headers["set-cookie"]
        assert said.startswith(f"{SECURE}=")
        assert "; Secure" in said
        assert "Path=/" in said
        assert "Domain" not in said
        cookie = said.split(";")[0]
        assert send(server, "GET", PRIVATE, Cookie=cookie).status == 200
        assert send(server, "GET", PRIVATE, Cookie=cookie.removeprefix("__Host-")).status == 401


def test_without_a_token_only_names_of_the_server_count(server: Server, token: str) -> None:
    cookie = sign_in(server, token)
    for host in ("evil.example", "localhost.evil.example", "192.168.1.5", "2130706433"):
        for path in (OPEN, f"{OPEN}/resolve/main/README.md", "/api/v1/repos/ada/open", "/api/v1/repos/ada/open/log"):
            answer = send(server, "GET", path, Host=host)
            assert answer.status == 421, (host, path, answer.status)
            assert b"for-everybody" not in answer.body
        assert send(server, "GET", "/api/v1/repos", Host=host).body.count(b"ada/open") == 0
        assert send(server, "GET", "/", Host=host).body.count(b"ada/open") == 0
        assert send(server, "GET", PRIVATE, Host=host, Cookie=cookie).status == 401, (
            "a session counts under a strange name"
        )
        login = send(server, "POST", "/login", f"token={token}".encode(), Host=host, **FORM)
        assert login.status == 421
        for name in ("gpt", "absent"):
            assert send(server, "GET", f"/api/v1/repos/ada/{name}", Host=host).status == 401
        shown = send(server, "GET", "/api/v1/repos/ada/gpt", Host=host, Authorization=f"Bearer {token}")
        assert shown.status == 200, "a token counts under any name"
    for host in ("localhost", "127.0.0.1:9", "[::1]", "models.localhost"):
        assert send(server, "GET", OPEN, Host=host).status == 200, host


def test_names_that_the_operator_gave_count(root: Path, token: str) -> None:
    assert token
    options = ("--host", "Models.lan", "--host", "10.9.8.7", "--public-url", "https://models.example.org")
    with Server(root, options) as server:
        for host in ("models.lan", "models.LAN:7878", "10.9.8.7", "models.example.org", "localhost"):
            assert send(server, "GET", OPEN, Host=host).status == 200, host
        assert send(server, "GET", OPEN, Host="other.lan").status == 421
    for bad in ("http://models.lan", "a/b", ""):
        argv = [str(binary()), "serve", "--root", str(root), "--listen", "127.0.0.1:0", "--host", bad]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        assert done.returncode not in (0, 101)
        assert "host" in done.stderr


def test_an_origin_counts_with_its_scheme_and_port(root: Path, token: str) -> None:
    def asks(server: Server, origin: str, **headers: str) -> int:
        body = f"token={token}".encode()
        return send(server, "POST", "/login", body, Origin=origin, **FORM, **headers).status

    with Server(root) as server:
        host = urlsplit(server.url).netloc
        assert asks(server, f"http://{host}") == 303
        for origin in (
            f"https://{host}",
            "http://127.0.0.1",
            "null",
            host,
            f"http://{host}.evil.example",
            "http://[::1",
        ):
            assert asks(server, origin) == 403, origin
        assert asks(server, f"http://{host}", Sec_Fetch_Site="cross-site") == 403
    with Server(root, ("--public-url", "https://models.example.org")) as server:
        name = {"Host": "models.example.org"}
        assert asks(server, "https://models.example.org", **name) == 303
        assert asks(server, "http://models.example.org", **name) == 403
        assert asks(server, server.url) == 303, "it is asked directly"


def test_what_rights_decide_is_in_no_shared_cache(server: Server, token: str) -> None:
    bearer = {"Authorization": f"Bearer {token}"}
    for path in (
        "/api/v1/repos",
        "/api/v1/repos/ada/gpt",
        "/api/v1/repos/ada/gpt/files/main/README.md",
        "/api/v1/repos/ada/gpt/checkout/main",
        "/api/models/ada/gpt",
        f"{PRIVATE}/resolve/main/README.md",
        PRIVATE,
        "/",
    ):
        answer = send(server, "GET", path, **bearer)
        assert answer.status == 200, path
        assert "private" in answer.headers["cache-control"], path
        assert {"authorization", "cookie"} <= {v.strip() for v in answer.headers["vary"].lower().split(",")}, path
        etag = answer.headers.get("etag")
        if etag:
            unchanged = send(server, "GET", path, If_None_Match=etag, **bearer)
            assert (unchanged.status, "private" in unchanged.headers["cache-control"]) == (304, True), path
    for path in (PRIVATE, "/api/v1/repos/ada/gpt", "/api/v1/none", f"{OPEN}/resolve/main/none"):
        refused = send(server, "GET", path)
        assert refused.status in (401, 404)
        assert refused.headers["cache-control"] == "no-store", path
        assert "authorization" in refused.headers["vary"].lower(), path
    wrong = send(server, "DELETE", "/api/v1/repos")
    assert (wrong.status, wrong.headers["cache-control"]) == (405, "no-store")
    style = send(server, "GET", "/login").body.split(b'href="/assets/')[1].split(b'"')[0].decode()
    assert "public" in send(server, "GET", f"/assets/{style}").headers["cache-control"]
