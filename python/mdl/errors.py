"""Exceptions of the package, each with a hint for the user."""

from __future__ import annotations


class MdlError(Exception):
    """Anything that went wrong here. ``message`` says what, ``hint`` (or None) what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message if not hint else f"{message}\nhint: {hint}")

    def __reduce__(self) -> tuple[type[MdlError], tuple[str, str | None]]:
        return type(self), (self.message, self.hint)


class UserError(MdlError):
    """The request is refused."""


class UsageError(MdlError, ValueError):
    """The request makes no sense as it is written."""


class NotFoundError(MdlError, LookupError):
    """A thing that was named does not exist: a revision, a file, a tensor, a repository."""


class ConflictError(MdlError):
    """Another writer moved the branch first; nothing was lost, and nothing of this commit is on the branch."""


class CorruptError(MdlError):
    """Stored data is damaged; ``mdl fsck`` names what is affected."""


class StorageError(MdlError, OSError):
    """An I/O error: the disk is full, read-only or gone. Nothing that was reported as committed is lost."""


class FullError(StorageError):
    """The disk is full. Nothing was committed, and all is as it was."""


class StateError(MdlError, TypeError):
    """A value in a state cannot be stored, or a version holds none; the message names its place."""


class BackgroundError(MdlError):
    """A background commit failed; ``__cause__`` says why, ``step`` and ``branch`` which one it was."""

    def __init__(
        self, message: str, hint: str | None = None, step: int | None = None, branch: str | None = None
    ) -> None:
        super().__init__(message, hint)
        self.step, self.branch = step, branch
