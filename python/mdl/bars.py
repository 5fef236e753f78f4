"""Progress bars of long work: tqdm's where tqdm is installed, else a line on standard error.

Short work shows none. The native half calls `show(what, done, total)` ten times a second on the caller's thread; `what`
is None between two parts of the work, `total` 0 where it is unknown.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

Show = Callable[[str | None, int, int], Any]
"""Gets what is done, how many units of it (bytes, mostly) are done, and how many there are."""
Progress = bool | Show | None
"""True or False: a bar, or none. None: one in a notebook or a terminal. A function: it is called in place of a bar."""

HIDDEN_SECONDS = 1.0
"""Shorter work shows no bar."""
WIDTH = 24


class Bar(Protocol):
    """A bar of one part of the work."""

    def set(self, done: int) -> None:
        """So much is done."""

    def close(self) -> None:
        """The part has ended."""


@contextlib.contextmanager
def shown(progress: Progress) -> Iterator[Show | None]:
    """What to give to the native half; bars are taken away at the end."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not (in_notebook() or _is_terminal())):
        yield None
        return
    bars = Bars(0.0 if progress else HIDDEN_SECONDS)
    try:
        yield bars
    finally:
        bars.close()


class Bars:
    """One bar after the other, for each part of the work that takes long."""

    def __init__(self, hidden_seconds: float) -> None:
        self._hidden = hidden_seconds
        self._part: tuple[str, int] | None = None
        self._since = 0.0
        self._bar: Bar | None = None

    def __call__(self, what: str | None, done: int, total: int) -> None:
        part = None if what is None else (what, total)
        if part != self._part:
            self.close()
            self._part, self._since = part, time.monotonic()
        if part is None:
            return
        if self._bar is None and time.monotonic() - self._since >= self._hidden:
            self._bar = _bar(*part)
        if self._bar is not None:
            self._bar.set(done)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(what: str, total: int) -> Bar:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(what, total)
    return _Tqdm(tqdm(desc=what, total=total or None, unit="B", unit_scale=True, unit_divisor=1024, leave=False))


class _Tqdm:
    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def set(self, done: int) -> None:
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Line:
    """A line that is written over; a notebook shows it as a terminal does."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._length = what, total, 0

    def set(self, done: int) -> None:
        part = min(done / self._total, 1.0) if self._total else None
        bar = "" if part is None else f" {part:4.0%} [{'=' * round(part * WIDTH):{WIDTH}}]"
        self._write(f"{self._what}{bar} {size(done)}" + (f" of {size(self._total)}" if self._total else ""))

    def close(self) -> None:
        self._write("")
        print("\r", end="", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        print(f"\r{text:{self._length}}", end="", file=sys.stderr, flush=True)
        self._length = len(text)


def size(n: float) -> str:
    """Bytes in words: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
