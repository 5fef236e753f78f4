"""Experiment trackers: what a version is goes into the tracker's run, which run it was goes into the version.

`mdl.integrations.wandb`, `mlflow`, `tensorboard` and `aim` have one each; anything with these two methods will do.
"""

from __future__ import annotations

import collections
import re
import warnings
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from .commits import Commit
from .fields import commit_fields


class Tracker(Protocol):
    """A run of an experiment tracker."""

    def meta(self) -> Mapping[str, str]:
        """What to say in each version of the run: its id, its address. Called when a commit begins. Empty once the run
        has ended: it is then told of no further version."""

    def committed(self, commit: Commit) -> Any:
        """A version is durable. Called on the thread that trains: at its next commit or flush."""


T = TypeVar("T", bound=Tracker)


class Tracked:
    """What `Repo` does for trackers. A tracker that fails is a RuntimeWarning: no version is lost for it."""

    def _begin_tracking(self) -> None:
        # Replaced and never changed, since other threads may be reading it.
        self._trackers: tuple[Tracker, ...] = ()
        self._durable: collections.deque[tuple[Commit, tuple[Tracker, ...]]] = collections.deque()

    def track(self, tracker: T) -> T:
        """Tells a tracker of every version that is committed from now on, and notes its run in the version's
        ``meta``. It takes the place of an earlier one of its class: a version is of one run of a tracker. The functions
        ``track`` of `mdl.integrations.wandb` and the others make one and do this."""
        self._tell()
        self._trackers = (*(other for other in self._trackers if type(other) is not type(tracker)), tracker)
        return tracker

    def untrack(self, tracker: Tracker) -> None:
        """Tells it of no version that is committed from now on. Nothing happens where another took its place."""
        self._tell()
        self._trackers = tuple(other for other in self._trackers if other is not tracker)

    def _fields(self, *said: Any) -> dict[str, Any]:
        """What a version is made with, and which runs it is of; what the caller says in ``meta`` stands."""
        self._tell()
        fields, trackers = commit_fields(*said), self._trackers
        runs: dict[str, str] = {}
        for tracker in trackers:
            try:
                runs |= {k: str(v) for k, v in tracker.meta().items() if v}
            except Exception as error:
                _failed(tracker, error)
        # Whatever tracks the repository once the version is durable: it is of these runs.
        return {**fields, "meta": {**runs, **fields["meta"]}, "trackers": trackers}

    def _note(self, commit: Commit, fields: Mapping[str, Any]) -> None:
        if fields["trackers"]:
            self._durable.append((commit, fields["trackers"]))

    def _tell(self) -> None:
        while True:
            try:
                commit, trackers = self._durable.popleft()
            except IndexError:
                # Another thread may have taken the last one.
                return
            for tracker in trackers:
                try:
                    tracker.committed(commit)
                except Exception as error:
                    _failed(tracker, error)


def _failed(tracker: Tracker, error: Exception) -> None:
    warnings.warn(f"{type(tracker).__module__} failed: {error}", RuntimeWarning, stacklevel=4)


def public_url(url: str) -> str:
    """An address without what may be secret in it: user, password, query, fragment. Empty where it cannot be told
    apart. Meta of versions is pushed and shown. What is no URL stays as it is."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    # A password with "/", "?" or "#" in it ends the authority too early.
    if "@" in path and not re.fullmatch(r"[^:@]*(:\d*)?", authority):
        return ""
    return f"{scheme}://{authority.rpartition('@')[2]}{re.split(r'[?#]', path, maxsplit=1)[0]}"


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
