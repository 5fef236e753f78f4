"""Weights & Biases: each version's id, label and sizes in the run, the run's id and address in each version.

    run = wandb.init(project="gpt")
    mdl.integrations.wandb.track(repo)

In the run's summary ``mdl.version`` is the newest version; its history has ``mdl/version``, ``mdl/resume``,
``mdl/stored_bytes`` and ``mdl/logical_bytes`` beside the row that is logged next. A version's meta has ``wandb.run``
(``ENTITY/PROJECT/ID``) and, where the run is online, ``wandb.url``.
"""

from __future__ import annotations

from typing import Any

import wandb

from ..commits import Commit
from ..errors import UsageError
from ..repo import Repo
from ..tracking import facts, public_url


class WandbTracker:
    """A W&B run that is told of versions."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self._active = wandb.run is run

    def meta(self) -> dict[str, str]:
        """The run's path and address; nothing once it has ended."""
        if self._ended():
            return {}
        parts = (self.run.entity, self.run.project, self.run.id)
        # Of an anonymous run older clients put a key into the address.
        return {"wandb.run": "/".join(part for part in parts if part), "wandb.url": public_url(self.run.url or "")}

    def committed(self, commit: Commit) -> None:
        """Adds the version to the run, without a step of its own: the next row that is logged has it."""
        if self._ended():
            return
        said = facts(commit)
        self.run.log({f"mdl/{name}": value for name, value in said.items() if value not in (None, "")}, commit=False)
        self.run.summary["mdl.version"] = commit.id
        self.run.summary["mdl.resume"] = said["resume"]

    def _ended(self) -> bool:
        return self._active and wandb.run is not self.run


def track(repo: Repo, run: Any = None) -> WandbTracker:
    """Tells ``run`` (default: the active one) of every version from now on.

    Raises:
        UsageError: no run is active.
    """
    run = wandb.run if run is None else run
    if run is None:
        raise UsageError("no W&B run is active", "call wandb.init before, or give the run")
    return repo.track(WandbTracker(run))
