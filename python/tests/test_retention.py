"""Retention policies: which versions keep their contents."""

from __future__ import annotations

import pathlib
import subprocess

import mdl
import numpy as np
import pytest
from mdl import retention


@pytest.fixture
def history(repo: mdl.Repo) -> mdl.Repo:
    rng = np.random.default_rng(0)
    for step in range(1, 9):
        repo.commit({"w": rng.standard_normal(20_000)}, step=step, metrics={"loss": abs(step - 3)}, wait=True)
    return repo


def test_rules_keep_what_they_say(history: mdl.Repo) -> None:
    rule = retention.LatestN(2) | retention.BestN(1, "loss") | retention.EveryNSteps(4) | retention.CustomSteps([1])
    said = history.prune(rule, dry_run=True)
    assert [step for _, step in said.pruned] == [6, 5, 2]
    assert said.freed_bytes > 3 * 20_000 * 4
    assert all(c.pruned is None for c in history.log())
    done = history.prune(rule)
    assert done.pruned == said.pruned
    assert [c.step for c in history.log() if c.pruned] == [6, 5, 2]
    assert sorted(history.undo_prune(["main@step=5"])) == [history.resolve("main@step=5")]
    assert [c.step for c in history.log() if c.pruned] == [6, 2]


def test_what_was_pruned_says_so_and_the_rest_is_whole(history: mdl.Repo, binary: pathlib.Path) -> None:
    before = {c.step: history.load(c.id)["w"] for c in history.log()}
    history.prune(retention.LatestN(1) | retention.EveryNSteps(4))
    subprocess.run([binary, "--repo", history.path, "gc", "--prune-now"], check=True, capture_output=True)
    again = mdl.Repo.open(history.path)
    for commit in again.log():
        if commit.pruned:
            with pytest.raises(mdl.NotFoundError, match="pruned"):
                again.load(commit.id)
        else:
            assert np.array_equal(again.load(commit.id)["w"], before[commit.step])
    assert len(again.log()) == 8


def test_other_branches_are_left_alone(history: mdl.Repo) -> None:
    history.branch("other", "main~4")
    report = history.prune(retention.LatestN(1))
    assert report.branches == ["main"]
    assert [step for _, step in report.pruned] == [7, 6, 5]
    assert {step for _, step, _ in report.kept} >= {1, 2, 3, 4, 8}
    assert [s for _, s in history.prune(retention.LatestN(1), all=True).pruned] == [3, 2, 1]


def test_rules_where_checkpoints_are_taken(repo: mdl.Repo) -> None:
    for step in range(6):
        repo.commit({"w": np.full(9, float(step))}, step=step, retention=retention.LatestN(2))
    repo.flush()
    assert [c.step for c in repo.log() if not c.pruned] == [5, 4]
    with pytest.warns(RuntimeWarning, match="is stored"):
        repo.commit({"w": np.ones(9)}, step=6, retention=retention.LatestN(-1), wait=True)
    assert repo.show().step == 6


def test_rules_that_make_no_sense(history: mdl.Repo) -> None:
    for rule in [retention.LatestN(-1), retention.BestN(1, "loss", "up"), retention.EveryNSteps(0)]:
        with pytest.raises(mdl.UsageError):
            history.prune(rule)
    assert repr(retention.Any(retention.LatestN(3))) == "AnyOf(rules=[{'rule': 'LatestN', 'n': 3}])"


def test_optimizer_state_goes_before_the_weights_do(repo: mdl.Repo, binary: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    ladder = [retention.LatestN(1).to("weights"), retention.LatestN(3)]
    for step in range(5):
        optimizer = {"state": {0: {"exp_avg": rng.standard_normal(9000)}}, "param_groups": [{"lr": 0.1}]}
        state = {"model": {"w": rng.standard_normal(5000)}, "optimizer": optimizer}
        repo.commit(state, step=step, retention=ladder, wait=True)
    assert [(c.step, bool(c.weights), bool(c.pruned)) for c in repo.log()] == [
        (4, False, False), (3, True, False), (2, True, False), (1, True, True), (0, True, True),
    ]  # fmt: skip
    before = {c.step: repo.load(c.id)["model"]["w"] for c in repo.log()}
    said = repo.prune(retention.LatestN(1), dry_run=True)
    assert said.to == "gone"
    assert {to: level[0] for to, level in said.levels.items()} == {"gone": 2, "weights": 0, "approximate": 0}

    subprocess.run([binary, "--repo", repo.path, "gc", "--prune-now"], check=True, capture_output=True)
    again = mdl.Repo.open(repo.path)
    newest, second = again.log()[:2]
    assert (newest.fidelity, newest.weights) == ("exact", None)
    assert (second.fidelity, second.resume, second.weights) == ("weights", "weights-only", "latest 1")
    assert "optimizer.safetensors" in again.files(newest.id)
    assert "optimizer.safetensors" not in again.files(second.id)
    with pytest.warns(RuntimeWarning, match="optimizer state is gone"):
        loaded = again.load(second.id, only="model")
    assert np.array_equal(loaded["model"]["w"], before[3])
    with pytest.raises(mdl.NotFoundError, match="optimizer"):
        again.load(second.id)


def test_levels_are_those_there_are() -> None:
    rule = retention.LatestN(2).to("weights")
    assert repr(rule) == "LatestN(n=2).to('weights')"
    assert (rule | retention.EveryNSteps(4).to("weights")).level == "weights"
    for mixed in (lambda: rule | retention.LatestN(1), lambda: rule.to("less")):
        with pytest.raises(ValueError, match="level"):
            mixed()
