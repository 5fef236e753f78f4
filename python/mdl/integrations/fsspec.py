"""fsspec file system for repositories: `mdl:///runs/gpt/model.safetensors@main~2` wherever a URL is taken.

    with fsspec.open("mdl:///runs/gpt@main~2/model.safetensors") as file: ...
    fs = fsspec.filesystem("mdl", rev="v1"); fs.ls("/runs/gpt")
    with fs.transaction:
        fs.put_file("model.safetensors", "/runs/gpt@main/model.safetensors"); fs.rm_file("/runs/gpt@main/old.bin")

Names that come back have the revision behind the repository, so what is below a directory begins with its name. Reading
is of versions, never of the work tree, and only the blocks that hold what is asked for are decoded; a file that is open
stays the one of its version though the branch moves. Writing goes to branches: one commit for a transaction, for a verb
on many files (`put`, `rm`, `mv`, `copy`), or else for each file that is closed. What a commit does not name stays as it
was. Directories are where files are: there is nothing to make.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from ..commits import Commit
from ..errors import NotFoundError
from ..repo import Repo
from ._fsspec_read import ReadFile, Tree, Trees, missing
from ._fsspec_write import MdlTransaction, WriteFile, spool
from ._url import Place, locate, strip


class MdlFileSystem(AbstractFileSystem):
    """Files of versions.

    ``rev`` is the revision of names that say none, and the branch that they are written to; without it that is HEAD.
    """

    protocol = "mdl"
    root_marker = "/"
    transaction_type = MdlTransaction

    def __init__(self, rev: str | None = None, **options: Any) -> None:
        if self._cached:
            return
        super().__init__(rev=rev, **options)
        self.rev = rev
        #: The last commit of this object.
        self.last_commit: Commit | None = None
        self._said: dict[str, Any] = {}
        self._repos: dict[str, Repo] = {}
        self._trees = Trees()
        self._guard = threading.Lock()

    # Names.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, (list, tuple)):
            return [cls._strip_protocol(p) for p in path]
        try:
            return str(locate(path))
        except NotFoundError:
            return strip(path)

    @classmethod
    def _parent(cls, path: str) -> str:
        return os.path.dirname(cls._strip_protocol(path))

    def place(self, path: str) -> Place:
        """Parses a name; its revision is this object's if it has none.

        Raises:
            FileNotFoundError: there is no repository on the path.
        """
        with missing(path):
            place = locate(path)
        return place if place.rev is not None or self.rev is None else Place(place.root, self.rev, place.inner)

    def repo(self, root: str) -> Repo:
        """The repository at a directory."""
        with self._guard:
            if root not in self._repos:
                self._repos[root] = Repo.open(root)
            return self._repos[root]

    def tree(self, place: Place) -> Tree:
        """Returns the files of the version that a name refers to.

        Raises:
            FileNotFoundError: there is no such revision.
        """
        repo = self.repo(place.root)
        with missing(str(place)):
            id = repo.resolve(place.rev or "HEAD")
        return self._trees.get(repo, id)

    # Reading.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """``name``, ``size`` in bytes, ``type`` (``"file"``, ``"directory"``), ``version`` (an id), and of a file
        ``kind`` (``"tensors"``, ``"bytes"``).
        """
        name = self._strip_protocol(path)
        place = self.place(name)
        return self.tree(place).info(place.inner, name)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Lists a directory, or a file alone; ``detail`` as in `info`, else names."""
        name = self._strip_protocol(path)
        place = self.place(name)
        tree = self.tree(place)
        found = tree.inside(place.inner, name) if place.inner in tree.below else [tree.info(place.inner, name)]
        return found if detail else [entry["name"] for entry in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Bytes of a file, bounds as in slices."""
        place = self.place(path)
        tree = self.tree(place)
        info = tree.file(place.inner, str(place))
        first, last, _ = slice(start, end).indices(info["size"])
        return self.repo(place.root).read(tree.id, place.inner, first, last - first) if first < last else b""

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> AbstractBufferedFile:
        place = self.place(path)
        size = {"block_size": block_size or "default", "cache_options": cache_options, **kwargs}
        if mode == "rb":
            return ReadFile(self, path, place, **size)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return WriteFile(self, path, place, mode, autocommit=autocommit, **size)

    def ukey(self, path: str) -> str:
        """Changes when the file's version does, and when an approximation comes to stand for its exact contents."""
        place = self.place(path)
        version = self.info(path)["version"]
        fidelity = self.repo(place.root).show(version).fidelity
        return hashlib.sha256(f"{version} {fidelity} {place.inner}".encode()).hexdigest()

    def created(self, path: str) -> datetime:
        """When the version was made."""
        place = self.place(path)
        return self.repo(place.root).show(self.tree(place).id).time

    modified = created

    # Writing.

    @contextlib.contextmanager
    def committing(self, message: str | None = None, **said: Any) -> Iterator[MdlFileSystem]:
        """A transaction with fields for its commit: ``step``, ``epoch``, ``metrics``, ``meta``,
        ``resumed_from`` as in `Repo.commit`. `last_commit` is it afterwards.
        """
        self._said = {"message": message, **said}
        try:
            with self.transaction:
                yield self
        finally:
            self._said = {}

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Makes one commit of what is done inside, unless a transaction is open that will make it."""
        with contextlib.nullcontext() if self._intrans else self.transaction:
            yield

    def put(self, *args: Any, **kwargs: Any) -> None:
        """Copies from the local disk, in one commit."""
        with self._together():
            super().put(*args, **kwargs)

    def pipe(self, *args: Any, **kwargs: Any) -> None:
        """Writes bytes, in one commit."""
        with self._together():
            super().pipe(*args, **kwargs)

    def copy(self, *args: Any, **kwargs: Any) -> None:
        """Copies within repositories, in one commit for each branch that is written to."""
        with self._together():
            super().copy(*args, **kwargs)

    def mv(self, *args: Any, **kwargs: Any) -> None:
        """Moves within repositories, in one commit for each branch that is written to."""
        with self._together():
            super().mv(*args, **kwargs)

    def rm(self, *args: Any, **kwargs: Any) -> None:
        """Removes files, in one commit. Versions before it keep them."""
        with self._together():
            super().rm(*args, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies one file; does nothing for a directory."""
        with self._together():
            source, target = self.place(path1), self.place(path2)
            changes = self.transaction.changes
            if (written := changes.of(source).get(source.inner)) is not None:
                copy = spool(self.repo(target.root))
                shutil.copyfile(written, copy)
                changes.put(target, copy)
            elif self.info(path1)["type"] == "file":
                with self.open(path1) as old, self.open(path2, "wb") as new:
                    shutil.copyfileobj(old, new, self.blocksize)

    def rm_file(self, path: str) -> None:
        """Removes one file; a directory goes with its last file."""
        with self._together():
            place = self.place(path)
            written = self.transaction.changes.forget(place)
            if written and not self.exists(path):
                # This transaction added it: it is in no version.
                return
            if self.info(path)["type"] == "file":
                self.transaction.changes.remove(place)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: a directory is where a file is."""

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Nothing: a directory is where a file is."""

    def rmdir(self, path: str) -> None:
        """Does nothing: a directory goes with its last file."""


# Without an installed package, fsspec does not know the protocol otherwise.
fsspec.register_implementation("mdl", MdlFileSystem, clobber=True)
