"""Times ZipNN, z4ai or a plain copy on a safetensors file's tensors, in the coder's own environment; prints JSON.

ZipNN's package imports torch for interfaces that are not used here (its byte interface is one C extension); torch is
gigabytes, so where it is not installed stand-ins take the place of the modules that ZipNN imports and never calls.
ZipNN reorders the caller's buffer in place, so it gets a fresh copy before the clock starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

Coder = tuple[Callable[[bytearray], Any], Callable[[Any], Any]]


def import_zipnn() -> Any:
    """The zipnn module, with or without torch."""
    if importlib.util.find_spec("torch") is None:
        torch = MagicMock()
        torch.jit.script = lambda function: function
        torch.Tensor = type("Tensor", (), {})
        sys.modules |= {"torch": torch, "safetensors.torch": MagicMock()}
    import zipnn

    return zipnn


def payload(path: Path, bf16: bool) -> list[bytes]:
    """The f32 tensors of a file, each as bytes; rounded to bf16 on request."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    out = []
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        if bf16:
            bits = np.frombuffer(data, np.uint32)
            rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            data = rounded.astype(np.uint16).tobytes()
        out.append(data)
    return out


def zipnn_coder(bf16: bool, threads: int) -> Coder:
    dtype = "bfloat16" if bf16 else "float32"
    coder = import_zipnn().ZipNN(input_format="byte", bytearray_dtype=dtype, threads=threads)
    return coder.compress, coder.decompress


def z4ai_coder(bf16: bool, threads: int) -> Coder:
    import z4ai

    dtype = "bf16" if bf16 else "fp32"
    return lambda data: z4ai.compress(data, dtype=dtype, threads=threads), z4ai.decompress


def copy_coder() -> Coder:
    """memcpy through numpy into a buffer that exists already."""
    largest = np.empty(1 << 30, np.uint8)

    def copy(data: Any) -> Any:
        source = np.frombuffer(data, np.uint8)
        np.copyto(largest[: source.size], source)
        return source

    return copy, copy


def one_pass(parts: list[bytes], coder: Coder, check: bool) -> dict[str, float]:
    """Sums of the seconds over all tensors, and the bytes after coding."""
    encode, decode = coder
    row = {"raw": 0, "coded": 0, "encode_s": 0.0, "decode_s": 0.0}
    for data in parts:
        mine = bytearray(data)
        t0 = time.perf_counter()
        coded = encode(mine)
        t1 = time.perf_counter()
        back = decode(coded)
        t2 = time.perf_counter()
        if check and bytes(back) != data:
            raise SystemExit("the coder did not give the bytes back")
        row["raw"] += len(data)
        row["coded"] += len(coded)
        row["encode_s"] += t1 - t0
        row["decode_s"] += t2 - t1
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=["zipnn", "z4ai", "memcpy"])
    options.add_argument("model", type=Path)
    options.add_argument("--cast", choices=["bf16"])
    options.add_argument("--whole", action="store_true", help="one call for all tensors joined, not one per tensor")
    options.add_argument("--threads", type=int, default=1, help="that the coder uses")
    options.add_argument("--passes", type=int, default=2, help="the fastest of so many counts")
    args = options.parse_args()
    bf16 = args.cast == "bf16"
    parts = payload(args.model, bf16)
    if args.whole:
        parts = [b"".join(parts)]
    coders = {"zipnn": zipnn_coder, "z4ai": z4ai_coder, "memcpy": lambda bf16, threads: copy_coder()}
    coder = coders[args.what](bf16, args.threads)
    passes = [one_pass(parts, coder, check=i == 0) for i in range(args.passes)]
    best = {key: min(row[key] for row in passes) for key in passes[0]}
    print(json.dumps({"name": args.what, "dtype": args.cast or "f32", **best}))


if __name__ == "__main__":
    main()
