"""Repositories in a bucket: work trees, pushes, servers, gc and sharded commits over S3, against moto.

`make test-s3` runs the same against SeaweedFS (MDL_S3=seaweedfs), with more rounds (MDL_S3_ROUNDS) and a larger model
(MDL_S3_MODEL_MB).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import buckets, makers, scale
from support.buckets import Bucket
from support.cli import CONFLICT, OK, Mdl, assert_same
from support.server import Server, create_token
from support.tensors import Tensor, write_safetensors

ROUNDS = int(os.environ.get("MDL_S3_ROUNDS", "3"))
PUSHERS = scale.rounds(6, 16)
MODEL_MB = scale.rounds(8, 16, "MDL_S3_MODEL_MB")

pytestmark = pytest.mark.xdist_group("bucket")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    folder = tmp_path_factory.mktemp("s3")
    kind = buckets.seaweedfs if os.environ.get("MDL_S3") == "seaweedfs" else buckets.moto
    with kind(folder) as bucket:
        yield bucket


@pytest.fixture
def url(server: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own, and an environment that reaches it."""
    for key, value in server.environment.items():
        monkeypatch.setenv(key, value)
    return f"{server.url}/{tmp_path.name}"


def model(folder: Path, seed: int, elements: int = 50_000) -> Path:
    folder.mkdir(exist_ok=True)
    tensors = [Tensor.of("w", makers.random_f32((elements,), seed)), Tensor.of("b", makers.random_f32((64,), 1))]
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return folder


def test_work_trees_share_a_bucket(url: str, tmp_path: Path) -> None:
    a, b = Mdl.init(tmp_path / "a", "--storage", url), Mdl.init(tmp_path / "b", "--storage", url)
    source = model(tmp_path / "source", 1)
    first = a.commit(source, "first", "--step", "1")["commit"]
    assert [e["id"] for e in b.log("main")] == [first]
    assert_same(b.checkout("main", tmp_path / "out"), source)
    model(source, 2)
    second = b.commit(source, "second")["commit"]
    assert a.commit_id("main") == second
    a.run("branch", "exp", first)
    b.run("tag", "v1", first, "-m", "one")
    assert (b.commit_id("exp"), a.commit_id("v1")) == (first, first)
    a.run("branch", "-d", "exp")
    assert b.run("show", "exp", code=3)
    assert len(a.json("reflog", "main")) == 2
    a.fsck()
    # Where HEAD is is each work tree's own.
    a.run("switch", "-c", "mine")
    assert b.json("status")["branch"] == "main"
    Mdl(tmp_path / "a").run("compact")
    b.fsck()
    assert_same(b.checkout("main", tmp_path / "again"), source)


def test_what_a_work_tree_stands_on_by_itself_is_not_collected(url: str, tmp_path: Path) -> None:
    a, b = Mdl.init(tmp_path / "a", "--storage", url), Mdl.init(tmp_path / "b", "--storage", url)
    a.commit(model(tmp_path / "source", 1), "main")
    b.run("checkout", "--force", "main~0")
    kept = model(tmp_path / "kept", 2)
    alone = b.commit(kept, "on no branch")["commit"]
    left = b.commit(model(tmp_path / "left", 3), "left behind")["commit"]
    b.run("reset", alone)
    time.sleep(1.1)
    for _ in range(2):
        a.run("gc", "--grace", "1s", "--prune-now")
        time.sleep(1.1)
    assert_same(b.checkout("HEAD", tmp_path / "out"), kept)
    b.fsck()
    # What HEAD's log alone remembers goes with --prune-now, and not before.
    b.run("show", left, code=3)
    b.run("switch", "--force", "main")
    a.run("gc", "--grace", "1s")
    time.sleep(1.1)
    a.run("gc", "--grace", "1s")
    assert_same(b.checkout(alone, tmp_path / "again"), kept)
    a.fsck()


