"""Rights follow the current state: revoked tokens, changed settings, replaced directories."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.cli import Mdl, binary
from support.served import fill
from support.server import Server, create_token

JSON = {"Content-Type": "application/json"}
REPO = "/api/v1/repos/ada/gpt"


def revoke(root: Path, token: str) -> None:
    argv = [str(binary()), "token", "revoke", "--root", str(root), token.split("_")[1]]
    subprocess.run(argv, check=True, capture_output=True)


def lets_nobody_in(server: Server, name: str = "ada/made") -> None:
    """Without a token nothing private is read and nothing is made."""
    assert server.ask("GET", REPO).status == 401
    assert server.send("POST", "/api/v1/repos", {"name": name}).status == 401
    assert not (server.root / name).exists()


def log_of(server: Server) -> str:
    assert server.log is not None
    return server.log.read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root", "ada/gpt", "kept-private")
    return tmp_path / "root"


@pytest.mark.parametrize("loss", ["revoked", "removed", "emptied", "state"])
def test_a_server_that_had_tokens_never_opens_by_losing_them(root: Path, loss: str) -> None:
    token = create_token(root)
    tokens = root / ".mdl-serve" / "tokens.json"
    with Server(root) as server:
        assert server.ask("GET", REPO, headers={"Authorization": f"Bearer {token}"}).status == 200
        lets_nobody_in(server)
        if loss == "revoked":
            revoke(root, token)
        elif loss == "removed":
            tokens.unlink()
        elif loss == "emptied":
            tokens.write_text('{"version": 1, "tokens": []}')
        else:
            shutil.rmtree(root / ".mdl-serve")
        lets_nobody_in(server)
        assert server.ask("GET", REPO, headers={"Authorization": f"Bearer {token}"}).status == 401
    if loss != "state":
        with Server(root) as again:
            lets_nobody_in(again)
            assert "guarded, and there is no token" in log_of(again)


def test_the_first_token_guards_a_server_that_was_open(root: Path) -> None:
    with Server(root) as server:
        assert server.get(REPO).status == 200
        assert "open: everyone on this machine may do everything" in log_of(server)
        token = create_token(root)
        lets_nobody_in(server)
        revoke(root, token)
        lets_nobody_in(server)


def test_a_token_that_came_and_went_unseen_guards(root: Path) -> None:
    with Server(root) as server:
        revoke(root, create_token(root))
        lets_nobody_in(server)


@pytest.mark.parametrize(
    "options",
    [("--public-url", "https://models.example.org"), ("--host", "models.lan"), ("--trusted-proxy", "127.0.0.1")],
    ids=lambda o: o[0],
)
def test_what_others_reach_by_another_name_is_not_loopback(tmp_path: Path, options: tuple[str, str]) -> None:
    (tmp_path / "root").mkdir()
    argv = [str(binary()), "serve", "--root", str(tmp_path / "root"), "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(20, process.kill)
        timer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        process.kill()
        timer.cancel()
        assert "listening" not in line
        said = process.stderr.read()
        assert "there are no tokens" in said, said
        assert "--anonymous" in said
    with Server(tmp_path / "root", (*options, "--anonymous", "none")) as server:
        assert server.send("POST", "/api/v1/repos", {"name": "ada/x"}).status == 401


@pytest.mark.xdist_group("timing")
def test_a_setting_counts_from_the_next_request_on_however_busy_the_server_is(root: Path) -> None:
    mdl = Mdl(root / "ada" / "gpt")
    create_token(root)
    busy = threading.Event()
    with Server(root) as server:

        def keep_asking() -> None:
            while not busy.is_set():
                server.get(REPO)

        others = [threading.Thread(target=keep_asking) for _ in range(3)]
        for other in others:
            other.start()
        try:
            for said in ("true", "false", "true", "false"):
                mdl.run("config", "serve.anonymous_read", said)
                for path in (REPO, "/ada/gpt/resolve/main/README.md", "/ada/gpt", f"{REPO}/checkout/main"):
                    assert server.get(path).status == (200 if said == "true" else 401), (said, path)
                listed = [r["name"] for r in server.get("/api/v1/repos").json()["repos"]]
                assert listed == (["ada/gpt"] if said == "true" else [])
                assert (b"ada/gpt" in server.get("/").body) == (said == "true")
        finally:
            busy.set()
            for other in others:
                other.join()


def test_a_directory_that_is_replaced_is_served_by_its_own_rules(root: Path) -> None:
    fill(root, "ada/secret", "for-nobody")
    Mdl(root / "ada" / "gpt").run("config", "serve.anonymous_read", "true")
    create_token(root)
    with Server(root) as server:
        assert server.get("/ada/gpt/resolve/main/README.md").status == 200
        (root / "ada" / "gpt").rename(root / "ada" / "away")
        assert server.get("/ada/gpt/resolve/main/README.md").status == 401, "it is gone, and others are not told"
        (root / "ada" / "secret").rename(root / "ada" / "gpt")
        for path in (REPO, "/ada/gpt/resolve/main/README.md", f"{REPO}/log", f"{REPO}/checkout/main"):
            answer = server.get(path)
            assert answer.status == 401, path
            assert b"for-nobody" not in answer.body
        (root / "ada" / "gpt").rename(root / "ada" / "secret")
        (root / "ada" / "gpt").symlink_to(root / "ada" / "away")
        assert server.get("/ada/gpt/resolve/main/README.md").status == 200
        (root / "ada" / "gpt").unlink()
        (root / "ada" / "gpt").symlink_to(root / "ada" / "secret")
        assert server.get("/ada/gpt/resolve/main/README.md").status == 401


def test_a_repository_that_cannot_be_opened_looks_like_none_to_those_without_a_right(root: Path) -> None:
    token, foreign = create_token(root), create_token(root, "admin", "bob/*")
    broken = [("newer", "format", b"mdl repository 9\n"), ("damaged", "config", b"\xff[[")]
    for name, file, data in broken:
        (fill(root, f"ada/{name}", "kept-private").store / file).write_bytes(data)
    with Server(root) as server:
        for headers in ({}, {"Authorization": f"Bearer {foreign}"}):
            for path in ("", "/log", "/files/main/x", "/commits"):
                method = "POST" if path == "/commits" else "GET"
                absent = server.ask(method, f"/api/v1/repos/ada/absent{path}", headers=headers)
                assert absent.status == (403 if headers else 401)
                for name, _, _ in broken:
                    there = server.ask(method, f"/api/v1/repos/ada/{name}{path}", headers=headers)
                    assert (there.status, there.body.replace(name.encode(), b"absent")) == (absent.status, absent.body)
        known = server.ask("GET", "/api/v1/repos/ada/newer", headers={"Authorization": f"Bearer {token}"})
        assert known.status == 422


def states(folder: Path) -> dict[str, tuple[int, int, str]]:
    """What is below a folder: sizes, times and hashes of files, names of directories."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns, data)
    return found


