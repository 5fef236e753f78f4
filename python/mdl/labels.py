"""Resume label of a state ("exact-resume", "approximate", "weights-only"), derived from its entries.

The repository derives the same from file names (its `resume` module), and makes an exact label approximate where
something was stored lossily.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .dtypes import is_jax
from .tensors import is_tensor

#: How deep keys are searched: {"trainer": {"optimizers": {"adam": {...}}}}.
_DEPTH = 4


def label_of(state: Any) -> str | None:
    """``"exact-resume"``: weights, an optimizer and random states; ``"approximate"``: no random states;
    ``"weights-only"``: no optimizer; None: no tensors. Where names leave it open the lesser label is given.
    """
    weights = optimizer = random = False
    for role in _roles(state, _DEPTH):
        weights, optimizer, random = (
            weights or role == "weights",
            optimizer or role == "optimizer",
            random or role == "random",
        )
    if not (weights or optimizer or random):
        return None
    if not optimizer:
        return "weights-only"
    return "exact-resume" if weights and random else "approximate"


def _roles(value: Any, depth: int) -> Iterator[str]:
    if is_tensor(value):
        yield "weights"
    elif isinstance(value, Mapping):
        if {"state", "param_groups"} <= set(value):
            yield "optimizer"
            return
        for key, item in value.items():
            yield from _named(str(key).lower(), item, depth)
    elif isinstance(value, (list, tuple)) and depth:
        for item in value:
            yield from _roles(item, depth - 1)


def _named(key: str, item: Any, depth: int) -> Iterator[str]:
    # A model may have parts of any name: only entries with more than a tensor are searched.
    # jax's random keys are arrays.
    if (not is_tensor(item) or is_jax(item)) and any(word in key for word in ("rng", "random_state", "random-state")):
        yield "random"
    elif isinstance(item, (Mapping, list, tuple)) and len(item) > 0 and ("optim" in key or key == "opt_state"):
        yield "optimizer"
    elif depth:
        yield from _roles(item, depth - 1)
