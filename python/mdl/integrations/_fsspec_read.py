"""Read side of the fsspec file system: versions as directories, their files read in blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from fsspec.spec import AbstractBufferedFile

from ..commits import FileInfo
from ..errors import NotFoundError
from ..repo import Repo
from ._url import Place

#: Most cached listings of versions.
_TREES = 16


class Tree:
    """The files of a version, by directory. Neither names nor sizes ever change, also where an approximation comes to
    stand for the exact contents."""

    def __init__(self, id: str, files: Mapping[str, FileInfo]) -> None:
        self.id, self.files = id, files
        #: Directory -> names in it.
        self.below: dict[str, set[str]] = {"": set()}
        for path in files:
            self._note(path)

    def _note(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        if above not in self.below:
            self.below[above] = set()
            self._note(above)
        self.below[above].add(name)

    def info(self, path: str, name: str) -> dict[str, Any]:
        """What fsspec wants to know of a file or directory, which it calls ``name``.

        Raises:
            FileNotFoundError: there is none.
        """
        file = self.files.get(path)
        if file is not None:
            return {"name": name, "size": file.size, "type": "file", "kind": file.kind, "version": self.id}
        if path in self.below:
            return {"name": name, "size": 0, "type": "directory", "version": self.id}
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def file(self, path: str, name: str) -> dict[str, Any]:
        """The same for a file.

        Raises:
            IsADirectoryError: it is none.
        """
        info = self.info(path, name)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return info

    def inside(self, path: str, name: str) -> list[dict[str, Any]]:
        """The same for all entries of a directory."""
        prefix = f"{path}/" if path else ""
        return [self.info(f"{prefix}{n}", f"{name}/{n}") for n in sorted(self.below[path])]


class Trees:
    """Cache of the last few listings."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Tree] = {}
        self._guard = threading.Lock()

    def get(self, repo: Repo, id: str) -> Tree:
        """Returns the files of a version."""
        key = (os.fspath(repo.path), id)
        tree = self._kept.get(key) or Tree(id, repo.files(id))
        with self._guard:
            self._kept[key] = tree
            while len(self._kept) > _TREES:
                self._kept.pop(next(iter(self._kept)))
        return tree


class ReadFile(AbstractBufferedFile):
    """A file of a version: the one that a branch's tip had when it was opened, whatever the branch does."""

    def __init__(self, fs: Any, path: str, place: Place, **kwargs: Any) -> None:
        tree = fs.tree(place)
        self.details = tree.file(place.inner, path)
        self._repo, self._id, self._inner = fs.repo(place.root), tree.id, place.inner
        super().__init__(fs, path, "rb", **{**kwargs, "size": self.details["size"]})

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._repo.read(self._id, self._inner, start, end - start)


@contextlib.contextmanager
def missing(path: str) -> Iterator[None]:
    """Turns not found errors into FileNotFoundError."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