def test_nobody_puts_old_files_back_unasked(url: str, tmp_path: Path) -> None:
    a, b = Mdl.init(tmp_path / "a", "--storage", url), Mdl.init(tmp_path / "b", "--storage", url)
    for work, seed in ((a, 1), (b, 2)):
        model(work.repo, seed)
    first = a.run("commit", "-m", "first").code
    assert first == OK
    theirs = b.run("commit", "-m", "over it", code=CONFLICT)
    theirs.complains("the files here were not taken from it", "mdl checkout main")
    b.run("checkout", "main", code=1).complains("not committed")
    b.run("checkout", "main", "--force")
    assert_same(b.checkout("main", tmp_path / "out"), model(tmp_path / "one", 1))
    model(b.repo, 3)
    b.run("commit", "-m", "second")
    a.run("status").names("main was moved to")
    assert a.json("status")["clean"]
    a.run("commit", "-m", "nothing of mine", "--allow-empty", code=CONFLICT)
    a.run("checkout", "main")
    assert (a.repo / "model.safetensors").read_bytes() == (b.repo / "model.safetensors").read_bytes()
    a.run("commit", "-m", "on top", "--allow-empty")
    assert [e["message"] for e in a.log("main")] == ["on top", "second", "first"]


def test_push_clone_and_pull_by_way_of_a_bucket(url: str, mdl: Mdl, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for seed in range(3):
        mdl.commit(model(source, seed), f"{seed}")
    mdl.run("remote", "add", "origin", url)
    mdl.run("push")
    clone = Mdl(tmp_path / "clone")
    clone.run("clone", url, str(clone.repo), repo_flag=False, cwd=tmp_path)
    assert_same(clone.repo, source)
    clone.fsck()
    new = mdl.commit(model(source, 9), "more")["commit"]
    mdl.run("push")
    assert clone.json("pull")["commit"] == new
    assert_same(clone.repo, source)


def test_of_many_pushes_to_one_ref_one_wins(url: str, mdl: Mdl, tmp_path: Path) -> None:
    """All clones push to one branch at once, again and again: one wins each time, and none of theirs is lost."""
    first = mdl.commit(model(tmp_path / "source", 0, 64), "start")["commit"]
    mdl.run("remote", "add", "origin", url)
    mdl.run("push")
    clones = [Mdl(tmp_path / f"clone{i}") for i in range(PUSHERS)]
    for clone in clones:
        clone.run("clone", url, str(clone.repo), repo_flag=False, cwd=tmp_path)
    won = [first]
    for step in range(1, ROUNDS + 1):
        heads = {}
        for i, clone in enumerate(clones):
            heads[i] = clone.commit(model(tmp_path / f"s{i}", step * 100 + i, 64), f"{step} of {i}")["commit"]
        with ThreadPoolExecutor(len(clones)) as pool:
            codes = list(pool.map(lambda c: c.run("push", code=(OK, CONFLICT)).code, clones))
        winners = [i for i, code in enumerate(codes) if code == OK]
        assert len(winners) == 1, codes
        won.append(heads[winners[0]])
        for clone in clones:
            clone.run("fetch")
            clone.run("reset", "--hard", "origin/main")
    logged = [e["id"] for e in clones[0].log("main")]
    assert logged == won[::-1]
    clones[0].fsck()


def test_two_servers_over_one_bucket(url: str, tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    with Server(roots[0], ("--storage", url)) as one, Server(roots[1], ("--storage", url)) as two:
        mdl = Mdl.init(tmp_path / "work")
        source = model(tmp_path / "source", 1)
        mdl.commit(source, "first")
        made = one.send("POST", "/api/v1/repos", {"name": "team/model"})
        assert made.status < 300, made
        mdl.run("remote", "add", "one", f"{one.url}/team/model")
        mdl.run("remote", "add", "two", f"{two.url}/team/model")
        mdl.run("push", "one")
        clone = Mdl(tmp_path / "clone")
        clone.run("clone", f"{two.url}/team/model", str(clone.repo), repo_flag=False, cwd=tmp_path)
        assert_same(clone.repo, source)
        mdl.commit(model(source, 2), "second")
        mdl.run("push", "two")
        mdl.run("fetch", "one")
        assert mdl.commit_id("one/main") == mdl.commit_id("main")
        clone.run("pull")
        assert_same(clone.repo, source)


def test_a_setting_that_one_server_changes_counts_at_the_others_however_busy_they_are(url: str, tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    tokens = [create_token(root) for root in roots]
    options = ("--storage", url)
    with Server(roots[0], options, token=tokens[0]) as one, Server(roots[1], options, token=tokens[1]) as two:
        assert one.send("POST", "/api/v1/repos", {"name": "ada/open", "anonymous_read": True}).status == 201
        nobody = Server(roots[1], url=two.url)
        assert nobody.get("/api/v1/repos/ada/open").status == 200
        assert one.send("PATCH", "/api/v1/repos/ada/open", {"anonymous_read": False}).status == 200
        until = time.monotonic() + 60
        while (status := nobody.get("/api/v1/repos/ada/open").status) == 200 and time.monotonic() < until:
            pass
        assert status == 401, "what was open stays open as long as it is asked for"


def test_collections_beside_writers_lose_nothing(url: str, tmp_path: Path) -> None:
    """Four writers commit and drop branches in a bucket while collections with a short grace go on."""
    Mdl.init(tmp_path / "first", "--storage", url)
    writers = [Mdl.init(tmp_path / f"w{i}", "--storage", url) for i in range(4)]
    collector = Mdl.init(tmp_path / "gc", "--storage", url)
    kept: dict[str, Path] = {}

    def write(index: int) -> None:
        mdl = writers[index]
        for step in range(ROUNDS):
            source = model(tmp_path / f"f{index}-{step}", seed=step % 2 * 10 + index, elements=2_000)
            # A writer that is slower than the grace is told to try again.
            done = mdl.run(
                "--json", "commit", source, "-m", f"{step}", "--branch", f"b{index}-{step % 2}", "--allow-empty",
                code=(OK, CONFLICT),
            )  # fmt: skip
            if done.code == OK:
                kept[json.loads(done.out)["commit"]] = source
            if step % 3 == 2:
                mdl.run("branch", "-D", f"b{index}-{step % 2}", code=(OK, CONFLICT, 3))

    def collect() -> None:
        for _ in range(ROUNDS):
            collector.run("gc", "--grace", "2s", "--prune-now", code=(OK, CONFLICT))

    with ThreadPoolExecutor(5) as pool:
        collected = pool.submit(collect)
        for written in [pool.submit(write, i) for i in range(4)]:
            written.result()
        collected.result()
    # Logs that grew beside a collection are shortened by the next one.
    collector.run("gc", "--grace", "0", "--prune-now")
    collector.fsck()
    reached = {e["id"] for b in collector.json("branch")["branches"] for e in collector.log(b["name"])}
    assert reached & kept.keys()
    for i, commit in enumerate(sorted(reached & kept.keys())):
        assert_same(collector.checkout(commit, tmp_path / "out" / str(i)), kept[commit])


def test_ranks_commit_their_shards_to_a_bucket(url: str, tmp_path: Path) -> None:
    """Eight processes put at once, two are killed and put again, and one joins: one commit, once."""
    work = Mdl.init(tmp_path / "work", "--storage", url)
    folders = []
    for rank in range(8):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        values = Tensor.of(f"layers.{rank}.w", makers.random_f32((MODEL_MB * 250_000 // 8,), rank))
        write_safetensors(folder / f"model-{rank + 1:05}-of-00008.safetensors", [values], {"format": "pt"})
        folders.append(folder)

    def put(rank: int) -> subprocess.Popen[bytes]:
        argv = work.argv("shard", "put", "--session", "s1", "--rank", str(rank), folders[rank])
        return subprocess.Popen(argv, env=work.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    ranks = [put(rank) for rank in range(8)]
    # One before it has sent anything, one in the middle of it.
    ranks[2].kill()
    time.sleep(MODEL_MB / 100)
    ranks[5].kill()
    codes = [process.wait() for process in ranks]
    assert codes[2]
    work.run("shard", "join", "--session", "s1", "--ranks", "8", "-m", "x", code=1).complains("put nothing")
    assert work.commit_id("main") is None
    for rank, code in enumerate(codes):
        if code:
            assert put(rank).wait() == 0
    with ThreadPoolExecutor(4) as pool:
        joins = list(
            pool.map(lambda _: work.json("shard", "join", "--session", "s1", "--ranks", "8", "-m", "whole"), range(4))
        )
    assert len({j["commit"] for j in joins}) == 1
    assert len(work.log("main")) == 1
    out = work.checkout("main", tmp_path / "out")
    for folder in folders:
        for file in folder.iterdir():
            assert (out / file.name).read_bytes() == file.read_bytes()
    late = put(3).wait()
    assert late != 0
    work.fsck()
