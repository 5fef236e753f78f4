"""Verbs about other places and about what is stored, their progress, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import mdl
import numpy as np
import pytest
from mdl.bars import Bars, size


def weights(seed: int, rows: int = 64) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(seed).standard_normal((rows, 64)).astype("f4")}


@pytest.fixture
def history(repo: mdl.Repo) -> mdl.Repo:
    for step in (10, 20, 30):
        repo.commit({"model": weights(step)}, step=step, metrics={"loss": 1 / step}, wait=True)
    return repo


def test_opens_or_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(mdl.NotFoundError, match=r"mdl\.init\('.*runs/x'\).*create=True"):
        mdl.Repo(tmp_path / "runs" / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(mdl.NotFoundError, match="create=True"):
        mdl.Repo(tmp_path / "empty")
    made = mdl.Repo(tmp_path / "runs" / "x", create=True)
    made.commit({"model": weights(1)}, step=1, wait=True)
    assert mdl.Repo(tmp_path / "runs" / "x").show().step == 1
    assert mdl.Repo(tmp_path / "runs" / "x", create=True).show().step == 1
    assert mdl.init(tmp_path / "runs" / "x").show().step == 1


def test_a_clone_pulls_pushes_and_is_told_what_moved(history: mdl.Repo, tmp_path: Path) -> None:
    copy = mdl.clone(history.path, tmp_path / "copy")
    assert copy.remotes() == {"origin": str(history.path)}
    assert copy.verify(tmp_path / "copy" / "model.safetensors")
    made = history.commit({"model": weights(40)}, step=40, wait=True)
    fetched = copy.fetch()
    assert (fetched.objects > 0, fetched.carried_bytes > 0) == (True, True)
    assert fetched.moved == [mdl.RefMove("refs/remotes/origin/main", made.parents[0], made.id)]
    assert copy.show().step == 30
    assert (copy.pull().updated, copy.pull().updated, copy.show().id) == (True, False, made.id)
    mine = copy.commit({"model": weights(50)}, step=50, wait=True)
    pushed = copy.push()
    assert pushed.moved == [mdl.RefMove("refs/heads/main", made.id, mine.id)]
    assert pushed.sent_bytes > 0
    assert mdl.Repo(history.path).resolve("main") == mine.id
    assert copy.resolve("origin/main") == mine.id
    copy.branch("side")
    copy.tag("v1")
    names = [move.name for move in copy.push(refs=["side", "main:elsewhere"], tags=True).moved]
    assert names == ["refs/heads/side", "refs/heads/elsewhere", "refs/tags/v1"]
    assert copy.push(refs="side", delete=True).moved[0].new is None
    assert copy.push(refs="main").moved == []


def test_what_is_not_there_or_would_be_lost_is_refused(history: mdl.Repo, tmp_path: Path) -> None:
    copy = mdl.clone(history.path, tmp_path / "copy")
    with pytest.raises(mdl.UserError, match="not empty"):
        mdl.clone(history.path, tmp_path / "copy")
    with pytest.raises(mdl.UserError, match=r"add_remote"):
        history.push()
    for wrong in (lambda: copy.push("nowhere"), lambda: copy.push(refs="no"), lambda: copy.fetch(branches="no")):
        with pytest.raises(mdl.NotFoundError):
            wrong()
    history.commit({"model": weights(41)}, step=41, wait=True)
    mine = copy.commit({"model": weights(42)}, step=42, wait=True)
    with pytest.raises(mdl.ConflictError):
        copy.push()
    with pytest.raises(mdl.ConflictError, match="parted"):
        copy.pull()
    copy.push(force=True)
    assert mdl.Repo(history.path).resolve("main") == mine.id
    copy.add_remote("other", tmp_path / "nothing")
    assert copy.remotes()["other"] == str(tmp_path / "nothing")
    with pytest.raises(mdl.NotFoundError):
        copy.push("other")
    copy.remove_remote("other")
    assert list(copy.remotes()) == ["origin"]
    copy.remove_remote("origin")
    with pytest.raises(mdl.NotFoundError):
        copy.resolve("origin/main")


def test_a_part_is_cloned_and_the_rest_comes_when_it_is_read(history: mdl.Repo, tmp_path: Path) -> None:
    copy = mdl.clone(history.path, tmp_path / "copy", depth=1, checkout=False)
    assert not (tmp_path / "copy" / "model.safetensors").exists()
    assert copy.fsck().not_fetched > 0
    with pytest.raises(mdl.UserError, match="would be lost"):
        copy.remove_remote("origin")
    copy.add_remote("origin", history.path)
    with pytest.raises(mdl.UserError, match="would be lost"):
        copy.remove_remote("origin")
    assert np.array_equal(copy.load("main~2")["model"]["w"], weights(10)["w"])


def test_what_no_name_reaches_is_freed(history: mdl.Repo) -> None:
    before = history.stats()
    assert (before.commits, before.ratio > 1, before.branches[0]["name"]) == (3, True, "main")
    history.reset("HEAD~1")
    assert history.show().step == 20
    dry = history.gc(dry_run=True, prune_now=True)
    assert (dry.dry_run, dry.freed_bytes > 0, history.stats().packs) == (True, True, before.packs)
    assert history.gc().freed_bytes == 0, "the reflog and the grace keep it"
    assert history.gc(prune_now=True).freed_bytes == dry.freed_bytes
    done = history.compact()
    assert (done.packs_after, history.stats().packs) == (1, 1)


def test_damage_is_found(history: mdl.Repo, tmp_path: Path) -> None:
    assert history.fsck()
    assert history.fsck(quick=True)
    history.checkout("HEAD", tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    assert history.verify(file)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert history.verify(file).first_difference == len(data) - 1
    assert not history.verify(file)
    pack = max((history.path / "packs").rglob("*"), key=lambda p: p.stat().st_mtime if p.is_file() else 0)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)
    report = history.fsck()
    assert not report
    assert report.problems[0].reason


def test_progress_is_told_and_an_exception_of_it_ends_the_work(history: mdl.Repo) -> None:
    seen: list[tuple[str | None, int, int]] = []
    big = {"model": {"w": np.random.default_rng(0).standard_normal((4096, 4096)).astype("f4")}}
    history.commit(big, step=40, wait=True)

    def slowly(what: str | None, done: int, total: int) -> None:
        seen.append((what, done, total))

    while not any(what for what, _, _ in seen):
        history.fsck(progress=slowly)
    assert all(0 <= done <= total or not total for _, done, total in seen)

    def stop(*_: object) -> None:
        raise RuntimeError("enough")

    def until_stopped() -> None:
        for _ in range(100):
            history.fsck(progress=stop)

    with pytest.raises(RuntimeError, match="enough"):
        until_stopped()
    assert history.fsck(), "and the repository is sound"


INTERRUPTED = """
import sys, threading, numpy as np, mdl
repo = mdl.Repo(sys.argv[1])
print("ready", flush=True)
try:
    while True:
        repo.fsck(progress=False)
