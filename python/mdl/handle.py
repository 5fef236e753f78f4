"""Handle to the native repository behind a `Repo`: reopened in a forked child, flushed when the program ends.

A forked child shares open files and locks with its parent and has none of its threads. It must not use the parent's
native object, nor release it: closing the index would write to it.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

from ._native import Repo as Native

_repos: weakref.WeakSet[Any] = weakref.WeakSet()
#: Whether this process was forked from one that had the package: it then does without the index, whose library counts
#: on threads that were not forked with it.
_forked = False


class Handle:
    """A native repository and how to reopen it."""

    def __init__(self, native: Native) -> None:
        self._native: Native | None = native
        self.place: str = os.fspath(native.dir)
        #: Ids of aged versions that a reader was warned of.
        self.warned: set[str] = set()

    @property
    def native(self) -> Native:
        """Returns the native repository of this process."""
        if self._native is None:
            self._native = opened(self.place, search=False)
        return self._native

    def owner(self, repo: Any) -> None:
        """Registers the `Repo` to call on forks and at exit."""
        _repos.add(repo)

    def release(self) -> None:
        """Closes the index, if open."""
        if self._native is not None:
            self._native.release_index()

    def forget(self) -> None:
        """In a forked child: leaves the parent's object alone for good."""
        native, self._native = self._native, None
        if native is not None:
            native.leak()


def made(path: str, bare: bool, branch: str) -> Native:
    """Creates a repository, or opens the existing one."""
    return Native.init(path, bare, branch, not _forked)


def opened(path: str, *, search: bool) -> Native:
    """Opens a repository."""
    return Native.open(path, search, not _forked)


def _before_fork() -> None:
    # A child would inherit the index's lock and keep it.
    for repo in list(_repos):
        repo._handle.release()


def _after_fork() -> None:
    global _forked
    _forked = True
    for repo in list(_repos):
        repo._handle.forget()
        repo._forked()


def _at_exit() -> None:
    for repo in list(_repos):
        try:
            repo.flush()
        except Exception as error:
            # At exit no caller is left to catch it.
            print(f"mdl: {error}", file=sys.stderr)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
atexit.register(_at_exit)
