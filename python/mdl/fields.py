"""What the caller says of a version, checked, as the native half takes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .errors import UsageError

Path = str | os.PathLike[str]


def commit_fields(
    message: str | None,
    step: int | None,
    epoch: float | None,
    metrics: Mapping[str, Any] | None,
    meta: Mapping[str, str] | None,
    branch: str | None,
    allow_empty: bool,
    resumed_from: str | None,
) -> dict[str, Any]:
    """What a version is made with.

    Raises:
        UsageError: the step is no number of steps.
    """
    if step is not None and (int(step) != step or not 0 <= step < 2**63):
        raise UsageError(f"step {step!r} is no number of steps", "an integer from 0 up is wanted")
    step = None if step is None else int(step)
    return {
        "message": message if message is not None else ("checkpoint" if step is None else f"step {step}"),
        "branch": branch,
        "step": step,
        "epoch": None if epoch is None else float(epoch),
        # Tensors and numpy's numbers of one element are numbers too.
        "metrics": {str(k): float(v.detach() if hasattr(v, "detach") else v) for k, v in (metrics or {}).items()},
        "meta": {str(k): str(v) for k, v in (meta or {}).items()},
        "allow_empty": allow_empty,
        "resumed_from": resumed_from,
        "resume": None,
        "background": False,
    }


def lossy_options(
    policy: str | None,
    quality: float | None,
    progress: float | None,
    higher_is_better: bool,
    grads: Path | None,
    since: Path | None,
    evaluate: Any,
) -> dict[str, Any] | None:
    """How a version may be stored lossily; None where it may not.

    Raises:
        UsageError: quality and progress are both given.
    """
    if quality is not None and progress is not None:
        raise UsageError(
            "quality or progress, not both", "quality is a part of the measured number, progress of the gain per commit"
        )
    if policy is None and quality is None and progress is None and evaluate is None:
        return None
    return {
        "policy": policy or "lossy",
        "quality": quality,
        "progress": progress,
        "higher_is_better": higher_is_better,
        "grads": None if grads is None else os.fspath(grads),
        "since": None if since is None else os.fspath(since),
    }