except KeyboardInterrupt:
    print("interrupted", bool(repo.fsck()))
"""


def test_ctrl_c_ends_long_work(history: mdl.Repo) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(history.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted True\n"


def test_what_is_raised_meanwhile_is_raised_though_the_work_ends_well(history: mdl.Repo, tmp_path: Path) -> None:
    """Else a loop of such work could not be stopped."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def show(*_: object) -> None:
        # The work waits in `open` and looks at nothing after it.
        threading.Timer(0.3, lambda: pipe.open("wb").close()).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        history.verify(pipe, path="model.safetensors", progress=show)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf")])
def test_a_time_of_grace_that_is_none_is_refused(history: mdl.Repo, grace: float) -> None:
    with pytest.raises(mdl.UsageError, match="grace="):
        history.gc(grace=grace)
    assert history.gc(grace=0.5).freed_bytes == 0


def test_a_bar_is_drawn_without_tqdm_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    bars = Bars(0)
    for done in (0, 1 << 19, 1 << 20):
        bars("receiving", done, 1 << 20)
    bars("adding up", 3, 0)
    bars.close()
    drawn = capsys.readouterr().err
    assert "receiving  50% [============            ] 512.0 KiB of 1.0 MiB" in drawn
    assert drawn.endswith("\r")
    assert size(1023) == "1023 B"


