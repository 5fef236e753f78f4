"""`mdl.Probe`: compares what a candidate and the exact model make of random inputs.

A gate sees what its data reach. Random tokens at every position, or images of noise, reach what the data do not: rows
of an embedding for words that validation lacks, positions behind its longest text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .errors import UsageError
from .loop.outputs import Runs

#: Measured (docs/loop.md): candidates within the bounds of the policy `lossy` give 0.1 at most, half of the words wiped
#: 0.7 to 1.0. In between by ratio, nearer to the candidates.
MAX_RELATIVE_ERROR = 0.2
#: In nats. The same of logits: 0.002 at most, and 0.9 to 1.2.
MAX_KL = 0.05
#: Numbers compared at a time.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Probed:
    """How far a candidate's outputs are from the exact model's: ``relative_error`` is ||c - e|| / ||e||, ``kl`` the
    mean divergence of the classes' probabilities in nats (None: the outputs are no logits)."""

    relative_error: float
    kl: float | None


@dataclass(frozen=True)
class Outputs:
    """What the exact model gave at a step: of each tensor its rows, f32 ``[positions, width]`` on the host, and whether
    they are logits."""

    step: int
    rows: list[tuple[Tensor, bool]]

    @property
    def usable(self) -> bool:
        """Whether they can be compared with: a model that diverged gives NaN."""
        return not any(bool(rows.isnan().any()) for rows, _ in self.rows)


class Probe:
    """A check that needs no data, beside the gate of `mdl.Compressor`.

    Args:
        inputs: Gives the model's random inputs, all drawn from the `torch.Generator` (on the host) that it is handed: a
            tensor, or a tuple or mapping of arguments. They are moved to the model's device, floats to its precision.
            None: made up by the configuration, as Hugging Face's models have it: token ids, int64 ``[1, positions]``
            (``vocab_size``), or noise ``[1, channels, height, width]`` (``image_size``).
        max_relative_error: Largest ||candidate - exact|| / ||exact|| of the outputs that passes; ``math.inf``: any.
        max_kl: Largest mean KL(exact || candidate) in nats that passes, where the outputs are logits.
        rows: Texts or images that are made up.
        longest: Most positions of a text.
        class_axis: Axis of the outputs that has the classes. None: of outputs that are called logits the last one (the
            second one of images), of others none.
        seed: What is drawn depends on this and on the step.

    Raises:
        UsageError: a limit that is not above 0, or sizes below 1.
    """

    def __init__(
        self,
        inputs: Callable[[torch.Generator], Any] | None = None,
        *,
        max_relative_error: float = MAX_RELATIVE_ERROR,
        max_kl: float = MAX_KL,
        rows: int = 4,
        longest: int = 2048,
        class_axis: int | None = None,
        seed: int = 0,
    ) -> None:
        if not (max_relative_error > 0 and max_kl > 0):
            raise UsageError("limits must be above 0", "math.inf lets anything pass")
        if rows < 1 or longest < 1:
            raise UsageError("rows and longest must be 1 or more", "they are the size of what is made up")
        self._runs, self._seed = Runs(inputs, rows, longest, class_axis), seed
        self.max_relative_error, self.max_kl = max_relative_error, max_kl

    def check(self, model: nn.Module) -> None:
        """Makes sure that there are inputs for a model.

        Raises:
            UsageError: they cannot be made up.
        """
        self._runs.check(model)

    def outputs(self, model: nn.Module, step: int = 0) -> Outputs:
        """What the exact model gives. It runs in evaluation mode and without a graph; afterwards it and all random
        generators are as before.

        Raises:
            UsageError: there are no inputs for it, or it gives no tensor of floating point numbers.
        """
        with self._runs.outputs(model, self._seed + step) as outputs:
            return Outputs(step, list(outputs))

    def compare(self, exact: Outputs, model: nn.Module) -> Probed:
        """How far a candidate's outputs for the same inputs are from the exact ones. The model is left as by `outputs`.

        Raises:
            ValueError: it gives more or fewer outputs, or of other shapes.
        """
        error = norm = divergence = 0.0
        positions = 0
        with self._runs.outputs(model, self._seed + exact.step) as outputs:
            for (before, is_logits), (after, _) in zip(exact.rows, outputs, strict=True):
                if before.shape != after.shape:
                    raise ValueError(f"the outputs have the shapes {[*before.shape]} and {[*after.shape]}")
                at_once = max(1, _AT_ONCE // max(1, before.shape[1]))
                for e, c in zip(before.split(at_once), after.split(at_once), strict=True):
                    # Infinite on both sides: a class that is masked out.
                    error += float(torch.where(e == c, 0.0, c - e).double().square().sum())
                    norm += float(e.masked_fill(e.isinf(), 0.0).double().square().sum())
                    divergence += _divergence(e, c) if is_logits else 0.0
                positions += len(before) if is_logits else 0
        relative = math.sqrt(error / norm) if norm > 0 else (0.0 if error == 0 else math.inf)
        # Rounding may leave it below 0; a NaN stays one.
        return Probed(relative, (0.0 if divergence < 0 else divergence / positions) if positions else None)

    def passes(self, found: Probed) -> bool:
        """Whether a candidate is within the limits; NaN is not."""
        return found.relative_error <= self.max_relative_error and (found.kl is None or found.kl <= self.max_kl)


def _divergence(exact: Tensor, candidate: Tensor) -> float:
    """The sum over rows of KL(exact || candidate)."""
    p, q = exact.log_softmax(1), candidate.log_softmax(1)
    # What has no probability adds nothing.
    return float(torch.where(p == -math.inf, 0.0, p.exp() * (p - q)).double().sum())
