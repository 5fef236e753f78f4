"""What the hundredth version costs beside the first: commits and checkouts of a training run's checkpoints.

    python tests/bench/history_bench.py [--versions 128] [--rounds 3] [--sets f32,bf16] [--before PROGRAM]

Every checkpoint of a run of a byte-level GPT is committed, in order, by mdl and by git-lfs (with a sync after its
commit, since git-lfs leaves the bytes to the page cache). Each figure is the least of the rounds. Then every version is
checked out, with mdl's cache of decoded tensors deleted, and again in a fresh clone. `--before` is an earlier mdl, for
the bytes that its chains take. The run is trained on first use (target/history/run, about ten minutes).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from history.training import MODEL, OPTIMIZER, version_dir
from report import GIT_LFS, ROOT, median, parser, prose, publish, table
from safetensors.torch import load_file, save_file
from support.cli import binary, same_bytes, tree_size

RUN = ROOT / "target" / "history" / "run"
SETS = {
    "f32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "f32+adam": (torch.float32, True),
    "bf16+adam": (torch.bfloat16, True),
}
"""Data type of the weights, and whether AdamW's moments (f32) are committed with them."""


def run(argv: Sequence[str | Path], cwd: Path) -> None:
    done = subprocess.run([str(a) for a in argv], cwd=cwd, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed: {done.stderr.decode(errors='replace')}")


def timed(step: Callable[[], None]) -> float:
    os.sync()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


class Checkpoints:
    """The versions of a set, as files that are made when they are wanted."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.dtype, self.moments = SETS[name]
        self.scratch = scratch / name
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


class Tool:
    """A repository of one tool."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.root, self.files = root, files


class MdlTool(Tool):
    def __init__(self, root: Path, files: Sequence[str], program: Path | None = None) -> None:
        super().__init__(root, files)
        self.program = program or binary()
        run([self.program, "init"], root)

    def commit(self) -> None:
        run([self.program, "commit", "-q", "-m", "x"], self.root)

    def checkout(self, back: int) -> None:
        run([self.program, "checkout", "-q", f"main~{back}", "--force"], self.root)

    def stored(self) -> int:
        return tree_size(self.root / ".mdl" / "packs")

    def cache(self) -> int:
        cache = self.root / ".mdl" / "cache"
        return tree_size(cache) if cache.exists() else 0

    def drop_cache(self) -> None:
        shutil.rmtree(self.root / ".mdl" / "cache", ignore_errors=True)


class GitLfs(Tool):
    def __init__(self, root: Path, files: Sequence[str]) -> None:
        super().__init__(root, files)
        for argv in GIT_LFS:
            run(argv, root)

    def commit(self) -> None:
        run(["sh", "-c", f"git add {' '.join(self.files)} && git commit -q -m x && sync -f ."], self.root)

    def checkout(self, back: int) -> None:
        run(["sh", "-c", f"git checkout -q HEAD~{back} -- {' '.join(self.files)} && sync -f ."], self.root)

    def stored(self) -> int:
        return tree_size(self.root / ".git" / "lfs")


def committed(tool: Any, files: Checkpoints, versions: int) -> list[float]:
    """Seconds of every commit."""
    times = []
    for number in range(versions):
        files.place(number, tool.root)
        times.append(timed(tool.commit))
    return times


def checked_out(tool: Any, files: Checkpoints, versions: int, numbers: Sequence[int], rounds: int) -> list[float]:
    """Least seconds of every checkout of these versions, the files being gone before."""
    times = [float("inf")] * len(numbers)
    for _ in range(rounds):
        for i, number in enumerate(numbers):
            for file in tool.files:
                (tool.root / file).unlink(missing_ok=True)
            times[i] = min(times[i], timed(lambda number=number: tool.checkout(versions - 1 - number)))
            files.check(number, tool.root)
    return times


def least(rows: Sequence[Sequence[float]]) -> list[float]:
    return [min(column) for column in zip(*rows, strict=True)]


def measure(name: str, args: Any, scratch: Path) -> dict[str, Any]:
    files = Checkpoints(name, scratch)
    n = args.versions
    rows: dict[str, list[list[float]]] = {"mdl": [], "git-lfs": []}
    data: dict[str, Any] = {}
    for turn in range(args.rounds):
        for tool_name, kind in (("mdl", MdlTool), ("git-lfs", GitLfs)):
            root = scratch / f"{name}-{tool_name}"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            tool: Any = kind(root, files.files)
            rows[tool_name].append(committed(tool, files, n))
            data[f"{tool_name} stored"] = tool.stored()
            print(f"{name}, round {turn}, {tool_name}: {sum(rows[tool_name][-1]):.1f} s", file=sys.stderr)
    data["commit"] = {tool_name: least(times) for tool_name, times in rows.items()}
    mdl = MdlTool(scratch / f"{name}-mdl", files.files)
    data["cache"] = mdl.cache()
    data["head, cache"] = min(checked_out(mdl, files, n, [n - 1], args.rounds))
    mdl.drop_cache()
    everyone = range(n)
    data["checkout"] = {"mdl": checked_out(mdl, files, n, everyone, args.rounds)}
    clone = scratch / f"{name}-clone"
    run([binary(), "clone", "-q", mdl.root, clone], scratch)
    some = list(range(0, n, max(1, n // 16)))
    fresh = MdlTool(clone, files.files)
    data["clone"] = dict(zip(some, checked_out(fresh, files, n, some, args.rounds), strict=True))
    lfs = GitLfs.__new__(GitLfs)
    Tool.__init__(lfs, scratch / f"{name}-git-lfs", files.files)
    data["checkout"]["git-lfs"] = checked_out(lfs, files, n, some, args.rounds)
    if args.before:
        root = scratch / f"{name}-before"
        root.mkdir()
        before = MdlTool(root, files.files, args.before)
        data["before"] = {"commit": committed(before, files, n), "stored": before.stored()}
    data["raw"] = sum((files.folder(0) / file).stat().st_size for file in files.files)
    for folder in scratch.glob(f"{name}*"):
        shutil.rmtree(folder)
    return data


def summary(data: dict[str, Any]) -> list[str]:
    commits, lfs = data["commit"]["mdl"], data["commit"]["git-lfs"]
    first = commits[0]
    outs, snapshot = data["checkout"]["mdl"], data["checkout"]["mdl"][0]
    clone = list(data["clone"].values())
    before = data.get("before")
    return [
        f"{data['raw'] / 1e6:.1f}",
        f"{max(commits) / first:.2f} ({median(commits) / first:.2f})",
        f"{max(a / b for a, b in zip(commits, lfs, strict=True)):.2f} ({median(commits) / median(lfs):.2f})",
        f"{max(outs) / snapshot:.2f} ({median(outs) / snapshot:.2f})",
        f"{max(clone) / snapshot:.2f} ({median(clone) / snapshot:.2f})",
        f"{median(outs) / median(data['checkout']['git-lfs']):.2f}",
        f"{data['head, cache'] / snapshot:.2f}",
        f"{data['mdl stored'] / before['stored']:.3f}" if before else "",
        f"{data['mdl stored'] / 1e6:.0f} + {data['cache'] / 1e6:.0f}",
        f"{data['git-lfs stored'] / 1e6:.0f}",
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--versions", type=int, default=128)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--sets", default=",".join(SETS))
    options.add_argument("--before", type=Path, help="an earlier mdl")
    args = options.parse_args()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(__file__).resolve().parents[i]) for i in (0, 1))}
    subprocess.run(
        [sys.executable, "-m", "history.training", str(RUN), "--versions", str(args.versions)], env=env, check=True
    )
    with tempfile.TemporaryDirectory(prefix="mdl-history-", dir=ROOT / "target") as scratch:
        results = {name: measure(name, args, Path(scratch)) for name in args.sets.split(",")}
    header = [
        "set",
        "MB a version",
        "commit n / commit 1",
        "commit / git-lfs",
        "checkout / snapshot, no cache",
        "in a clone",
        "median checkout / git-lfs",
        "HEAD, cache",
        "bytes / before",
        "stored + cache, MB",
        "git-lfs, MB",
    ]
    rows = [[name, *summary(data)] for name, data in results.items()]
    text = table(header, rows) + prose(
        f"{args.versions} versions, two steps of AdamW apart, of a byte-level GPT; least of {args.rounds} rounds; the",
        "worst version, in brackets the median. git-lfs is followed by a sync of its file system.",
        "mdl syncs what it writes itself.",
        "A snapshot is version 0. *bytes / before*: packs, beside those of an earlier build's chains of 16.",
    )
    publish("history", "Histories of many versions", text, {"sets": results}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
