"""Records with strace every path that a running program opens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

CALL = re.compile(r"^\d+\s+(?:<\.\.\. )?(\w+)\((.*)$")
TEXT = re.compile(r'(?:(AT_FDCWD|-?\d+)(?:<([^>]*)>(?:\(deleted\))?)?,\s*)?"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")
PLAIN = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f"}

SYSTEM = (
    "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/self/maps", "/proc/sys/vm/overcommit_memory", "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
)  # fmt: skip
"""What the standard library and the allocator ask for on any thread."""
SHARED = ("/etc/ssl/", "/usr/lib/ssl/", "/usr/share/zoneinfo", "/usr/share/ca-certificates/")
"""Certificates, which webhooks are checked against, and time zones."""
RESOLVER = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", "/etc/localtime")


def tracer(log: Path) -> tuple[str, ...]:
    """What to put in front of a command: each call that names a path becomes a line of the log."""
    return ("strace", "-f", "-qq", "-y", "-s", "4096", "--seccomp-bpf", "-e", "trace=%file", "-o", str(log))


def unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "01234567":
            return chr(int(code, 8))
        return chr(int(code[1:], 16)) if code[0] == "x" and len(code) > 1 else PLAIN.get(code, code)

    return ESCAPE.sub(plain, text)


def paths_of(line: str, cwd: str) -> Iterator[str]:
    """The absolute paths that one call names; it is the call's arguments that count, not what it returns."""
    call = CALL.match(line)
    if not call or call[1] in ("execve", "resumed"):
        return
    arguments = call[2].rsplit(") = ", 1)[0]
    for base, base_path, text in TEXT.findall(arguments):
        where = base_path if base and base_path else cwd
        yield os.path.normpath(os.path.join(where, unescaped(text)))
        if call[1] in ("readlink", "readlinkat"):
            return


class Opened:
    """Reads the log of a tracer as it grows."""

    def __init__(self, log: Path, inside: Iterable[Path], cwd: Path) -> None:
        self.log, self.cwd = log, str(cwd)
        self.inside = tuple(str(p) for p in inside)
        self.known: set[str] = set()
        self.position, self.rest, self.calls = 0, "", 0

    def _new(self) -> set[str]:
        with self.log.open("r", errors="replace") as file:
            file.seek(self.position)
            text = self.rest + file.read()
            self.position = file.tell()
        lines = text.split("\n")
        self.rest = lines.pop()
        self.calls += len(lines)
        return {path for line in lines for path in paths_of(line, self.cwd)}

    def learn(self) -> None:
        """Takes what was asked for so far, the loader's and the configuration's files, as what such a program needs."""
        self.known |= self._new()

    def outside(self) -> set[str]:
        """Paths asked for since the last look that are not within the places, not the system's and not known."""
        return {path for path in self._new() - self.known if not self._allowed(path)}

    def _allowed(self, path: str) -> bool:
        within = any(path == place or path.startswith(place + "/") for place in self.inside)
        return (
            within
            or path.startswith((*SYSTEM, *SHARED))
            or path in RESOLVER
            or bool(re.match(r"/(usr/)?lib[^/]*/.*\.so", path))
        )
