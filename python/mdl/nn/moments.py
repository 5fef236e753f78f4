"""Moments of an optimizer: plain tensors, or 8 or 4 bits an element, tile by tile."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .segments import Coding, Handle, make

#: Elements that are updated together: what an update computes besides is no larger than this.
TILE = 1 << 20
#: torch's name -> the codec's.
KINDS = {"exp_avg": "first", "exp_avg_sq": "second", "momentum_buffer": "momentum"}


def tiles(numel: int) -> Iterator[slice]:
    """Parts of a flat tensor."""
    return (slice(start, min(start + TILE, numel)) for start in range(0, numel, TILE))


class Moment:
    """A moment of a parameter. ``bits`` None: exact."""

    def __init__(self, name: str, like: Tensor, bits: int | None) -> None:
        self._shape, self._dtype, self._device = tuple(like.shape), like.dtype, like.device
        self._plain: Tensor | None = None
        self._handles: list[Handle] = []
        if bits is None:
            self._plain = torch.zeros(self._shape, dtype=self._dtype, device=self._device)
            return
        coding = Coding(KINDS[name], bits)
        for part in tiles(like.numel()):
            self._handles.append(make(self._dtype, (part.stop - part.start,), self._device, coding))

    def read(self, index: int) -> Tensor:
        """The elements of a tile, flat, to be changed in place and given to `write`."""
        if self._plain is not None:
            return self._plain.view(-1)[index * TILE : (index + 1) * TILE]
        part = list(tiles(self.numel))[index]
        out = torch.empty(part.stop - part.start, dtype=self._dtype, device=self._device)
        self._handles[index].decode_into(out)
        return out

    def write(self, index: int, values: Tensor) -> None:
        """Keeps the elements of a tile."""
        if self._plain is None:
            self._handles[index].encode(values)

    @property
    def numel(self) -> int:
        return int(torch.Size(self._shape).numel())

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        if self._plain is not None:
            return self._plain.numel() * self._plain.element_size()
        return sum(handle.nbytes for handle in self._handles)

    def dense(self) -> Tensor:
        """All elements, in the parameter's shape."""
        if self._plain is not None:
            return self._plain
        parts = [self.read(i) for i in range(len(self._handles))]
        return torch.cat(parts).view(self._shape) if parts else torch.empty(self._shape, dtype=self._dtype)

    def load(self, value: Tensor) -> None:
        """Takes elements over, of any dtype."""
        flat = value.detach().to(self._device, self._dtype).reshape(-1)
        for index, part in enumerate(tiles(self.numel)):
            tile = self.read(index)
            tile.copy_(flat[part])
            self.write(index, tile)
