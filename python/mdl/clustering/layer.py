"""The DKM layer: a parametrization of one weight, and the autograd function behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import dkm
from .learners import Learners
from .points import HALVES, DensePoints, Points, UniquePoints, keys_of


@dataclass(frozen=True)
class Settings:
    """How weights are clustered, and what is saved for the backward pass.

    Args:
        bits: Bits per vector of weights: 2^bits centroids.
        group: Rows (of the first axis) that share centroids; None: the whole tensor.
        dim: Consecutive weights that make a vector.
        iterations: Iterations of k-means in a forward pass, at most.
        tolerance: They end earlier where no centroid moved further, in units of the root mean square distance of the
            weights from their centroids; 0: never.
        unique: Whether 16-bit weights are clustered by their values.
        key16: Whether f32 weights are rounded to bfloat16 for clustering, so that they have 16 bits.
        index: ``"self"``: the weights' own bits are the index list, nothing is saved; ``"list"``: the list is saved.
        recompute: Whether attention is computed again in the backward pass instead of saved.
        learners: Who shares the index list; None: it is kept whole.
    """

    bits: int
    group: int | None = None
    dim: int = 1
    iterations: int = 3
    tolerance: float = 0.0
    unique: bool = True
    key16: bool = False
    index: str = "self"
    recompute: bool = True
    learners: Learners | None = None

    def by_value(self, dtype: torch.dtype) -> bool:
        """Whether weights of a precision are clustered by their values."""
        return self.unique and self.dim == 1 and (dtype in HALVES or (dtype == torch.float32 and self.key16))

    def groups(self, weight: Tensor) -> Iterator[slice]:
        """The parts of a flattened weight that share centroids."""
        rows = weight.shape[0] if weight.dim() else 1
        row = weight.numel() // max(1, rows)
        step = (self.group or rows) * row
        return (slice(at, min(at + step, weight.numel())) for at in range(0, weight.numel(), step))


class _Weight:
    """A weight's groups as points."""

    def __init__(self, settings: Settings, shape: torch.Size, values: Tensor | None, keys: Tensor | None) -> None:
        self._settings, self._values, self._keys, self._shape = settings, values, keys, shape

    def points(self, part: slice, dtype: torch.dtype) -> Points:
        if self._keys is not None:
            return UniquePoints(self._keys[part], dtype if dtype in HALVES else torch.bfloat16)
        assert self._values is not None
        vectors = self._values[part].view(-1, self._settings.dim)
        if self._settings.key16 and dtype == torch.float32:
            vectors = vectors.to(torch.bfloat16)
        return DensePoints(vectors)


def _from_values(settings: Settings, weight: Tensor) -> _Weight:
    flat = weight.detach().reshape(-1)
    keys = keys_of(flat) if settings.by_value(weight.dtype) else None
    return _Weight(settings, weight.shape, None if keys is not None else flat, keys)


