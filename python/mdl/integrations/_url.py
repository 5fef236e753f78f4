"""Parses `mdl://REPOSITORY[@REVISION]/FILE` URLs.

It looks at directories, and must not open repositories.

    mdl:///runs/gpt@main~2/model.safetensors     a file of a version
    mdl:///runs/gpt/model.safetensors@main~2     the same: the revision may stand at the end
    mdl:///runs/gpt/model.safetensors            of HEAD
    mdl://runs/gpt@v1                            a version, its repository below the current directory
    mdl:///runs/gpt@team%2Fexp/model.safetensors in the first form a branch's `/` is written `%2F`

Where the repository ends is seen on disk: it is the deepest directory on the path that is one. An `@` behind its name
begins a revision that ends at the next `/`. If there is none, the first `@` of what follows begins a revision that ends
with the name. A file with an `@` in its own name is therefore reached by the first form: `/runs/gpt@HEAD/odd@name`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote

from ..errors import NotFoundError

SCHEME = "mdl://"


@dataclass(frozen=True)
class Place:
    """A place in a repository: ``root`` is its directory (that of the work tree), ``rev`` a revision or None (HEAD, or
    what the caller takes for it), ``inner`` a path in the tree, ``""`` for the tree itself.
    """

    root: str
    rev: str | None
    inner: str

    @property
    def base(self) -> str:
        """Returns the URL of the tree, in the first form."""
        if self.rev is None:
            return self.root
        return f"{self.root}@{self.rev.replace('%', '%25').replace('/', '%2F')}"

    def __str__(self) -> str:
        if self.inner:
            return f"{self.base}/{self.inner}"
        return self.base


def strip(name: str | os.PathLike[str]) -> str:
    """The absolute path that a name stands for, without scheme."""
    text = os.fspath(name)
    return os.path.abspath(text.removeprefix(SCHEME).removeprefix("mdl::"))


def locate(name: str | os.PathLike[str]) -> Place:
    """Parses a URL.

    Raises:
        NotFoundError: no directory on it is a repository.
    """
    path = strip(name)
    parts = path.split("/")
    for i in range(len(parts), 0, -1):
        above, last, inner = "/".join(parts[: i - 1]), parts[i - 1], "/".join(parts[i:])
        if is_repository(f"{above}/{last}"):
            inner, at, rev = inner.partition("@")
            return Place(f"{above}/{last}", rev if at else None, inner.rstrip("/"))
        for cut in (n for n, c in enumerate(last) if c == "@"):
            root = f"{above}/{last[:cut]}"
            if cut and is_repository(root):
                return Place(root, unquote(last[cut + 1 :]), inner)
    raise NotFoundError(f"no repository on the path {path}", "names are mdl://REPOSITORY[@REVISION]/FILE")


def is_repository(path: str) -> bool:
    """Returns whether a directory is a repository, or a work tree with one."""
    inside = os.path.join(path, ".mdl", "format")
    return os.path.isfile(inside) or all(os.path.isfile(os.path.join(path, f)) for f in ("format", "HEAD"))
