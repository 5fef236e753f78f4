"""The quantiser written again from the paper (Inshrinkerator, section 4, Algorithms 1 to 3) with numpy and for clarity.

One deliberate difference from Algorithm 1, which the engine shares: the sketch's key is the upper 16 bits of the float.
Sums run in index order (cumsum does; sum does not), so that equal bits can be asked for.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SIGMA = 0.2
MASK = (1 << 64) - 1


def keys(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def representative(key: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The middle of the key's interval; 0 for both keys of zero."""
    middle = (key.astype(np.uint32) << 16 | 0x8000).view(np.float32)
    return np.where(key & 0x7FFF == 0, np.float32(0), middle)


def sketch(x: NDArray[np.float32]) -> tuple[Floats, NDArray[np.int64]]:
    """Algorithm 1: ascending bucket values and their counts."""
    values, counts = np.unique(representative(keys(x)), return_counts=True)
    return values.astype(np.float64), counts


def quantile_abs(x: NDArray[np.float32], q: float) -> float:
    ordered = np.sort(np.abs(x))
    rank = min(max(int(np.ceil(q * len(x))), 1), len(x))
    return float(representative(keys(ordered[rank - 1 : rank]))[0])


def weights(values: Floats, counts: NDArray[np.int64]) -> Floats:
    """Algorithm 2, line 3."""
    scale = (1 - SIGMA) / np.cumsum(np.abs(values))[-1]
    return SIGMA * (counts / counts.sum()) + scale * np.abs(values)


def uniform(seed: int, index: int) -> float:
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return ((z ^ z >> 31) >> 11) / 2**53


def plus_plus(values: Floats, w: Floats, k: int, seed: int) -> Floats:
    """Algorithm 3, with squared distances."""
    shares, squares, centres = w, np.full(len(values), np.inf), []
    for i in range(k):
        sums = np.cumsum(shares)
        centres.append(values[np.searchsorted(sums, uniform(seed, i) * sums[-1], side="right")])
        squares = np.minimum(squares, (values - centres[-1]) ** 2)
        shares = w * squares
    return np.sort(np.array(centres))


def means(values: Floats, w: Floats, ends: list[int], otherwise: Floats) -> Floats:
    out = otherwise.copy()
    for i, (a, b) in enumerate(pairwise(ends)):
        if b > a:
            out[i] = np.cumsum(w[a:b] * values[a:b])[-1] / np.cumsum(w[a:b])[-1]
            out[i] = min(max(out[i], values[a]), values[b - 1])
    return out


def lloyd(values: Floats, w: Floats, centres: Floats) -> Floats:
    before: list[int] = []
    while True:
        middle = (centres[1:] + centres[:-1]) * 0.5
        ends = [0, *np.searchsorted(values, middle, side="right").tolist(), len(values)]
        if ends == before:
            return centres
        centres, before = means(values, w, ends, centres), ends


def exact(values: Floats, w: Floats, k: int) -> Floats:
    """The best k runs, by trying every cut of every prefix."""
    a, b, c = (np.concatenate([[0], np.cumsum(t)]) for t in (w, w * values, w * values * values))
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = (c[None] - c[:, None]) - (b[None] - b[:, None]) ** 2 / (a[None] - a[:, None])
    cost = np.where(np.tri(len(a), dtype=bool), np.inf, np.maximum(cost, 0))
    best, cuts = cost[0], []
    for _ in range(k - 1):
        total = best[:, None] + cost
        cuts.append(total.argmin(0))
        best = total.min(0)
    ends = [len(values)]
    for cut in reversed(cuts):
        ends.insert(0, int(cut[ends[0]]))
    return means(values, w, [0, *ends], np.zeros(k))


def bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def codebook(centres: Floats) -> NDArray[np.float32]:
    return np.unique(from_bf16(bf16(centres.astype(np.float32))))


def whole_keys(metric: NDArray[np.float32], limit: int, top: bool) -> NDArray[np.bool_]:
    """The most extreme numbers, at most `limit`, keys whole."""
    key = keys(np.abs(metric))
    found, counts = np.unique(key, return_counts=True)
    if top:
        found, counts = found[::-1], counts[::-1]
    return np.isin(key, found[np.cumsum(counts) <= limit])


def partition(
    x: NDArray[np.float32], gradient: NDArray[np.float32], prune: float, protect: float, metric: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Section 4.2: (pruned, protected)."""
    sensitivity = np.abs(gradient * x)
    each = int(np.ceil(protect / 2 * len(x)))
    protected = whole_keys(x, each, top=True) | whole_keys(sensitivity, each, top=True)
    ranked = sensitivity if metric == "sensitivity" else x
    return whole_keys(ranked, int(prune * len(x)), top=False) & ~protected, protected


def levels(x: NDArray[np.float32], book: NDArray[np.float32]) -> NDArray[np.int64]:
    """The nearest bin of each number's representative; halfway, the one nearer to zero."""
    twice = 2 * representative(keys(x)).astype(np.float64)
    borders = book[1:].astype(np.float64) + book[:-1]
    up, down = np.searchsorted(borders, twice, side="right"), np.searchsorted(borders, twice, side="left")
    return np.where(twice < 0, up, down)
