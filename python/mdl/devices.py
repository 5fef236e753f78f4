"""CUDA tensors for a commit: used in place, copied aside on the GPU, or copied to the host.

The native half compresses tensors on their GPU, so that only encodings cross the bus.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from ._native import reaches as _reaches

#: Copies aside leave 1/SPARED of a GPU's memory free.
SPARED = 16

_current: contextvars.ContextVar[Devices | None] = contextvars.ContextVar("mdl_devices", default=None)


@functools.cache
def reaches(ordinal: int) -> bool:
    """Whether the engine compresses tensors in the memory of this GPU. It compiles its kernels once, with NVRTC, which
    ``pip install mdl-checkpoints[cuda]`` brings.
    """
    if "MDL_NVRTC" not in os.environ:
        with contextlib.suppress(ImportError):
            spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
            for folder in spec.submodule_search_locations or [] if spec else []:
                os.environ["MDL_NVRTC"] = os.path.join(folder, "lib")
    return _reaches(ordinal)


class Devices:
    """What a commit takes from GPUs. ``aside``: tensors may be written to before it is made, so they are copied."""

    def __init__(self, aside: bool) -> None:
        self._aside = aside
        self._events: dict[Any, Any] = {}

    def take(self, torch: Any, tensor: Any) -> Any | None:
        """Returns the tensor as contiguous GPU memory that no other code writes to; None: it has to go to the host."""
        if tensor.device.type != "cuda" or not tensor.numel() or not reaches(tensor.device.index):
            return None
        copied = self._aside or not tensor.is_contiguous()
        if copied and not fits(torch, tensor.device, tensor.numel() * tensor.element_size()):
            return None
        try:
            plain = tensor.contiguous()
            if self._aside and plain.data_ptr() == tensor.data_ptr():
                plain = plain.clone()
        except torch.OutOfMemoryError:
            return None
        self._events.setdefault(tensor.device, None)
        return plain

    def mark(self, torch: Any) -> None:
        """Records events after all GPU work queued so far: the copies, and earlier writes to the tensors."""
        for device in self._events:
            self._events[device] = torch.cuda.current_stream(device).record_event()

    def wait(self) -> None:
        """Waits for these events: from then on the memory holds what is to be committed."""
        for event in self._events.values():
            event.synchronize()


def fits(torch: Any, device: Any, nbytes: int) -> bool:
    """Returns whether a copy of so many bytes leaves training its peak memory, and a sixteenth besides."""
    free, total = torch.cuda.mem_get_info(device)
    spare = free + torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
    return nbytes <= spare - total // SPARED


def current() -> Devices | None:
    """What is being taken from GPUs at the moment; None outside of a commit: then everything goes to the host."""
    return _current.get()


@contextlib.contextmanager
def taking(aside: bool) -> Iterator[Devices]:
    """Inside, tensors on GPUs that the engine reaches stay there. Wait for what this gives before they are read."""
    devices = Devices(aside)
    token = _current.set(devices)
    try:
        yield devices
    finally:
        _current.reset(token)
    if devices._events:
        import torch

        devices.mark(torch)
