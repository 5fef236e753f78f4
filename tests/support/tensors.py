"""Safetensors and number formats with numpy only, written so that tests control every byte of a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NUMPY_OF = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
CODE_OF = {np.dtype(v): k for k, v in NUMPY_OF.items()}


@dataclass(frozen=True)
class Tensor:
    """One named tensor as safetensors sees it: dtype code, shape and little-endian bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(name: str, array: np.ndarray) -> Tensor:
        return Tensor(name, CODE_OF[array.dtype], array.shape, np.ascontiguousarray(array).tobytes())

    def array(self) -> np.ndarray:
        """The values; bf16 and f8 come back as unsigned integers of their width."""
        raw = {"BF16": np.uint16, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8}
        return np.frombuffer(self.data, dtype=NUMPY_OF.get(self.dtype) or raw[self.dtype]).reshape(self.shape)


def bf16_round(array: np.ndarray) -> np.ndarray:
    """f32 to bf16 bits (u16), round to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def header_bytes(header: Mapping[str, Any], align: int = 8) -> bytes:
    """A safetensors header with its length prefix, padded with spaces as the reference writer does."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % align)
    return struct.pack("<Q", len(text)) + text


def safetensors_bytes(tensors: Iterable[Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A whole safetensors file, tensors back to back in the order given."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset, parts = 0, []
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [offset, offset + len(t.data)]}
        offset += len(t.data)
        parts.append(t.data)
    return header_bytes(header) + b"".join(parts)


def write_safetensors(path: Path, tensors: Iterable[Tensor], metadata: Mapping[str, str] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors_bytes(tensors, metadata))


def read_safetensors(path: Path) -> tuple[list[Tensor], dict[str, str]]:
    """Every tensor of a well-formed file, in the order of the data, and the metadata."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    out = []
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        out.append(Tensor(name, entry["dtype"], tuple(entry["shape"]), raw[8 + length + begin : 8 + length + end]))
    return out, metadata


def cast_bf16(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The same tensors with every f32 rounded to bf16."""
    return [
        Tensor(t.name, "BF16", t.shape, bf16_round(t.array()).tobytes()) if t.dtype == "F32" else t for t in tensors
    ]


def mapped(tensors: Iterable[Tensor], change: Any) -> list[Tensor]:
    """`change(name, f32 array) -> f32 array | None` over the f32 tensors; None leaves one as it is."""
    out = []
    for t in tensors:
        new = change(t.name, t.array()) if t.dtype == "F32" else None
        out.append(t if new is None else Tensor(t.name, t.dtype, t.shape, np.asarray(new, np.float32).tobytes()))
    return out


def scaled(tensors: Iterable[Tensor], limit: float, seed: int) -> list[Tensor]:
    """Every non-zero f32 element scaled by 1 + e, |e| <= limit, and guaranteed to change.

    Where the scaled value rounds to the old one it moves by one unit in the last place, so that "every element changed"
    is a fact about the bytes.
    """
    rng = np.random.default_rng(seed)

    def change(_: str, old: np.ndarray) -> np.ndarray:
        factor = 1 + rng.uniform(-limit, limit, old.shape)
        new = (old.astype(np.float64) * factor).astype(np.float32)
        return np.where((new == old) & (old != 0), np.nextafter(old, np.float32(np.inf)), new)

    return mapped(tensors, change)


def fine_tuned(tensors: Iterable[Tensor], frozen: tuple[str, ...], rate: float, seed: int) -> list[Tensor]:
    """Noise of `rate` times each tensor's deviation on every f32 tensor except those with a frozen prefix."""
    rng = np.random.default_rng(seed)

    def change(name: str, old: np.ndarray) -> np.ndarray | None:
        if name.startswith(frozen):
            return None
        return old + (rng.standard_normal(old.shape) * rate * float(old.std())).astype(np.float32)

    return mapped(tensors, change)
