"""TensorBoard: each version's id, label and sizes among the run's scalars and texts, the log's directory in each
version.

    writer = SummaryWriter("logs")      # torch.utils.tensorboard's, or tensorboardX's
    mdl.integrations.tensorboard.track(repo, writer)

The scalars are ``mdl/stored_bytes`` and ``mdl/logical_bytes``, the text ``mdl/version``. A version's meta has
``tensorboard.logdir``.
"""

from __future__ import annotations

import os
from typing import Any

from ..commits import Commit
from ..repo import Repo
from ..tracking import facts


class TensorBoardTracker:
    """A SummaryWriter that is told of versions."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def meta(self) -> dict[str, str]:
        """The log's directory."""
        directory = getattr(self.writer, "log_dir", None) or getattr(self.writer, "logdir", "")
        return {"tensorboard.logdir": os.path.abspath(directory) if directory else ""}

    def committed(self, commit: Commit) -> None:
        """Adds the version at its step."""
        said = facts(commit)
        for name in ("stored_bytes", "logical_bytes"):
            self.writer.add_scalar(f"mdl/{name}", said[name], commit.step)
        self.writer.add_text("mdl/version", f"`{commit.id}` ({said['resume']})", commit.step)


def track(repo: Repo, writer: Any) -> TensorBoardTracker:
    """Tells ``writer`` of every version from now on."""
    return repo.track(TensorBoardTracker(writer))
