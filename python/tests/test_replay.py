"""Versions made anew from Python: picks, reverts, rebases, and a pull of two sides that have parted."""

from __future__ import annotations

from pathlib import Path

import mdl
import numpy as np
import pytest


def commit(repo: mdl.Repo, branch: str, a: float, b: float) -> str:
    """A version from memory: two tensors."""
    state = {"a": np.full(3, a, np.float32), "b": np.full(2, b, np.float32)}
    return repo.commit(state, branch=branch, wait=True, step=1).id


def weights(repo: mdl.Repo, rev: str = "main") -> tuple[float, float]:
    state = repo.load(rev)
    return float(state["a"][0]), float(state["b"][0])


def test_picks_and_reverts_change_weights_by_as_much(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "run")
    commit(repo, "main", 1, 1)
    theirs = commit(repo, "theirs", 1, 2)
    own = commit(repo, "main", 3, 1)
    done = repo.cherry_pick("theirs")
    assert (weights(repo), done.before, done.versions) == ((3, 2), own, [(theirs, done.commit)])
    repo.revert([own])
    assert weights(repo) == (1, 2)
    repo.revert("HEAD", exact=True)
    assert weights(repo) == (3, 2)
    commit(repo, "main", 4, 2)
    with pytest.raises(mdl.ConflictError, match=r"model\.safetensors: a"):
        repo.revert(own, exact=True)
    assert weights(repo) == (4, 2)
    with pytest.raises(mdl.UsageError):
        repo._read.pick(["HEAD"], False, ("median", [], [], None))


def test_two_sides_that_have_parted_come_together(tmp_path: Path) -> None:
    one = mdl.Repo.init(tmp_path / "one")
    commit(one, "main", 1, 1)
    mdl.Repo.init(tmp_path / "origin")
    one.add_remote("origin", tmp_path / "origin")
    one.push()
    two = mdl.clone(tmp_path / "origin", tmp_path / "two")
    for file in ("model.safetensors", "state.json"):
        # As where versions are committed from memory: no file of theirs is in the work tree.
        (tmp_path / "two" / file).unlink()
    commit(one, "main", 2, 1)
    one.push()
    commit(two, "main", 5, 5)
    with pytest.raises(mdl.ConflictError, match="parted"):
        two.pull()
    with pytest.raises(mdl.ConflictError):
        two.push()
    assert two.pull(rebase=True).updated
    two.push()
    assert weights(two) == (5, 5)
    one.pull()
    assert [entry.id for entry in one.log()] == [entry.id for entry in two.log()]
    assert len(one.log()) == 3
