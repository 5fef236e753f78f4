"""What is committed: a training run's checkpoints in two data types, with and without AdamW's moments."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from report import ROOT
from safetensors.torch import load_file, save_file
from support.cli import same_bytes

from history.tools import Tool, timed
from history.training import MODEL, OPTIMIZER, version_dir

RUN = ROOT / "target" / "history" / "run"
SETS = {
    "f32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "f32+adam": (torch.float32, True),
    "bf16+adam": (torch.bfloat16, True),
}
"""Data type of the weights, and whether AdamW's moments (f32) are committed with them."""


class Versions:
    """Versions as files."""

    files: list[str]

    def place(self, number: int, root: Path) -> None:
        raise NotImplementedError

    def check(self, number: int, root: Path) -> None:
        raise NotImplementedError


class Checkpoints(Versions):
    """The versions of a set, made when they are wanted."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.dtype, self.moments = SETS[name]
        self.scratch = scratch / f"{name}-files"
        self.files = [MODEL, *([OPTIMIZER] if self.moments else [])]

    def folder(self, number: int) -> Path:
        source = version_dir(RUN, number)
        if self.dtype is torch.float32:
            return source
        made = self.scratch / f"{number:05d}"
        if not made.exists():
            made.mkdir(parents=True)
            weights = load_file(source / MODEL)
            save_file({name: t.to(self.dtype) for name, t in weights.items()}, made / MODEL)
            (made / OPTIMIZER).symlink_to(source / OPTIMIZER)
        return made

    def place(self, number: int, root: Path) -> None:
        for file in self.files:
            shutil.copyfile(self.folder(number) / file, root / file)

    def check(self, number: int, root: Path) -> None:
        for file in self.files:
            if not same_bytes(self.folder(number) / file, root / file):
                raise SystemExit(f"version {number} came back with other bytes")


class Between(Versions):
    """A few tensors (about a megabyte) of the run's versions, and seven steps on the line from each to the next."""

    STEPS = 8

    def __init__(self, scratch: Path, mebibytes: float) -> None:
        self.files, self.scratch = [MODEL], scratch
        self.names, left = [], mebibytes * 2**20
        for name, tensor in load_file(version_dir(RUN, 0) / MODEL).items():
            if tensor.nbytes <= left:
                self.names.append(name)
                left -= tensor.nbytes

    def made(self, number: int) -> Path:
        file = self.scratch / f"between-{number:05d}.safetensors"
        if not file.exists():
            at, step = divmod(number, self.STEPS)
            ends = [load_file(version_dir(RUN, at + i) / MODEL) for i in (0, 1)]
            part = step / self.STEPS
            save_file({name: torch.lerp(ends[0][name], ends[1][name], part) for name in self.names}, file)
        return file

    def place(self, number: int, root: Path) -> None:
        shutil.copyfile(self.made(number), root / MODEL)

    def check(self, number: int, root: Path) -> None:
        if not same_bytes(self.made(number), root / MODEL):
            raise SystemExit(f"version {number} came back with other bytes")


def committed(tool: Tool, files: Versions, versions: int) -> list[float]:
    """Seconds of every commit."""
    times = []
    for number in range(versions):
        files.place(number, tool.root)
        times.append(timed(tool.commit))
    return times


def checked_out(tool: Tool, files: Versions, versions: int, numbers: Sequence[int], rounds: int) -> list[float]:
    """Least seconds of every checkout of these versions, the files being gone before."""
    times = [float("inf")] * len(numbers)
    for _ in range(rounds):
        for i, number in enumerate(numbers):
            for file in tool.files:
                (tool.root / file).unlink(missing_ok=True)
            times[i] = min(times[i], timed(lambda number=number: tool.checkout(versions - 1 - number)))
            files.check(number, tool.root)
    return times


def some(versions: int, count: int) -> list[int]:
    """About `count` of these versions, evenly spread, the last one among them."""
    return sorted({*range(0, versions, max(1, versions // count)), versions - 1})
