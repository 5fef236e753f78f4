"""Filters of the log, notes and blame from Python."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import mdl
import numpy as np
import pytest


@pytest.fixture
def repo(tmp_path: Path) -> mdl.Repo:
    repo = mdl.init(tmp_path)
    for step in range(5):
        state = {"embed": np.full((4, 2), float(step >= 3)), "head": np.arange(6.0).reshape(3, 2) + step}
        repo.commit(state, message=f"number {step}", step=step * 100, metrics={"loss": 2.0 - step / 10})
    repo.flush()
    return repo


def steps(log: mdl.Log) -> list[int | None]:
    return [commit.step for commit in log]


def test_a_log_is_filtered(repo: mdl.Repo) -> None:
    assert steps(repo.log(metric="loss<1.85 and step>=200")) == [400, 300, 200]
    assert steps(repo.log(grep="NUMBER 3")) == [300]
    assert steps(repo.log(touching=":*embed*")) == [300, 0]
    assert steps(repo.log(touching=[":*head*"], limit=2)) == [400, 300]
    assert steps(repo.log(since="1h")) == [400, 300, 200, 100, 0]
    assert steps(repo.log(until=datetime.now() - timedelta(hours=1))) == []
    assert steps(repo.log(author="nobody of this name")) == []
    with pytest.raises(mdl.UsageError, match="character 6: a number is wanted"):
        repo.log(metric="loss<x")
    with pytest.raises(mdl.UsageError, match="is no time"):
        repo.log(since="soon")


def test_what_is_noted_counts(repo: mdl.Repo) -> None:
    before = repo.resolve("main@step=100")
    assert repo.note("main@step=100", {"acc": 0.9, "bad": float("nan")}, {"wandb": "https://example.org/run"})
    assert not repo.note("main@step=100", {"acc": 0.9})
    assert repo.resolve("main@best(acc)") == before
    commit = repo.show("main@step=100")
    assert (commit.id, commit.metrics["acc"], commit.meta["wandb"]) == (before, 0.9, "https://example.org/run")
    assert repo.notes("main@step=100")["acc"] == 0.9
    assert steps(repo.log(metric="acc>0.5")) == [100]
    assert repo.note("main@step=100", remove=["acc", "bad"])
    assert repo.notes("main@step=100") == {"wandb": "https://example.org/run"}
    with pytest.raises(mdl.UsageError, match="twice"):
        repo.note("main", {"a": 1.0}, {"a": "b"})
    with pytest.raises(mdl.UsageError):
        repo.note("main", {"a=b": 1.0})
    with pytest.raises(mdl.NotFoundError):
        repo.note("nothing", {"a": 1.0})


def test_blame_says_when_and_by_how_much(repo: mdl.Repo) -> None:
    found = repo.blame(by="all")
    embed = next(changes for name, changes in found.items() if "embed" in name)
    head = next(changes for name, changes in found.items() if "head" in name)
    ids = [repo.resolve(f"main@step={step}") for step in range(0, 500, 100)]
    assert [(c.commit, c.change) for c in embed] == [(ids[0], "added"), (ids[3], "modified")]
    assert embed[1].rel_l2 == float("inf")
    assert [c.commit for c in head] == ids
    before, after = np.arange(6.0) + 3, np.arange(6.0) + 4
    assert head[-1].rel_l2 == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before))
    assert all(len(changes) <= 1 for changes in repo.blame(only=":*embed*", limit=2).values())
    with pytest.raises(mdl.NotFoundError):
        repo.blame(row=4)
    with pytest.raises(mdl.UsageError):
        repo.blame(by="guess")
