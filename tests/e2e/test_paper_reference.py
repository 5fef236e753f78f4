"""The paper's delta encoder agrees symbol by symbol with a small numpy reference, and its streams with their page."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quant import paper_reference as ref
from support.cli import ROOT

VARIANTS = ["he", "rle", "pe"]
CASES = [(16, 16, 3000), (32, 8, 2000), (6, 16, 2000), (256, 255, 1500), (4, 4, 1), (1, 1, 50), (0, 3, 40)]


@pytest.fixture(scope="session")
def paper_dump() -> Path:
    """The codec's example, built now."""
    command = ["cargo", "build", "--locked", "-p", "mdl-codec", "--example", "paper_dump"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "examples" / "paper_dump"


def checkpoints(bins: int, parent_bins: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels of a child and its parent; most elements keep their place, low levels move least."""
    rng = np.random.default_rng(bins * 1000 + parent_bins)
    parent = rng.binomial(parent_bins + 1, 0.5, n)
    moved = rng.random(n) < 0.02 + 0.3 * (parent / (parent_bins + 1)) ** 3
    special = parent >= parent_bins
    same = np.where(special, parent - parent_bins + bins, np.minimum(parent, bins + 1))
    child = np.where(moved, rng.integers(0, bins + 2, n), same)
    return child.astype("<u2"), parent.astype("<u2")


def dump(program: Path, folder: Path, *sides: tuple[np.ndarray, int]) -> dict[str, Any]:
    args = [str(program)]
    for i, (levels, bins) in enumerate(sides):
        path = folder / f"levels{i}.u16"
        levels.tofile(path)
        args += [str(path), str(bins)]
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(("bins", "parent_bins", "n"), CASES)
def test_every_step_agrees(paper_dump: Path, tmp_path: Path, bins: int, parent_bins: int, n: int) -> None:
    child, parent = checkpoints(bins, parent_bins, n)
    got = dump(paper_dump, tmp_path, (child, bins), (parent, parent_bins))
    ring_bins = max(bins, parent_bins)
    delta = ref.cyclic_delta(child, bins, parent, parent_bins)
    groups = ref.rearranged(delta, ref.on_ring(parent, parent_bins, ring_bins), ring_bins + 2)
    assert got["delta"] == delta.tolist()
    assert got["groups"] == groups
    assert got["tokens"] == ref.sign_runs(delta.tolist())
    assert got["group_tokens"] == [ref.sign_runs(g) for g in groups]
    for kind, name in enumerate(VARIANTS, 1):
        stream = bytes.fromhex(got["streams"][name])
        assert stream[1] == kind
        levels, own_bins = ref.decoded(stream, n, parent, parent_bins)
        assert own_bins == bins
        assert levels.tolist() == child.tolist()


def test_without_a_parent_the_levels_are_coded(paper_dump: Path, tmp_path: Path) -> None:
    child, _ = checkpoints(16, 16, 2000)
    streams = dump(paper_dump, tmp_path, (child, 16))["streams"]
    assert len(set(streams.values())) == 1
    levels, _ = ref.decoded(bytes.fromhex(streams["he"]), len(child))
    assert levels.tolist() == child.tolist()


def test_rearrangement_is_undone(paper_dump: Path, tmp_path: Path) -> None:
    child, parent = checkpoints(16, 16, 500)
    got = dump(paper_dump, tmp_path, (child, 16), (parent, 16))
    assert ref.put_back(got["groups"], parent.astype(int)).tolist() == got["delta"]
