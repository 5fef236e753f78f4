"""Where a weight's encoded bytes lie: a handle for each kind of device, and the buffer to decode weights into."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from .._native import CompressedWeight, use_openmp
from ..dtypes import STORED, torch_stored
from ..errors import UsageError

# Weights are decoded and encoded by the threads that torch computes with.
_torch = Path(torch.__file__).parent
for _library in (*_torch.glob("lib/libgomp*.so*"), *_torch.parent.glob("torch.libs/libgomp*.so*")):
    use_openmp(_library)

#: Elements of a block, which the codec decodes by itself.
BLOCK = 1 << 18
#: Blocks that a thread decodes faster together than apart.
TOGETHER = 4


@dataclass(frozen=True)
class Coding:
    """How elements are encoded: ``lossless``; ``lossy`` with ``bits`` of mantissa (0, 1, 3) and ``block`` elements that
    share a coefficient; a moment (``first``, ``second``, ``momentum``) in ``bits`` (4, 8)."""

    name: str = "lossless"
    bits: int = 0
    block: int = 512


class Handle(Protocol):
    """An encoded tensor on some device. Tensors that are handed over are contiguous, on that device, of its dtype."""

    @property
    def nbytes(self) -> int:
        """Encoded bytes."""

    @property
    def schemes(self) -> dict[str, int]:
        """Number of segments by the name of their scheme."""

    def encode(self, source: Tensor) -> None:
        """Replaces the elements."""

    def decode_into(self, out: Tensor) -> None:
        """Decodes all elements."""

    def decode_range(self, start: int, out: Tensor) -> None:
        """Decodes elements from ``start`` on, as many as ``out`` has."""

    def copy(self) -> Handle:
        """Another one with the same elements."""


def _lent(tensor: Tensor) -> tuple[int, int, Tensor, int]:
    """A tensor's address, bytes, the tensor itself to keep them, and the threads that torch computes with."""
    return tensor.data_ptr(), tensor.nbytes, tensor, torch.get_num_threads()


class HostHandle:
    """An encoded tensor in the host's memory."""

    def __init__(self, native: CompressedWeight) -> None:
        self.native = native

    @property
    def nbytes(self) -> int:
        return self.native.nbytes

    @property
    def schemes(self) -> dict[str, int]:
        return self.native.schemes

    def encode(self, source: Tensor) -> None:
        self.native.encode(*_lent(source))

    def decode_into(self, out: Tensor) -> None:
        self.native.decode_into(*_lent(out))

    def decode_range(self, start: int, out: Tensor) -> None:
        self.native.decode_range(start, *_lent(out))

    def copy(self) -> HostHandle:
        return HostHandle(self.native.copy())


def _on_host(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, coding: Coding) -> Handle:
    stored = STORED[torch_stored(dtype) or "U8"]
    return HostHandle(CompressedWeight(stored, list(shape), coding.name, coding.bits, coding.block))


#: Kind of device -> what makes a handle of zeros there.
MAKERS: dict[str, Callable[[torch.dtype, tuple[int, ...], torch.device, Coding], Handle]] = {"cpu": _on_host}


def make(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, coding: Coding) -> Handle:
    """A handle of zeros.

    Raises:
        UsageError: weights on such a device cannot be compressed.
    """
    if device.type not in MAKERS:
        raise UsageError(f"weights on {device} cannot be compressed", f"there are {', '.join(MAKERS)}")
    return MAKERS[device.type](dtype, shape, device, coding)


class Store:
    """A weight's contents: its handle, and a number that changes with them."""

    def __init__(self, handle: Handle, dtype: torch.dtype, shape: tuple[int, ...], coding: Coding, device: str) -> None:
        self.handle, self.dtype, self.shape, self.coding = handle, dtype, shape, coding
        self.device = torch.device(device)
        #: Counts changes.
        self.version = 0
        #: The plain tensor that was last given for a ``state_dict``, at which version, and its own.
        self.detached: tuple[weakref.ref[Tensor] | None, int, int] = (None, 0, 0)

    @classmethod
    def of(cls, tensor: Tensor, coding: Coding) -> Store:
        """The encoded form of a plain tensor."""
        handle = make(tensor.dtype, tuple(tensor.shape), tensor.device, coding)
        store = cls(handle, tensor.dtype, tuple(tensor.shape), coding, str(tensor.device))
        store.encode(tensor)
        return store

    @property
    def numel(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def dense_bytes(self) -> int:
        """Bytes of the plain tensor."""
        return self.numel * self.dtype.itemsize

    def encode(self, tensor: Tensor) -> None:
        """Replaces the contents by those of a tensor of this shape, dtype and device."""
        with torch._C.DisableTorchFunctionSubclass():
            self.handle.encode(tensor.detach().contiguous())
        self.version += 1

    def decode(self) -> Tensor:
        """A plain tensor of its own memory."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        self.handle.decode_into(out)
        return out

    def copy(self) -> Store:
        """Another one with the same contents."""
        return Store(self.handle.copy(), self.dtype, self.shape, self.coding, str(self.device))


class Buffer(threading.local):
    """Memory for one decoded weight, shared by all of a thread on one device: as large as the largest so far."""

    def __init__(self) -> None:
        self._memory: dict[torch.device, Tensor] = {}
        self._holds: dict[torch.device, tuple[Store, int]] = {}

    def memory(self, nbytes: int, device: torch.device) -> Tensor:
        """So many bytes, whose contents go with the next call."""
        self._holds.pop(device, None)
        found = self._memory.get(device)
        if found is None or found.numel() < nbytes:
            self._memory.pop(device, None)
            del found
            found = self._memory[device] = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return found[:nbytes]

    def decoded(self, store: Store) -> Tensor:
        """The contents of a weight, until the next call. It is not decoded again if it is what the buffer holds."""
        held = self._holds.get(store.device)
        if held is not None and held[0] is store and held[1] == store.version:
            memory = self._memory[store.device][: store.dense_bytes]
            return memory.view(store.dtype).view(store.shape)
        out = self.memory(store.dense_bytes, store.device).view(store.dtype).view(store.shape)
        store.handle.decode_into(out)
        self._holds[store.device] = (store, store.version)
        return out

    def changed(self, store: Store) -> None:
        """Says that the buffer has what the weight was just encoded from."""
        if store.coding.name == "lossless":
            self._holds[store.device] = (store, store.version)
        else:
            self._holds.pop(store.device, None)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(memory.numel() for memory in self._memory.values())

    def clear(self) -> None:
        """Lets go of the memory; the next use takes it anew."""
        self._memory.clear()
        self._holds.clear()


#: The one that layers and optimizers use.
BUFFER = Buffer()
