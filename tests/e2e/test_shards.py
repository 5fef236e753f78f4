"""Sharded commits by real processes: ranks at once, killed ranks and finishers, late ranks, double finishes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support import makers, scale
from support.cli import NOT_FOUND, OK, USER, Mdl, assert_same
from support.tensors import Tensor, write_safetensors

RANKS = 8
KILLED = -signal.SIGKILL


def split(folder: Path, seed: int, width: int = 256) -> list[Path]:
    """One model in as many safetensors files as there are ranks, each in its rank's own folder, and its index."""
    out = []
    weights: dict[str, str] = {}
    for rank in range(RANKS):
        name = f"model-{rank + 1:05}-of-{RANKS:05}.safetensors"
        base = makers.random_f32((width, width), rank)
        moved = base + np.float32(1e-4) * makers.random_f32((width, width), 1000 * seed + rank)
        tensor = Tensor.of(f"layers.{rank}.weight", moved.astype(np.float32))
        write_safetensors(folder / str(rank) / name, [tensor], {"format": "pt"})
        weights[tensor.name] = name
        out.append(folder / str(rank))
    (out[0] / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return out


def whole(parts: list[Path], to: Path) -> Path:
    """All the ranks' files in one folder, as the version is to be."""
    to.mkdir()
    for file in (f for part in parts for f in part.iterdir()):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def start(mdl: Mdl, *args: str | Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        mdl.argv("--json", "shard", *args), stdout=pipe, stderr=pipe, text=True, env=mdl.environment()
    )


def putting(mdl: Mdl, session: str, rank: int, part: Path) -> subprocess.Popen[str]:
    return start(mdl, "put", "--session", session, "--rank", str(rank), part)


def joining(mdl: Mdl, session: str) -> subprocess.Popen[str]:
    return start(mdl, "join", "--session", session, "--ranks", str(RANKS), "-m", session)


def put_all(mdl: Mdl, session: str, parts: list[Path]) -> None:
    running = [putting(mdl, session, rank, part) for rank, part in enumerate(parts)]
    for process in running:
        _, err = process.communicate()
        assert process.returncode == OK, err


def join(mdl: Mdl, session: str, code: int | tuple[int, ...] = OK) -> dict[str, object]:
    args = ("shard", "join", "--session", session, "--ranks", str(RANKS), "-m", session)
    done = mdl.run("--json", *args, code=code)
    return json.loads(done.out or done.err)


def commits(mdl: Mdl) -> list[str]:
    return [entry["id"] for entry in mdl.log()] if mdl.commit_id("main") else []


def test_eight_ranks_at_once(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    stored = []
    for step in range(2):
        parts = split(source / str(step), step)
        put_all(mdl, f"run/{step}", parts)
        assert len(commits(mdl)) == step
        listed = mdl.json("shard", "list")["sessions"][step]
        assert (listed["session"], listed["ranks"], listed["commit"]) == (f"run/{step}", list(range(RANKS)), None)
        done = join(mdl, f"run/{step}")
        assert (done["files"], done["tensors"], done["new_tensors"]) == (RANKS + 1, RANKS, RANKS)
        stored.append(done["stored_bytes"])
        assert_same(whole(parts, tmp_path / f"want{step}"), mdl.checkout("main", tmp_path / f"got{step}"))
    # The second is stored as what changed.
    assert stored[1] < 0.8 * stored[0]
    mdl.fsck()
    mdl.run("gc", "--prune-now")
    assert mdl.json("shard", "list") == {"sessions": []}
    mdl.fsck()


@pytest.mark.parametrize("seed", scale.sample(range(3), 1))
def test_killed_ranks_and_finishers(mdl: Mdl, source: Path, tmp_path: Path, seed: int) -> None:
    """Ranks are killed at random moments and started again; so are finishers. Then there is one version, whole."""
    chance = random.Random(seed)
    parts = split(source / "s", seed, width=512)
    began = time.monotonic()
    put_all(mdl, "trial", parts)
    span = time.monotonic() - began
    missing, killed = set(range(RANKS)), 0
    while missing:
        running = {rank: putting(mdl, "s", rank, parts[rank]) for rank in missing}
        for rank in chance.sample(sorted(missing), len(missing) // 2):
            time.sleep(chance.random() * span / RANKS**2)
            running[rank].kill()
        for rank, process in running.items():
            process.communicate()
            assert process.returncode in (OK, KILLED)
            killed += process.returncode == KILLED
            if process.returncode == OK:
                missing.discard(rank)
        if missing:
            # A rank that was killed may have put all the same: then it has put everything.
            reply = join(mdl, "s", (OK, USER))
            assert "commit" in reply or "put nothing" in str(reply), reply
            missing = set() if "commit" in reply else missing
    for _ in range(6):
        finisher = joining(mdl, "s")
        time.sleep(chance.random() * 0.15)
        finisher.kill()
        finisher.communicate()
        mdl.fsck()
        assert len(commits(mdl)) <= 1
    done = join(mdl, "s")
    assert commits(mdl) == [done["commit"]] == [join(mdl, "s")["commit"]]
    assert_same(whole(parts, tmp_path / "want"), mdl.checkout("main", tmp_path / "got"))
    mdl.run("gc", "--prune-now")
    mdl.fsck()
    assert_same(tmp_path / "want", mdl.checkout("main", tmp_path / "again"))
    print(f"\n{killed} ranks were killed")


def test_missing_late_and_double(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    parts = split(source / "s", 1)
    mdl.run("shard", "join", "--session", "s", "--ranks", "8", "-m", "x", code=NOT_FOUND).complains("session", "s")
    mdl.run("shard", "put", "--session", "s", "--rank", "5", parts[5])
    refused = mdl.run("shard", "join", "--session", "s", "--ranks", "8", "-m", "x", code=USER)
    refused.complains("0, 1, 2, 3, 4, 6, 7", "nothing was committed")
    assert commits(mdl) == []
    put_all(mdl, "s", parts)
    running = [joining(mdl, "s") for _ in range(4)]
    replies = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [OK] * 4, replies
    assert len({json.loads(out)["commit"] for out, _ in replies}) == 1
    assert len(commits(mdl)) == 1
    late, before = split(source / "late", 2)[3], mdl.size()
    mdl.run("shard", "put", "--session", "s", "--rank", "3", late, code=USER).complains("too late", "finished")
    assert_same(whole(parts, tmp_path / "want"), mdl.checkout("main", tmp_path / "got"))
    mdl.fsck()
    assert mdl.size() == before, "a rank that knows that it is late stores nothing"
    mdl.run("gc", "--prune-now")
    mdl.fsck()