class _Cluster(torch.autograd.Function):
    """Weights to what stands for them; in ``found`` it leaves the last centroids, f64 ``[groups, k, dim]``."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, start: Tensor, scale: Tensor, settings: Settings, hard: bool, found: list[Tensor]
    ) -> Tensor:
        source = _from_values(settings, weight)
        keep = None if settings.recompute else weight.dtype
        out = torch.empty(weight.numel(), dtype=weight.dtype, device=weight.device)
        traces = []
        for i, part in enumerate(settings.groups(weight)):
            points, t = source.points(part, weight.dtype), scale[i]
            # One value is of the temperature times the distortion; the tolerance is a share of the distortion's root.
            trace = dkm.iterate(points, start[i].double(), t[0], settings.iterations, float(t[1]), keep)
            group = out[part].view(-1, settings.dim)
            if hard:
                dkm.hard(points, trace.centroids[-1], group)
            else:
                dkm.soft(points, trace, t[0], group)
            traces.append(trace)
        found.append(torch.stack([trace.centroids[-1] for trace in traces]))
        if ctx.needs_input_grad[0]:
            _Cluster._save(ctx, settings, weight, scale, traces)
        return out.view(weight.shape)

    @staticmethod
    def _save(ctx: Any, settings: Settings, weight: Tensor, scale: Tensor, traces: list[dkm.Trace]) -> None:
        ctx.settings, ctx.dtype, ctx.shape = settings, weight.dtype, weight.shape
        ctx.lengths = [len(trace.mass) for trace in traces]
        ctx.listed = settings.index == "list" and settings.by_value(weight.dtype)
        index = weight
        if ctx.listed:
            keys = keys_of(weight.detach())
            index = settings.learners.part(keys) if settings.learners is not None else keys.clone()
        maps = [a for trace in traces for a in trace.attention or []]
        centroids = torch.cat([trace.centroids for trace in traces])
        ctx.save_for_backward(index, scale.clone(), centroids, torch.cat([trace.mass for trace in traces]), *maps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> Any:
        settings: Settings = ctx.settings
        index, scale, centroids, mass, *maps = ctx.saved_tensors
        if ctx.listed:
            keys = index
            if settings.learners is not None:
                keys = settings.learners.whole(index, ctx.shape.numel())
            source = _Weight(settings, ctx.shape, None, keys)
        else:
            source = _from_values(settings, index)
        above = above.reshape(-1)
        out = torch.empty(ctx.shape.numel(), dtype=ctx.dtype, device=above.device)
        firsts = masses = 0
        for i, part in enumerate(settings.groups(out.view(ctx.shape))):
            steps = ctx.lengths[i]
            attention = [maps.pop(0) for _ in range(steps)] if maps else None
            trace = dkm.Trace(centroids[firsts : firsts + steps + 1], mass[masses : masses + steps], attention)
            firsts, masses = firsts + steps + 1, masses + steps
            vectors = (x[part].view(-1, settings.dim) for x in (above, out))
            dkm.gradient(source.points(part, ctx.dtype), trace, scale[i, 0], *vectors)
        return out.view(ctx.shape), None, None, None, None, None


class DKM(nn.Module):
    """Stands for a weight by its clustering: soft in training mode, in evaluation mode hard (each weight its nearest
    centroid; its gradient is that of the soft one).

    Centroids, f32 ``[groups, 2^bits, dim]``, move at `advance` only: all forward passes between two steps begin with
    the same ones, so that gradients may be accumulated over them.

    Args:
        centroids: f64 ``[groups, 2^bits, dim]``, and
        distortion: f64 ``[groups]``, the mean squared distance from them that temperatures are relative to.
    """

    centroids: Tensor
    distortion: Tensor

    def __init__(self, settings: Settings, centroids: Tensor, distortion: Tensor, temperature: float) -> None:
        super().__init__()
        self.settings, self.temperature = settings, temperature
        self.register_buffer("centroids", centroids.float())
        self.register_buffer("distortion", distortion.float())
        self._next: Tensor | None = None

    def scale(self) -> Tensor:
        """Temperature and tolerance of each group in units of the weights, f64 ``[groups, 2]``."""
        distortion = self.distortion.double()
        return torch.stack([self.temperature * distortion, self.settings.tolerance * distortion.sqrt()], 1)

    @torch.compiler.disable
    def forward(self, weight: Tensor) -> Tensor:
        """What stands for a weight, of its shape and precision."""
        found: list[Tensor] = []
        out = _Cluster.apply(weight, self.centroids, self.scale(), self.settings, not self.training, found)
        if self.training or out.requires_grad:
            self._next = found[0]
        return out

    def soft(self, weight: Tensor) -> Tensor:
        """What stands for a weight in training; no step follows from it."""
        return _Cluster.apply(weight, self.centroids, self.scale(), self.settings, False, [])

    @torch.no_grad()
    def hard(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The weight with each vector its nearest centroid, and these, f64 ``[groups, 2^bits, dim]``."""
        found: list[Tensor] = []
        out = _Cluster.apply(weight, self.centroids, self.scale(), self.settings, True, found)
        return out, found[0]

    def advance(self) -> None:
        """Takes over the centroids that the last forward pass ended with."""
        if self._next is not None:
            self.centroids.copy_(self._next)
            self._next = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DKM:
        """Moves between devices; centroids keep their precision where a model is made one of 16 bits."""
        kept = {name: getattr(self, name) for name in ("centroids", "distortion")}
        super()._apply(fn, recurse)
        for name, before in kept.items():
            setattr(self, name, before.to(getattr(self, name).device))
        return self
