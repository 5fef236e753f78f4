"""Lays out a rank's part of a DCP save plan as files.

Names depend on the state, on how it is sharded and on the rank, and on nothing else: the same part has the same name in
the same file from save to save.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType

from ..dtypes import torch_stored
from ._dcp_metadata import Blob, Chunk

_TENSORS, _BYTES = ".safetensors", ".bytes"
#: Entries whose tensors have a directory of their own.
_SAFE = re.compile(r"(?!rank-|dcp\.json$)[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: Where a shard is, and its length in bytes.
Part = tuple["Chunk | Blob", int]


def layout(plan: SavePlan, rank: int) -> dict[str, list[WriteItem]]:
    """This rank's files: path -> what is in them."""
    files: dict[str, list[WriteItem]] = {}
    for item in plan.items:
        if item.type == WriteItemType.BYTE_IO:
            path = f"rank-{rank:05}{_BYTES}"
        else:
            path = f"{_directory(item.index.fqn, plan.planner_data)}rank-{rank:05}{_TENSORS}"
        files.setdefault(path, []).append(item)
    return files


def _directory(fqn: str, paths: Any) -> str:
    """The top-level entry that a name is below of, with a slash behind it; nothing for a name at the top."""
    path = paths.get(fqn) if isinstance(paths, dict) else None
    if not isinstance(path, tuple) or len(path) < 2 or not isinstance(path[0], str):
        return ""
    return f"{path[0]}/" if _SAFE.fullmatch(path[0]) and fqn.startswith(f"{path[0]}.") else ""


def content(path: str, items: Iterable[WriteItem], planner: SavePlanner) -> tuple[Any, list[Part]]:
    """A file as `Repo.stage` takes it, and where in it each item is."""
    return (_bytes if path.endswith(_BYTES) else _tensors)(path, items, planner)


def _bytes(path: str, items: Iterable[WriteItem], planner: SavePlanner) -> tuple[bytes, list[Part]]:
    runs = [bytes(planner.resolve_data(item).getbuffer()) for item in items]
    starts = itertools.accumulate(map(len, runs), initial=0)
    return b"".join(runs), [(Blob(path, at, len(run)), len(run)) for at, run in zip(starts, runs, strict=False)]


def _tensors(path: str, items: Iterable[WriteItem], planner: SavePlanner) -> tuple[dict[str, torch.Tensor], list[Part]]:
    entry = path.rpartition("/")[0]
    tensors: dict[str, torch.Tensor] = {}
    parts: list[Part] = []
    for item in items:
        name = _name(item, entry)
        # Not met in practice; but of two shards under one name, one would be lost.
        while name in tensors or name == "__metadata__":
            name += "'"
        tensor = tensors[name] = planner.resolve_data(item).detach()
        known = torch_stored(tensor.dtype) is not None
        raw = None if known else (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        parts.append((Chunk(path, name, raw), tensor.numel() * tensor.element_size()))
    return tensors, parts


def _name(item: WriteItem, entry: str) -> str:
    """``weight`` for a whole tensor, ``weight@256,0`` for the part that begins there."""
    name = item.index.fqn.removeprefix(f"{entry}.") if entry else item.index.fqn
    data, offsets = item.tensor_data, item.index.offset
    if data is None or offsets is None or data.chunk.sizes == data.size:
        return name
    return f"{name}@{','.join(map(str, offsets))}"
