"""How much the tests try: `MDL_TEST_SCALE` is not set for a quick look, and `full` for the whole list, as CI runs it.

In the quick look no test is left out. A test makes fewer rounds, or takes a sample that is the same in every run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
VARIABLE = "MDL_TEST_SCALE"
_SCALE = os.environ.get(VARIABLE, "")
if _SCALE not in ("", "full"):
    raise pytest.UsageError(f"{VARIABLE} is {_SCALE!r}: it is `full`, or it is not set")
FULL = _SCALE == "full"


def rounds(fast: int, full: int, variable: str = "") -> int:
    """How often something is done: what the environment's `variable` says, else what the scale says."""
    asked = os.environ.get(variable, "") if variable else ""
    return int(asked) if asked else (full if FULL else fast)


def sample(items: Iterable[T], fast: int, seed: int = 1) -> list[T]:
    """All items with the whole list, else so many of them, in their order; the seed chooses them."""
    every = list(items)
    if FULL or len(every) <= fast:
        return every
    return [every[i] for i in sorted(random.Random(seed).sample(range(len(every)), fast))]


def told(reporter: pytest.TerminalReporter) -> None:
    """Ends a quick look with a line that says that it was one."""
    if not FULL:
        reporter.write_line(f"{VARIABLE} is not set: fewer rounds, and samples; with {VARIABLE}=full the whole list")
