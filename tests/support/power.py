"""Power cut simulation: an ext4 file system on a recorded block device, and the images that a cut could leave.

A disk with a write cache has what it was given before its last finished flush; of what it was given later it may have
any part, in any order. Which part is drawn anew for every cut, in blocks of 4 KiB or sectors of 512 bytes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import disks, recorder

MIB = 1 << 20
BLOCK, SECTOR = 4096, 512
FORMAT = ("-b", str(BLOCK), "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")
ORDERED = "noatime"
HOSTILE = "noatime,data=writeback,noauto_da_alloc"
"""Names may be on the disk before the data they lead to, and a rename has no data written out: only fsync helps."""
OPTIONS = (ORDERED, HOSTILE)


@dataclass(frozen=True)
class Record:
    """One write or flush that the device was given."""

    flush: bool
    offset: int
    data: memoryview
    end: int
    """Where the log stood after it."""


@dataclass(frozen=True)
class Cut:
    """When the power goes: after so many bytes of the log; and what becomes of the writes since the last flush."""

    at: int
    kept: float
    """Chance of each piece."""
    piece: int
    seed: int

    def __str__(self) -> str:
        return f"cut at {self.at} bytes of the log, {self.kept:.0%} kept of {self.piece}-byte pieces, seed {self.seed}"


class Disk:
    """A mounted file system of which every write is on record."""

    def __init__(self, base: Path, root: Path, log: Path, options: str) -> None:
        self.base, self.root, self.log, self.options = base, root, log, options

    def position(self) -> int:
        return self.log.stat().st_size

    def sync(self) -> int:
        """Has the device given all that was written so far, then flushed; where the log stands then."""
        subprocess.run(["sync", "-f", str(self.root)], check=True)
        return self.position()

    @contextmanager
    def unrest(self, every: float | None, seed: int) -> Iterator[None]:
        """Another program syncs its own file again and again: each time the journal takes all names made so far."""
        if every is None:
            yield
            return
        stop, chance = threading.Event(), random.Random(seed)

        def run() -> None:
            with (self.root / "another-program").open("wb", buffering=0) as out:
                while not stop.wait(chance.random() * 2 * every):
                    out.write(b"x")
                    os.fsync(out.fileno())

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def records(self) -> list[Record]:
        raw, at, out = memoryview(self.log.read_bytes()), 0, []
        while at < len(raw):
            kind, offset, length = recorder.RECORD.unpack_from(raw, at)
            at += recorder.RECORD.size
            out.append(Record(kind == recorder.FLUSH, offset, raw[at : at + length], at + length))
            at += length
        return out

    def after(self, cut: Cut, image: Path) -> Path:
        """The image that this cut leaves."""
        given = [r for r in self.records() if r.end <= cut.at]
        flushed = max((i for i, r in enumerate(given) if r.flush), default=0)
        chance, content = random.Random(cut.seed), bytearray(self.base.read_bytes())
        for n, record in enumerate(given):
            if record.flush:
                continue
            if n < flushed:
                content[record.offset : record.offset + len(record.data)] = record.data
                continue
            for at in range(0, len(record.data), cut.piece):
                if chance.random() < cut.kept:
                    piece = record.data[at : at + cut.piece]
                    content[record.offset + at : record.offset + at + len(piece)] = piece
        image.write_bytes(content)
        return image


@contextmanager
def recorded(folder: Path, base: Path, options: str = ORDERED) -> Iterator[Disk]:
    """A file system that starts as the image `base`; `folder` is small, fast and gets a log of all writes."""
    device, root, log = folder / "device", folder / "disk", folder / "log"
    device.touch()
    argv = [sys.executable, recorder.__file__, str(base), str(device), str(log)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if process.stdout.readline() != "mounted\n":
            disks.cannot(f"a block device cannot be recorded here: {process.stderr.read().strip()[-200:]}")
        try:
            with disks.mounted(root, "-o", f"loop,{options}", device):
                yield Disk(base, root, log, options)
        finally:
            subprocess.run(["umount", "-l", str(device)], check=False)
    finally:
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def scratch(mib: int = 2048) -> Iterator[Path]:
    """A folder in memory: images and logs of hundreds of cuts are not for the machine's disk."""
    with (
        tempfile.TemporaryDirectory(prefix="mdl-power-") as folder,
        disks.mounted(Path(folder) / "memory", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs") as at,
    ):
        yield at


def made(image: Path, mib: int) -> Path:
    """A fresh file system in a file."""
    with image.open("wb") as out:
        out.truncate(mib * MIB)
    disks.must("mkfs.ext4", "-q", *FORMAT, image)
    return image


def unsound(image: Path) -> list[str]:
    """What is wrong with the file system itself: then the cut was one that no disk makes."""
    done = subprocess.run(["e2fsck", "-fn", str(image)], capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"e2fsck: {done.stdout}{done.stderr}"]


def chosen(disk: Disk, between: tuple[int, int], chance: random.Random, cuts: int) -> list[Cut]:
    """Moments drawn from the records of a stretch of the log, and what becomes of the writes since the last flush."""
    ends = [r.end for r in disk.records() if between[0] <= r.end <= between[1]] or [between[1]]
    out = []
    for _ in range(cuts):
        kept = chance.choice((0.0, 0.5, 0.9, 1.0, chance.random()))
        piece = chance.choice((BLOCK, BLOCK, SECTOR))
        out.append(Cut(chance.choice(ends), kept, piece, chance.randrange(1 << 30)))
    return out
