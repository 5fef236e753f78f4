"""The commands of documentation pages, run as they stand there, each from a state of which it says what it does.

Names of other machines are replaced by directories. Pages whose blocks run elsewhere: README and tour
(tests/dist), history, signing and work trees (test_docs.py), the HTTP API (test_http_api.py), all Python that needs
torch (python/tests/test_docs.py), clients of the Hub (test_hub.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from support import imports, makers
from support.cli import ROOT, USER, Mdl, binary
from support.disks import cannot
from support.server import Server
from support.tensors import Tensor, write_safetensors


def blocks(page: str, language: str = "") -> list[str]:
    """The blocks of a page in one language, without prompts."""
    text = (ROOT / "docs" / page).read_text()
    found = [m[2] for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if m[1] == language]
    return [re.sub(r"^\$ ", "", block, flags=re.M) for block in found]


class Reader:
    """Types what a page says, in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root, tools = root, root / "tools"
        tools.mkdir()
        (tools / "mdl").symlink_to(binary())
        for name in ("python", "python3"):
            (tools / name).symlink_to(sys.executable)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MDL_")}
        self.env = kept | {
            "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(root), "NO_COLOR": "1", "MDL_AUTHOR_NAME": "Ada",
        }  # fmt: skip

    def type(self, script: str, at: Path, instead: Mapping[str, str] | None = None) -> str:
        for wanted, found in (instead or {}).items():
            assert wanted in script, wanted
            script = script.replace(wanted, found)
        done = subprocess.run(["bash", "-ec", script], cwd=at, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def model(path: Path, seed: int, moved: float = 0.0) -> Path:
    """Weights of one start, moved at random by so much."""
    rng = np.random.default_rng(seed)
    shapes = {"embed.weight": (64, 16), "layers.0.weight": (16, 16), "lm_head.weight": (64, 16)}
    start = np.random.default_rng(0)
    arrays = {n: start.normal(0, 0.1, s) + moved * rng.normal(0, 0.1, s) for n, s in shapes.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(path, [Tensor.of(name, a.astype(np.float32)) for name, a in arrays.items()])
    return path


def line(mdl: Mdl, versions: int) -> None:
    """A run whose versions move a little each."""
    for n in range(versions):
        model(mdl.repo / "model.safetensors", n, 0.02)
        mdl.run("commit", "-m", f"step {n}", "--step", str(n))


def test_merges_and_soups(tmp_path: Path, reader: Reader) -> None:
    mdl = Mdl.init(tmp_path / "run")
    line(mdl, 22)
    for seed, branch in enumerate(["exp", "maths", "code", "run-1", "run-2", "run-3"], 100):
        mdl.run("branch", branch)
        mdl.run("switch", branch)
        model(mdl.repo / "model.safetensors", seed, 0.05)
        mdl.run("commit", "-m", branch)
        mdl.run("switch", "main")
    model(mdl.repo / "model.safetensors", 99, 0.05)
    mdl.run("commit", "-m", "ahead")
    mdl.run("tag", "start")
    (mdl.repo / "evaluate.py").write_text("print(0.5)\n")
    (mdl.repo / ".mdlignore").write_text("evaluate.py\n.mdlignore\n")
    (block,) = blocks("merge.md", "sh")
    lines = block.splitlines()
    assert len(lines) == 7
    for command in lines:
        if "--verify" not in command:
            mdl.run("reset", "--hard", "start")
        before = mdl.commit_id("HEAD")
        reader.type(command, mdl.repo)
        assert ("--verify" in command) == (mdl.commit_id("HEAD") == before), command


def test_replays(tmp_path: Path, reader: Reader) -> None:
    origin = Mdl.init(tmp_path / "origin", "--bare")
    mdl, other = Mdl(tmp_path / "mine"), Mdl(tmp_path / "theirs")
    mdl.run("clone", origin.repo, mdl.repo, repo_flag=False)

    def commit(at: Mdl, name: str) -> None:
        model(at.repo / f"{name}.safetensors", len(name), 0.1)
        at.run("commit", "-m", name)

    commit(mdl, "start")
    mdl.run("push", "origin", "main")
    other.run("clone", origin.repo, other.repo, repo_flag=False)
    commit(other, "of others")
    other.run("push", "origin", "main")
    mdl.run("switch", "-c", "ablation")
    commit(mdl, "ablation")
    mdl.run("switch", "main")
    for name in ("one", "two", "three", "four", "five", "sixth"):
        commit(mdl, name)
    mdl.run("fetch")
    first, second = blocks("rewriting.md")
    for command in first.splitlines():
        if command.startswith("mdl pull"):
            commit(other, "more of others")
            other.run("push", "origin", "main")
        before = mdl.commit_id("HEAD")
        reader.type(command, mdl.repo)
        assert mdl.commit_id("HEAD") != before, command
    assert (mdl.repo / "more of others.safetensors").exists()
    assert (mdl.repo / "ablation.safetensors").exists()
    commit(other, "the last")
    other.run("push", "origin", "main")
    mdl.run("push", code=(4,)).complains(second.splitlines()[0].split("#")[0].strip())
    reader.type(second, mdl.repo)
    assert mdl.commit_id("main") == origin.commit_id("main")


def test_remotes(tmp_path: Path, reader: Reader) -> None:
    source = Mdl.init(tmp_path / "source")
    line(source, 2)
    source.run("tag", "v1")
    origin = tmp_path / "elsewhere" / "llama"
    Mdl.init(origin, "--bare")
    source.run("push", origin, "main", "--tags")
    Mdl.init(tmp_path / "backup", "--bare")
    (block,) = blocks("remotes.md")
    clone, rest = block.split("\n", 1)
    reader.type(clone, tmp_path, {"https://models.example.org/team/llama": str(origin)})
    said = reader.type(rest, tmp_path / "llama", {"s3://team-models/llama": str(tmp_path / "backup")})
    assert "step 1" in said
    assert "refs/tags/v1" in said
    assert Mdl(tmp_path / "backup").commit_id("v1") == source.commit_id("v1")


def test_policies(tmp_path: Path, reader: Reader) -> None:
    mdl = Mdl.init(tmp_path / "run")
    commit, prune = blocks("policies.md")
    (policy,) = blocks("policies.md", "toml")
    mdl.repo.joinpath("every-key.toml").write_text(policy)
    mdl.repo.joinpath("evaluate.sh").write_text("#!/bin/sh\necho 0.5\n")
    mdl.repo.joinpath("evaluate.sh").chmod(0o755)
    for step in range(4):
        model(mdl.repo / "out" / "model.safetensors", step, 0.02)
        model(mdl.repo / "out.grads.safetensors", step + 50, 0.01)
        if step == 3:
            reader.type(commit, mdl.repo)
            assert mdl.log("main")[0]["quality"]["policy"] == "lossy"
        else:
            mdl.run("commit", "out", "-m", f"step {step}")
    model(mdl.repo / "out" / "model.safetensors", 9, 0.02)
    mdl.run("commit", "out", "-m", "by every key", "--policy", "every-key.toml", "--eval", "./evaluate.sh")
    mdl.repo.joinpath("every-key.toml").write_text(policy.replace("max_depth", "max_dept"))
    mdl.run("commit", "out", "-m", "x", "--policy", "every-key.toml", code=USER).complains("max_dept")
    reader.type(prune, mdl.repo)


def test_shards(tmp_path: Path, reader: Reader) -> None:
    mdl = Mdl.init(tmp_path / "run")
    for rank in range(8):
        model(mdl.repo / "out" / f"rank-{rank}" / f"model-{rank}.safetensors", rank, 0.1)
    (block,) = blocks("shards.md")
    put, rest = block.split("\n", 1)
    for rank in range(8):
        reader.type(put, mdl.repo, {"$RANK": str(rank)})
    assert "run7/2000" in reader.type(rest, mdl.repo)
    assert mdl.log("main")[0]["files"] == 8


def test_tokens_and_protection(tmp_path: Path, reader: Reader) -> None:
    (tmp_path / "models").mkdir()
    tokens = next(block for block in blocks("serve.md") if "token create" in block)
    create, rest = tokens.split("\n", 1)
    assert reader.type(create, tmp_path).strip()
    (token,) = json.loads(reader.type("mdl token list --root models --json", tmp_path))
    assert "ci" in reader.type(rest, tmp_path, {"revoke --root models ID": f"revoke --root models {token['id']}"})
    (rules,) = blocks("serve.md", "toml")
    (tmp_path / "protect.toml").write_text(rules)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(tmp_path / "key")]
    if subprocess.run(["bash", "-c", "command -v ssh-keygen"], capture_output=True, check=False).returncode:
        cannot("ssh-keygen is missing (openssh-client)")
    subprocess.run(keygen, check=True)
    key = (tmp_path / "key.pub").read_text()
    (tmp_path / "allowed_signers").write_text(f"ada@example.com {key}")
    (tmp_path / "revoked").write_text("")
    with Server(tmp_path / "models", ("--protect", str(tmp_path / "protect.toml"))) as server:
        assert server.get("/healthz").status == 200


def test_devices(tmp_path: Path, reader: Reader) -> None:
    mdl = Mdl.init(tmp_path / "run")
    model(mdl.repo / "out" / "step-1000" / "model.safetensors", 1)
    (block,) = blocks("gpu.md", "console")
    assert "processor" in reader.type(block, mdl.repo)
    assert len(mdl.log("main")) == 1


def test_imports(tmp_path: Path, reader: Reader) -> None:
    """Those whose sources lie on the disk; the others are run by test_import.py and test_import_git.py."""
    mdl = Mdl.init(tmp_path / "run")
    makers.write_small_checkpoint(mdl.repo / "out" / "checkpoint-1", 1)
    makers.write_small_checkpoint(mdl.repo / "artifacts" / "model:v0", 2)
    source = tmp_path / "models-git"
    makers.write_small_checkpoint(source, 3)
    for args in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "one")):
        imports.git(source, *args)
    every, again = blocks("import.md", "console")
    wanted = [c for c in every.splitlines() if c.split()[2] in ("out", "artifacts", "../models-git")]
    assert len(wanted) == 3
    for command in wanted:
        assert "Imported 1 version" in reader.type(command, mdl.repo)
    assert again.splitlines()[0] == "mdl import models-git --branch from-lfs"
    said = reader.type(again.splitlines()[0].replace("models-git", "../models-git"), mdl.repo)
    assert "Imported 0 versions from git-lfs to from-lfs, 1 were there already" in said
