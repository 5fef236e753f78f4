"""No stored data is lost: failed reads, healed damage, partial repositories, ranks beside gc, lost locks, settings."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support import faults, makers
from support.cli import CONFLICT, CORRUPT, IO, OK, Mdl, assert_same, copy_tree
from support.tensors import Tensor, write_safetensors

_reason = faults.why_not()
needs_strace = pytest.mark.skipif(_reason is not None, reason=f"fault injection: {_reason}")
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MDL_THREADS": "1"}
OLD = 48 * 3600


def state(folder: Path, *drifts: int, shape: tuple[int, int] = (256, 256)) -> Path:
    """A checkpoint of one tensor: the same values, moved a little by each drift in turn."""
    values = makers.random_f32(shape, 1)
    for seed in drifts:
        values = (values + np.float32(1e-4) * makers.random_f32(shape, 100 + seed)).astype(np.float32)
    write_safetensors(folder / "model.safetensors", [Tensor.of("weight", values)])
    return folder


def packs(mdl: Mdl) -> list[Path]:
    return sorted((mdl.store / "packs").glob("*.pack"), key=lambda p: p.stat().st_mtime_ns)


def flip(pack: Path) -> None:
    """Changes one byte of the tensor that takes most of a pack."""
    bytes_ = bytearray(pack.read_bytes())
    bytes_[len(bytes_) // 2] ^= 0x40
    pack.chmod(0o644)
    pack.write_bytes(bytes_)


def age(mdl: Mdl) -> None:
    """Makes everything stored so far older than gc's time of grace."""
    then = time.time() - OLD
    for path in packs(mdl):
        os.utime(path, (then, then))


def depths(mdl: Mdl, rev: str) -> list[int]:
    return [t["depth"] for t in mdl.tensors(rev).values()]


@pytest.fixture
def chain(mdl: Mdl, tmp_path: Path) -> tuple[Mdl, list[Path]]:
    """Three versions, each a difference to the one before; the first is stored whole."""
    folders = [state(tmp_path / f"v{i}", *range(i)) for i in range(3)]
    for i, folder in enumerate(folders):
        mdl.commit(folder, f"v{i}")
    return mdl, folders


# --- a copy that could not be read once ------------------------------------------------------------------------------


@needs_strace
def test_one_failed_read_of_a_check_costs_no_version(chain: tuple[Mdl, list[Path]], tmp_path: Path) -> None:
    """Each read of `fsck` fails once in turn; then the first version's contents are committed anew, and gc runs."""
    original, folders = chain
    noticed = 0
    log = tmp_path / "trace.log"
    counted = Mdl(copy_tree(original.repo, tmp_path / "count"))
    strace = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=pread64"]
    subprocess.run(
        [*strace, *counted.argv("fsck")],
        env=counted.environment(ONE_THREAD),
        cwd=counted.repo,
        check=True,
        capture_output=True,
    )
    calls = faults.parse_log(log.read_bytes())
    first = packs(counted)[0].name
    threads = {c.thread for c in calls if c.path.endswith(first)}
    most = max(sum(c.thread == t and c.path.endswith(first) for c in calls) for t in threads)
    assert most > 1, "fsck reads packs by pread64"
    for nth in range(1, most + 1):
        mdl = Mdl(copy_tree(original.repo, tmp_path / f"at-{nth}"))
        only = ["-P", str(mdl.store / "packs" / first)]
        once = faults.failing_once("pread64", nth, "EIO")
        done = mdl.run("fsck", code=(OK, CORRUPT, IO), env=ONE_THREAD, prefix=[once[0], *only, *once[1:]])
        noticed += done.code != OK
        mdl.commit(folders[0], "the first again")
        mdl.run("gc", "--prune-now")
        for rev, folder in (("main", 0), ("main~1", 2), ("main~2", 1), ("main~3", 0)):
            assert_same(folders[folder], mdl.checkout(rev, tmp_path / f"out-{nth}-{rev}"))
        mdl.fsck()
        shutil.rmtree(mdl.repo)
    assert noticed > 0, "no failed read was noticed"


