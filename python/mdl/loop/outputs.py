"""Outputs of a model for random inputs, as rows that can be compared."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UsageError
from .inputs import Call, cannot, made_up
from .swap import bare, undisturbed

#: Numbers taken of a model's outputs, in all: 128 MiB.
_MOST = 1 << 25


class Runs:
    """Runs a model on inputs that its seed decides: ``inputs(generator)``, or made up by its configuration."""

    def __init__(
        self, inputs: Callable[[torch.Generator], Any] | None, rows: int, longest: int, class_axis: int | None
    ) -> None:
        self._inputs, self._rows, self._longest, self._class_axis = inputs, rows, longest, class_axis

    def check(self, model: nn.Module) -> None:
        """Makes sure that there are inputs.

        Raises:
            UsageError: they cannot be made up.
        """
        if self._inputs is None:
            made_up(bare(model), 1, 1, torch.Generator())

    @contextlib.contextmanager
    def outputs(self, model: nn.Module, seed: int) -> Iterator[Iterator[tuple[Tensor, bool]]]:
        """Inside, tensors on the host of one row by position (by element of a batch), and whether they are logits.

        The model is in evaluation mode and builds no graph; afterwards it and all random generators are as before.
        """
        # A compiled model would be compiled anew for other shapes, and replicas need not wait for each other.
        model = bare(model)
        with undisturbed(model, {}):
            yield self._each(model, seed)

    def _each(self, model: nn.Module, seed: int) -> Iterator[tuple[Tensor, bool]]:
        generator = torch.Generator().manual_seed(seed)
        if self._inputs is None:
            calls = made_up(model, self._rows, self._longest, generator)
        else:
            calls = [_call(self._inputs(generator))]
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
        _seed_all(seed)
        for args, named in calls:
            try:
                made = model(*_placed(args, like), **_placed(named, like))
            except Exception as error:
                if self._inputs is not None:
                    raise
                raise cannot(model, f"{type(error).__name__}: {error}") from error
            chosen = list(_chosen(made))
            if not chosen:
                hint = "it is to return logits, a hidden state, or a tensor"
                raise UsageError(f"{type(model).__name__} gives no tensor of floating point numbers", hint)
            for tensor, named_so in chosen:
                rows, is_logits = self._in_rows(tensor, named_so)
                yield _thinned(rows, _MOST // (len(calls) * len(chosen))).to("cpu", torch.float32, copy=True), is_logits

    def _in_rows(self, tensor: Tensor, named_so: bool) -> tuple[Tensor, bool]:
        axis = self._class_axis
        if axis is None and named_so and tensor.dim() > 1:
            axis = 1 if tensor.dim() == 4 else -1
        if axis is not None:
            tensor = tensor.movedim(axis, -1)
        width = tensor.shape[-1] if tensor.dim() else 1
        return tensor.reshape(-1, max(1, width)), axis is not None and width > 1


def _call(given: Any) -> Call:
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def _placed(value: Any, like: Tensor) -> Any:
    """With tensors where the model is, and of its precision."""
    if isinstance(value, Tensor):
        return value.to(like.device, like.dtype if value.is_floating_point() else None)
    if isinstance(value, Mapping):
        return {name: _placed(item, like) for name, item in value.items()}
    return type(value)(_placed(item, like) for item in value) if type(value) in (tuple, list) else value


def _seed_all(seed: int) -> None:
    """For models that draw numbers themselves. `torch.manual_seed` would seed GPUs that nothing has used yet, too."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _chosen(made: Any) -> Iterator[tuple[Tensor, bool]]:
    """The outputs that are compared: all logits, else the last hidden state, else the first tensor of floats."""
    if dataclasses.is_dataclass(made) and not isinstance(made, Mapping):
        made = vars(made)
    if isinstance(made, Mapping):
        logits = [v for name, v in made.items() if str(name).endswith("logits") and isinstance(v, Tensor)]
        if logits:
            yield from ((tensor, True) for tensor in logits)
            return
        made = [made.get("last_hidden_state"), *made.values()]
    if isinstance(made, Tensor):
        if made.is_floating_point():
            yield made, False
    elif isinstance(made, (tuple, list)):
        found = (one for item in made for one in _chosen(item))
        yield from [one for _, one in zip(range(1), found, strict=False)]


def _thinned(rows: Tensor, most: int) -> Tensor:
    """Rows evenly spread over all, so many that they have no more numbers than that."""
    count = max(1, most // rows.shape[1])
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count, device=rows.device).long()]
