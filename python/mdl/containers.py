"""Builds the files of a version from an encoded state: safetensors without copying tensors, and `state.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._native import File
from .dtypes import ITEM_SIZE, STORED
from .errors import UsageError
from .state import Encoded, Leaf
from .tensors import refuse, run_of

#: File of a version with the state's values other than tensors.
STATE_FILE = "state.json"


def safetensors(rel: str, leaves: Sequence[Leaf], aliases: Mapping[str, str]) -> File:
    """A safetensors file of these tensors, wider types first so that each lies at a multiple of its size.

    Names that are stored under another one are noted in the header as `safetensors.torch.save_model` does.
    """
    ordered = sorted(leaves, key=lambda leaf: -ITEM_SIZE[STORED[leaf.run.stored]])
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **aliases}}
    at = 0
    for leaf in ordered:
        end = at + leaf.run.nbytes
        header[leaf.name] = {"dtype": leaf.run.stored, "shape": leaf.run.shape, "data_offsets": (at, end)}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    runs = [(leaf.run.address, leaf.run.nbytes, leaf.run.owner, leaf.run.device) for leaf in ordered]
    return File.memory(rel, len(text).to_bytes(8, "little") + text, runs)


def files_of(encoded: Encoded) -> list[File]:
    """All files of a state. Their bytes are read from the tensors when they are committed or snapshotted."""
    by_stem: dict[str, list[Leaf]] = {}
    for leaf in encoded.leaves:
        by_stem.setdefault(leaf.stem, []).append(leaf)
    files = []
    for stem, leaves in by_stem.items():
        aliases = {name: kept for (of, name), kept in encoded.aliases.items() if of == stem}
        files.append(safetensors(f"{stem}.safetensors", leaves, aliases))
    text = json.dumps(encoded.document, separators=(",", ":"), allow_nan=False)
    return [*files, File.bytes(STATE_FILE, text.encode())]


def extra_files(files: Mapping[str, Any] | None) -> list[File]:
    """Further files of a version: path in it -> bytes, text, a path on disk, or a file that is made already."""
    return [one_file(rel, content) for rel, content in (files or {}).items()]


def one_file(rel: str, content: Any) -> File:
    """Builds one of them."""
    if isinstance(content, File):
        return content
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return File.bytes(rel, bytes(content))
    if isinstance(content, os.PathLike):
        return File.disk(rel, os.fspath(content))
    if isinstance(content, Mapping):
        return tensors_file(rel, content)
    raise UsageError(
        f"the file {rel!r} is given as {type(content).__name__}",
        "give bytes, text, a pathlib.Path or a dict of tensors",
    )


def tensors_file(rel: str, tensors: Mapping[str, Any]) -> File:
    """A safetensors file of a flat mapping of names to tensors or arrays."""
    for name, value in tensors.items():
        refuse(value, f"{rel}[{name!r}]")
    leaves = [Leaf("", name, run_of(value)[0]) for name, value in tensors.items()]
    return safetensors(rel, leaves, {})
