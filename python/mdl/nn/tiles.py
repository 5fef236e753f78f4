"""Inference: a linear layer's weight is decoded a tile at a time, into a buffer that is smaller than the weight.

A tile's product has the bits of the whole one only where torch sums in the same order for both, which depends on
shapes and not on numbers: the first call with a shape computes both and compares them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .segments import BLOCK, BUFFER, TOGETHER, Store

#: Elements that a thread has of a tile.
SHARE = 2 * TOGETHER * BLOCK
#: More rows than these make the product the larger part of the work.
MOST_ROWS = 16
#: Shapes that are remembered, at most.
MOST_KEYS = 4096
#: dtype, shapes, elements of a tile, threads, bias -> whether tiles give the same bits.
_same: dict[tuple[object, ...], bool] = {}


def linear(x: Tensor, store: Store, bias: Tensor | None, low: torch.dtype | None) -> Tensor:
    """``x @ weight.T + bias``, as torch computes it with the plain weight."""
    if low is not None:
        weight = BUFFER.decoded(store).to(low)
        return F.linear(x.to(low), weight, None if bias is None else bias.to(low))
    rows, width = x.numel() // max(1, x.shape[-1]), store.shape[1]
    threads = torch.get_num_threads()
    tile = SHARE * threads
    fits = 0 < rows <= MOST_ROWS and store.numel >= 2 * tile and width * 4 <= tile
    if not fits or x.dtype != store.dtype or not x.is_contiguous():
        return F.linear(x, BUFFER.decoded(store), bias)
    key = (store.dtype, store.shape, tile, x.shape, threads, bias is None)
    if key not in _same:
        if len(_same) > MOST_KEYS:
            _same.clear()
        # Random numbers: the input may be zeros, say, of which every order gives the same sum.
        random = torch.Generator().manual_seed(0)
        probe = torch.randn(x.shape, generator=random).to(x)
        tiled = _tiled(probe, store, bias, tile)
        _same[key] = torch.equal(F.linear(probe, BUFFER.decoded(store), bias), tiled)
    return _tiled(x, store, bias, tile) if _same[key] else F.linear(x, BUFFER.decoded(store), bias)


def _tiled(x: Tensor, store: Store, bias: Tensor | None, tile: int) -> Tensor:
    out_rows, width = store.shape
    flat = x.reshape(-1, width)
    out = torch.empty((flat.shape[0], out_rows), dtype=x.dtype, device=x.device)
    memory = BUFFER.memory((tile + width) * store.dtype.itemsize, store.device).view(store.dtype)
    left = row = 0
    for start in range(0, store.numel, tile):
        count = min(tile, store.numel - start)
        store.handle.decode_range(start, memory[left : left + count])
        rows = (left + count) // width
        part = slice(row, row + rows)
        weight = memory[: rows * width].view(rows, width)
        out[:, part] = F.linear(flat, weight, None if bias is None else bias[part])
        # The row that the tile cuts is completed by the next one.
        left, row = left + count - rows * width, row + rows
        memory[:left] = memory[rows * width : rows * width + left].clone()
    return out.view(*x.shape[:-1], out_rows)
