"""Waits for space on a full disk, if the repository's `commit.on_full` says so.

Waits in Python, not in the native half: KeyboardInterrupt works, and the compute threads are free meanwhile.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from ._native import Repo
from .errors import FullError

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""Between two looks at how much room there is."""
MORE_BYTES = 1 << 20
"""More room than when the disk was full: then it is tried again."""
AGAIN_SECONDS = 300.0
"""After so long it is tried again in any case: a quota that was raised does not show as room."""


def with_room(repo: Repo, store: Callable[[], T]) -> T:
    """Calls ``store``; calls it again when there is room, if the repository's settings say so.

    Raises:
        FullError: there is no room, and the settings do not say to wait.
    """
    is_told = False
    while True:
        try:
            return store()
        except FullError as full:
            if not repo.waits_for_room:
                raise
            if not is_told:
                warnings.warn(f"waiting for room on the disk: {full.message}", RuntimeWarning, stacklevel=2)
                is_told = True
        _wait(repo)


def _wait(repo: Repo) -> None:
    before, begun = repo.room(), time.monotonic()
    while time.monotonic() - begun < AGAIN_SECONDS:
        time.sleep(LOOK_SECONDS)
        room = repo.room()
        if before is not None and room is not None and room >= before + MORE_BYTES:
            return
