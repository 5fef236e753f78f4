"""Exports a version's tensors as one safetensors file, written a tensor at a time."""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterable

from ._native import Repo as Native
from .dtypes import ITEM_SIZE, STORED
from .errors import NotFoundError, StateError
from .names import did_you_mean

_BACK = {own: name for name, own in STORED.items()} | {"opaque": "U8"}
#: Bytes that are read and written at once.
_PART = 64 << 20


def export(native: Native, rev: str, path: pathlib.Path, only: str | Iterable[str] | None) -> list[str]:
    """Writes the tensors that ``only`` names; the file appears whole or not at all."""
    globs = [only] if isinstance(only, str) else None if only is None else list(only)
    chosen: list[tuple[str, str, str, list[int]]] = []
    there: list[str] = []
    for file, _, has in native.files(rev):
        # A view shares its tensor's bytes; only what is stored is written.
        stored = [t for t in native.tensors(rev, file) if t[3] is None] if has else []
        for name, dtype, shape, _ in stored:
            there.append(name)
            if globs is None or any(
                fnmatch.fnmatchcase(f"{file}:{name}", g) or fnmatch.fnmatchcase(name, g) for g in globs
            ):
                chosen.append((file, name, dtype, shape))
    if not chosen:
        close = did_you_mean(globs or [], there)
        raise NotFoundError(f"no tensor is to be exported{close}", "`repo.tensors(rev)` lists them")
    seen = Counter(name for _, name, _, _ in chosen)
    header: dict[str, object] = {"__metadata__": {"format": "pt", "mdl_revision": rev}}
    at = 0
    chosen.sort(key=lambda t: -ITEM_SIZE[t[2]])
    names, sizes = [], []
    for file, name, dtype, shape in chosen:
        if dtype not in _BACK:
            raise StateError(f"safetensors has no type for {file}:{name} ({dtype})", "leave it out with only=")
        size = ITEM_SIZE[dtype]
        for d in shape:
            size *= d
        label = name if seen[name] == 1 else f"{file}:{name}"
        header[label] = {"dtype": _BACK[dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
        names.append(label)
        sizes.append(size)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f".mdl-{os.getpid()}-0-{path.name}")
    try:
        with open(temporary, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for (file, name, _, _), size in zip(chosen, sizes, strict=True):
                for start in range(0, size, _PART):
                    out.write(native.tensor_range(rev, file, name, (start, min(_PART, size - start))))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return names
