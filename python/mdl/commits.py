"""Dataclasses of commits, files, tensors and differences."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any


@dataclass(frozen=True)
class Commit:
    """A version.

    ``time`` is aware of its zone; of a date or a zone that Python has not, it is the nearest in UTC. Sizes are in
    bytes; ``resume`` is ``"exact-resume"``, ``"approximate"``, ``"weights-only"`` or None (no tensors); ``quality``
    holds what was measured where a policy other than ``lossless`` was at work, of the approximation where there is one
    beside the exact contents.

    ``fidelity`` says how close what the version gives today is to what training had: ``"exact"``, ``"approximate"``,
    ``"weights"``, ``"gone"``, or None (it cannot be told). ``aged`` are the rules by which it gave up its exact
    contents: they stay until `mdl gc` takes them, and then the approximation stands for them. ``weights`` is the same
    of its optimizer state, ``pruned`` of all contents. ``provenance`` is what the version says of its code, command,
    environment and data sets (docs/provenance.md); ``signed`` says that it carries a signature, not what that is worth.
    """

    id: str
    parents: list[str]
    message: str
    step: int | None
    epoch: float | None
    metrics: dict[str, float]
    meta: dict[str, str]
    time: datetime
    author: str
    files: int
    tensors: int
    new_tensors: int
    logical_bytes: int
    stored_bytes: int
    resumed_from: str | None = None
    resume: str | None = None
    quality: dict[str, Any] | None = None
    pruned: str | None = None
    fidelity: str | None = None
    aged: str | None = None
    weights: str | None = None
    signed: bool = False
    provenance: dict[str, Any] | None = None
    branch: str | None = field(default=None, compare=False)

    @property
    def short_id(self) -> str:
        """The first 12 digits, as listings show them."""
        return self.id[:12]

    @property
    def title(self) -> str:
        """The first line of the message."""
        return next(iter(self.message.splitlines()), "")

    @property
    def ratio(self) -> float:
        """Bytes of all files over bytes that storing them added."""
        return self.logical_bytes / self.stored_bytes if self.stored_bytes else float("inf")

    @classmethod
    def told(cls, raw: dict[str, Any]) -> Commit:
        """From the native half's words."""
        raw = dict(raw)
        when = _date(raw.pop("time_ms"), raw.pop("utc_offset_min"))
        name, email = raw.pop("author")
        said = raw.pop("provenance")
        raw["provenance"] = None if said is None else json.loads(said)
        return cls(time=when, author=f"{name} <{email}>" if email else name, **raw)

    def __str__(self) -> str:
        step = "" if self.step is None else f" step {self.step}"
        return f"{self.short_id}{step} {self.title}".rstrip()

    def _repr_html_(self) -> str:
        from .html import commit

        return commit(self)


def _date(time_ms: int, utc_offset_min: int) -> datetime:
    """What was imported may have any date and zone."""
    odd = abs(utc_offset_min) >= 24 * 60
    zone = timezone.utc if odd else timezone(timedelta(minutes=utc_offset_min))
    try:
        return datetime.fromtimestamp(time_ms / 1000, zone)
    except (OverflowError, OSError, ValueError):
        return (datetime.min if time_ms < 0 else datetime.max).replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class FileInfo:
    """A file of a version: ``size`` in bytes; ``kind`` is ``"tensors"`` or ``"bytes"``."""

    path: str
    size: int
    kind: str


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a version: ``dtype`` as `mdl ls` prints it (``f32``, ``bf16``, ...), ``shape`` in elements."""

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in decoded bytes."""
        from .dtypes import ITEM_SIZE

        n = ITEM_SIZE[self.dtype]
        for d in self.shape:
            n *= d
        return n


@dataclass(frozen=True)
class TensorDiff:
    """How a tensor moved: ``changed`` is the part of elements whose bytes differ, ``rel_l2`` is ||b - a|| / ||a||."""

    name: str
    change: str
    dtype: str
    shape: tuple[int, ...]
    changed: float | None
    rel_l2: float | None
    max_abs: float | None
    cosine: float | None


@dataclass(frozen=True)
class FileDiff:
    """How a file differs between two versions; ``change`` is ``"added"``, ``"deleted"`` or ``"modified"``."""

    path: str
    change: str
    size_before: int | None
    size_after: int | None
    same_tensors: int
    tensors: list[TensorDiff]

    @classmethod
    def told(cls, raw: dict[str, Any]) -> FileDiff:
        """From the native half's words."""
        tensors = [TensorDiff(**{**t, "shape": tuple(t["shape"])}) for t in raw["tensors"]]
        return cls(**{**raw, "tensors": tensors})


@dataclass(frozen=True)
class CheckedOut:
    """What a checkout wrote."""

    written: int
    bytes: int


@dataclass(frozen=True)
class PruneReport:
    """What a pruning did, or (``dry_run``) would do.

    ``pruned`` and ``kept`` list versions newest first: id and step, and of those that stay why. ``freed_bytes`` is what
    `mdl gc` frees after its grace period, ``base_bytes`` what it also frees if `mdl compact` runs before. ``undecided``
    are rules that could tell nothing of a branch, and kept all of it.

    ``to`` is what is left of the versions that were pruned. ``no_approximation`` and ``no_state`` are numbers of
    versions that were left as they are: nothing stands for their exact contents, or they have no file of nothing but
    optimizer state. ``mixed`` have files that hold weights as well, which stay whole. ``levels``, of a dry run, has for
    each level how many versions would be pruned, and bytes as in ``freed_bytes`` and ``base_bytes``.
    """

    dry_run: bool
    rules: str
    branches: list[str]
    pruned: list[tuple[str, int | None]]
    kept: list[tuple[str, int | None, list[str]]]
    undecided: list[str]
    freed_bytes: int
    base_bytes: int
    to: str = "gone"
    no_approximation: int = 0
    no_state: int = 0
    mixed: int = 0
    levels: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def told(cls, raw: dict[str, Any]) -> PruneReport:
        """From the native half's words."""
        return cls(**raw)


@dataclass(frozen=True)
class Staged:
    """A file that is stored but in no version yet. It can be pickled and sent to the process that commits."""

    path: str
    words: str


@dataclass(frozen=True)
class Shard:
    """What a rank has put: how many files and tensors, how many of these were new, and what they took, in bytes."""

    session: str
    rank: int
    files: int
    tensors: int
    new_tensors: int
    logical_bytes: int
    stored_bytes: int


@dataclass(frozen=True)
class Session:
    """A sharded commit under way, or (with the id of its ``commit``) finished; ``ranks`` have put."""

    name: str
    ranks: list[int]
    commit: str | None