def test_what_stands_on_a_damaged_tensor_is_whole_again_once_its_content_is_committed(mdl: Mdl, tmp_path: Path) -> None:
    """The content comes back as `fsck` advises, on a branch whose chain is intact and deep."""
    folders = [state(tmp_path / f"v{i}", *range(i)) for i in range(4)]
    mdl.commit(folders[0], "v0")
    mdl.commit(folders[1], "v1")
    mdl.run("config", "delta.max_depth", "0")
    mdl.commit(folders[3], "v3", "--branch", "side")
    mdl.run("config", "delta.max_depth", "16")
    mdl.commit(folders[2], "v2", "--branch", "side")
    flip(packs(mdl)[0])
    mdl.run("fsck", code=CORRUPT)
    mdl.commit(folders[0], "v0 again", "--branch", "side")
    for when in ("before", "after"):
        for rev, i in (("side", 0), ("side~1", 2), ("side~2", 3), ("main", 1), ("main~1", 0)):
            assert_same(folders[i], mdl.checkout(rev, tmp_path / f"{when}-{rev}"))
        mdl.run("gc", "--prune-now")
    mdl.fsck()


def test_a_copy_that_reads_well_again_is_taken_off_the_list(chain: tuple[Mdl, list[Path]], tmp_path: Path) -> None:
    mdl, folders = chain
    pack = packs(mdl)[0]
    good = pack.read_bytes()
    flip(pack)
    mdl.run("fsck", code=CORRUPT)
    assert (mdl.store / "unreadable").is_file()
    pack.write_bytes(good)
    mdl.run("fsck", "--quick")
    assert not (mdl.store / "unreadable").exists()
    before = mdl.size()
    mdl.commit(folders[0], "the first again")
    assert mdl.size() < before + (64 << 10), "nothing had to be stored again"


def test_a_fetch_heals_what_stands_on_a_damaged_tensor(mdl: Mdl, tmp_path: Path) -> None:
    """The other side has the damaged tensor far down a chain; here something is a difference to it at depth 1."""
    folders = [state(tmp_path / f"v{i}", *range(i)) for i in range(4)]
    there = Mdl.init(tmp_path / "there")
    for i in (3, 2, 1):
        there.commit(folders[i], f"v{i}")
    mdl.commit(folders[1], "v1")
    mine = state(tmp_path / "mine", 0, 7)
    mdl.commit(mine, "mine")
    flip(packs(mdl)[0])
    mdl.run("fsck", code=CORRUPT)
    mdl.run("remote", "add", "there", there.repo)
    mdl.run("fetch", "there")
    assert_same(folders[1], mdl.checkout("main~1", tmp_path / "healed"))
    assert_same(mine, mdl.checkout("main", tmp_path / "mine-again"))
    mdl.run("gc", "--prune-now")
    assert_same(mine, mdl.checkout("main", tmp_path / "mine-after-gc"))
    mdl.fsck()


# --- partial repositories --------------------------------------------------------------------------------------------


@pytest.fixture
def partial(tmp_path: Path) -> tuple[Mdl, Mdl, Path]:
    """An origin with a model and a small file, a clone that holds only the small one, and the model's folder."""
    origin = Mdl.init(tmp_path / "origin", "--bare")
    folder = state(tmp_path / "full", 1)
    (folder / "config.json").write_text('{"layers": 1}\n')
    origin.commit(folder, "first")
    clone = Mdl(tmp_path / "clone")
    clone.run("clone", origin.repo, clone.repo, "--only", "config.json", repo_flag=False, cwd=tmp_path)
    return origin, clone, folder


def test_a_commit_in_a_partial_repository_stores_what_it_says(partial: tuple[Mdl, Mdl, Path], tmp_path: Path) -> None:
    """The file's state is known from `status`, its manifest came with the clone, its tensors did not."""
    origin, clone, folder = partial
    for name in ("model.safetensors", "config.json"):
        shutil.copyfile(folder / name, clone.repo / name)
    time.sleep(2.5)
    clone.run("reset", "main")
    clone.run("status")
    clone.run("commit", "-m", "mine", "--step", "5")
    origin.repo.rename(tmp_path / "gone")
    assert_same(folder, clone.checkout("main", tmp_path / "out"))
    clone.fsck()


def test_a_check_tells_what_was_not_fetched_from_what_was_lost(partial: tuple[Mdl, Mdl, Path], tmp_path: Path) -> None:
    _, clone, _ = partial
    assert clone.json("fsck")["not_fetched"] > 0
    mine = state(tmp_path / "mine", 9, shape=(128, 128))
    before = set(packs(clone))
    clone.run("shard", "put", "--session", "s", "--rank", "0", mine)
    put = set(packs(clone)) - before
    clone.run("shard", "join", "--session", "s", "--ranks", "1", "-m", "mine")
    clone.fsck()
    for pack in put:
        pack.unlink()
    clone.run("fsck", code=CORRUPT).complains()


