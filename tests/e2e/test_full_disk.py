"""A full disk: every command fails with a message and changes nothing, or succeeds; commits wait where configured."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import makers, scale
from support.cli import IO, OK, Mdl, assert_same, copy_tree, files_of
from support.disks import tmpfs
from support.processes import until

KIB, MIB = 1 << 10, 1 << 20
LEAVE = (0, *scale.sample((8 * KIB, 96 * KIB, 600 * KIB), 1))
"""Bytes that are left for a verb: none, a few blocks, a part of what it writes."""


def fill(path: Path, leave: int) -> None:
    """Takes the disk's free space but for `leave` bytes."""
    path.write_bytes(bytes(max(0, shutil.disk_usage(path.parent).free - leave)))


@dataclass
class Place:
    """A disk with a work tree on it, and what it works with elsewhere."""

    disk: Path
    mdl: Mdl
    origin: Mdl
    elsewhere: Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with tmpfs(tmp_path / "disk", 24) as disk:
        work = disk / "work"
        mdl = Mdl.init(work)
        # A cache would make room where a test wants none.
        mdl.run("config", "cache.size", "0")
        makers.noise(work, 400 * KIB, 1)
        (work / "notes.txt").write_text("first\n")
        mdl.commit(None, "first", "--step", "1")
        mdl.run("branch", "side")
        makers.noise(work, 800 * KIB, 2)
        mdl.commit(None, "second", "--step", "2")
        mdl.run("switch", "side")
        (work / "side.txt").write_text("side\n")
        mdl.commit(None, "of the side", "--step", "3")
        mdl.run("switch", "main")
        mdl.run("branch", "ahead")
        mdl.run("switch", "ahead")
        makers.noise(work, 900 * KIB, 6)
        mdl.commit(None, "ahead", "--step", "4")
        mdl.run("switch", "main")
        origin = Mdl(tmp_path / "origin")
        mdl.run("clone", work, origin.repo, repo_flag=False)
        makers.noise(origin.repo, 700 * KIB, 5)
        origin.commit(None, "of the origin", "--step", "9")
        mdl.run("remote", "add", "origin", origin.repo)
        (work / "new.txt").write_text("not committed\n")
        yield Place(disk, mdl, origin, tmp_path)


def refs(mdl: Mdl) -> dict[str, str]:
    """HEAD and every ref, by its file."""
    files = [mdl.store / "HEAD", *(mdl.store / "refs").rglob("*")]
    return {str(p.relative_to(mdl.store)): p.read_text() for p in files if p.is_file()}


def tree(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files_of(folder).items()}


VERBS: dict[str, Callable[[Place], list[str | Path]]] = {
    "commit": lambda p: ["commit", p.elsewhere / "next", "-m", "x", "--branch", "other"],
    "commit of the work tree": lambda _: ["commit", "-m", "x"],
    "checkout": lambda p: ["checkout", "side", "--to", p.disk / "out"],
    "checkout here": lambda _: ["checkout", "side"],
    "switch": lambda _: ["switch", "side"],
    "merge": lambda _: ["merge", "ahead"],
    "branch": lambda _: ["branch", "fresh", "side"],
    "branch -d": lambda _: ["branch", "-d", "-f", "side"],
    "tag": lambda _: ["tag", "-a", "v1", "-m", "a tag"],
    "config": lambda _: ["config", "delta.max_depth", "4"],
    "remote add": lambda p: ["remote", "add", "again", p.origin.repo],
    "prune": lambda _: ["prune", "--keep-latest", "1"],
    "gc": lambda _: ["gc", "--prune-now"],
    "compact": lambda _: ["compact"],
    "fsck": lambda _: ["fsck"],
    "status": lambda _: ["status"],
    "log": lambda _: ["log"],
    "shard put": lambda p: ["shard", "put", p.elsewhere / "next", "--session", "s", "--rank", "0"],
    "fetch": lambda _: ["fetch", "origin"],
    "push": lambda _: ["push", "origin", "side"],
    "clone": lambda p: ["clone", p.origin.repo, p.disk / "cloned"],
    "watch": lambda p: ["watch", p.elsewhere / "runs", "--once", "--settle", "0", "--branch", "watched"],
}


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_on_a_full_disk_leaves_all_as_it_was(verb: str, place: Place) -> None:
    makers.noise(place.elsewhere / "next", 900 * KIB, 7)
    makers.noise(place.elsewhere / "runs" / "checkpoint-5", 900 * KIB, 8)
    saved = copy_tree(place.mdl.repo, place.elsewhere / "saved")
    argv = VERBS[verb](place)
    failed = 0
    for leave in LEAVE:
        shutil.rmtree(place.mdl.repo)
        copy_tree(saved, place.mdl.repo)
        for made in ("out", "cloned"):
            shutil.rmtree(place.disk / made, ignore_errors=True)
        before, files = refs(place.mdl), tree(place.mdl.repo)
        fill(place.disk / "filler", leave)
        done = place.mdl.run(*argv, code=(OK, 1, IO))
        (place.disk / "filler").unlink()
        what = f"{verb}, {leave} bytes left\n{done}"
        if done.code != OK:
            failed += 1
            done.complains("space")
            assert refs(place.mdl) == before, what
            assert tree(place.mdl.repo) == files, what
            assert not (place.disk / "cloned").exists() or not files_of(place.disk / "cloned"), what
        place.mdl.fsck()
        for rev in ("main", "side") if done.code != OK else ("main",):
            out = place.mdl.checkout(rev, place.elsewhere / f"out-{leave}-{rev}")
            assert files_of(out), what
        if done.code != OK:
            place.mdl.run(*argv)
            place.mdl.fsck()
    if verb in ("commit", "checkout", "clone", "shard put", "fetch"):
        assert failed, "the disk was never full"


