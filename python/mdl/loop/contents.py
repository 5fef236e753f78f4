"""Builds the contents of a training loop's checkpoint, and maps its tensors to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ..errors import UsageError
from ..state import entry_stems
from .groups import Stored


def contents(model: nn.Module, parts: Mapping[str, Any], random: Any, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The state: ``model``, each of ``parts`` that is there by its ``state_dict()``, ``rng``, and the user's entries.

    Raises:
        UsageError: an entry has the name of another.
    """
    state: dict[str, Any] = {"model": model.state_dict()}
    state |= {name: part.state_dict() for name, part in parts.items() if part is not None}
    if random is not None:
        state["rng"] = random
    twice = sorted(state.keys() & entries.keys())
    if twice:
        raise UsageError(f"state() gives what is there already: {', '.join(twice)}", "give it other names")
    return {**state, **entries}


def stored(state: Mapping[str, Any]) -> Iterator[Stored]:
    """The tensors of a state by the names that its files have for them."""
    stems = entry_stems(state)
    for key, entry in state.items():
        if key in stems:
            yield from _below(stems[key], "", entry)
        else:
            yield from _below("model", str(key), entry)


def _below(stem: str, name: str, value: Any) -> Iterator[Stored]:
    if isinstance(value, Tensor) or (hasattr(value, "dtype") and hasattr(value, "shape")):
        yield Stored(stem, name, tuple(value.shape))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _below(stem, f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _below(stem, f"{name}.{i}" if name else str(i), item)
