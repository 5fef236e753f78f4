"""Verbs of `mdl.Repo` that read versions, and that name and prune them."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from ._native import Repo as Native
from .commits import CheckedOut, Commit, FileDiff, FileInfo, PruneReport, TensorInfo
from .handle import Handle
from .history import Diff, Log
from .origin import Sign, signing
from .reading import LazyTensor, Reader, find
from .retention import Rule

Path = str | os.PathLike[str]


class Blamed(NamedTuple):
    """A change of a tensor: the version's id, ``"added"``, ``"modified"`` or ``"deleted"``, and the norm of the change
    relative to the tensor before, where that was asked for."""

    commit: str
    change: str
    rel_l2: float | None


def _time(time: str | datetime | None) -> str | None:
    # A time without a zone is of this machine's, as everywhere in Python.
    return time.astimezone().isoformat() if isinstance(time, datetime) else time


class Versions:
    """What `Repo` does with the versions that are there."""

    _handle: Handle

    @property
    def _read(self) -> Native:
        """The native repository, once all commits are made that a reader should see."""
        raise NotImplementedError

    def _restored(self, rev: str) -> str:
        """The id of a version whose contents the caller asked for; says once of each that is not exact any more."""
        raw = self._read.show(rev)
        id: str = raw["id"]
        said = None
        if raw["weights"] is not None and raw["fidelity"] == "weights":
            said = f"its optimizer state is gone (kept were: {raw['weights']}); its weights are there"
        elif raw["aged"] is not None and raw["fidelity"] == "approximate":
            said = f"its exact contents are gone ({raw['aged']}); an approximation stands for them"
        if said is not None and id not in self._handle.warned:
            self._handle.warned.add(id)
            warnings.warn(f"{id[:12]}: {said}", RuntimeWarning, stacklevel=3)
        return id

    def load(
        self,
        rev: str = "HEAD",
        *,
        map_location: Any = None,
        only: str | Iterable[str] | None = None,
        framework: str | None = None,
    ) -> Any:
        """The state of a version, with the types it was committed with, tied tensors tied. Nothing is unpickled.

        ``map_location`` is as in `torch.load` (None: where each tensor was). ``only`` names parts by globs for dotted
        paths: ``"model"``, ``"optimizer.state.*"``; other entries of dictionaries are left out. A version that holds no
        state (files of a framework) gives a dict of file (without suffix) -> name -> tensor; ``framework`` is then
        ``"torch"`` or ``"numpy"``. Where an approximation stands for exact contents it says so once of each version, as
        RuntimeWarning; so do `tensor`, `checkout` and `export_safetensors`.

        Raises:
            NotFoundError: no such revision, or nothing matches ``only``.
            StateError: the version holds no tensors; a device is not to be had.
        """
        return Reader(self._read, self._restored(rev)).state(only, map_location, framework)

    def tensor(self, rev: str, name: str) -> LazyTensor:
        """A tensor of a version, by ``FILE:NAME`` or by a name that only one file has; ``[...]`` reads what is asked
        for.
        """
        return find(self._handle, self._restored(rev), name)

    def log(
        self,
        rev: str = "HEAD",
        *,
        all: bool = False,
        limit: int | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        author: str | None = None,
        grep: str | None = None,
        metric: str | None = None,
        touching: str | Iterable[str] | None = None,
    ) -> Log:
        """Versions that ``rev`` (``all``: any branch or tag) reaches, newest first: a list, with `Log.to_pandas` and
        `Log.plot`.

        The others are filters, and all that are given must hold. ``since`` and ``until`` are times (a date, a date and
        time, or an age such as ``"7d"``); ``author`` and ``grep`` are looked for in author and message, in capitals or
        not; ``metric`` is an expression over metrics and notes, such as ``"loss<2 and (acc>=0.9 or step>1000)"``;
        ``touching`` are globs ``FILE`` or ``FILE:TENSOR`` of which the version changed something.

        Raises:
            UsageError: a filter makes no sense; it says where.
        """
        native = self._read
        starts = [*native.refs(False).values(), *native.refs(True).values()] if all else [rev]
        wanted = {
            "since": _time(since),
            "until": _time(until),
            "author": author,
            "grep": grep,
            "metric": metric,
            "touching": [touching] if isinstance(touching, str) else list(touching or ()),
        }
        return Log(Commit.told(raw) for raw in native.log(starts, 2**63 if limit is None else limit, wanted))

    def note(
        self,
        rev: str = "HEAD",
        metrics: dict[str, float] | None = None,
        meta: dict[str, str] | None = None,
        *,
        remove: str | Iterable[str] = (),
    ) -> bool:
        """Notes metrics and texts on a version that is there already, and removes what is noted under the keys
        ``remove``; returns whether anything changed. The version and its id stay what they are. What is noted stands
        beside what it was committed with, and of the same name in its place: in `log`, `show` and ``@best(...)``.

        Raises:
            UsageError: a key or a value that no note has.
            NotFoundError: there is no such version.
        """
        gone = [remove] if isinstance(remove, str) else list(remove)
        return self._read.note(rev, dict(metrics or {}), dict(meta or {}), gone)

    def notes(self, rev: str = "HEAD") -> dict[str, float | str]:
        """What is noted on a version: metrics and texts by key."""
        metrics, meta = self._read.notes(rev)
        return {**metrics, **meta}

    def blame(
        self,
        rev: str = "HEAD",
        *,
        only: str | Iterable[str] | None = None,
        by: str = "last",
        row: int | None = None,
        limit: int | None = None,
    ) -> dict[str, list[Blamed]]:
        """In which versions (those that lead to ``rev`` by first parents, of them the newest ``limit``) each tensor
        changed, oldest first, by ``FILE:NAME``.

        ``only`` are globs ``FILE:TENSOR``, ``:TENSOR`` or ``FILE``. ``by`` says of which changes the amount is
        computed, ``"last"``, ``"all"`` or ``"none"``; each decodes the tensor twice. With ``row`` only changes of that
        row along the first axis count.

        Raises:
            NotFoundError: no tensor has such a row.
        """
        globs = [only] if isinstance(only, str) else list(only or ())
        found = self._read.blame(rev, globs, by, row, 2**63 if limit is None else limit)
        return {f"{path}:{name}": [Blamed(*change) for change in changes] for path, name, changes in found}

    def show(self, rev: str = "HEAD") -> Commit:
        """A version."""
        return Commit.told(self._read.show(rev))

    def resolve(self, rev: str = "HEAD") -> str:
        """The id (64 digits) of what a revision names: ``main~2``, ``v1``, ``main@step=1000``, ``main@best(loss)``."""
        return self._read.resolve(rev)

    def files(self, rev: str = "HEAD") -> dict[str, FileInfo]:
        """Files of a version by path."""
        listed = self._read.files(rev)
        return {path: FileInfo(path, size, "tensors" if has else "bytes") for path, size, has in listed}

    def tensors(self, rev: str = "HEAD") -> dict[str, TensorInfo]:
        """Tensors of a version by ``FILE:NAME``."""
        native, rev = self._read, self.resolve(rev)
        paths = [path for path, _, has in native.files(rev) if has]
        found = [TensorInfo(p, t[0], t[1], tuple(t[2])) for p in paths for t in native.tensors(rev, p)]
        return {f"{t.path}:{t.name}": t for t in found}

    def read(self, rev: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file of a version; only the blocks that hold them are decoded."""
        return self._read.read(rev, path, start, 2**63 if length is None else length)

    def checkout(
        self, rev: str, to: Path, *, only: str | Iterable[str] | None = None, force: bool = False
    ) -> CheckedOut:
        """Writes a version's files below the directory ``to``, byte for byte as it gives them today.

        ``only`` are globs for paths. A file in the way whose bytes are in no version is overwritten only with
        ``force``.
        """
        globs = [only] if isinstance(only, str) else list(only or ())
        return CheckedOut(*self._read.checkout_to(self._restored(rev), os.fspath(to), globs, force))

    def export_safetensors(self, rev: str, path: Path, *, only: str | Iterable[str] | None = None) -> list[str]:
        """Writes tensors of a version into one safetensors file; returns their names in it.

        A name that several files have gets its file's name before it. ``only`` are globs for ``FILE:NAME``.
        """
        from .export import export

        return export(self._read, self._restored(rev), pathlib.Path(path), only)

    def diff(self, a: str, b: str) -> Diff:
        """What differs from version ``a`` to ``b``, file by file and tensor by tensor."""
        return Diff(FileDiff.told(raw) for raw in self._read.diff(a, b))

    # Branches and tags.

    def branch(self, name: str, at: str = "HEAD", *, force: bool = False) -> None:
        """Makes a branch at a version; ``force`` moves one that exists."""
        self._read.create_branch(name, at, force)

    def branches(self) -> dict[str, str]:
        """Branches, and the ids that they stand at."""
        return self._read.refs(False)

    def delete_branch(self, name: str, *, force: bool = False) -> None:
        """Deletes a branch; one whose versions nothing else reaches only by ``force``."""
        self._read.delete_branch(name, force)

    @property
    def head(self) -> str | None:
        """The branch that commits go to; None where HEAD is detached."""
        return self._handle.native.head_branch()

    def tag(
        self,
        name: str,
        rev: str = "HEAD",
        message: str | None = None,
        *,
        force: bool = False,
        sign: Sign | None = None,
    ) -> None:
        """Names a version for good; with ``message`` the tag is an object of its own, which ``sign`` signs as it does
        in `commit`."""
        self._read.create_tag(name, rev, message, force, signing(sign))

    def tags(self) -> dict[str, str]:
        """Tags, and the ids of their versions."""
        return self._read.refs(True)

    def delete_tag(self, name: str) -> None:
        """Deletes a tag."""
        self._read.delete_tag(name)

    # Retention.

    def prune(
        self,
        retention: Rule,
        *,
        branch: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """Lets go of the contents of versions of a branch (default: HEAD's; ``all``: every one) that no rule keeps:
        of all, or of what the rule's level (`Rule.to`) does not leave.

        Their commits stay in the log, with steps and metrics. `mdl gc` frees the room once its grace period is over;
        until then `undo_prune` takes it back. Tips of branches and what tags name always stay, and nothing goes unless
        everything that stays is there.
        """
        native = self._read
        branch = None if all else (branch or native.head_branch())
        rules = json.dumps(retention.to_json())
        return PruneReport.told(native.prune(rules, branch, dry_run, retention.level))

    def undo_prune(self, revs: Iterable[str] | None = None) -> list[str]:
        """Takes prunings back whose contents are still there: of these versions, or those of the last `prune`; returns
        their ids. A version that is named here and aged keeps its exact contents again, until the next commit."""
        return self._read.undo_prune(None if revs is None else list(revs))
