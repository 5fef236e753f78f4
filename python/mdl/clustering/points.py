"""The points that k-means clusters: one for each weight, or one for each of the values that 16 bits can have.

All arithmetic is in float64. Points come in chunks, so that a group's memory is bounded by a chunk times the clusters.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

#: Points or weights that are worked on at a time.
CHUNK = 1 << 16
#: Weights that are looked up at a time.
_LOOKUP = 1 << 20
_KEYS = 1 << 16
HALVES = (torch.bfloat16, torch.float16)

Chunk = tuple[slice, Tensor, Tensor | None]


def keys_of(weight: Tensor) -> Tensor:
    """The 16 bits of each weight, int16 ``[n]``. float32 is rounded to bfloat16 first: an approximation."""
    half = weight if weight.dtype in HALVES else weight.to(torch.bfloat16)
    return half.contiguous().reshape(-1).view(torch.int16)


def values_of_keys(half: torch.dtype, device: torch.device) -> Tensor:
    """What each of the 65,536 keys stands for, float64; the key k is at k + 32768."""
    return torch.arange(-_KEYS // 2, _KEYS // 2, device=device).to(torch.int16).view(half).double()


class DensePoints:
    """A point for each vector of weights, ``[n, dim]`` of any precision."""

    def __init__(self, vectors: Tensor) -> None:
        self._vectors = vectors
        self.rows = len(vectors)

    def chunks(self) -> Iterator[Chunk]:
        """Places of the points, the points ``[m, dim]``, and that each of them is there once."""
        for at in range(0, self.rows, CHUNK):
            part = slice(at, min(at + CHUNK, self.rows))
            yield part, self._vectors[part].double(), None

    def pooled(self, gradient: Tensor) -> Tensor:
        """The sum of gradients (``[n, dim]``) over the weights of each point: here the gradients."""
        return gradient

    def spread(self, rows: Tensor, out: Tensor) -> None:
        """Writes each point's row to its weights, both ``[n, dim]``."""
        out.copy_(rows)


class UniquePoints:
    """A point for each value that occurs among 16-bit weights: at most 65,536, whatever their number.

    A weight's bits are its index. So there is nothing to sort and no list of indices: one histogram tells which values
    there are, and how often.
    """

    def __init__(self, keys: Tensor, half: torch.dtype) -> None:
        self._keys = keys
        counts = torch.zeros(_KEYS, dtype=torch.int64, device=keys.device)
        for part in self._parts():
            counts += torch.bincount(self._places(part), minlength=_KEYS)
        self._occurring = counts.nonzero()[:, 0]
        self._counts = counts[self._occurring].double()
        self._values = values_of_keys(half, keys.device)[self._occurring, None]
        self.rows = len(self._occurring)

    def _parts(self) -> Iterator[slice]:
        return (slice(at, at + _LOOKUP) for at in range(0, len(self._keys), _LOOKUP))

    def _places(self, part: slice) -> Tensor:
        return self._keys[part].int() + _KEYS // 2

    def chunks(self) -> Iterator[Chunk]:
        """Places of the points, the points ``[m, 1]``, and how often each occurs ``[m]``."""
        yield slice(0, self.rows), self._values, self._counts

    def pooled(self, gradient: Tensor) -> Tensor:
        """The sum of gradients (``[n, 1]``) over the weights of each point, float64 ``[rows, 1]``."""
        sums = torch.zeros(_KEYS, dtype=torch.float64, device=gradient.device)
        for part in self._parts():
            sums += torch.bincount(self._places(part), weights=gradient[part, 0].double(), minlength=_KEYS)
        return sums[self._occurring, None]

    def _table(self, rows: Tensor) -> Tensor:
        table = torch.zeros(_KEYS, dtype=rows.dtype, device=rows.device)
        table[self._occurring] = rows[:, 0]
        return table

    def spread(self, rows: Tensor, out: Tensor) -> None:
        """Writes each point's row (``[rows, 1]``) to its weights (``[n, 1]``)."""
        table = self._table(rows.to(out.dtype))
        for part in self._parts():
            out[part, 0] = table[self._places(part)]

    def spread_product(self, factor: Tensor, gradient: Tensor, addend: Tensor, out: Tensor) -> None:
        """Writes ``factor * gradient + addend`` to the weights; factor and addend are rows of points."""
        factor, addend = self._table(factor), self._table(addend)
        for part in self._parts():
            places = self._places(part)
            out[part, 0] = (factor[places] * gradient[part, 0] + addend[places]).to(out.dtype)


Points = DensePoints | UniquePoints
