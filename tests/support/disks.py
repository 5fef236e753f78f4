"""Mounts file systems for tests: an ext4 image whose power can be cut, and others that mount offers."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest


def must(*argv: str | Path) -> None:
    """Runs a command that needs root; the test is skipped where it cannot."""
    done = subprocess.run([*map(str, argv)], capture_output=True, check=False)
    if done.returncode != 0:
        cannot(f"{argv[0]} cannot be used here: {done.stderr.decode(errors='replace').strip()[:200]}")


def cannot(reason: str) -> NoReturn:
    """Skips the test, with a visible warning."""
    warnings.warn(f"SKIPPED: {reason}", stacklevel=3)
    pytest.skip(reason)


@contextmanager
def mounted(at: Path, *how: str | Path) -> Iterator[Path]:
    """Something mounted while the block runs."""
    at.mkdir(parents=True, exist_ok=True)
    must("mount", *how, at)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@contextmanager
def tmpfs(at: Path, mib: int) -> Iterator[Path]:
    """A disk that is full soon."""
    with mounted(at, "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "tmpfs") as root:
        yield root


@dataclass(frozen=True)
class Disk:
    """An ext4 file system in a file."""

    image: Path
    root: Path

    @contextmanager
    def after_a_power_cut(self, at: Path) -> Iterator[Path]:
        """What would be found if the power went now: what the device has been given so far, without the page cache."""
        image = at.with_suffix(".img")
        shutil.copyfile(self.image, image)
        with mounted(at, "-o", "loop", image) as root:
            yield root


@contextmanager
def formatted(kind: str, folder: Path, mib: int, *features: str) -> Iterator[Disk]:
    """A fresh file system of a kind that there is a `mkfs` for."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "disk.img"
    with image.open("wb") as out:
        out.truncate(mib << 20)
    if shutil.which(f"mkfs.{kind}") is None:
        cannot(f"mkfs.{kind} is missing")
    must(f"mkfs.{kind}", "-q", *features, image)
    with mounted(folder / "disk", "-o", "loop", image) as root:
        yield Disk(image, root)


@contextmanager
def ext4(folder: Path, mib: int, *features: str) -> Iterator[Disk]:
    """A fresh one; its data is only on the device once it was synced (or after half a minute)."""
    with formatted("ext4", folder, mib, *features) as disk:
        yield disk
