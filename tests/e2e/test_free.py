"""`mdl free`: what goes and in which order, nothing that was not named, and full disks that have no room to work in."""

from __future__ import annotations

import os
import pty
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import makers
from support.cli import OK, USAGE, USER, Mdl, assert_same, copy_tree, tree_size
from support.disks import tmpfs
from support.tensors import Tensor, write_safetensors

KIB, MIB = 1 << 10, 1 << 20


def chain(mdl: Mdl, folder: Path, steps: range) -> None:
    """Versions of 1 MiB that are small differences, each to one before it."""
    file = makers.noise(folder, MIB, 1) / "model.safetensors"
    for step in steps:
        data = bytearray(file.read_bytes())
        for at in range(1 << 10, len(data) - 8, 16):
            data[at] = (data[at] * 7 + step * 13 + at) % 256
        file.write_bytes(data)
        mdl.commit(folder, f"step {step}", "--step", str(step))


def taken(mdl: Mdl) -> int:
    """Bytes of packs and cache."""
    return mdl.packed() + tree_size(mdl.store / "cache")


def steps(mdl: Mdl) -> list[int]:
    """Versions that still have contents."""
    return [e["step"] for e in mdl.log("main") if not e["pruned"]]


def pruned_steps(report: dict[str, Any]) -> list[int]:
    return [p["step"] for p in report["pruned"]]


@pytest.fixture
def run(mdl: Mdl, source: Path) -> Mdl:
    """Six versions of 1 MiB that have nothing in common."""
    for step in range(1, 7):
        makers.noise(source, MIB, step)
        mdl.commit(source, f"step {step}", "--step", str(step))
    return mdl


def test_the_cache_goes_first_and_no_further_than_needed(run: Mdl, source: Path, tmp_path: Path) -> None:
    cached = tree_size(run.store / "cache")
    assert cached > 0
    packs = run.packed()
    planned = run.json("free", "1KiB", "--keep-latest", "1", "--dry-run")
    assert (planned["cache_bytes"], planned["versions_bytes"], planned["pruned"]) == (planned["freed_bytes"], 0, [])
    done = run.json("free", "1KiB", "--keep-latest", "1", "--yes")
    assert done["cache_bytes"] == planned["cache_bytes"] > 0
    assert run.packed() == packs
    assert steps(run) == [6, 5, 4, 3, 2, 1]
    assert_same(source, run.checkout("main", tmp_path / "out"))


def test_versions_go_oldest_first_and_as_few_as_do(run: Mdl, source: Path, tmp_path: Path) -> None:
    run.run("free", "1KiB", "--yes")
    before = taken(run)
    planned = run.json("free", "2.5MiB", "--keep-latest", "2", "--dry-run")
    assert steps(run) == [6, 5, 4, 3, 2, 1], "a dry run changes nothing"
    done = run.json("free", "2.5MiB", "--keep-latest", "2", "--yes")
    gone = pruned_steps(done)
    assert gone == pruned_steps(planned)
    assert gone == [3, 2, 1]
    assert before - taken(run) >= 2.5 * MIB
    assert done["freed_bytes"] == pytest.approx(before - taken(run), rel=0.01)
    assert steps(run) == [s for s in (6, 5, 4, 3, 2, 1) if s not in gone]
    assert_same(source, run.checkout("main", tmp_path / "out"))
    run.fsck()
    # It is gone for good.
    run.run("prune", "--undo", code=USER)


def test_all_that_may_go_is_freed_where_more_is_wanted(run: Mdl, source: Path, tmp_path: Path) -> None:
    run.run("tag", "kept", "main~4")
    before = taken(run)
    done = run.run("free", "100%", "--keep-latest", "1", "--yes", code=USER)
    done.complains("less than wanted", "keep less")
    done.names("cache of decoded tensors", "4 versions that no rule keeps")
    assert steps(run) == [6, 2]
    assert taken(run) < before / 2
    assert_same(source, run.checkout("main", tmp_path / "out"))
    run.checkout("kept", tmp_path / "tagged")
    run.fsck()


