"""Dataclasses of what transfers and maintenance did: fetches, pushes, collections, checks, sizes."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


def told(kind: type[T], text: str) -> T:
    """A report from the native half's JSON; members of a newer one are left out."""
    raw = json.loads(text)
    return kind(**{f.name: raw[f.name] for f in dataclasses.fields(kind) if f.name in raw})  # type: ignore[arg-type]


@dataclass(frozen=True)
class RefMove:
    """A ref that moved: its full name (``refs/heads/main``), the ids before and now, None where it was not or is no
    more."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Pushed:
    """What a push sent: bytes and objects, and the refs that moved there."""

    sent_bytes: int
    objects: int
    moved: list[RefMove]


@dataclass(frozen=True)
class Fetched:
    """What a fetch brought: bytes that were carried, objects that were not here before, refs that moved here."""

    carried_bytes: int
    objects: int
    moved: list[RefMove]


@dataclass(frozen=True)
class Pulled(Fetched):
    """What a pull brought, and whether the present branch moved."""

    updated: bool = False


@dataclass(frozen=True)
class Replayed:
    """What a rebase, a cherry-pick or a revert did: HEAD's commit before and now, and every version with what it became
    (``None``: its changes were there already)."""

    before: str | None
    commit: str | None
    versions: list[tuple[str, str | None]]


@dataclass(frozen=True)
class GcReport:
    """What a collection freed, or (``dry_run``) would free; sizes in bytes.

    ``waiting_bytes`` are of packs in a bucket that a later collection deletes, ``pruned_versions`` and
    ``aged_versions`` versions without contents, and without exact contents.
    """

    dry_run: bool
    freed_bytes: int
    stored_bytes_before: int
    stored_bytes_after: int
    objects_before: int
    objects_after: int
    packs_before: int
    packs_after: int
    packs_deleted: int
    packs_rewritten: int
    waiting_bytes: int
    pruned_versions: int
    aged_versions: int


@dataclass(frozen=True)
class CompactReport:
    """What a compaction did, or (``dry_run``) would do; ``deepest`` are differences to follow to read a tensor."""

    dry_run: bool
    tensors_reencoded: int
    stored_bytes_before: int
    stored_bytes_after: int
    packs_before: int
    packs_after: int
    deepest_before: int
    deepest_after: int


@dataclass(frozen=True)
class Stats:
    """Where the bytes are. ``logical_bytes`` is what every version would take as plain files.

    ``branches``, ``files``, ``tensors`` and ``schemes`` are lists of dicts as `mdl stats --json` prints them
    (docs/cli-json.md).
    """

    commits: int
    packs: int
    objects: int
    logical_bytes: int
    stored_bytes: int
    cache_bytes: int
    unreachable_bytes: int
    damaged_packs: int
    branches: list[dict[str, Any]] = field(repr=False)
    files: list[dict[str, Any]] = field(repr=False)
    tensors: list[dict[str, Any]] = field(repr=False)
    schemes: list[dict[str, Any]] = field(repr=False)

    @property
    def ratio(self) -> float:
        """How many times smaller the versions are than as plain files."""
        return self.logical_bytes / self.stored_bytes if self.stored_bytes else float("inf")


@dataclass(frozen=True)
class Affected:
    """A place where damage shows: a version, a file of it (empty: the version itself), a tensor of that or None."""

    commit: str
    path: str
    tensor: str | None


@dataclass(frozen=True)
class Problem:
    """Something that is damaged or missing, why, and what it affects."""

    what: str
    reason: str
    affected: list[Affected]


@dataclass(frozen=True)
class FsckReport:
    """What a check looked at and found. It is true where nothing is wrong."""

    packs: int
    objects: int
    bytes: int
    not_fetched: int
    problems: list[Problem]

    def __bool__(self) -> bool:
        return not self.problems

    @classmethod
    def told(cls, text: str) -> FsckReport:
        """From the native half's JSON."""
        raw = json.loads(text)
        problems = [Problem(p["what"], p["reason"], [Affected(**a) for a in p["affected"]]) for p in raw["problems"]]
        return cls(raw["packs"], raw["objects"], raw["bytes"], raw["not_fetched"], problems)


@dataclass(frozen=True)
class Verified:
    """How a file compares with that of a version; it is true where they are the same.

    ``found_size`` is the file's length in bytes where that differs, ``first_difference`` the first byte that does.
    """

    path: str
    size: int
    found_size: int | None
    first_difference: int | None

    def __bool__(self) -> bool:
        return self.found_size is None and self.first_difference is None


@dataclass(frozen=True)
class Reset:
    """What a reset did to the work tree: files written, kept as they were, removed."""

    written: int
    kept: int
    removed: int