def test_a_bar_of_tqdm_goes_as_far(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    bars = Bars(0)
    bars("receiving", 1 << 19, 1 << 20)
    assert bars._bar._bar.n == 1 << 19
    bars(None, 0, 0)
    assert bars._bar is None


@pytest.mark.parametrize("progress", [False, None])
def test_no_bar_is_drawn_where_nobody_looks(
    history: mdl.Repo, progress: bool | None, capfd: pytest.CaptureFixture[str]
) -> None:
    history.fsck(progress=progress)
    assert capfd.readouterr() == ("", "")


def test_numbers_of_any_kind_are_taken_and_others_refused_by_name(repo: mdl.Repo) -> None:
    torch = pytest.importorskip("torch")
    made = repo.commit(
        {"model": weights(1)}, step=np.int64(7), epoch=torch.tensor(0.5), wait=True,
        metrics={"a": torch.tensor(1.5, requires_grad=True), "b": np.float32(2), "c": None, "d": np.array([3.0])},
        meta={"note": "x", "none": None},
    )  # fmt: skip
    assert (made.step, made.epoch, made.meta) == (7, 0.5, {"note": "x"})
    assert made.metrics == {"a": 1.5, "b": 2.0, "d": 3.0}
    assert repo.commit({"model": weights(2)}, step=torch.tensor(2**53 - 1), wait=True).step == 2**53 - 1

    wrong: list[tuple[str, dict[str, object]]] = [
        ("step", {"step": 1.5}), ("step", {"step": True}), ("step", {"step": -1}), ("step", {"step": "3"}),
        ("step", {"step": torch.zeros(2)}), ("step", {"step": float("nan")}), ("epoch", {"epoch": "x"}),
        ("metric 'loss'", {"metrics": {"loss": "low"}}), ("metric 'loss'", {"metrics": {"loss": np.zeros(3)}}),
    ]  # fmt: skip
    for name, said in wrong:
        with pytest.raises(mdl.UsageError, match=name):
            repo.commit({"model": weights(3)}, wait=True, **said)
    assert len(repo.log()) == 2


def test_names_of_the_package_hide_none_of_the_programs() -> None:
    import typing

    space: dict[str, object] = {}
    exec("from typing import *\nfrom mdl import *\nfrom mdl.retention import *", space)
    assert space["Any"] is typing.Any
    assert "retention" not in space or space["retention"] is not mdl.retention
    assert all(hasattr(mdl, name) for name in mdl.__all__)
    assert {"Compressor", "retention"} <= set(dir(mdl))


def test_a_registered_type_comes_back(repo: mdl.Repo, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    class Tokenizer:
        def __init__(self, words: list[str]) -> None:
            self.words = words

    with pytest.raises(mdl.StateError, match="tokenizer"):
        repo.commit({"model": weights(1), "tokenizer": Tokenizer(["a"])}, wait=True)
    mdl.register(Tokenizer, "Tokenizer", lambda t: t.words, Tokenizer)
    repo.commit({"model": weights(1), "tokenizer": Tokenizer(["a", "b"])}, wait=True)
    assert repo.load()["tokenizer"].words == ["a", "b"]
    told = run("import sys, mdl\nmdl.Repo(sys.argv[1]).load()", str(repo.path), check=False)
    assert "StateError" in told.stderr
    assert "Tokenizer" in told.stderr
