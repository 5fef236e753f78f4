"""What the caller says of a version, checked, as the native half takes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .errors import UsageError
from .origin import Provenance, Sign, captured, signing

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
    provenance: Provenance | None = None,
    sign: Sign | None = None,
) -> dict[str, Any]:
    """What a version is made with. Numbers may be numpy's, torch's or jax's; metrics that are None are left out.

    Raises:
        UsageError: the step is no number of steps; the epoch or a metric, by its name, is no number.
    """
    count = None if step is None else _count(step)
    return {
        "message": message if message is not None else ("checkpoint" if count is None else f"step {count}"),
        "branch": branch,
        "step": count,
        "epoch": None if epoch is None else number("epoch", epoch),
        # What was not measured this time is not said.
        "metrics": {str(k): number(f"metric {k!r}", v) for k, v in (metrics or {}).items() if v is not None},
        "meta": {str(k): str(v) for k, v in (meta or {}).items() if v is not None},
        "allow_empty": allow_empty,
        "resumed_from": resumed_from,
        "resume": None,
        "provenance": captured(provenance),
        "sign": signing(sign),
        "background": False,
    }


def number(name: str, value: Any) -> float:
    """A Python number, or one of numpy's, torch's, jax's with one element.

    Raises:
        UsageError: it is none; ``name`` says what of.
    """
    value = value.detach() if hasattr(value, "detach") else value
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"it is {type(value).__name__}")
        # numpy's arrays of one element and more dimensions are one number as well.
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        kind = f"an array of shape {tuple(shape)}" if shape else f"{value!r}"
        raise UsageError(f"{name} is no number but {kind}", "give one number, as metrics={'loss': 1.5}") from error


def _count(step: Any) -> int:
    try:
        value = number("step", step)
    except UsageError as error:
        raise UsageError(error.message, "an integer from 0 up is wanted") from None
    # Beyond 2**53 a float is no longer the integer.
    count = int(step) if isinstance(step, int) else int(value) if value == value and abs(value) < 2**63 else -1
    if isinstance(step, bool) or not 0 <= count < 2**63 or (not isinstance(step, int) and count != value):
        raise UsageError(f"step {step!r} is no number of steps", "an integer from 0 up is wanted")
    return count


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
