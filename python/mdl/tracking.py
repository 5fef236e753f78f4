"""Experiment trackers: what a version is goes into the tracker's run, which run it was goes into the version.

`mdl.integrations.wandb`, `mlflow`, `tensorboard` and `aim` have one each; anything with these two methods will do.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from .commits import Commit
from .fields import commit_fields


class Tracker(Protocol):
    """A run of an experiment tracker."""

    def meta(self) -> Mapping[str, str]:
        """What to say in each version of the run: its id, its address. Called when a commit begins."""

    def committed(self, commit: Commit) -> Any:
        """A version is durable. Called on the thread that trains: at its next commit or flush."""


T = TypeVar("T", bound=Tracker)


class Tracked:
    """What `Repo` does for trackers. A tracker that fails is a RuntimeWarning: no version is lost for it."""

    def _begin_tracking(self) -> None:
        self._trackers: list[Tracker] = []
        self._durable: collections.deque[Commit] = collections.deque()

    def track(self, tracker: T) -> T:
        """Tells a tracker of every version that is committed from now on, and notes its run in the version's
        ``meta``. The functions ``track`` of `mdl.integrations.wandb` and the others make one and do this."""
        self._trackers.append(tracker)
        return tracker

    def untrack(self, tracker: Tracker) -> None:
        """Tells it no more."""
        self._tell()
        self._trackers.remove(tracker)

    def _fields(self, *said: Any) -> dict[str, Any]:
        """What a version is made with, and which runs it is of; what the caller says in ``meta`` stands."""
        self._tell()
        fields = commit_fields(*said)
        for tracker in self._trackers:
            try:
                fields["meta"] = {**{k: str(v) for k, v in tracker.meta().items() if v}, **fields["meta"]}
            except Exception as error:
                _failed(tracker, error)
        return fields

    def _note(self, commit: Commit) -> None:
        if self._trackers:
            self._durable.append(commit)

    def _tell(self) -> None:
        while self._durable:
            commit = self._durable.popleft()
            for tracker in self._trackers:
                try:
                    tracker.committed(commit)
                except Exception as error:
                    _failed(tracker, error)


def _failed(tracker: Tracker, error: Exception) -> None:
    warnings.warn(f"{type(tracker).__module__} failed: {error}", RuntimeWarning, stacklevel=4)


def facts(commit: Commit) -> dict[str, Any]:
    """What trackers are told of a version: its id, label and sizes in bytes."""
    return {
        "version": commit.id,
        "resume": commit.resume or "no tensors",
        "branch": commit.branch or "",
        "step": commit.step,
        "logical_bytes": commit.logical_bytes,
        "stored_bytes": commit.stored_bytes,
    }