@pytest.mark.parametrize("sandbox", [(), ("--no-sandbox",)], ids=["sandbox", "no sandbox"])
def test_a_server_that_only_reads_serves_everything_and_changes_nothing(
    root: Path, tmp_path: Path, sandbox: tuple[str, ...]
) -> None:
    # As from before there were identities.
    (root / "ada" / "gpt" / "identity").unlink(missing_ok=True)
    shutil.rmtree(root / "ada" / "gpt" / "index", ignore_errors=True)
    before = states(root)
    token = create_token(root)
    shutil.move(root / ".mdl-serve", tmp_path / "state")
    options = ("--read-only", "--state", str(tmp_path / "state"), *sandbox)
    with Server(root, options, token=token) as server:
        path = "/ada/gpt/resolve/main/model.safetensors"
        data = server.get(path)
        assert data.status == 200
        oid = hashlib.sha256(data.body).hexdigest()
        for read in (
            f"{REPO}/checkout/main",
            f"{REPO}/diff?a=main~1&b=main",
            f"{REPO}/stats",
            "/ada/gpt",
            "/",
            f"{REPO}/jobs",
        ):
            assert server.get(read).status == 200, read
        named = {"operation": "download", "objects": [{"oid": oid, "size": len(data.body)}]}
        batch = server.send("POST", "/ada/gpt.git/info/lfs/objects/batch", named)
        href = batch.json()["objects"][0]["actions"]["download"]["href"]
        assert server.get(href.removeprefix(server.url)).body == data.body
        infos = server.send("POST", "/api/models/ada/gpt/paths-info/main", {"paths": ["README.md"]})
        assert [f["path"] for f in infos.json()] == ["README.md"]
        clone = [str(binary()), "clone", f"{server.url}/ada/gpt", str(tmp_path / "clone")]
        cloned = subprocess.run(clone, capture_output=True, text=True, env=Mdl(root).environment({"MDL_TOKEN": token}))
        assert cloned.returncode == 0, cloned.stderr
        for method, write, body in [
            ("POST", "/api/v1/repos", {"name": "ada/made"}),
            ("POST", "/api/repos/create", {"name": "ada/made"}),
            ("PATCH", REPO, {"anonymous_read": True}),
            ("PUT", f"{REPO}/refs/heads/topic", {"target": "main"}),
            ("DELETE", f"{REPO}/refs/heads/main", None),
            ("POST", f"{REPO}/commits", {"allow_empty": True}),
            ("POST", f"{REPO}/notes/main", {"notes": {"acc": 0.5}}),
            ("POST", f"{REPO}/uploads", {"size": 1}),
            ("POST", f"{REPO}/jobs", {"kind": "gc"}),
            ("POST", f"{REPO}/jobs", {"kind": "fsck"}),
            ("POST", f"{REPO}/webhooks", {"url": "https://example.org"}),
            ("POST", f"{REPO}/sync/refs", {"moves": []}),
            ("POST", f"{REPO}/sync/packs/take", {"packs": []}),
            ("POST", "/api/models/ada/gpt/branch/topic", {}),
            ("POST", "/api/models/ada/gpt/preupload/main", {"files": []}),
            ("POST", "/api/models/ada/gpt/commit/main", {}),
            ("POST", "/ada/gpt.git/info/lfs/objects/batch", named | {"operation": "upload"}),
            ("PUT", f"/ada/gpt.git/info/lfs/objects/{oid}", None),
        ]:
            answer = server.send(method, write, body)
            assert (answer.status, "read-only" in answer.body.decode()) == (403, True), (method, write, answer.body)
        assert server.ask("POST", f"{REPO}/commits", headers={"Authorization": ""}).status == 401, "rights come first"
    assert states(root) == before


