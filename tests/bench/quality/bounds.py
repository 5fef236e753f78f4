"""How far a stored checkpoint is from the exact one, row by row: computed here in numpy, whatever the record says.

The error of a row is the L2 norm of the difference over that of the weight, over that of the update, which is what
changed since the previous exact checkpoint, or over that of what changed since the version that is kept, which is the
stored one where no exact contents are. Rows go along the first axis; a tensor of one axis is one row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

ABOVE, WIPED = 0.15, 0.9
FAST = 0.02
"""A change of a row, relative to it, from which on it moves fast (docs/policies.md); up to half of that, slowly."""


def rows(value: np.ndarray) -> np.ndarray:
    return value.reshape(value.shape[0] if value.ndim > 1 else 1, -1).astype(np.float64)


def norms(value: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", value, value))


def allowance(change: np.ndarray, weight: np.ndarray, fast: float) -> np.ndarray:
    """How many times the bound a row may have that moves fast."""
    rate = np.divide(change, weight, out=np.zeros_like(change), where=weight > 0)
    return 1 + np.clip(rate / FAST * 2 - 1, 0, 1) * (fast - 1)


class Worst:
    """The largest error over a kind of denominator; an error over nothing is counted apart."""

    def __init__(self) -> None:
        self.row, self.tensor, self.at, self.over_zero = 0.0, 0.0, "", 0
        self.error = self.total = 0.0

    def add(self, name: str, error: np.ndarray, norm: np.ndarray) -> np.ndarray:
        """Takes a tensor's rows; the ratio of each, infinite where there is an error and nothing to compare it with."""
        self.over_zero += int(((norm == 0) & (error > 0)).sum())
        ratio = np.divide(error, norm, out=np.zeros_like(error), where=norm > 0)
        worst = int(ratio.argmax())
        if ratio[worst] > self.row:
            self.row, self.at = float(ratio[worst]), f"{name}[{worst}]"
        error_sum, norm_sum = float((error**2).sum()), float((norm**2).sum())
        if norm_sum > 0:
            self.tensor = max(self.tensor, (error_sum / norm_sum) ** 0.5)
        self.error += error_sum
        self.total += norm_sum
        return np.where((norm == 0) & (error > 0), np.inf, ratio)

    def summary(self) -> dict[str, Any]:
        """`overall`: of all tensors together, so that one number says what the version costs."""
        overall = (self.error / self.total) ** 0.5 if self.total > 0 else 0.0
        return {
            "row": self.row,
            "row_at": self.at,
            "tensor": self.tensor,
            "overall": overall,
            "over_zero": self.over_zero,
        }


def compare(
    exact: dict[str, np.ndarray],
    stored: dict[str, np.ndarray],
    previous: dict[str, np.ndarray] | None,
    restored: dict[str, np.ndarray] | None = None,
    kept: dict[str, np.ndarray] | None = None,
    fast: float = 1.0,
) -> dict[str, Any]:
    """Tensors that `previous` lacks have no update. `restored`: the weights that training went on from, if it did;
    `kept`: those of the version before as they are stored. An error over what changed since then is divided by what a
    row may have more that moves fast."""
    weight, update, first, trained, since = Worst(), Worst(), Worst(), Worst(), Worst()
    counts = dict.fromkeys(("rows", "exact_rows", "above", "wiped_embeddings"), 0)
    changed = sorted(set(exact) ^ set(stored))
    for name in sorted(set(exact) & set(stored)):
        value, back = exact[name], stored[name]
        if value.dtype != back.dtype or value.shape != back.shape:
            changed.append(name)
            continue
        if value.dtype.kind != "f":
            changed += [] if np.array_equal(value, back) else [name]
            continue
        mine = rows(value)
        error, norm = norms(rows(back) - mine), norms(mine)
        ratio = weight.add(name, error, norm)
        counts["rows"] += len(error)
        counts["exact_rows"] += int((error == 0).sum())
        counts["above"] += int((ratio > ABOVE).sum())
        if "embedding" in name and value.ndim > 1:
            counts["wiped_embeddings"] += int((ratio > WIPED).sum())
        if previous is not None and name in previous:
            update.add(name, error, norms(mine - rows(previous[name])))
        else:
            first.add(name, error, norm)
        if kept is not None and name in kept:
            change = norms(mine - rows(kept[name]))
            since.add(name, error / allowance(change, norm, fast), change)
        if restored is not None:
            trained.add(name, error, norms(mine - rows(restored[name])))
    return {
        **counts,
        "changed": sorted(changed),
        "weight": weight.summary(),
        "update": update.summary() if previous is not None else None,
        "first": first.summary(),
        "trained": trained.summary() if restored is not None else None,
        "kept": since.summary() if kept is not None else None,
    }


def measure(
    exact: Path, stored: Path, previous: Path | None, restored: Path | None, kept: Path | None, fast: float
) -> dict[str, Any]:
    before, start, last = (load_file(path) if path else None for path in (previous, restored, kept))
    return compare(load_file(exact), load_file(stored), before, start, last, fast)