def test_the_cache_makes_room_before_a_commit_fails(place: Place) -> None:
    place.mdl.run("config", "--unset", "cache.size")
    work = place.mdl.repo
    makers.noise(work, 900 * KIB, 11)
    place.mdl.commit(None, "what the cache keeps")
    cache = place.mdl.store / "cache"
    assert files_of(cache)
    fill(place.disk / "filler", 400 * KIB)
    makers.noise(work, 900 * KIB, 12)
    place.mdl.commit(None, "in the room of what the cache kept")
    place.mdl.fsck()


def test_a_commit_looks_for_room_before_it_begins(place: Place) -> None:
    folder = makers.noise(place.elsewhere / "large", 8 * MIB, 9)
    fill(place.disk / "filler", 100 * KIB)
    done = place.mdl.run("commit", folder, "-m", "x", "--branch", "first", code=IO)
    done.complains("the disk has room for", "on_full")


@pytest.mark.parametrize("leave", [100 * KIB, 3 * MIB], ids=["seen before", "found out late"])
def test_a_commit_waits_for_room_where_told_to(place: Place, leave: int) -> None:
    folder = makers.noise(place.elsewhere / "large", 8 * MIB, 9)
    place.mdl.run("config", "commit.on_full", "wait")
    fill(place.disk / "filler", leave)
    log = place.elsewhere / "log"
    with log.open("wb") as err:
        argv = place.mdl.argv("commit", folder, "-m", "x", "--branch", "other")
        commit = subprocess.Popen(argv, stderr=err, stdout=err, env=place.mdl.environment())
    assert until(lambda: b"waiting for room" in log.read_bytes())
    time.sleep(1)
    assert commit.poll() is None
    # Nothing is held meanwhile: others work, and a collection can make room.
    place.mdl.run("log")
    place.mdl.run("gc", "--prune-now")
    (place.disk / "filler").unlink()
    assert commit.wait(60) == OK, log.read_text()
    assert_same(folder, place.mdl.checkout("other", place.elsewhere / "out"))
    place.mdl.fsck()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_watch_waits_for_room_and_leaves_when_asked(place: Place, how: signal.Signals) -> None:
    runs = place.elsewhere / "runs"
    makers.noise(runs / "checkpoint-5", 8 * MIB, 8)
    place.mdl.run("config", "commit.on_full", "wait")
    fill(place.disk / "filler", 100 * KIB)
    log = place.elsewhere / "log"

    def watch() -> subprocess.Popen[bytes]:
        argv = place.mdl.argv("watch", runs, "--settle", "0", "--interval", "1", "--branch", "watched")
        with log.open("wb") as err:
            return subprocess.Popen(argv, stderr=err, stdout=err, env=place.mdl.environment())

    watching = watch()
    assert until(lambda: b"waiting for room" in log.read_bytes())
    watching.send_signal(how)
    watching.wait(20)
    assert b"checkpoint-5" in log.read_bytes(), "what is left is named"
    watching = watch()
    assert until(lambda: b"waiting for room" in log.read_bytes())
    (place.disk / "filler").unlink()
    assert until(lambda: place.mdl.commit_id("watched"))
    watching.send_signal(how)
    watching.wait(20)
    assert_same(runs / "checkpoint-5", place.mdl.checkout("watched", place.elsewhere / "out"))


def test_only_what_is_known_can_be_set(place: Place) -> None:
    place.mdl.run("config", "commit.on_full", "wait")
    place.mdl.run("config", "commit.on_full", "retry", code=2).complains("fail or wait")
