"""Merges and soups from Python."""

from __future__ import annotations

from pathlib import Path

import mdl
import numpy as np
import pytest


def commit(repo: mdl.Repo, branch: str, a: float, b: float) -> str:
    state = {"a": np.full(3, a, np.float32), "b": np.full(2, b, np.float32)}
    return repo.commit(state, branch=branch, wait=True, step=1).id


def weights(repo: mdl.Repo, rev: str = "main") -> tuple[float, float]:
    state = repo.load(rev)
    return float(state["a"][0]), float(state["b"][0])


def test_merges(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "run")
    commit(repo, "main", 1, 1)
    theirs = commit(repo, "theirs", 1, 2)
    own = commit(repo, "main", 3, 1)
    done = repo.merge("theirs", "average")
    assert (done.result, done.before, weights(repo)) == ("merged", own, (2, 1.5))
    assert done.recipe is not None
    assert done.recipe["strategy"] == {"method": "average"}
    assert done.computed == 2
    assert repo.merge("theirs", "ties").result == "up_to_date"
    repo.reset(own)
    repo.merge(theirs, {"method": "task_arithmetic", "weight": [1, 2]}, overrides={"a": "theirs"}, message="both")
    assert weights(repo) == (1, 3)
    assert repo.log("main")[0].message == "both"
    with pytest.raises(mdl.UserError, match="density"):
        repo.merge(commit(repo, "theirs", 5, 5), {"method": "average", "density": 0.5})
    with pytest.raises(mdl.UsageError):
        repo.merge("theirs", "best")


def test_conflicts_change_nothing(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "run")
    commit(repo, "main", 1, 1)
    repo.commit({"a": np.ones(5, np.float32)}, branch="theirs", wait=True)
    own = commit(repo, "main", 2, 2)
    with pytest.raises(mdl.ConflictError, match=r"a: the sides have other dtypes or shapes"):
        repo.merge("theirs", "average")
    assert repo.log("main")[0].id == own


def test_soups(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "run")
    ids = [commit(repo, "main", v, v) for v in (1, 2, 6)]
    assert repo.soup(ids).computed == 2
    assert weights(repo) == (3, 3)
    repo.soup(ids, ema=0.5)
    assert weights(repo) == (3.75, 3.75)
    seen: list[Path] = []

    def measure(folder: Path) -> float:
        seen.append(folder)
        data = next(folder.rglob("*.safetensors")).read_bytes()
        return abs(float(np.frombuffer(data[-4:], np.float32)[0]) - 1.4)

    repo.soup(ids, greedy=measure)
    assert weights(repo) == (1.5, 1.5)
    assert len(seen) == 5

    def broken(folder: Path) -> float:
        raise ZeroDivisionError(folder)

    with pytest.raises(ZeroDivisionError):
        repo.soup(ids, greedy=broken)