# --- ranks beside gc -------------------------------------------------------------------------------------------------


def test_what_a_rank_has_put_stays_even_where_all_of_it_was_stored_before(mdl: Mdl, tmp_path: Path) -> None:
    first, again = state(tmp_path / "first", 1), state(tmp_path / "again", 2, shape=(192, 192))
    mdl.commit(first, "first")
    mdl.run("branch", "side")
    mdl.commit(again, "side", "--branch", "side")
    mdl.run("branch", "-D", "side")
    mdl.run("config", "gc.reflog_days", "0")
    age(mdl)
    mdl.run("shard", "put", "--session", "s", "--rank", "0", again)
    mdl.run("gc")
    mdl.run("shard", "join", "--session", "s", "--ranks", "1", "-m", "joined")
    assert_same(again, mdl.checkout("main", tmp_path / "out"))
    mdl.fsck()


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("timing")
def test_a_command_that_waits_for_a_lock_says_for_whom(chain: tuple[Mdl, list[Path]]) -> None:
    mdl, _ = chain
    with (mdl.store / "gc.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        gc = subprocess.Popen(
            mdl.argv("gc"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=mdl.environment()
        )
        with pytest.raises(subprocess.TimeoutExpired):
            gc.wait(4)
    _, err = gc.communicate(timeout=60)
    assert gc.returncode == OK
    assert "waiting for" in err
    assert str(os.getpid()) in err
    assert err.count("waiting for") == 1


@pytest.mark.xdist_group("timing")
@needs_strace
def test_a_lock_file_deleted_beside_a_commit_lets_no_branch_name_what_is_gone(
    chain: tuple[Mdl, list[Path]], tmp_path: Path
) -> None:
    """The commit is held up before its ref moves; then its lock file is deleted, and a collection runs."""
    mdl, _folders = chain
    new = state(tmp_path / "new", 5, shape=(64, 64))
    tip, before = mdl.commit_id("main"), set(packs(mdl))
    # A move is in the log, durably, before the ref moves: there it is held up.
    log = mdl.store / "logs" / "refs%2Fheads%2Fmain"
    assert log.is_file()
    slow = ["strace", "-f", "-o", tmp_path / "trace.log", "-P", log]
    slow += ["-e", "inject=fsync,fdatasync:delay_exit=5000000:when=1"]
    commit = subprocess.Popen(
        [*map(str, slow), *mdl.argv("commit", new, "-m", "x")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=mdl.environment(ONE_THREAD),
    )
    until = time.monotonic() + 30
    while set(packs(mdl)) == before and time.monotonic() < until:
        time.sleep(0.05)
    assert set(packs(mdl)) > before
    time.sleep(1)
    (mdl.store / "gc.lock").unlink()
    mdl.run("gc", "--prune-now")
    _, err = commit.communicate(timeout=60)
    assert "DELAYED" in (tmp_path / "trace.log").read_text()
    assert commit.returncode == CONFLICT, err
    assert mdl.commit_id("main") == tip
    mdl.fsck()
    mdl.commit(new, "again")
    assert_same(new, mdl.checkout("main", tmp_path / "out"))


# --- settings --------------------------------------------------------------------------------------------------------


def test_no_setting_is_lost_where_many_are_made_at_once(mdl: Mdl) -> None:
    runs = [("remote", "add", f"r{i}", f"/nowhere/{i}") for i in range(20)]
    runs += [("config", "user.name", f"ada {i}") for i in range(20)]
    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(mdl.run, *args) for args in runs]:
            done.result()
    names = {row["name"] for row in mdl.json("remote")["remotes"]}
    assert names == {f"r{i}" for i in range(20)}


def test_of_two_remotes_of_one_name_one_is_refused(mdl: Mdl) -> None:
    """Eight adds of one name: one wins, and the others say that there is one."""
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(mdl.run, "remote", "add", "origin", f"/nowhere/{i}", code=(0, 1)) for i in range(8)]
        codes = [run.result().code for run in runs]
    assert sorted(codes) == [0] + [1] * 7
