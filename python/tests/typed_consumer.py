"""A program as users write it, whose types mypy (strict) and pyright check: `make lint-python`. It is never run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

import mdl
from mdl import retention


def loop(place: str) -> mdl.Commit:
    """Commits, reads and looks."""
    repo = mdl.Repo(place, create=True)
    assert_type(mdl.init(place), mdl.Repo)
    assert_type(mdl.clone("s3://bucket/prefix", place, depth=1, only="*.safetensors"), mdl.Repo)
    repo.commit({"step": 1}, step=1, metrics={"loss": 0.5, "none": None}, meta={"who": "me"})
    repo.flush()
    log = repo.log()
    assert_type(log, mdl.Log)
    assert_type(log[0], mdl.Commit)
    assert_type(log[:2], mdl.Log)
    assert_type(log[0].time, datetime)
    assert_type([c.metrics["loss"] for c in log], list[float])
    assert_type(repo.branches(), dict[str, str])
    assert_type(repo.tensors()["model.safetensors:w"].shape, tuple[int, ...])
    assert_type(repo.read("main", "config.json"), bytes)
    assert_type(repo.work, Path | None)
    return repo.show("main@best(loss)")


def upkeep(repo: mdl.Repo) -> float:
    """Transfers, and what is stored."""
    repo.add_remote("origin", Path("/backup"))
    assert_type(repo.push(tags=True, progress=False).moved, list[mdl.RefMove])
    assert_type(repo.fetch().carried_bytes, int)
    assert_type(repo.pull(progress=lambda what, done, total: print(what, done, total)).updated, bool)
    assert_type(repo.gc(prune_now=True), mdl.GcReport)
    assert_type(repo.compact(dry_run=True).packs_after, int)
    assert_type(repo.verify("a.safetensors").first_difference, int | None)
    assert_type(repo.reset("HEAD~1", hard=True).written, int)
    if not (report := repo.fsck()):
        raise SystemExit(report.problems[0].reason)
    rule = retention.LatestN(3) | retention.BestN(1, "loss")
    assert_type(rule, retention.AnyOf)
    assert_type(repo.prune(rule.to("weights"), dry_run=True), mdl.PruneReport)
    return repo.stats().ratio


class Run:
    """A tracker."""

    def meta(self) -> Mapping[str, str]:
        """The run's id."""
        return {"run": "1"}

    def committed(self, commit: mdl.Commit) -> None:
        """Prints it."""
        print(commit.short_id)


class Tokenizer:
    """A type that states are taught."""

    def __init__(self, words: list[str]) -> None:
        self.words = words


def taught(repo: mdl.Repo) -> Any:
    """Trackers, types, lazy tensors."""
    assert_type(repo.track(Run()), Run)
    mdl.register(Tokenizer, "Tokenizer", lambda t: t.words, Tokenizer)
    assert_type(repo.tensor("main", "w"), mdl.LazyTensor)
    try:
        return repo.load("main", only="model", map_location="cpu")
    except mdl.NotFoundError as error:
        assert_type(error.hint, str | None)
        raise
