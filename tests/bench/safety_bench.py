"""What it costs that nothing is lost: commit, status, checkout and switch of MiniLM, beside an earlier build of mdl and
a plain write that is synced, in turn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import BENCH, median, parser, prose, publish, spread, table
from support import models
from support.cli import binary
from support.tensors import Tensor, write_safetensors

STEPS = ("commit", "status after it", "second commit", "switch back", "checkout elsewhere")


def moved(tensors: list[Tensor]) -> list[Tensor]:
    """Every f32 a little further, as one step of training leaves it."""
    rng = np.random.default_rng(1)
    out = []
    for t in tensors:
        if t.dtype == "F32":
            noise = rng.standard_normal(t.array().shape, np.float32)
            t = Tensor.of(t.name, (t.array() + noise * np.float32(1e-5)).astype(np.float32))
        out.append(t)
    return out


def timed(run: Callable[[], Any]) -> float:
    os.sync()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def a_round(build: Path, folder: Path, first: Path, second: Path) -> dict[str, float]:
    """Each step once, in a work tree of its own."""
    work = folder / "work"
    work.mkdir()

    def mdl(*argv: str | Path) -> None:
        subprocess.run([str(build), "-q", *map(str, argv)], cwd=work, capture_output=True, check=True)

    mdl("init")
    shutil.copyfile(first, work / "model.safetensors")
    # Older than what is taken for settled, as a checkpoint that was written some seconds ago.
    time.sleep(2.5)
    out = {"commit": timed(lambda: mdl("commit", "-m", "first"))}
    out["status after it"] = timed(lambda: mdl("status"))
    mdl("branch", "old")
    shutil.copyfile(second, work / "model.safetensors")
    time.sleep(2.5)
    out["second commit"] = timed(lambda: mdl("commit", "-m", "second"))
    out["switch back"] = timed(lambda: mdl("switch", "old"))
    out["checkout elsewhere"] = timed(lambda: mdl("checkout", "main", "--to", folder / "out"))
    assert (folder / "out" / "model.safetensors").read_bytes() == second.read_bytes()
    assert (work / "model.safetensors").read_bytes() == first.read_bytes()
    shutil.rmtree(work)
    shutil.rmtree(folder / "out")
    return out


def plain_write(source: Path, target: Path) -> float:
    """A copy that is on the disk when it ends."""
    content = source.read_bytes()

    def write() -> None:
        with target.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    seconds = timed(write)
    target.unlink()
    return seconds


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--before", type=Path, required=True, help="the earlier build of mdl")
    options.add_argument("--rounds", type=int, default=11)
    args = options.parse_args()
    BENCH.mkdir(parents=True, exist_ok=True)
    builds = {"before": args.before.resolve(), "now": binary()}
    times: dict[str, dict[str, list[float]]] = {name: {step: [] for step in STEPS} for name in builds}
    plain: list[float] = []
    with tempfile.TemporaryDirectory(dir=BENCH) as temporary:
        folder = Path(temporary)
        tensors = models.minilm_tensors()
        first, second = folder / "a" / "model.safetensors", folder / "b" / "model.safetensors"
        write_safetensors(first, tensors, {"format": "pt"})
        write_safetensors(second, moved(tensors), {"format": "pt"})
        for _ in range(args.rounds):
            plain.append(plain_write(first, folder / "plain"))
            for name, build in builds.items():
                for step, seconds in a_round(build, folder, first, second).items():
                    times[name][step].append(seconds)
    data = {"plain": plain, "times": times, "rounds": args.rounds}
    publish("safety", "What it costs that nothing is lost", report(data), data, args.out)
    return 0


def report(data: dict[str, Any]) -> str:
    times, plain = data["times"], data["plain"]
    text = prose(
        f"MiniLM (90 MB of f32) in a work tree, {data['rounds']} rounds in turn, seconds: median and range. The second",
        "commit moves every weight; it and the switch go by deltas. In brackets: with a plain write and fsync of the",
        f"same bytes, {spread(plain)} in this run, added to what the build before takes; that build synced no file",
        "that it checked out.",
    )
    rows = []
    for step in STEPS:
        before, now = times["before"][step], times["now"][step]
        ratio = median(now) / median(before)
        writes = step in ("switch back", "checkout elsewhere")
        beside = f" [{median(now) / (median(before) + median(plain)):.2f}]" if writes else ""
        least = f"{min(now) / min(before):.2f}"
        rows.append((step, spread(before), spread(now), f"{ratio:.2f}{beside}", least))
    return text + "\n" + table(("", "before", "now", "ratio of medians", "of the least"), rows)


if __name__ == "__main__":
    raise SystemExit(main())
