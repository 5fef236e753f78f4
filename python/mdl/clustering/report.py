"""What a palettized model is: clusters, errors, and bytes saved for the backward pass, for each weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from .layer import DKM
from .marshal import counting
from .points import UniquePoints, keys_of
from .selection import Place


@dataclass(frozen=True)
class WeightReport:
    """One weight.

    Args:
        name, shape, dtype: Of the weight; ``dtype`` as torch calls it.
        bits, dim, groups: How it is clustered.
        unique: How many values of 16 bits it has; None: it is not clustered by value.
        error: ||hard - weight|| / ||weight||, hard being what `finalize` would give.
        gap: ||soft - hard|| / ||hard||: how far what is trained is from what is kept.
        temperature: As it is now, relative to the first distortion.
        bits_per_weight: Of indices and f32 tables together.
        saved_bytes: What a forward pass saves for the backward pass of this layer, parameters apart; counted.
        dense_bytes: What attention takes if it is saved for each weight, in its precision.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bits: int
    dim: int
    groups: int
    unique: int | None
    error: float
    gap: float
    temperature: float
    bits_per_weight: float
    saved_bytes: int
    dense_bytes: int


@dataclass(frozen=True)
class PaletteReport:
    """All weights that are clustered; ``skipped`` says why others of the same kinds are not, by name."""

    steps: int
    weights: list[WeightReport]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def saved_bytes(self) -> int:
        return sum(w.saved_bytes for w in self.weights)

    @property
    def dense_bytes(self) -> int:
        return sum(w.dense_bytes for w in self.weights)

    def __str__(self) -> str:
        width = max(len(w.name) for w in self.weights)
        lines = [f"{'weight':{width}}  {'shape':>16} bits  unique  error    gap     saved     dense"]
        for w in self.weights:
            unique = "-" if w.unique is None else f"{w.unique}"
            lines.append(
                f"{w.name:{width}}  {'x'.join(map(str, w.shape)):>16} {w.bits:4} {unique:>7} {w.error:6.4f} "
                f"{w.gap:6.4f} {w.saved_bytes:9} {w.dense_bytes:9}"
            )
        lines.append(f"saved {self.saved_bytes} bytes, dense {self.dense_bytes}; {len(self.skipped)} weights left out")
        return "\n".join(lines)


def report_of(layers: list[tuple[Place, DKM]], skipped: dict[str, str], steps: int) -> PaletteReport:
    """Runs each layer once, soft and hard."""
    return PaletteReport(steps, [_weight(place, dkm) for place, dkm in layers], dict(skipped))


def _weight(place: Place, dkm: DKM) -> WeightReport:
    weight, settings = place.weight, dkm.settings
    hard, centroids = dkm.hard(weight)
    # A weight that is frozen saves nothing in training; here it is as if it were not.
    trained = weight.detach().requires_grad_()
    with torch.enable_grad(), counting([trained]) as saved:
        soft = dkm.soft(trained).detach()
    groups = len(centroids)
    unique = None
    if settings.by_value(weight.dtype):
        keys = keys_of(weight.detach())
        unique = UniquePoints(keys, weight.dtype if weight.element_size() == 2 else torch.bfloat16).rows
    vectors = weight.numel() // settings.dim
    table = groups * 2**settings.bits * settings.dim * 32
    exact = weight.detach().double()
    return WeightReport(
        name=place.name,
        shape=tuple(weight.shape),
        dtype=str(weight.dtype).removeprefix("torch."),
        bits=settings.bits,
        dim=settings.dim,
        groups=groups,
        unique=unique,
        error=_relative(hard.double() - exact, exact),
        gap=_relative(soft.double() - hard.double(), hard.double()),
        temperature=dkm.temperature,
        bits_per_weight=(vectors * settings.bits + table) / weight.numel(),
        saved_bytes=saved.distinct,
        dense_bytes=vectors * 2**settings.bits * settings.iterations * weight.element_size(),
    )


def _relative(difference: torch.Tensor, whole: torch.Tensor) -> float:
    norm = float(whole.norm())
    return float(difference.norm()) / norm if norm > 0 else (0.0 if float(difference.norm()) == 0 else math.inf)
