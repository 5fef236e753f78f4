"""Clone, fetch, pull and push: what is sent, refusals, cut transfers. Each kind of remote is tried in turn."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import CONFLICT, NOT_FOUND, OK, USER, Mdl, assert_same, tree_size
from support.server import Server, create_token
from support.tensors import Tensor, write_safetensors

BIG = 6_000_000
"""Elements of the tensor that is large enough for a transfer to be cut in the middle."""


def train(mdl: Mdl, folder: Path, steps: range, elements: int = 200_000, options: tuple[str, ...] = ()) -> list[str]:
    """Versions of a model that moves a little each step; one tensor stays what it is."""
    ids = []
    for step in steps:
        weights = makers.random_f32((elements,), 1) + 1e-4 * makers.random_f32((elements,), 100 + step).cumsum()
        tensors = [
            Tensor.of("embed.weight", makers.random_f32((500, 100), 2)),
            Tensor.of("body.weight", weights.astype(np.float32)),
        ]
        folder.mkdir(exist_ok=True)
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        (folder / "step.txt").write_text(f"{step}\n")
        ids.append(mdl.commit(folder, f"step {step}", "--step", str(step), *options)["commit"])
    return ids


def same_version(left: Mdl, right: Mdl, rev: str, room: Path) -> None:
    room.mkdir(exist_ok=True)
    name = f"{len(list(room.iterdir()))}"
    assert_same(left.checkout(rev, room / f"{name}a"), right.checkout(rev, room / f"{name}b"))


@pytest.fixture(params=["directory", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Mdl]]:
    """An empty repository that others can reach, and its URL."""
    bare = Mdl.init(tmp_path / "root" / "team" / "model", "--bare")
    if request.param == "directory":
        yield str(bare.repo), bare
        return
    with Server(tmp_path / "root") as server:
        yield f"{server.url}/team/model", bare


def test_push_clone_and_pull(place: tuple[str, Mdl], mdl: Mdl, tmp_path: Path) -> None:
    url, there = place
    source = tmp_path / "source"
    first = train(mdl, source, range(12))
    mdl.run("tag", "v1", "-m", "the first")
    mdl.run("remote", "add", "origin", url)
    pushed = mdl.json("push", "--tags")
    assert {r["name"] for r in pushed["refs"]} == {"refs/heads/main", "refs/tags/v1"}
    assert pushed["sent_bytes"] <= 1.05 * mdl.packed()
    there.fsck()

    clone = Mdl(tmp_path / "clone")
    done = clone.json("clone", url, str(clone.repo), repo_flag=False, cwd=tmp_path)
    assert (done["commit"], done["branch"]) == (first[-1], "main")
    assert done["received"]["carried_bytes"] <= 1.05 * mdl.packed()
    assert [e["id"] for e in clone.log("main")] == first[::-1]
    assert clone.commit_id("v1") == first[-1]
    assert_same(clone.repo, source)
    for rev in (first[0], first[5]):
        same_version(mdl, clone, rev, tmp_path / "room")
    clone.fsck()

    before = mdl.packed()
    (new,) = train(mdl, source, range(12, 13))
    delta = mdl.packed() - before
    pushed = mdl.json("push")
    assert pushed["sent_bytes"] <= 1.05 * delta + 4096
    pulled = clone.json("pull")
    assert (pulled["result"], pulled["commit"]) == ("fast_forward", new)
    assert pulled["received"]["carried_bytes"] <= 1.05 * delta + 4096
    assert_same(clone.repo, source)
    clone.fsck()
    assert clone.json("pull")["result"] == "up_to_date"
    assert clone.json("fetch")["received"]["carried_bytes"] == 0


def test_what_git_refuses_is_refused(place: tuple[str, Mdl], mdl: Mdl, tmp_path: Path) -> None:
    url, _ = place
    ours = train(mdl, tmp_path / "source", range(2))
    mdl.run("remote", "add", "origin", url)
    mdl.run("push")
    other = Mdl(tmp_path / "other")
    other.run("clone", url, str(other.repo), repo_flag=False, cwd=tmp_path)
    theirs = train(other, tmp_path / "theirs", range(50, 51))
    other.run("push")
    train(mdl, tmp_path / "source", range(2, 3))
    mdl.run("push", code=CONFLICT).complains("forward", "pull")
    mdl.run("push", "--force-with-lease", code=CONFLICT).complains("moved")
    mdl.run("pull", code=CONFLICT).complains("parted")
    assert mdl.commit_id("origin/main") == theirs[-1]
    mdl.run("push", "--force-with-lease")
    listed = mdl.json("ls-remote")
    assert {r["name"]: r["id"] for r in listed["refs"]} == {"refs/heads/main": mdl.commit_id("main")}
    # Tags do not move, branches come and go.
    mdl.run("tag", "best", ours[0])
    mdl.run("push", "origin", "best")
    mdl.run("tag", "-f", "best", ours[1])
    mdl.run("push", "origin", "best", code=USER).complains("tag")
    mdl.run("push", "origin", f"{ours[0]}:exp/a")
    other.run("fetch")
    assert other.commit_id("origin/exp/a") == ours[0]
    mdl.run("push", "origin", "--delete", "exp/a")
    other.run("fetch", "--prune")
    assert other.commit_id("origin/exp/a") is None
    mdl.run("push", "nowhere", code=NOT_FOUND).complains("nowhere")
    mdl.run("clone", str(tmp_path / "nothing"), "x", code=NOT_FOUND, repo_flag=False, cwd=tmp_path).complains()
    other.run("clone", url, str(other.repo), code=USER, repo_flag=False, cwd=tmp_path).complains("not empty")
    for bad in ("ftp://x/y", "https://user:pass@host/a/b", "s3://key:secret@bucket"):
        said = mdl.run("remote", "add", "bad", bad, code=(1, 2))
        said.complains()
        assert "user:pass" not in said.err
        assert "secret" not in said.err


def test_partial_clones_hold_what_was_asked_for_and_fetch_the_rest(
    place: tuple[str, Mdl], mdl: Mdl, tmp_path: Path
) -> None:
    url, there = place
    source = tmp_path / "source"
    ids = train(mdl, source, range(6))
    mdl.run("remote", "add", "origin", url)
    mdl.run("push")

    shallow = Mdl(tmp_path / "shallow")
    done = shallow.json("clone", url, str(shallow.repo), "--depth", "1", repo_flag=False, cwd=tmp_path)
    assert done["partial"]
    assert done["received"]["carried_bytes"] < mdl.packed()
    assert_same(shallow.repo, source)
    assert len(shallow.log("main")) == 6
    shallow.fsck()
    shallow.run("gc", "--prune-now")
    same_version(mdl, shallow, ids[2], tmp_path / "room")

    embed = Mdl(tmp_path / "embed")
    pattern = "model.safetensors:*embed*"
    done = embed.json("clone", url, str(embed.repo), "--only", pattern, repo_flag=False, cwd=tmp_path)
    wanted = 500 * 100 * 4
    assert wanted / 2 < done["received"]["carried_bytes"] < wanted + 16_384
    held = embed.packed()
    assert (
        embed.bytes("cat", "main:model.safetensors", "embed.weight", "--raw")
        == makers.random_f32((500, 100), 2).tobytes()
    )
    assert embed.packed() == held, "what was asked for came with the clone"
    embed.fsck()
    same_version(mdl, embed, "main", tmp_path / "room")
    assert embed.packed() > held
    # A version made in a partial repository goes back whole.
    train(embed, source, range(6, 7))
    embed.run("push")
    there.fsck()
    mdl.run("pull")
    same_version(mdl, embed, "main", tmp_path / "room")


def test_a_commit_in_a_partial_clone_ends_on_a_single_thread(mdl: Mdl, tmp_path: Path) -> None:
    """The parent's tensors are brought by the threads that would otherwise wait for them."""
    source = tmp_path / "source"
    train(mdl, source, range(1))
    some = Mdl(tmp_path / "some")
    some.run("clone", mdl.repo, some.repo, "--only", "step.txt", repo_flag=False, cwd=tmp_path)
    train(Mdl(mdl.repo), source, range(1, 2))
    argv = some.argv("commit", source, "-m", "mine")
    done = subprocess.run(argv, env=some.environment({"RAYON_NUM_THREADS": "1"}), timeout=60, check=False)
    assert done.returncode == OK
    assert_same(source, some.checkout("main", tmp_path / "out"))
    some.fsck()


