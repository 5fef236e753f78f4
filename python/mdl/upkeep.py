"""Verbs of `mdl.Repo` about other places and about what is stored: push, fetch, gc, fsck and their like."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ._native import Repo as Native
from .bars import Progress, shown
from .errors import UsageError
from .reports import (
    CompactReport,
    Fetched,
    FsckReport,
    GcReport,
    Pulled,
    Pushed,
    RefMove,
    Replayed,
    Reset,
    Stats,
    Verified,
    told,
)

Path = str | os.PathLike[str]


def _names(names: str | Iterable[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _moves(raw: list[tuple[str, str | None, str | None]]) -> list[RefMove]:
    return [RefMove(*move) for move in raw]


class Upkeep:
    """What `Repo` does with other places, and with what is stored.

    Each verb first waits for this object's own commits, and runs without the interpreter's lock. Ctrl-C ends it
    between two steps and leaves a sound repository. ``progress`` is as `mdl.bars.Progress` has it: by itself a bar in a
    notebook or a terminal.
    """

    @property
    def _read(self) -> Native:
        raise NotImplementedError

    # Other places.

    def remotes(self) -> dict[str, str]:
        """Other places of the same history: their URLs by name."""
        return self._read.remotes()

    def add_remote(self, name: str, url: Path) -> None:
        """Names a directory, a bucket (``s3://BUCKET/PREFIX``) or a server's repository (``https://HOST/OWNER/NAME``);
        a name that is there gets the new URL. Credentials are never kept (docs/remotes.md)."""
        self._read.set_remote(name, os.fspath(url))

    def remove_remote(self, name: str) -> None:
        """Forgets the name of a place."""
        self._read.set_remote(name, None)

    def push(
        self,
        remote: Path | None = None,
        refs: str | Iterable[str] | None = None,
        *,
        all: bool = False,
        tags: bool = False,
        force: bool = False,
        delete: bool = False,
        progress: Progress = None,
    ) -> Pushed:
        """Sends versions to another place and moves its branches.

        ``remote`` is a name or a URL (default: ``origin``, or the only one there is); ``refs`` are branches, tags or
        ``REV:NAME`` (default: the present branch), ``all`` are all branches, ``tags`` all tags. ``force`` lets branches
        leave commits behind, ``delete`` deletes ``refs`` there. A push that was cut off goes on when it is made again.

        Raises:
            ConflictError: another writer moved a branch there meanwhile: fetch, and look.
            UserError: a branch there has commits that this one has not.
        """
        place = None if remote is None else os.fspath(remote)
        with shown(progress) as show:
            sent, objects, moved = self._read.push(place, _names(refs), all, tags, force, delete, show)
        return Pushed(sent, objects, _moves(moved))

    def fetch(
        self,
        remote: str | None = None,
        branches: str | Iterable[str] | None = None,
        *,
        tags: bool = True,
        prune: bool = False,
        progress: Progress = None,
    ) -> Fetched:
        """Brings over what a remote has (default: all branches, and tags), and notes its branches as
        ``REMOTE/BRANCH``; ``prune`` forgets those that are gone there."""
        with shown(progress) as show:
            carried, objects, moved = self._read.fetch(remote, _names(branches), tags, prune, show)
        return Fetched(carried, objects, _moves(moved))

    def pull(
        self,
        remote: str | None = None,
        branch: str | None = None,
        *,
        rebase: bool | None = None,
        ours: str | Iterable[str] = (),
        theirs: str | Iterable[str] = (),
        progress: Progress = None,
    ) -> Pulled:
        """Fetches one branch (default: that of the present one's name) and moves the present branch, and its work tree,
        forward to it.

        Where both sides have new versions, ``rebase`` puts this side's on top of the others (``None``: as the setting
        ``pull.rebase`` says); ``ours`` and ``theirs`` are then as in `rebase`.

        Raises:
            ConflictError: both sides have new versions, and ``rebase`` is not asked for; or files without tensors
                changed on both.
            UserError: changes that are in no version are in the way.
        """
        rules = ("snapshot", _names(ours), _names(theirs), None)
        with shown(progress) as show:
            carried, objects, moved, updated = self._read.pull(remote, branch, rebase, rules, show)
        return Pulled(carried, objects, _moves(moved), updated)

    # Versions made anew.

    def rebase(
        self,
        upstream: str,
        *,
        onto: str | None = None,
        update: bool = False,
        ours: str | Iterable[str] = (),
        theirs: str | Iterable[str] = (),
        progress: Progress = None,
    ) -> Replayed:
        """Puts this side's versions on top of ``upstream`` (or of ``onto``), and the work tree with them.

        A version keeps its weights; with ``update`` they change by as much as they changed in it (docs/rewriting.md).
        Where both sides changed a file without tensors, globs say which counts: ``ours`` is the side that is built
        upon, ``theirs`` the version that is replayed.

        Raises:
            ConflictError: such files that no glob decides on. Nothing has changed.
            UserError: changes that are in no version.
        """
        rules = ("update" if update else "snapshot", _names(ours), _names(theirs), None)
        with shown(progress) as show:
            return Replayed(*self._read.rebase(upstream, onto, rules, show))

    def cherry_pick(
        self,
        revs: str | Iterable[str],
        *,
        exact: bool = False,
        mainline: int | None = None,
        ours: str | Iterable[str] = (),
        theirs: str | Iterable[str] = (),
        progress: Progress = None,
    ) -> Replayed:
        """Makes the changes of versions on top of the present one, and the work tree with it.

        Weights change by ``to - from`` of each version: in f64, rounded once to the dtype. ``exact``: only by bytes of
        a version. ``mainline``: of a merge, the parent (from 1) that its change is told from. Globs as in `rebase`.

        Raises:
            ConflictError: files that no glob decides on; with ``exact``, tensors that both sides changed. Nothing has
                changed.
            UserError: changes that are in no version.
        """
        return self._pick(revs, False, exact, (ours, theirs, mainline), progress)

    def revert(
        self,
        revs: str | Iterable[str],
        *,
        exact: bool = False,
        mainline: int | None = None,
        ours: str | Iterable[str] = (),
        theirs: str | Iterable[str] = (),
        progress: Progress = None,
    ) -> Replayed:
        """Takes the changes of versions back, by new versions, and the work tree with them.

        Arguments and errors as of `cherry_pick`. Tensors that nothing changed since get the bytes that they had.
        """
        return self._pick(revs, True, exact, (ours, theirs, mainline), progress)

    def _pick(
        self,
        revs: str | Iterable[str],
        back: bool,
        exact: bool,
        rules: tuple[str | Iterable[str], str | Iterable[str], int | None],
        progress: Progress,
    ) -> Replayed:
        ours, theirs, mainline = rules
        rule = "exact" if exact else "update"
        with shown(progress) as show:
            return Replayed(*self._read.pick(_names(revs), back, (rule, _names(ours), _names(theirs), mainline), show))

    # What is stored.

    def gc(
        self,
        *,
        dry_run: bool = False,
        prune_now: bool = False,
        grace: float | None = None,
        progress: Progress = None,
    ) -> GcReport:
        """Deletes what no branch, tag, HEAD or reflog reaches, and contents of versions that were pruned or have aged.

        What is younger than ``grace`` seconds stays (default: the setting ``gc.grace_hours``, 24 hours); with
        ``prune_now`` neither that nor the reflog keeps anything.

        Raises:
            UsageError: ``grace`` is negative, or no number.
        """
        if grace is not None and not 0 <= grace < float("inf"):
            raise UsageError(f"grace={grace} is no number of seconds", "0 and more; prune_now=True keeps nothing")
        with shown(progress) as show:
            return told(GcReport, self._read.gc(dry_run, prune_now, grace, show))

    def compact(self, *, dry_run: bool = False, progress: Progress = None) -> CompactReport:
        """Makes tips of branches and tags fast to read, and merges small packs. The repository may grow."""
        with shown(progress) as show:
            return told(CompactReport, self._read.compact(dry_run, show))

    def stats(self, *, progress: Progress = None) -> Stats:
        """Where the bytes are: in all, by branch, file and tensor."""
        with shown(progress) as show:
            return told(Stats, self._read.stats(show))

    def fsck(self, *, quick: bool = False, progress: Progress = None) -> FsckReport:
        """Reads, decodes and hashes everything (``quick``: only compares checksums); nothing is raised for damage::

        assert repo.fsck(), "damaged"
        """
        with shown(progress) as show:
            return FsckReport.told(self._read.fsck(quick, show))

    def verify(self, file: Path, rev: str = "HEAD", path: str | None = None, *, progress: Progress = None) -> Verified:
        """Compares a file on disk, byte for byte, with that of a version; without ``path`` it is found by its place in
        the work tree, else by its name."""
        with shown(progress) as show:
            return Verified(*self._read.verify(os.fspath(file), rev, path, show))

    def reset(self, rev: str = "HEAD", *, hard: bool = False, progress: Progress = None) -> Reset:
        """Moves the present branch to a version; with ``hard`` the work tree too, whose changes are lost. The reflog
        remembers where the branch was: ``repo.reset("main@{1}")`` takes it back."""
        with shown(progress) as show:
            return Reset(*self._read.reset(rev, hard, show))
