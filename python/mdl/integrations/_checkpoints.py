"""Shared by the integrations: opening the repository, callbacks once a commit is durable, metrics as plain floats.

Talks to `Repo` and to `mdl.retention` (through `Repo.prune`). It knows no framework.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import NotFoundError, UsageError
from ..repo import Repo
from ..tracking import Tracker

RepoLike = Repo | str | os.PathLike[str] | None
"""A repository, the directory it is or shall be in, or None for the one around the working directory."""


#: Trackers that know which run is active.
ACTIVE = ("wandb", "mlflow")
# One object per repository, so that its commits come one after the other and its readers wait for them.
_open: dict[str, tuple[Repo, tuple[int, int]]] = {}


def find_repo(repo: RepoLike) -> Repo:
    """The repository `repo` names; where nothing is there yet, a new one. None: around the working directory, or in
    it."""
    try:
        return existing_repo(repo)
    except NotFoundError:
        return _remember(Repo.init("." if repo is None else repo))


def existing_repo(repo: RepoLike) -> Repo:
    """The repository `repo` names, which must exist; a path is where it is, not somewhere below. Raises
    NotFoundError."""
    if isinstance(repo, Repo):
        return repo
    if repo is None:
        return _remember(Repo.open("."))
    if os.path.isdir(repo):
        found = Repo.open(repo)
        if os.path.realpath(repo) in (
            os.path.realpath(place) for place in (found.work, found.path) if place is not None
        ):
            return _remember(found)
    raise NotFoundError(f"no repository in {os.fspath(repo)}", "give the directory that has `.mdl`")


def _remember(found: Repo) -> Repo:
    """The object that this process has for the repository already, unless it was replaced on disk since."""
    place, stat = os.path.realpath(found.path), os.stat(found.path)
    known = _open.setdefault(place, (found, (stat.st_dev, stat.st_ino)))
    if known[1] != (stat.st_dev, stat.st_ino):
        known = _open[place] = (found, (stat.st_dev, stat.st_ino))
    return known[0]


class Checkpoints:
    """Commits for one callback: in the background, one after the other, and pruned by `retention` when they are
    durable.

    `commit` are keywords of `Repo.commit` that hold for every version: policy, evaluate, branch, meta, and so on.
    `track` are trackers (`Repo.track`), or names of those whose active run is meant: `"wandb"`, `"mlflow"`.
    They are tracked from the first commit of a run until `end`.
    """

    def __init__(self, repo: RepoLike, *, retention: Any = None, track: Any = None, **commit: Any) -> None:
        self.repo = find_repo(repo)
        self._track = [] if track is None else list(track) if isinstance(track, (list, tuple)) else [track]
        self._tracking: list[Tracker] | None = None
        for name in (t for t in self._track if isinstance(t, str) and t not in ACTIVE):
            raise UsageError(f"no tracker {name!r} has an active run", 'name "wandb" or "mlflow", or give a tracker')
        self._keywords = {"retention": retention, **commit}
        self._pending: list[Any] = []
        self._resumed_from: str | None = None

    def resumed(self, rev: str) -> None:
        """Notes that training was restored from `rev`: the next version notes it, which lossy policies need to know."""
        self._resumed_from = self.repo.resolve(rev)

    def commit(self, state: Mapping[str, Any], message: str, **about: Any) -> Any:
        """Commits a state; returns the pending commit. Raises BackgroundError if an earlier commit failed."""
        return self._add(self.repo.commit, state, message, about)

    def commit_dir(self, path: str | os.PathLike[str], message: str, **about: Any) -> Any:
        """Commits a directory's files, which may be removed as soon as this returns. Otherwise as `commit`."""
        return self._add(self.repo.commit_dir, path, message, about)

    def flush(self) -> None:
        """Waits until everything is durable, and pruned by the rules. Raises BackgroundError if a commit failed."""
        self._settle(wait=True)
        self.repo.flush()

    def end(self) -> None:
        """As `flush`, at the end of a training run: its trackers are told of no version after it, and those of the next
        run are found when that commits."""
        try:
            self.flush()
        finally:
            for tracker in self._tracking or ():
                self.repo.untrack(tracker)
            self._tracking = None

    def _begin_tracking(self) -> None:
        """At the first version of a run: tracks what is not tracked yet; a name means the run that is active now."""
        if self._tracking is not None:
            return
        known, self._tracking = self.repo._trackers, []
        for tracker in self._track:
            try:
                run = _active(tracker, self.repo) if isinstance(tracker, str) else tracker
            except UsageError as error:
                warnings.warn(f"versions are not tracked: {error.message}", RuntimeWarning, stacklevel=4)
                continue
            if run not in known:
                self._tracking.append(self.repo.track(run))

    def _add(self, commit: Callable[..., Any], what: Any, message: str, about: Mapping[str, Any]) -> Any:
        self._settle(wait=False)
        self._begin_tracking()
        if self._resumed_from is not None:
            about = {"resumed_from": self._resumed_from, **about}
        pending = commit(what, message, **{**self._keywords, **about}, wait=False)
        self._resumed_from = None
        self._pending.append(pending)
        return pending

    def _settle(self, *, wait: bool) -> None:
        """Takes what is durable off the list; what failed is raised."""
        durable = [pending for pending in self._pending if wait or pending.done()]
        self._pending = [pending for pending in self._pending if pending not in durable]
        for pending in durable:
            pending.result()


def _active(name: str, repo: Repo) -> Tracker:
    """A tracker of the run that is active."""
    tracker: Tracker = importlib.import_module(f"mdl.integrations.{name}").track(repo)
    return tracker


#: Metrics of a version that frameworks log with others; those that tell how good it is, and how training went.
KEEP = ("loss", "eval_loss", "learning_rate", "grad_norm")


def kept(metrics: Mapping[str, float], keep: Any, *further: str | None) -> dict[str, float]:
    """The metrics that `keep` names by globs, None: `KEEP` and `further`; or all, where `keep` is "all"."""
    if keep == "all":
        return dict(metrics)
    globs = [keep] if isinstance(keep, str) else [*KEEP, *further] if keep is None else list(keep)
    return {n: v for n, v in metrics.items() if any(glob and fnmatch.fnmatchcase(n, glob) for glob in globs)}


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of `values` that are one number each, as floats: Python's, numpy's, or tensors of one element."""
    found = {name: _number(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _number(value: Any) -> float | None:
    # Strings convert to floats too easily, and a bool is a flag, not a measurement.
    if value is None or isinstance(value, (str, bytes, bool)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def scratch_parent(repo: Repo) -> Path:
    """Where short-lived directories go: beside the repository, so that its files can be linked instead of copied."""
    return Path(repo.path).parent


def scratch_prefix() -> str:
    """The beginning of a scratch directory's name; `.mdl-PID-` is what a walk of the work tree leaves out."""
    return f".mdl-{os.getpid()}-"