@pytest.mark.parametrize("left", [(), ("cloning",), ("base.new", "gc.lock", "swap.lock")], ids=len)
def test_a_clone_that_was_cut_off_at_its_beginning_goes_on(mdl: Mdl, tmp_path: Path, left: tuple[str, ...]) -> None:
    """Before it wrote where it clones from; a command may have looked at what was there."""
    train(mdl, tmp_path / "source", range(1))
    clone = Mdl.init(tmp_path / "clone")
    for name in left:
        (clone.store / name).touch()
    assert not (clone.store / "config").read_bytes()
    clone.run("clone", mdl.repo, clone.repo, repo_flag=False, cwd=tmp_path)
    assert_same(tmp_path / "source", clone.repo)
    assert not (clone.store / "cloning").exists()


def test_kills_in_the_middle_lose_no_part_that_had_come(place: tuple[str, Mdl], mdl: Mdl, tmp_path: Path) -> None:
    """Clones are killed at growing distances; each goes on where the one before was."""
    url, _ = place
    train(mdl, tmp_path / "source", range(3), elements=BIG)
    mdl.run("remote", "add", "origin", url)
    mdl.run("push")
    total = mdl.packed()
    clone = Mdl(tmp_path / "clone")
    argv = clone.argv("clone", url, str(clone.repo), repo_flag=False)
    kills = 0
    for attempt in range(8):
        process = subprocess.Popen(
            argv, cwd=tmp_path, env=clone.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(0.05 + 0.08 * attempt)
        if process.poll() is None:
            kills += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if kills and clone.repo.is_dir() and clone.commit_id("main"):
            break
    if clone.run("show", "main", code=(OK, NOT_FOUND)).code == NOT_FOUND:
        landed = tree_size(clone.store / "incoming") if (clone.store / "incoming").is_dir() else 0
        done = clone.json("clone", url, str(clone.repo), repo_flag=False, cwd=tmp_path)
        assert done["received"]["carried_bytes"] <= total * 1.05
        assert landed == 0 or done["received"]["carried_bytes"] < total * 1.05
    assert kills
    same_version(mdl, clone, "main", tmp_path / "room")
    clone.fsck()
    assert not any((clone.store / "incoming").iterdir()), "what was taken in is not kept twice"


def test_one_branch_is_cloned_and_deleted_by_what_it_is_there(place: tuple[str, Mdl], mdl: Mdl, tmp_path: Path) -> None:
    url, there = place
    train(mdl, tmp_path / "source", range(3))
    mdl.run("tag", "v1")
    mdl.run("remote", "add", "origin", url)
    mdl.run("push", "--tags", "origin", "main", "main~1:side")
    one = Mdl(tmp_path / "one")
    one.run("clone", url, str(one.repo), "--depth", "1", repo_flag=False, cwd=tmp_path)
    one.run("fetch")
    assert (one.commit_id("origin/main"), one.commit_id("origin/side"), one.commit_id("v1")) == (
        mdl.commit_id("main"),
        None,
        None,
    )
    one.run("fetch", "origin", "side", "v1")
    assert (one.commit_id("origin/side"), one.commit_id("v1")) == (mdl.commit_id("main~1"), mdl.commit_id("v1"))
    one.fsck()
    # The tag is at the remote only.
    mdl.run("tag", "-d", "v1")
    mdl.run("push", "origin", "--delete", "v1")
    mdl.run("push", url, "--delete", "side")
    assert [r["name"] for r in mdl.json("ls-remote")["refs"]] == ["refs/heads/main"]
    mdl.run("push", "origin", "--delete", "v1", code=NOT_FOUND).complains("ls-remote")
    there.fsck()


def test_a_server_that_says_no_is_told_with_what_helps(tmp_path: Path, mdl: Mdl) -> None:
    root = tmp_path / "root"
    Mdl.init(root / "team" / "model", "--bare")
    with Server(root) as server:
        for path in ("team/model/extra", "team/nope"):
            said = mdl.run("clone", f"{server.url}/{path}", "x", code=NOT_FOUND, repo_flag=False, cwd=tmp_path)
            said.complains("repository not found", "/OWNER/NAME")
        create_token(root)
        said = mdl.run("ls-remote", f"{server.url}/team/model", code=USER)
        said.complains("MDL_TOKEN", "credentials.json")
        assert said.err.count("mdl token create") == 1
        assert "Authorization" not in said.err


def test_a_credentials_file_that_others_can_read_is_not_used(tmp_path: Path, mdl: Mdl) -> None:
    loose = tmp_path / "credentials.json"
    loose.write_text('{"http://127.0.0.1:1": {"token": "s3cr3t"}}')
    loose.chmod(0o644)
    mdl.run("remote", "add", "origin", "http://127.0.0.1:1/a/b")
    said = mdl.run("fetch", code=USER, env={"MDL_CREDENTIALS": str(loose)})
    said.complains("chmod 600")
    assert "s3cr3t" not in said.err


def test_a_clone_without_files_takes_none_for_deleted(mdl: Mdl, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "weights.bin").write_bytes(b"weights")
    mdl.commit(source, "whole")
    clone = Mdl(tmp_path / "clone")
    clone.run("clone", "--no-checkout", str(mdl.repo), str(clone.repo), repo_flag=False, cwd=tmp_path)
    assert clone.json("status")["clean"]
    (clone.repo / "new.txt").write_text("mine")
    clone.run("commit", "-m", "mine", code=4).complains("were not taken from it")
    clone.run("checkout", "main")
    clone.run("commit", "-m", "mine")
    assert sorted(p.name for p in clone.checkout("main", tmp_path / "out").iterdir()) == ["new.txt", "weights.bin"]
