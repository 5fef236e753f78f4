"""Protected branches: every way to move a ref is held against the rules, and a refusal says why."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli import ROOT, USER, Mdl
from support.disks import cannot
from support.served import fill
from support.server import Answer, Server

ADA = "ada@example.com"
API = "/api/v1/repos/ada/gpt"
JSON = {"Content-Type": "application/json"}


def keygen(path: Path) -> Path:
    if shutil.which("ssh-keygen") is None:
        cannot("ssh-keygen is missing (openssh-client)")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text().strip()


class Site:
    """A server with a signed-only main, a release that only moves forward, and a clone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ada, self.eve = keygen(home / "ada"), keygen(home / "eve")
        (home / "allowed").write_text(f"{ADA} {public(self.ada)}\neve@example.com {public(self.eve)}\n")
        self.rules = home / "protect.toml"
        self.rules.write_text(
            f'allowed_signers = "allowed"\n'
            f'[[branch]]\nname = "main"\nsigned = true\nprincipals = ["{ADA}"]\n'
            f'[[branch]]\nname = "release/*"\nrepositories = ["ada/*"]\n'
            f'[[tag]]\nname = "v*"\nsigned = true\n'
        )
        fill(home / "root", "ada/gpt", "kept")
        self.bare = Mdl(home / "root" / "ada" / "gpt")
        self.bare.run("branch", "release/1", "main")
        self.bare.run("branch", "free", "main")
        self.server = Server(home / "root", ("--protect", str(self.rules)))

    def clone(self) -> Mdl:
        mdl = Mdl(self.home / "clone")
        mdl.run("clone", f"{self.server.url}/ada/gpt", mdl.repo, repo_flag=False)
        return mdl

    def tips(self) -> dict[str, str]:
        return {r["name"]: r["commit"] for r in self.refs()}

    def refs(self) -> list[dict[str, Any]]:
        answer = self.server.ask("GET", f"{API}/refs")
        return json.loads(answer.body)["refs"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.server:
        yield site


def refused(answer: Answer, *words: str) -> None:
    problem = answer.json()
    assert answer.status == 422, problem
    assert problem["kind"] == "protected", problem
    for word in ("is protected", *words):
        assert word in problem["detail"], problem
    assert problem["hint"]


def test_a_push_of_what_nobody_signed_is_refused_and_says_so(site: Site) -> None:
    mdl = site.clone()
    before = site.tips()
    (mdl.repo / "new.txt").write_text("new")
    mdl.run("commit", "-m", "unsigned")
    mdl.run("push", code=USER).complains("branch main is protected", "No signature", "mdl commit --sign")
    assert site.tips() == before
    mdl.run("push", "origin", "main:free")
    (mdl.repo / "new.txt").write_text("newer")
    mdl.run("commit", "-m", "signed on top of it", "--key", site.ada)
    mdl.run("push", code=USER).complains("No signature")
    mdl.run("reset", "--hard", "HEAD~2")
    (mdl.repo / "new.txt").write_text("by eve")
    mdl.run("commit", "-m", "by another", "--key", site.eve)
    mdl.run("push", code=USER).complains("no allowed signer has it")
    mdl.run("reset", "--hard", "HEAD~1")
    for text in ("one", "two"):
        (mdl.repo / "new.txt").write_text(text)
        mdl.run("commit", "-m", text, "--key", site.ada)
    mdl.run("push")
    assert site.tips() != before


def test_a_protected_branch_moves_only_forward_and_stays(site: Site) -> None:
    mdl = site.clone()
    mdl.run("switch", "-c", "release/1", "origin/release/1")
    mdl.run("reset", "--hard", "HEAD~1")
    (mdl.repo / "new.txt").write_text("new")
    mdl.run("commit", "-m", "beside")
    before = site.tips()
    mdl.run("push", "--force-with-lease", "origin", "release/1", code=USER).complains("only moves forward")
    mdl.run("push", "--force-with-lease", "origin", "release/1:free")
    mdl.run("push", "origin", "--delete", "release/1", code=USER).complains("not to be deleted")
    now = site.tips()
    assert {k: v for k, v in now.items() if "free" not in k} == {k: v for k, v in before.items() if "free" not in k}


def moves(site: Site) -> dict[str, Callable[[], Answer]]:
    """Each route by which an unsigned version or a branch's deletion could get onto a ref."""
    s, old = site.server, site.bare.log("main")[1]["commit"]
    delete = lambda path: lambda: s.ask("DELETE", path)  # noqa: E731
    put = lambda path, body: lambda: s.ask("PUT", path, json.dumps(body).encode(), JSON)  # noqa: E731
    post = lambda path, body: lambda: s.ask("POST", path, json.dumps(body).encode(), JSON)  # noqa: E731
    lines = [
        {"key": "header", "value": {"summary": "by the hub"}},
        {"key": "file", "value": {"path": "x.txt", "content": "eA==", "encoding": "base64"}},
    ]
    ndjson = "\n".join(map(json.dumps, lines)).encode()
    hub = {"Content-Type": "application/x-ndjson"}
    move = {"name": "refs/heads/main", "expected": site.bare.log("main")[0]["commit"], "new": None, "force": True}
    return {
        "api: move": put(f"{API}/refs/heads/main", {"target": old}),
        "api: delete release": delete(f"{API}/refs/heads/release%2F1"),
        "api: move release": put(f"{API}/refs/heads/release%2F1", {"target": old}),
        "api: commit": post(f"{API}/commits", {"message": "m", "base": "parent", "remove": ["kept.txt"]}),
        "api: tag": put(f"{API}/refs/tags/v1", {"target": "main"}),
        "api: annotated tag": put(f"{API}/refs/tags/v1", {"target": "main", "annotate": True, "message": "m"}),
        "hub: commit": lambda: s.ask("POST", "/api/models/ada/gpt/commit/main", ndjson, hub),
        "hub: delete branch": delete("/api/models/ada/gpt/branch/release%2F1"),
        "hub: tag": post("/api/models/ada/gpt/tag/main", {"tag": "v2"}),
        "hub: annotated tag": post("/api/models/ada/gpt/tag/main", {"tag": "v2", "message": "m"}),
        "sync: delete": post(f"{API}/sync/refs", {"moves": [move | {"name": "refs/heads/release/1"}], "message": "m"}),
        "sync: back": post(f"{API}/sync/refs", {"moves": [move | {"new": old}], "message": "m"}),
    }


def test_no_route_moves_a_protected_ref_against_the_rules(site: Site) -> None:
    before = site.tips()
    for name, ask in moves(site).items():
        answer = ask()
        if name.startswith("sync"):
            outcome = answer.json()["refs"][0]
            assert not outcome["ok"], (name, outcome)
            assert outcome["problem"]["kind"] == "protected", (name, outcome)
        else:
            assert answer.status != 404, (name, answer.body)
            refused(answer)
        assert site.tips() == before, name


def test_rules_that_make_no_sense_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    mdl = Mdl(tmp_path / "root")
    for text, said in [
        ('[[branch]]\nname = "main"\nsigned = true\n', "allowed_signers"),
        ('[[branch]]\nname = "main"\nsign = true\n', "unknown field"),
        ('allowed_signers = "none"\n', "none"),
        ('[[branch]]\nname = "["\n', "patterns"),
    ]:
        rules = tmp_path / "rules.toml"
        rules.write_text(text)
        found = mdl.run("serve", "--root", mdl.repo, "--protect", rules, code=(1, 2, 6), repo_flag=False)
        found.complains(said)


def test_the_rules_that_the_documentation_shows_are_rules(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "serve.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page.split("## Protected branches\n")[1].split("\n## ")[0], re.DOTALL)
    (tmp_path / "rules.toml").write_text(block)
    key = public(keygen(tmp_path / "ada"))
    (tmp_path / "allowed_signers").write_text(f"{ADA} {key}\n")
    (tmp_path / "revoked").write_text("")
    fill(tmp_path / "root", "team/gpt", "kept")
    with Server(tmp_path / "root", ("--protect", str(tmp_path / "rules.toml"))) as server:
        refused(server.send("PUT", "/api/v1/repos/team/gpt/refs/heads/main", {"target": "main~1"}))