@pytest.mark.xdist_group("timing")
def test_bad_tokens_are_limited_by_address_and_good_ones_are_not(root: Path) -> None:
    token = create_token(root, "write", "ada/*")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with Server(root) as server:
        upload = json.dumps({"operation": "upload", "objects": [{"oid": "0" * 64, "size": 1}]}).encode()
        good = {"Authorization": f"Bearer {token}"}
        batch = server.ask("POST", "/ada/gpt.git/info/lfs/objects/batch", upload, good | JSON).json()
        link = batch["objects"][0]["actions"]["upload"]["href"].removeprefix(server.url)[:-4] + "0000"
        kinds = {
            "bearer": lambda: server.get(REPO, Authorization="Bearer mdl_0_0"),
            "basic": lambda: server.get(REPO, Authorization="Basic eDp5"),
            "unreadable": lambda: server.get(REPO, Authorization="Digest x"),
            "cookie": lambda: server.get("/ada/gpt", Cookie="mdl_session=0"),
            "link": lambda: server.ask("PUT", link, b"x"),
            "login": lambda: server.ask("POST", "/login", b"token=mdl_0_0", form),
        }
        first = [kinds["bearer"]().status for _ in range(120)]
        assert first[:60] == [401] * 60
        assert 429 in first[60:]
        for kind, ask in kinds.items():
            answers = [ask() for _ in range(30)]
            assert 429 in [a.status for a in answers], kind
            refused = next(a for a in answers if a.status == 429)
            assert int(refused.headers["retry-after"]) >= 1
        assert server.get(REPO, **good).status == 200
        assert server.get(REPO).status == 401, "without a token nothing was guessed"
        assert server.ask("POST", "/login", f"token={token}".encode(), form).status == 200


@pytest.mark.xdist_group("timing")
@pytest.mark.skipif(shutil.which("strace") is None, reason="counts by strace")
def test_readiness_is_looked_at_once_for_all_who_ask(root: Path, tmp_path: Path) -> None:
    with Server(root) as server:
        trace = tmp_path / "trace"
        argv = ["strace", "-f", "-e", "trace=getdents64", "-o", str(trace), "-p", str(server.pid)]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            assert "attached" in strace.stderr.readline()
            start = time.monotonic()
            assert {server.get("/readyz").status for _ in range(300)} == {200}
            looks = 2 + (time.monotonic() - start) / 2
            strace.terminate()
        # Each look reads the root and its owners' directories, each twice: what is there, and that there is no more.
        assert trace.read_text().count("getdents64(") <= looks * 16
