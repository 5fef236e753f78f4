"""What autograd saves for the backward pass: moved to the host, each storage once (eDKM's marshaling), and counted."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass
class SavedBytes:
    """Bytes that autograd saved, but for the model's own parameters and buffers, which are there anyway.

    Args:
        tensors: How many were saved.
        saved: The sum over all of them.
        distinct: The bytes of storages that they touch, each counted once: what saving them keeps alive at least.
        moved: Bytes that were copied to the host.
    """

    tensors: int = 0
    saved: int = 0
    distinct: int = 0
    moved: int = 0


@dataclass
class _Copies:
    """Copies of one storage at one version: ranges of its bytes."""

    storage: StorageWeakRef
    ranges: list[_Range] = field(default_factory=list)


@dataclass
class _Range:
    start: int
    end: int
    host: Tensor
    #: The range on its device again, as long as a part of the backward pass holds it.
    back: Any = None


@dataclass(frozen=True)
class _Packed:
    range: _Range
    dtype: torch.dtype
    device: torch.device
    size: torch.Size
    stride: tuple[int, ...]
    #: Bytes into the range.
    first: int


def extent(tensor: Tensor) -> tuple[int, int]:
    """First byte and end of what a tensor touches in its storage."""
    first = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return first * tensor.itemsize, first * tensor.itemsize
    last = first + int(sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)))
    return first * tensor.itemsize, (last + 1) * tensor.itemsize


def _bytes_of(tensor: Tensor, start: int, end: int) -> Tensor:
    """A range of a tensor's storage, uint8."""
    out = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return out.set_(tensor.untyped_storage(), start, (end - start,), (1,))


def _plain(tensor: Tensor) -> bool:
    """Whether a tensor is a strided view of one storage."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided and tensor.device.type != "meta"


class Marshaling:
    """Saved tensors go to the host, each storage and version once: a view, a transpose or a slice of what is there
    already is a note. Storages are told apart by themselves, not by their address, which may be used again; their
    version is autograd's counter, so a write in place makes a new copy.

    Args:
        keep: Tensors that live on anyway, such as the model's parameters: what shares their storage stays in place.
        copy: Whether tensors that are on the host already are copied too.

    Writes that autograd does not see (through ``.data``, by numpy) are not seen here either.
    """

    def __init__(self, keep: Iterable[Tensor] = (), copy: bool = False) -> None:
        self._keep = {t.untyped_storage()._cdata for t in keep if _plain(t)}
        self._copy = copy
        self._copies: dict[tuple[int, int], _Copies] = {}
        self.counted = SavedBytes()

    @contextlib.contextmanager
    def saving(self) -> Iterator[SavedBytes]:
        """Forward passes in here save by way of the host; backward passes may be anywhere."""
        try:
            with saved_tensors_hooks(self._pack, self._unpack):
                yield self.counted
        finally:
            # Copies live on in what was saved.
            self._copies.clear()

    def _pack(self, tensor: Tensor) -> Any:
        self.counted.tensors += 1
        if not _plain(tensor):
            return tensor
        storage = tensor.untyped_storage()
        if storage._cdata in self._keep or (tensor.device.type == "cpu" and not self._copy):
            return tensor.detach(), tensor._version
        self.counted.saved += tensor.numel() * tensor.itemsize
        known = self._copies.get((storage._cdata, tensor._version))
        if known is None:
            # The weak reference keeps the storage's identity, so that no other one is taken for it; not its memory.
            known = self._copies[storage._cdata, tensor._version] = _Copies(StorageWeakRef(storage))
        start, end = extent(tensor)
        found = next((r for r in known.ranges if r.start <= start and end <= r.end), None)
        if found is None:
            found = _Range(start, end, _bytes_of(tensor.detach(), start, end).to("cpu", copy=True))
            known.ranges.append(found)
            self.counted.moved += end - start
            self.counted.distinct += end - start
        return _Packed(found, tensor.dtype, tensor.device, tensor.shape, tensor.stride(), start - found.start)

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, tuple):
            tensor, version = packed
            if tensor._version != version:
                raise RuntimeError(
                    "a tensor that the backward pass needs was written to in place: it is at version "
                    f"{tensor._version}, and was saved at version {version}"
                )
            return tensor
        if isinstance(packed, Tensor):
            return packed
        back = packed.range.back() if packed.range.back is not None else None
        if back is None:
            back = packed.range.host.to(packed.device)
            packed.range.back = weakref.ref(back)
        width = packed.dtype.itemsize
        typed = back[packed.first : packed.first + (len(back) - packed.first) // width * width]
        if packed.first % width:
            # Views of another precision need not begin at a multiple of it: then they are copied to one.
            typed = typed.clone()
        typed = typed.view(packed.dtype)
        out = typed.as_strided(packed.size, packed.stride, typed.storage_offset())
        # The view keeps the storage alive; the tensor that the weak reference is to has to live as long.
        out._mdl_range = back
        return out


@contextlib.contextmanager
def counting(apart: Iterable[Tensor] = ()) -> Iterator[SavedBytes]:
    """Counts what autograd saves in here; ``apart`` are tensors whose storages do not count, such as parameters."""
    counted = SavedBytes()
    not_counted = {t.untyped_storage()._cdata for t in apart if _plain(t)}
    ranges: dict[int, list[tuple[int, int]]] = {}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        counted.tensors += 1
        if storage._cdata not in not_counted:
            counted.saved += tensor.numel() * tensor.itemsize
            alive.append(StorageWeakRef(storage))
            merged = _union([*ranges.get(storage._cdata, []), extent(tensor)])
            counted.distinct += _length(merged) - _length(ranges.get(storage._cdata, []))
            ranges[storage._cdata] = merged
        return tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield counted


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((start, end))
    return out


def _length(ranges: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)
