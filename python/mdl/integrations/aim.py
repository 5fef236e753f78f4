"""Aim: each version's id, label and sizes in the run, the run's hash in each version.

    run = aim.Run(experiment="gpt")
    mdl.integrations.aim.track(repo, run)

The run's series are ``mdl.stored_bytes`` and ``mdl.logical_bytes``; ``run["mdl"]`` has the newest version, and under
``versions`` each by its step. A version's meta has ``aim.run`` (the hash) and ``aim.experiment``.
"""

from __future__ import annotations

from typing import Any

from ..commits import Commit
from ..repo import Repo
from ..tracking import facts


class AimTracker:
    """An Aim run that is told of versions."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._versions: dict[str, str] = {}

    def meta(self) -> dict[str, str]:
        """The run's hash, and its experiment."""
        return {"aim.run": str(self.run.hash), "aim.experiment": str(getattr(self.run, "experiment", None) or "")}

    def committed(self, commit: Commit) -> None:
        """Adds the version to the run."""
        said = facts(commit)
        for name in ("stored_bytes", "logical_bytes"):
            self.run.track(said[name], name=f"mdl.{name}", step=commit.step)
        if commit.step is not None:
            self._versions[str(commit.step)] = commit.id
        self.run["mdl"] = {"version": commit.id, "resume": said["resume"], "versions": dict(self._versions)}


def track(repo: Repo, run: Any) -> AimTracker:
    """Tells ``run``, an `aim.Run`, of every version from now on."""
    return repo.track(AimTracker(run))
