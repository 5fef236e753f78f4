"""Write side of the fsspec file system: written files, transactions that collect them, and the commit.

Written files wait in a directory of the repository, which sweeps it, until they are committed or discarded.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

from fsspec.spec import AbstractBufferedFile
from fsspec.transaction import Transaction

from ..commits import Commit
from ..errors import NotFoundError
from ..repo import Repo
from ._url import Place

#: Directory that the repository sweeps, should a killed process leave something there.
_ROOM = "candidates"
#: Path in the tree -> its new file, or None: delete it.
_Change = dict[str, "pathlib.Path | None"]


class Changes:
    """Pending changes by branch."""

    def __init__(self) -> None:
        self._branches: dict[tuple[str, str | None], _Change] = {}

    def of(self, place: Place) -> _Change:
        """Returns the pending changes of a URL's branch."""
        return self._branches.setdefault((place.root, place.rev), {})

    def put(self, place: Place, file: pathlib.Path) -> None:
        """Sets a file's contents; takes over the file on disk."""
        self.forget(place)
        self.of(place)[place.inner] = file

    def remove(self, place: Place) -> None:
        """Deletes a file."""
        self.forget(place)
        self.of(place)[place.inner] = None

    def forget(self, place: Place) -> bool:
        """Drops a change; returns whether it had new contents."""
        old = self.of(place).pop(place.inner, None)
        if old is not None:
            drop(old)
        return old is not None

    def commit(self, fs: Any) -> None:
        """Makes one commit on each branch."""
        for (root, rev), change in self._branches.items():
            if change:
                fs.last_commit = commit(fs.repo(root), rev, change, fs._said)

    def clear(self) -> None:
        """Removes what was written to disk."""
        for change in self._branches.values():
            for file in change.values():
                if file is not None:
                    drop(file)
        self._branches.clear()


class MdlTransaction(Transaction):
    """Collects changes and commits them at its end, or not at all."""

    def __init__(self, fs: Any, **kwargs: Any) -> None:
        super().__init__(fs, **kwargs)
        self.changes = Changes()

    def complete(self, commit: bool = True) -> None:
        """Closes what is open, and commits."""
        fs = self.fs
        try:
            # Each file hands over its contents, and the file system ends the transaction.
            super().complete(commit)
            if commit:
                self.changes.commit(fs)
        finally:
            self.changes.clear()


class WriteFile(AbstractBufferedFile):
    """A file that is written, to disk at first. Closing it commits it, or leaves it to the transaction.

    In a `with` block that an exception leaves, and when it is dropped without being closed, it is discarded. (Wrapped
    as text, or by `fsspec.open`, it is told of no exception: use a transaction there.)
    """

    def __init__(self, fs: Any, path: str, place: Place, mode: str, **kwargs: Any) -> None:
        self._place, self._spool, self._handed = place, None, False
        super().__init__(fs, path, mode, **kwargs)
        if mode == "ab" and fs.exists(path):
            with fs.open(path) as old:
                while block := old.read(self.blocksize):
                    self.write(block)

    def _initiate_upload(self) -> None:
        self._spool = spool(self.fs.repo(self._place.root))

    def _upload_chunk(self, final: bool = False) -> bool:
        with open(self._spool, "ab") as file:
            file.write(self.buffer.getbuffer())
        if final:
            self._hand_over()
        return True

    def _hand_over(self) -> None:
        self._handed = True
        changes = self.fs.transaction.changes if not self.autocommit else Changes()
        changes.put(self._place, self._spool)
        if self.autocommit:
            try:
                changes.commit(self.fs)
            finally:
                changes.clear()

    def commit(self) -> None:
        """At a transaction's end: closes the file, if that was forgotten."""
        if not self.closed:
            self.close()

    def discard(self) -> None:
        """Discards what was written."""
        self.forced = True
        self.closed = True
        if self._spool is not None and not self._handed:
            drop(self._spool)

    def __exit__(self, kind: Any, *args: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self.path} was not closed and is not committed", ResourceWarning, stacklevel=2)
            self.discard()


def spool(repo: Repo) -> pathlib.Path:
    """A place for a file on the repository's disk, in a directory of its own."""
    return pathlib.Path(tempfile.mkdtemp(prefix="written-", dir=_room(repo)), "file")


def drop(file: pathlib.Path) -> None:
    """Removes a spooled file."""
    shutil.rmtree(file.parent, ignore_errors=True)


def _room(repo: Repo) -> pathlib.Path:
    room = repo.path / _ROOM
    room.mkdir(exist_ok=True)
    return room


def commit(repo: Repo, rev: str | None, change: Mapping[str, pathlib.Path | None], said: Mapping[str, Any]) -> Commit:
    """A version of a branch that differs from the one before by these files.

    Raises:
        PermissionError: ``rev`` names a version and no branch.
    """
    branch, parent = _target(repo, rev)
    said = {**said, "message": said.get("message") or _summary(change), "branch": branch}
    expected = parent
    while True:
        made = _commit_onto(repo, parent, change, said)
        before = made.parents[0] if made.parents else None
        if before == expected:
            return made
        # Another writer committed meanwhile, and this version lacks its changes: once more, on top of that commit.
        parent, expected = before, made.id


def _commit_onto(
    repo: Repo, parent: str | None, change: Mapping[str, pathlib.Path | None], said: Mapping[str, Any]
) -> Commit:
    # Unchanged files are not read: the repository has them.
    kept = [] if parent is None else [s for s in repo.staged(parent) if s.path not in change]
    files = {path: file for path, file in change.items() if file is not None}
    return repo.commit_staged(kept, files=files, **said)


def _target(repo: Repo, rev: str | None) -> tuple[str | None, str | None]:
    """The branch to commit to (None is HEAD's), and the version before."""
    branches = repo.branches()
    if rev in branches:
        return rev, branches[rev]
    head = None
    with contextlib.suppress(NotFoundError):
        head = repo.resolve("HEAD")
    if rev is None or rev == "HEAD":
        return None, head
    with contextlib.suppress(NotFoundError):
        repo.resolve(rev)
        raise PermissionError(errno.EACCES, f"{rev} names a version, which cannot be written to: name a branch", rev)
    # A new branch begins at HEAD's version.
    return rev, head


def _summary(change: Mapping[str, pathlib.Path | None]) -> str:
    written = [path for path, file in change.items() if file is not None]
    removed = [path for path, file in change.items() if file is None]
    parts = [(verb, paths) for verb, paths in (("write", written), ("remove", removed)) if paths]
    return ", ".join(f"{verb} {paths[0] if len(paths) == 1 else f'{len(paths)} files'}" for verb, paths in parts)
