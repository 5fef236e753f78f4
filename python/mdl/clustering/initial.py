"""Centroids to begin with: k-means++ from a seed or quantiles, then Lloyd's iterations. The same on every machine.

Points are at most 65,536: values of the weights' 16 bits with their counts, or vectors at even distances.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .dkm import nearest
from .points import CHUNK, UniquePoints, keys_of

#: Lloyd's iterations at most.
_ROUNDS = 50


def initial(vectors: Tensor, clusters: int, how: str, seed: int) -> tuple[Tensor, Tensor]:
    """Centroids ``[clusters, dim]`` of vectors ``[n, dim]`` in ascending order, and the mean squared distance to the
    nearest one; both float64 on the host.

    Where there are fewer points than clusters, centroids repeat.
    """
    points, counts = _sample(vectors.detach().cpu())
    centroids = METHODS[how](points, counts, clusters, seed)
    for _ in range(_ROUNDS):
        before = centroids
        centroids = _lloyd(points, counts, centroids)
        if bool((centroids == before).all()):
            break
    least, _ = nearest(points, centroids)
    order = sorted(range(clusters), key=lambda j: centroids[j].tolist())
    return centroids[order], (least * counts).sum() / counts.sum()


def _sample(vectors: Tensor) -> tuple[Tensor, Tensor]:
    if vectors.shape[1] == 1 and len(vectors) > CHUNK:
        half = vectors.dtype if vectors.dtype == torch.float16 else torch.bfloat16
        _, values, counts = next(UniquePoints(keys_of(vectors), half).chunks())
        assert counts is not None
        return values, counts
    stride = -(-len(vectors) // CHUNK)
    points = vectors[::stride].double()
    return points, torch.ones(len(points), dtype=torch.float64)


def _plus_plus(points: Tensor, counts: Tensor, clusters: int, seed: int) -> Tensor:
    """k-means++: each next centroid is drawn by its squared distance to those that there are."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(clusters, generator=generator, dtype=torch.float64)
    chance, chosen = counts, []
    least = torch.full_like(counts, torch.inf)
    for draw in draws:
        sums = chance.cumsum(0)
        at = int(torch.searchsorted(sums, draw * sums[-1], right=True).clamp_max(len(points) - 1))
        chosen.append(points[at])
        least = torch.minimum(least, (points - points[at]).square().sum(1))
        chance = least * counts
    return torch.stack(chosen)


def _quantiles(points: Tensor, counts: Tensor, clusters: int, seed: int) -> Tensor:
    """The middles of parts of equal weight; vectors in the order of their sums."""
    order = points.sum(1).argsort(stable=True)
    sums = counts[order].cumsum(0)
    places = (torch.arange(clusters, dtype=torch.float64) + 0.5) / clusters * sums[-1]
    return points[order[torch.searchsorted(sums, places).clamp_max(len(points) - 1)]]


#: Ways to begin, by name.
METHODS: dict[str, Callable[[Tensor, Tensor, int, int], Tensor]] = {"kmeans++": _plus_plus, "quantiles": _quantiles}


def _lloyd(points: Tensor, counts: Tensor, centroids: Tensor) -> Tensor:
    """One iteration; a cluster without points stays."""
    which = (points[:, None, :] - centroids[None]).square().sum(2).argmin(1)
    mass = torch.zeros(len(centroids), dtype=torch.float64).index_add_(0, which, counts)
    sums = torch.zeros_like(centroids).index_add_(0, which, points * counts[:, None])
    return torch.where(mass[:, None] > 0, sums / mass.clamp_min(1e-300)[:, None], centroids)
