"""Files that wait on disk for a commit in the background: copies, and links to what a framework wrote."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

#: A longer file is copied aside on disk.
_IN_MEMORY = 1 << 20
#: Directory of copies and hard links: swept by the repository if a killed process leaves them.
_PLACE = "candidates"


def copied(repo: pathlib.Path, files: Mapping[str, Any] | None, aside: contextlib.ExitStack) -> dict[str, Any]:
    """Files on disk are copied, so that what is written to them later is not in the version."""
    out = dict(files or {})
    for name, content in out.items():
        if not isinstance(content, os.PathLike):
            continue
        if os.path.getsize(content) <= _IN_MEMORY:
            out[name] = pathlib.Path(content).read_bytes()
            continue
        folder = aside.enter_context(tempfile.TemporaryDirectory(prefix="copy-", dir=_place(repo)))
        out[name] = pathlib.Path(shutil.copy(content, folder))
    return out


def linked(repo: pathlib.Path, path: str | os.PathLike[str]) -> str | None:
    """A directory of hard links to the files of another one; None where the file system does not take them."""
    links = tempfile.mkdtemp(prefix="links-", dir=_place(repo))
    try:
        shutil.copytree(path, links, copy_function=os.link, dirs_exist_ok=True)
    except (OSError, shutil.Error):
        shutil.rmtree(links, ignore_errors=True)
        return None
    return links


def _place(repo: pathlib.Path) -> pathlib.Path:
    place = repo / _PLACE
    place.mkdir(exist_ok=True)
    return place
