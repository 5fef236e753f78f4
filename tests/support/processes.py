"""What a running process takes, as Linux tells it, and waiting for something to happen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def until(what: Callable[[], object], seconds: float = 30) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return bool(what())


def status(pid: int, field: str) -> int:
    """A number of `/proc/PID/status`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return status(pid, "VmRSS") << 10


def peak(pid: int) -> int:
    """The most bytes of memory that a process has had so far."""
    return status(pid, "VmHWM") << 10


def handles(pid: int) -> int:
    """How many files and connections a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
