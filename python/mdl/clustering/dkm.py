"""Differentiable k-means: soft assignment by a softmax over negative squared distances, iterated, and its gradient.

    a[i, j] = softmax_j(-||x_i - c_j||^2 / t)        attention of point i to centroid j
    c'_j    = sum_i a[i, j] x_i / sum_i a[i, j]      the next centroids
    y_i     = sum_j a[i, j] c'_j                     what stands for the weight, with the last attention and centroids

Attention lies as ``[k, points]``: a softmax over rows of a handful of numbers is several times as slow.

The backward pass is written out. It wants the centroids of each iteration; attention is computed again from them, or
comes from the tables that the forward pass saved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .points import DensePoints, Points, UniquePoints

#: A cluster whose attention adds up to less stays where it is.
_EMPTY = 1e-30


@dataclass
class Trace:
    """What a forward pass leaves for the backward pass, of one group.

    Args:
        centroids: float64 ``[iterations + 1, k, dim]``, the first ones those that it began with.
        mass: float64 ``[iterations, k]``, the sums of attention.
        attention: Of each iteration ``[k, points]``; None: computed again.
    """

    centroids: Tensor
    mass: Tensor
    attention: list[Tensor] | None = None

    def attend(self, step: int, part: slice, points: Tensor, temperature: Tensor) -> Tensor:
        """The attention ``[k, m]`` of points in iteration ``step``."""
        if self.attention is not None:
            # Of fewer digits than it was computed with: what it adds up to matters to the softmax's gradient.
            a = self.attention[step][:, part].double()
            return a / a.sum(0)
        return attend(points, self.centroids[step], temperature)


def attend(points: Tensor, centroids: Tensor, temperature: Tensor) -> Tensor:
    """Attention ``[k, m]``. The points' own squares are the same for all centroids and left out."""
    return ((2 * centroids @ points.T - centroids.square().sum(1, keepdim=True)) / temperature).softmax(0)


def iterate(
    points: Points, start: Tensor, temperature: Tensor, iterations: int, tolerance: float, keep: torch.dtype | None
) -> Trace:
    """Runs k-means from the centroids ``start``, ``[k, dim]``.

    Args:
        temperature: Above 0, in squared units of weights.
        iterations: Most that are done.
        tolerance: It ends before that where no centroid moved further than this, in units of weights. 0: never.
        keep: Precision in which attention is kept for the backward pass; None: it is not kept.
    """
    centroids, masses, maps = [start], [], []
    kept: list[Tensor]
    for _ in range(iterations):
        before = centroids[-1]
        sums, mass = torch.zeros_like(before), before.new_zeros(len(before))
        kept = []
        for _part, x, count in points.chunks():
            a = attend(x, before, temperature)
            if keep is not None:
                kept.append(a.to(keep))
            if count is not None:
                a = a * count
            sums += a @ x
            mass += a.sum(1)
        if keep is not None:
            maps.append(torch.cat(kept, 1))
        empty = mass <= _EMPTY
        centroids.append(torch.where(empty[:, None], before, sums / mass.where(~empty, mass.new_ones(()))[:, None]))
        masses.append(mass)
        if tolerance > 0 and bool((centroids[-1] - before).abs().max() <= tolerance):
            break
    return Trace(torch.stack(centroids), torch.stack(masses), maps if keep is not None else None)


def soft(points: Points, trace: Trace, temperature: Tensor, out: Tensor) -> None:
    """Writes what stands for the weights, ``[n, dim]``."""
    before, last = trace.centroids[-2], trace.centroids[-1]
    if isinstance(points, UniquePoints):
        points.spread(torch.cat([attend(x, before, temperature).T @ last for _, x, _ in points.chunks()]), out)
        return
    for part, x, _ in points.chunks():
        out[part] = (attend(x, before, temperature).T @ last).to(out.dtype)


def hard(points: Points, centroids: Tensor, out: Tensor) -> None:
    """Writes the nearest centroid in the place of each weight, ``[n, dim]``; of equally near ones the first."""
    if isinstance(points, UniquePoints):
        points.spread(torch.cat([nearest(x, centroids)[1] for _, x, _ in points.chunks()]), out)
        return
    for part, x, _ in points.chunks():
        out[part] = nearest(x, centroids)[1].to(out.dtype)


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances ``[m]`` and the centroids ``[m, dim]`` that are nearest."""
    distances = (points[:, None, :] - centroids[None]).square().sum(2)
    least, which = distances.min(1)
    return least, centroids[which]


def gradient(points: Points, trace: Trace, temperature: Tensor, above: Tensor, out: Tensor) -> None:
    """Writes the gradient with respect to the weights, given the one with respect to `soft`'s; both ``[n, dim]``.

    Centroids that it began with count as constants, as in the paper.
    """
    last, steps = trace.centroids[-1], len(trace.mass)
    pooled = points.pooled(above)
    unique = isinstance(points, UniquePoints)
    # Of each point (for one weight of it): what comes by way of the centroids.
    precise = torch.float64 if unique or out.dtype == torch.float64 else torch.float32
    by_centroids = torch.zeros(points.rows, last.shape[1], dtype=precise, device=last.device)
    factor = torch.zeros_like(by_centroids) if unique else None

    of_centroids = torch.zeros_like(last)
    for part, x, _ in points.chunks():
        of_centroids += trace.attend(steps - 1, part, x, temperature) @ pooled[part].double()

    for step in reversed(range(steps)):
        before, after, mass = trace.centroids[step], trace.centroids[step + 1], trace.mass[step]
        empty = mass <= _EMPTY
        slope = (of_centroids / mass.where(~empty, mass.new_ones(()))[:, None]).masked_fill(empty[:, None], 0.0)
        # Of an empty one nothing depends on where it was: neither what it moved nor what it gave.
        earlier = torch.zeros_like(of_centroids)
        offset = (slope * after).sum(1, keepdim=True)
        for part, x, count in points.chunks():
            a = trace.attend(step, part, x, temperature)
            of_logits = _through_softmax(a, slope @ x.T - offset)
            all_of_logits = of_logits if count is None else of_logits * count
            if step == steps - 1:
                output = _through_softmax(a, last @ pooled[part].double().T)
                all_of_logits = all_of_logits + output
                if factor is not None:
                    # One number: a point's own weight moves its attention, and with it the output.
                    factor[part] = 2 / temperature * _through_softmax(a, last.expand_as(a)).T @ before
                else:
                    of_logits = all_of_logits
            by_centroids[part] += a.T @ slope + 2 / temperature * of_logits.T @ before
            if step > 0:
                moved = all_of_logits @ x - all_of_logits.sum(1, keepdim=True) * before
                earlier += 2 / temperature * moved
        of_centroids = earlier

    if isinstance(points, DensePoints):
        out.copy_(by_centroids)
    elif factor is not None:
        points.spread_product(factor, above, by_centroids, out)


def _through_softmax(a: Tensor, above: Tensor) -> Tensor:
    """The gradient with respect to a softmax's input."""
    return a * (above - (a * above).sum(0))
