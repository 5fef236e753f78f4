"""Compares two states: types, order, dtypes, layouts, and every bit."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor in C order: NaN payloads and signs of zero count."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def check(a: Any, b: Any, path: str = "state") -> None:
    """Raises AssertionError where two states differ."""
    assert type(a) is type(b), f"{path}: {type(a)} and {type(b)}"
    if isinstance(a, dict):
        assert list(a) == list(b), f"{path}: {list(a)} and {list(b)}"
        assert getattr(a, "_metadata", None) == getattr(b, "_metadata", None), path
        for key in a:
            check(a[key], b[key], f"{path}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            check(x, y, f"{path}[{i}]")
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride(), a.device, a.requires_grad) == (
            b.dtype,
            b.shape,
            b.stride(),
            b.device,
            b.requires_grad,
        ), path
        assert bits(a) == bits(b), f"{path}: values differ"
    elif isinstance(a, (np.ndarray, np.generic)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        # Without elements there is nothing that strides would order.
        assert a.strides == b.strides or not a.size, path
        assert a.tobytes() == b.tobytes(), path
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b), path
    else:
        assert a == b, f"{path}: {a!r} and {b!r}"
