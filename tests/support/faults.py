"""Fault injection with strace: counts the system calls of a command, then kills it at, or fails, a chosen one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DURABLE = (
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "copy_file_range",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
)
"""System calls that change what survives a crash. x86-64 names; those a machine lacks are marked optional."""

TRACE = ",".join(f"?{name}" for name in DURABLE)
_CALL = re.compile(rb"^(\d+)\s+(\w+)\((.*)$")
_PATH = re.compile(rb"<(/[^>]*)>|\"((?:[^\"\\]|\\.)*)\"")


@dataclass(frozen=True)
class Call:
    """One system call of a traced run: which thread's nth call of that name it was, and the first path it names."""

    thread: int
    name: str
    nth: int
    path: str


def why_not() -> str | None:
    """The reason strace cannot be used here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "-e", "trace=write", "true"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        return f"strace cannot trace here: {probe.stderr.decode(errors='replace').strip()[:200]}"
    return None


def calls_of(argv: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> list[Call]:
    """Runs a command to its end and returns its durable system calls in the order they began."""
    strace = ["strace", "-f", "-y", "-s", "256", "-o", str(log), "-e", f"trace={TRACE}"]
    done = subprocess.run([*strace, *argv], capture_output=True, env=dict(env), cwd=cwd, check=False)
    assert done.returncode == 0, f"{argv} failed under strace: {done.stderr.decode(errors='replace')}"
    return parse_log(log.read_bytes())


def parse_log(raw: bytes) -> list[Call]:
    """Calls of an `strace -f -y -o` log; strace's own counters are per thread and per system call, and so is `nth`."""
    counts: Counter[tuple[int, str]] = Counter()
    out = []
    for line in raw.splitlines():
        match = _CALL.match(line)
        if not match:
            continue
        thread, name = int(match[1]), match[2].decode()
        counts[(thread, name)] += 1
        found = _PATH.search(match[3])
        path = (found[1] or found[2]) if found else b""
        out.append(Call(thread, name, counts[(thread, name)], path.decode(errors="replace")))
    return out


def points(calls: Iterable[Call], skip: str = "") -> list[tuple[str, int]]:
    """Every distinct (system call, nth) that an injection can name, in the order of first use.

    With several threads `when=N` strikes the thread that gets there first, so the union over threads is what there is
    to hit. Calls whose path contains `skip` are left out where another thread does not reach the same count elsewhere.
    """
    seen: dict[tuple[str, int], None] = {}
    for call in calls:
        if not skip or skip not in call.path:
            seen.setdefault((call.name, call.nth))
    return list(seen)


def spread(items: Sequence[tuple[str, int]], limit: int) -> list[tuple[str, int]]:
    """At most `limit` items, evenly spaced, the first and the last of every system call among them."""
    if len(items) <= limit:
        return list(items)
    ends: dict[tuple[str, int], None] = {}
    for name in dict.fromkeys(name for name, _ in items):
        own = [item for item in items if item[0] == name]
        ends[own[0]] = ends[own[-1]] = None
    step = len(items) / max(1, limit - len(ends)) if limit > len(ends) else len(items)
    chosen = set(ends) | {items[int(i * step)] for i in range(max(0, limit - len(ends))) if int(i * step) < len(items)}
    return [item for item in items if item in chosen]


def killed_at(name: str, nth: int) -> list[str]:
    """A prefix for a command: SIGKILL on entry of the nth such call of any thread; the call itself does not happen."""
    return _inject(name, f"signal=KILL:when={nth}", fail="EIO")


def failing(name: str, nth: int, error: str) -> list[str]:
    """A prefix for a command: the nth such call of every thread, and every later one, fails with `error`."""
    return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={nth}+"]


def failing_once(name: str, nth: int, error: str) -> list[str]:
    return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={nth}"]


def _inject(name: str, what: str, fail: str) -> list[str]:
    # With an error injected as well the kernel skips the call, so the kill falls before it and not after.
    return ["strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:error={fail}:{what}"]