def test_bases_of_what_stays_are_encoded_anew_last(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    chain(mdl, source, range(1, 7))
    mdl.run("free", "1KiB", "--yes")
    before = taken(mdl)
    done = mdl.json("free", "400KiB", "--keep-latest", "1", "--yes", code=(OK, USER))
    assert done["base_bytes"] > 0
    assert done["freed_bytes"] == pytest.approx(before - taken(mdl), abs=4096)
    assert steps(mdl) == [6]
    assert_same(source, mdl.checkout("main", tmp_path / "out"))
    mdl.fsck()


def test_without_rules_no_version_goes(run: Mdl) -> None:
    run.run("free", "100%", "--yes", code=USER).complains("name rules", "--keep-latest")
    assert steps(run) == [6, 5, 4, 3, 2, 1]


def test_what_jobs_have_under_way_stays(run: Mdl, source: Path, tmp_path: Path) -> None:
    ranks = {rank: makers.noise(tmp_path / f"rank{rank}", MIB, 100 + rank) for rank in (0, 1)}
    for folder in ranks.values():
        (folder / "model.safetensors").rename(folder / f"{folder.name}.safetensors")
    run.run("shard", "put", "--session", "run/1", "--rank", "0", ranks[0])
    run.run("free", "100%", "--keep-latest", "1", "--yes", code=USER)
    assert steps(run) == [6]
    run.run("shard", "put", "--session", "run/1", "--rank", "1", ranks[1])
    run.run("shard", "join", "--session", "run/1", "--ranks", "2", "-m", "joined")
    out = run.checkout("main", tmp_path / "out")
    for folder in ranks.values():
        name = f"{folder.name}.safetensors"
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    run.fsck()


def test_what_was_pruned_before_goes_before_versions(run: Mdl) -> None:
    run.run("free", "1KiB", "--yes")
    run.run("prune", "--keep-latest", "5")
    done = run.json("free", "1KiB", "--keep-latest", "1", "--yes")
    assert done["grace_bytes"] > 0
    assert done["pruned"] == []
    assert steps(run) == [6, 5, 4, 3, 2]


def test_it_asks_and_programs_must_say_yes(run: Mdl) -> None:
    before = taken(run)
    run.run("free", "1KiB", code=USAGE).complains("no terminal to ask", "--yes")
    run.run("free", "lots", code=USAGE)
    run.run("free", "120%", code=USAGE)
    run.run("free", "1KiB", "--yes", "--dry-run", code=USAGE)
    assert taken(run) == before
    run.run("--json", "free", "1KiB", code=USAGE)
    # There is nothing to free, and nothing to ask.
    assert run.json("free", "0", code=OK)["freed_bytes"] == 0


def answered(mdl: Mdl, answer: str) -> tuple[int, str]:
    """Runs `mdl free` at a terminal, and answers its question."""
    argv = mdl.argv("free", "1KiB", "--keep-latest", "1")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, mdl.environment())
    said = b""
    while b"[y/N]" not in said:
        said += os.read(terminal, 1 << 12)
    os.write(terminal, answer.encode() + b"\n")
    while True:
        try:
            part = os.read(terminal, 1 << 12)
        except OSError:
            break
        if not part:
            break
        said += part
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode()


def test_at_a_terminal_it_lists_what_goes_and_asks(run: Mdl) -> None:
    before = taken(run)
    code, said = answered(run, "")
    assert code == USER, said
    assert "cache of decoded tensors" in said.split("[y/N]")[0]
    assert "nothing was freed" in said
    assert taken(run) == before
    code, said = answered(run, "y")
    assert code == OK, said
    assert taken(run) < before


def test_bases_stay_where_there_is_no_room_to_encode_anew(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 6) as disk:
        mdl = Mdl.init(disk / "repo")
        chain(mdl, tmp_path / "run", range(1, 7))
        fill(disk / "filler", 300 * KIB)
        done = mdl.json("free", "100%", "--keep-latest", "1", "--yes", code=USER)
        assert done["held_bytes"] > 0
        assert done["room_wanted_bytes"] > 300 * KIB
        assert (done["base_bytes"], steps(mdl)) == (0, [6])
        assert_same(tmp_path / "run", mdl.checkout("main", tmp_path / "out"))
        mdl.fsck()


@dataclass
class Place:
    """A disk of a few MiB with a repository that fills it."""

    disk: Path
    mdl: Mdl
    tip: Path


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Place]:
    with tmpfs(tmp_path / "disk", 24) as disk:
        mdl = Mdl.init(disk / "repo")
        folder = tmp_path / "run"
        makers.noise(folder, 2 * MIB, 1)
        tensors: dict[str, np.ndarray] = {}
        for step in range(1, 7):
            # One tensor less is new each time: the last version needs one of every pack.
            rng = np.random.default_rng(step)
            for n in range(step - 1, 8):
                tensors[f"t{n}"] = rng.integers(0, 256, 256 * KIB, dtype=np.uint8)
            write_safetensors(folder / "model.safetensors", [Tensor.of(n, t) for n, t in tensors.items()])
            mdl.commit(folder, f"step {step}", "--step", str(step))
        yield Place(disk, mdl, copy_tree(folder, tmp_path / "tip"))


def fill(path: Path, leave: int) -> None:
    path.write_bytes(bytes(max(0, shutil.disk_usage(path.parent).free - leave)))


@pytest.mark.parametrize("leave", [0, 300 * KIB], ids=["none", "a little"])
def test_a_full_disk_is_freed_without_room(full: Place, tmp_path: Path, leave: int) -> None:
    fill(full.disk / "filler", leave)
    before = full.mdl.packed()
    done = full.mdl.run("free", "100%", "--keep-latest", "1", "--yes", code=USER)
    done.names("cache of decoded tensors", "versions that no rule keeps")
    assert full.mdl.packed() < before * 0.6, done
    assert steps(full.mdl) == [6]
    assert_same(full.tip, full.mdl.checkout("main", tmp_path / "out"))
    full.mdl.fsck()


def test_a_collection_without_room_for_all_its_packs_goes_step_by_step(full: Place, tmp_path: Path) -> None:
    full.mdl.run("prune", "--keep-latest", "1")
    shutil.rmtree(full.mdl.store / "cache")
    before = full.mdl.packed()
    # Together they take 1.3 MiB.
    fill(full.disk / "filler", 700 * KIB)
    full.mdl.run("gc", "--prune-now")
    assert full.mdl.packed() < before * 0.6
    assert_same(full.tip, full.mdl.checkout("main", tmp_path / "out"))
    full.mdl.fsck()
