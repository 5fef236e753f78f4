"""Fills the tensors of a DCP load plan from stored shards: which shards are read as a whole, which row by row.

A shard that one request wants as it is stored is decoded straight into the tensor to be filled. One that is small, or
mostly needed, is decoded once into memory of its own; of the others only the requested rows are read.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlanner, ReadItem

from ..dtypes import ITEM_SIZE, TO_TORCH
from ..errors import CorruptError
from ..reading import Memory, Reader, _from_bytes
from ._dcp_metadata import Blob, Chunk, named

#: Bytes that may be in memory at once beside the tensors that are filled.
BUDGET = 256 << 20
#: A shard up to this size is read whole.
SMALL = 1 << 20


class _Part:
    """A stored shard, and the requests for it."""

    def __init__(self, chunk: Chunk, reader: Reader) -> None:
        self.chunk = chunk
        listed = reader.listed(chunk.file).get(chunk.name)
        if listed is None or listed[3] is not None:
            listed = reader.stored(chunk.file, chunk.name)
        self.dtype, self.shape = listed[1], tuple(listed[2])
        self.items: list[ReadItem] = []
        self.targets: list[torch.Tensor] = []

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * ITEM_SIZE[self.dtype]

    def want(self, item: ReadItem, target: torch.Tensor) -> None:
        if tuple(target.shape) != tuple(item.lengths):
            raise CorruptError(
                f"{item.storage_index.fqn}: the plan wants {list(item.lengths)}, the tensor takes {list(target.shape)}",
                None,
            )
        self.items.append(item)
        self.targets.append(target)

    def fits(self) -> bool:
        """Returns whether it can be decoded straight into the one tensor that wants it."""
        if len(self.items) != 1 or self.chunk.raw is not None:
            return False
        target = self.targets[0]
        alike = tuple(target.shape) == self.shape and target.dtype == getattr(torch, TO_TORCH[self.dtype], None)
        plain = target.device.type == "cpu" and target.is_contiguous() and not target.is_conj() and not target.is_neg()
        return alike and plain and type(target) in (torch.Tensor, torch.nn.Parameter)

    def rows(self) -> list[tuple[int, int]]:
        """Runs of rows that are wanted, in order, without overlap."""
        runs: list[tuple[int, int]] = []
        for start, n in sorted((i.storage_offsets[0], i.lengths[0]) for i in self.items):
            if runs and start <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(runs[-1][1], start + n))
            else:
                runs.append((start, start + n))
        return runs

    def whole(self) -> bool:
        """Returns whether it is to be decoded whole."""
        if self.chunk.raw is not None or not self.shape or self.nbytes <= SMALL:
            return True
        wanted = sum(stop - start for start, stop in self.rows())
        return self.nbytes <= BUDGET and 2 * wanted > self.shape[0]


def read(
    reader: Reader, items: Iterable[ReadItem], places: dict[MetadataIndex, Chunk | Blob], planner: LoadPlanner
) -> None:
    """Executes a load plan."""
    parts: dict[Chunk, _Part] = {}
    blobs: list[tuple[Blob, ReadItem]] = []
    for item in items:
        place = places[item.storage_index]
        if isinstance(place, Blob) and item.type == LoadItemType.BYTE_IO:
            blobs.append((place, item))
        elif isinstance(place, Chunk) and item.type == LoadItemType.TENSOR:
            if place not in parts:
                parts[place] = _Part(place, reader)
            parts[place].want(item, planner.resolve_tensor(item).detach())
        else:
            raise CorruptError(f"{item.storage_index.fqn} is not stored as the plan has it", None)
    _read_parts(reader, list(parts.values()), planner)
    _read_blobs(reader, blobs, planner)


def _read_parts(reader: Reader, parts: list[_Part], planner: LoadPlanner) -> None:
    direct = [p for p in parts if p.fits()]
    others = [p for p in parts if not p.fits()]
    _fill(reader, [(p, p.targets[0]) for p in direct])
    for batch in _batches([p for p in others if p.whole()]):
        memory = [(p, Memory(p.dtype, p.shape, "torch").array) for p in batch]
        _fill(reader, memory)
        for part, array in memory:
            if part.chunk.raw is not None:
                dtype, shape = part.chunk.raw
                array = array.view(named(dtype, torch.dtype)).reshape(shape)
            for item, target in zip(part.items, part.targets, strict=True):
                target.copy_(_box(array, item.storage_offsets, item.lengths))
    for part in others:
        if not part.whole():
            _by_rows(reader, part)
    for part in parts:
        for item, target in zip(part.items, part.targets, strict=True):
            planner.commit_tensor(item, target)


def _batches(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Groups that fit the budget; a part that is larger goes alone."""
    batch: list[_Part] = []
    size = 0
    for part in parts:
        if batch and size + part.nbytes > BUDGET:
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += part.nbytes
    if batch:
        yield batch


def _fill(reader: Reader, wanted: list[tuple[_Part, torch.Tensor]]) -> None:
    jobs = [(p.chunk.file, p.chunk.name, t.data_ptr(), p.nbytes, t) for p, t in wanted if p.nbytes]
    if jobs:
        reader.native.fill(reader.rev, jobs)


def _box(array: torch.Tensor, offsets: Iterable[int], lengths: Iterable[int]) -> torch.Tensor:
    for axis, (start, n) in enumerate(zip(offsets, lengths, strict=True)):
        array = array.narrow(axis, start, n)
    return array


def _by_rows(reader: Reader, part: _Part) -> None:
    row = part.nbytes // part.shape[0]
    step = max(1, BUDGET // max(1, 2 * row))
    for first, end in part.rows():
        for start in range(first, end, step):
            stop = min(start + step, end)
            raw = reader.native.tensor_range(
                reader.rev, part.chunk.file, part.chunk.name, (start * row, (stop - start) * row)
            )
            _scatter_rows(part, _from_bytes(raw, part.dtype, (stop - start, *part.shape[1:]), "torch"), start)


def _scatter_rows(part: _Part, rows: torch.Tensor, at: int) -> None:
    """Copies what requests want of rows ``at..at + len(rows)`` of a part."""
    for item, target in zip(part.items, part.targets, strict=True):
        first = item.storage_offsets[0]
        start, stop = max(at, first), min(at + len(rows), first + item.lengths[0])
        if start < stop:
            box = _box(rows, (start - at, *item.storage_offsets[1:]), (stop - start, *item.lengths[1:]))
            target.narrow(0, start - first, stop - start).copy_(box)


def _read_blobs(reader: Reader, blobs: list[tuple[Blob, ReadItem]], planner: LoadPlanner) -> None:
    """Neighbouring bytes are read together, up to the budget."""
    blobs = sorted(blobs, key=lambda b: (b[0].file, b[0].start))
    at = 0
    while at < len(blobs):
        first = blobs[at][0]
        end, upto = first.start + first.length, at + 1
        while upto < len(blobs):
            blob = blobs[upto][0]
            if blob.file != first.file or blob.start > end + SMALL or blob.start + blob.length > first.start + BUDGET:
                break
            end, upto = max(end, blob.start + blob.length), upto + 1
        data = reader.native.read(reader.rev, first.file, first.start, end - first.start)
        for blob, item in blobs[at:upto]:
            start = blob.start - first.start
            part = data[start : start + blob.length]
            if len(part) != blob.length:
                raise CorruptError(f"{blob.file} ends before {item.storage_index.fqn}", "mdl fsck")
            planner.load_bytes(item, io.BytesIO(part))
        at = upto
