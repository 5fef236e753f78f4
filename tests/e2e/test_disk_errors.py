"""A full disk and a failing one: a clear error with exit code 6, nothing lost, and a retry that works."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import faults, makers
from support.cli import IO, OK, Mdl, assert_same, copy_tree
from support.disks import tmpfs

MIB = 1 << 20
_reason = faults.why_not()
needs_strace = pytest.mark.skipif(_reason is not None, reason=f"EIO injection: {_reason}")
if _reason:
    warnings.warn(f"the EIO tests are SKIPPED: {_reason}", stacklevel=1)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 12 MiB; mounting it needs root."""
    with tmpfs(tmp_path / "disk", 12) as disk:
        yield disk


def fill(path: Path, leave: int) -> None:
    """Takes the disk's free space but for `leave` bytes."""
    free = shutil.disk_usage(path.parent).free
    path.write_bytes(bytes(max(0, free - leave)))


def test_commit_on_a_full_disk(tiny_disk: Path, tmp_path: Path) -> None:
    first, second = makers.noise(tmp_path / "first", 2 * MIB, 1), makers.noise(tmp_path / "second", 4 * MIB, 2)
    mdl = Mdl.init(tiny_disk / "repo")
    mdl.commit(first, "first")
    tip = mdl.commit_id("main")
    for leave in (3 * MIB, MIB, 64 << 10, 4096, 0):
        fill(tiny_disk / "filler", leave)
        mdl.run("commit", second, "-m", "second", code=IO).complains("space")
        assert mdl.commit_id("main") == tip
        assert_same(first, mdl.checkout("main", tmp_path / f"out-{leave}"))
        mdl.fsck()
        (tiny_disk / "filler").unlink()
    mdl.commit(second, "second")
    assert mdl.log("main")[1]["id"] == tip
    assert_same(second, mdl.checkout("main", tmp_path / "out-second"))
    mdl.run("gc", "--prune-now")
    assert mdl.size() < 7 * MIB, "the failed commits left their data behind"
    mdl.fsck()


def test_checkout_to_a_full_disk(tiny_disk: Path, tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    mdl.commit(makers.noise(tmp_path / "large", 8 * MIB, 3), "large")
    fill(tiny_disk / "filler", 4 * MIB)
    mdl.run("checkout", "main", "--to", tiny_disk / "out", code=IO).complains("space")
    (tiny_disk / "filler").unlink()
    mdl.run("checkout", "main", "--to", tiny_disk / "out", "--force")
    assert_same(tmp_path / "large", tiny_disk / "out")


# --- EIO and ENOSPC at chosen system calls ---------------------------------------------------------------------------


def store_points(mdl: Mdl, folder: Path, log: Path) -> list[faults.Call]:
    """The calls of a commit that touch the store and not its disposable index or a pipe."""
    calls = faults.calls_of(mdl.argv("commit", folder, "-m", "x"), log, mdl.environment(ONE_THREAD), mdl.repo)
    inside = [c for c in calls if c.path.startswith(str(mdl.store)) and not c.path.startswith(str(mdl.index))]
    assert inside, "the traced commit touched no file of the store"
    return inside


ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MDL_THREADS": "1"}
WRITING = ("write", "pwrite64", "fsync", "fdatasync", "rename", "renameat", "renameat2", "link", "linkat")


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_every_kind_of_call_failing_once(error: str, small: Mdl, tmp_path: Path) -> None:
    """Each kind of system call that a commit makes in the store fails at its first, middle and last occurrence."""
    # With a cache to give up, a commit that finds the disk full once goes on.
    small.run("config", "cache.size", "0")
    shutil.rmtree(small.store / "cache", ignore_errors=True)
    new = tmp_path / "new"
    new.mkdir()
    makers.write_small_checkpoint(new, 77)
    calls = store_points(Mdl(copy_tree(small.repo, tmp_path / "count")), new, tmp_path / "trace.log")
    names = [name for name in WRITING if any(c.name == name for c in calls)]
    assert {"fsync", "fdatasync"} & set(names), "a commit that never syncs"
    refused, tip = 0, small.commit_id("main")
    for name in names:
        own = sorted({c.nth for c in calls if c.name == name})
        for nth in sorted({own[0], own[len(own) // 2], own[-1]}):
            mdl = Mdl(copy_tree(small.repo, tmp_path / f"{name}-{nth}"))
            done = mdl.run(
                "commit", new, "-m", "x", code=(OK, IO), env=ONE_THREAD, prefix=faults.failing_once(name, nth, error)
            )
            what = f"{error} at {name} number {nth}"
            head = mdl.log("main")[0]
            if done.code == IO:
                refused += 1
                done.complains()
                assert head["id"] == tip or head["message"].strip() == "x", what
            else:
                assert head["message"].strip() == "x", f"{what}: reported success without a commit"
                assert_same(new, mdl.checkout("main", tmp_path / f"out-{name}-{nth}"))
            mdl.fsck()
            mdl.run("commit", new, "-m", "retry", "--allow-empty")
            assert_same(new, mdl.checkout("main", tmp_path / f"retry-{name}-{nth}"))
    assert refused >= len(names) / 2, f"only {refused} failures were noticed over {names}"


@needs_strace
def test_a_disk_that_never_syncs_commits_nothing(small: Mdl, tmp_path: Path) -> None:
    """With every fsync and fdatasync failing a commit may not report success."""
    new = tmp_path / "new"
    new.mkdir()
    makers.write_small_checkpoint(new, 78)
    tip = small.commit_id("main")
    small.run("commit", new, "-m", "x", code=IO, prefix=faults.failing("fsync,fdatasync", 1, "EIO")).complains()
    assert small.commit_id("main") == tip
    small.fsck()
    small.commit(new, "x")
    assert_same(new, small.checkout("main", tmp_path / "out"))


def test_unwritable_target_folder(small: Mdl, tmp_path: Path) -> None:
    """A path below a file cannot be made, root or not."""
    (tmp_path / "file").write_text("in the way\n")
    small.run("checkout", "main", "--to", tmp_path / "file" / "out", code=(1, IO)).complains()


def test_missing_source(small: Mdl, tmp_path: Path) -> None:
    small.run("commit", tmp_path / "nowhere", "-m", "x", code=(1, 3, IO)).complains("nowhere")
    assert not os.path.exists(tmp_path / "nowhere")
