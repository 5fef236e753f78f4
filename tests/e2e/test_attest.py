"""Provenance of versions, and what other tools are given of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import imports, makers
from support.cli import USAGE, USER, Mdl, files_of
from support.served import fill
from support.server import Server


@pytest.fixture
def mdl(tmp_path: Path) -> Mdl:
    """A repository inside a checkout of git, whose code has changed since."""
    mdl = Mdl.init(tmp_path / "code" / "run")
    code = tmp_path / "code"
    (code / "train.py").write_text("one")
    (code / ".gitignore").write_text("run/\n")
    for args in (
        ("init", "-q", "-b", "main"),
        ("remote", "add", "origin", "https://ada:secret@example.org/ada/code.git"),
        ("add", "-A"),
        ("commit", "-q", "-m", "one"),
    ):
        imports.git(code, *args)
    makers.write_small_checkpoint(mdl.repo, 1)
    return mdl


def shown(mdl: Mdl, rev: str = "HEAD") -> Any:
    return mdl.json("show", rev)["provenance"]


def test_a_version_says_where_it_comes_from(mdl: Mdl, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki" / "a.txt").write_text("text")
    said = ("--command", "python train.py --hf-token hf_secret", "--dataset", f"wiki={tmp_path / 'wiki'}")
    env = {"WORLD_SIZE": "8", "HF_TOKEN": "hf_secret"}
    mdl.run("commit", "-m", "one", *said, "--dataset", f"hub=hf://x@sha256:{'ab' * 32}", env=env)
    record = shown(mdl)
    assert record["code"] == {
        "revision": imports.git(code, "rev-parse", "HEAD"),
        "dirty": False,
        "remote": "https://example.org/ada/code.git",
        "directory": "run",
    }
    assert record["command"] == ["python", "train.py", "--hf-token", "[redacted]"]
    assert record["environment"]["variables"] == {"WORLD_SIZE": "8"}
    listed = f"{hashlib.sha256(b'text').hexdigest()}  a.txt\n".encode()
    assert record["datasets"][0]["digest"] == {"dirHash": hashlib.sha256(listed).hexdigest()}
    assert record["datasets"][1] == {"name": "hub", "uri": "hf://x", "digest": {"sha256": "ab" * 32}}
    assert "secret" not in json.dumps(record)
    mdl.run("show").names("Code:", "of https://example.org/ada/code.git", "Command:", "Made on:")
    # A setting asks for it each time; changed code is told.
    assert mdl.json("log", "main")[0]["provenance"] == record
    (code / "train.py").write_text("two")
    mdl.run("config", "commit.provenance", "true")
    mdl.run("commit", "-m", "two", "--allow-empty")
    assert shown(mdl)["code"]["dirty"]
    assert "command" not in shown(mdl)


def test_without_git_and_without_being_asked(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "run")
    (mdl.repo / "a.txt").write_text("one")
    mdl.run("commit", "-m", "one")
    assert shown(mdl) is None
    mdl.run("commit", "-m", "two", "--allow-empty", "--provenance", env={"PATH": "/nowhere"})
    assert "code" not in shown(mdl)
    for bad in ("wiki", "wiki=", "wiki=/no/such/file", "=x", "wiki=s3://b@sha256:12"):
        mdl.run("commit", "-m", "x", "--allow-empty", "--dataset", bad, code=USAGE).complains("is no data set")
    long = "x" * (300 << 10)
    mdl.run("commit", "-m", "x", "--allow-empty", "--command", long[: 100 << 10], code=0)
    many = [part for n in range(3) for part in ("--dataset", f"d{n}=s3://{long[: 100 << 10]}")]
    mdl.run("commit", "-m", "x", "--allow-empty", *many, code=USER).complains("at most")


@pytest.mark.parametrize("predicate", ["provenance", "model-signing"])
def test_a_statement_names_the_files_as_they_are_checked_out(mdl: Mdl, tmp_path: Path, predicate: str) -> None:
    mdl.run("commit", "-m", "one", "--step", "7", "--provenance")
    mdl.run("commit", "-m", "two", "--allow-empty", "--command", "python train.py")
    out = mdl.checkout("HEAD", tmp_path / "out")
    sums = {rel: hashlib.sha256(path.read_bytes()).hexdigest() for rel, path in files_of(out).items()}
    made = json.loads(mdl.run("attest", "export", "main", "--predicate", predicate).out)
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    if predicate == "provenance":
        assert made["predicateType"] == "https://slsa.dev/provenance/v1"
        version = made["subject"].pop()
        assert version["digest"] == {"mdlCommit": mdl.commit_id("main")}
        assert version["annotations"] == {"fidelity": "exact"}
        assert {s["name"]: s["digest"]["sha256"] for s in made["subject"]} == sums
        definition = made["predicate"]["buildDefinition"]
        assert definition["externalParameters"]["command"] == ["python", "train.py"]
        used = {d["name"]: d["digest"] for d in definition["resolvedDependencies"]}
        assert used["code"] == {"gitCommit": imports.git(tmp_path / "code", "rev-parse", "HEAD")}
        assert used["parent"] == {"mdlCommit": mdl.commit_id("main~1")}
    else:
        assert made["predicateType"] == "https://model_signing/signature/v1.0"
        listed = made["predicate"]["resources"]
        assert [r["name"] for r in listed] == sorted(sums, key=lambda path: path.split("/"))
        assert {r["name"]: r["digest"] for r in listed} == sums
        root = hashlib.sha256(b"".join(bytes.fromhex(r["digest"]) for r in listed)).hexdigest()
        assert made["subject"] == [{"name": "main", "digest": {"sha256": root}}]


def test_keys_that_cannot_sign_an_envelope_are_told(mdl: Mdl, tmp_path: Path) -> None:
    mdl.run("commit", "-m", "one")
    mdl.run("attest", "export", "--sign", code=USER).complains("no key to sign with is named")
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is missing (openssh-client)")
    for kind, phrase in (("ecdsa", ""), ("ed25519", "secret")):
        key = tmp_path / f"{kind}-key"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", phrase, "-f", key], check=True)
        failed = mdl.run("attest", "export", "--key", key, code=USER, env={"SSH_AUTH_SOCK": ""})
        failed.complains("Ed25519" if kind == "ecdsa" else "passphrase")


def test_a_server_shows_it_and_a_clone_has_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, "ada/gpt", "kept")
    bare = Mdl(root / "ada" / "gpt")
    (tmp_path / "x.txt").write_text("x")
    hostile = "<script>alert(1)</script> \x1b[31m"
    bare.run("commit", tmp_path / "x.txt", "-m", "said", "--branch", "said", "--command", hostile)
    record = shown(bare, "said")
    assert record["command"][0] == "<script>alert(1)</script>"
    assert "\x1b" not in bare.run("show", "said").out
    with Server(root) as server:
        page = server.get("/ada/gpt/commit/said").body.decode()
        assert "Origin" in page
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page
        told = server.get("/api/v1/repos/ada/gpt/commits/said").json()
        assert (told["provenance"], told["signing_key"]) == (record, None)
        clone = Mdl(tmp_path / "clone")
        clone.run("clone", f"{server.url}/ada/gpt", clone.repo, repo_flag=False)
        assert shown(clone, "origin/said") == record
