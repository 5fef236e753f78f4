"""Names of dtypes in safetensors, the repository, numpy and torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import StateError

#: Repository's name -> bytes per element.
ITEM_SIZE = {
    **dict.fromkeys(("opaque", "f8e4m3", "f8e5m2", "i8", "u8", "bool"), 1),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 2),
    **dict.fromkeys(("f32", "i32", "u32"), 4),
    **dict.fromkeys(("f64", "i64", "u64", "c64"), 8),
    "c128": 16,
}

#: safetensors' name -> repository's.
STORED = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2", "C64": "c64",
    "I64": "i64", "I32": "i32", "I16": "i16", "I8": "i8",
    "U64": "u64", "U32": "u32", "U16": "u16", "U8": "u8", "BOOL": "bool",
}  # fmt: skip

_NUMPY = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip

#: Repository's name -> numpy's, where numpy has it by itself.
TO_NUMPY = {STORED[v]: k for k, v in _NUMPY.items() if not k.startswith(("bfloat", "float8"))} | {
    "c128": "complex128",
    "opaque": "uint8",
}

#: Repository's name -> torch's attribute.
TO_TORCH = {STORED[v]: k for k, v in _NUMPY.items()} | {"c128": "complex128", "opaque": "uint8"}


#: Repository's name -> that of ml_dtypes, which comes with jax and keras.
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


def to_numpy(dtype: str) -> np.dtype[Any]:
    """numpy's type by the repository's name; those of ml_dtypes where that is installed.

    Raises:
        StateError: numpy has none.
    """
    if dtype in TO_NUMPY:
        return np.dtype(TO_NUMPY[dtype])
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    except (ImportError, KeyError):
        raise StateError(f"numpy has no type for {dtype}", "pass framework='torch', or pip install ml_dtypes") from None


def torch_loaded() -> Any | None:
    """torch, if the program has imported it."""
    return sys.modules.get("torch")


def is_jax(value: Any) -> bool:
    """Whether a value is a `jax.Array`, in a program that has imported jax."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def numpy_stored(dtype: np.dtype) -> str | None:
    """safetensors' name for a numpy type of the machine's byte order; None: it has none."""
    return _NUMPY.get(dtype.name) if dtype.isnative else None


_TORCH_STORED: dict[Any, str] = {}


def torch_stored(dtype: Any) -> str | None:
    """safetensors' name for a torch type; None: it has none."""
    if not _TORCH_STORED:
        torch = sys.modules["torch"]
        found = {getattr(torch, name, None): stored for name, stored in _NUMPY.items()}
        found.pop(None, None)
        _TORCH_STORED.update(found)
    return _TORCH_STORED.get(dtype)
