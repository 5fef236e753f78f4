"""Where the processor's time goes in a commit and a checkout: cycles per byte of every stage.

    python tests/bench/stages_bench.py [--repeat 20] [--out docs/benchmarks]

Samples of `perf record` (Debian: linux-perf) over the whole program, all threads, told apart by the function that was
running, in commits and checkouts of consecutive checkpoints of the run of history_bench.py. Cycles are seconds times
the clock that /proc/cpuinfo names. What waits (a sync, an idle thread) is not seen.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history.sets import Checkpoints
from history.tools import Mdl
from report import ROOT, median, parser, prose, publish, table

# The first that a function's name or library matches.
STAGES = {
    "hash (BLAKE3)": r"blake3",
    "encode and decode": r"mdl_codec",
    "read files (copy out of the page cache)": r"copy_to_iter|filemap_read|filemap_get|mc_enhanced|pread",
    "write files (copy into it, find room)": r"copy_folio_from|ext4|xfs|btrfs|folio|write|journal|find_inode|brelse",
    "memory (faults, zeroed pages, unmapping)": r"fault|clear_page|unmap|mmap|madvise|anon|page|lru|memcg|pte|tlb",
    "copies and comparisons in memory": r"memmove|memcpy|memcmp|memset|bcmp",
    "allocator": r"malloc|free|realloc|calloc",
    "index and locks (sled)": r"sled|crossbeam|parking_lot",
    "the rest": r"",
}
SETS = ("f32", "bf16")
FIRST = 20
"""Versions that are there before it is measured."""


def clock() -> float:
    """Cycles per second."""
    told = re.search(r"^cpu MHz\s*:\s*([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if told is None:
        raise SystemExit("/proc/cpuinfo names no clock")
    return float(told[1]) * 1e6


def sampled(argv: list[str], cwd: Path, data: Path) -> dict[str, float]:
    """Seconds of processor time of every stage."""
    perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "10000", "-o", str(data)]
    subprocess.run([*perf, *argv], cwd=cwd, check=True, capture_output=True)
    report = ["perf", "script", "-i", str(data), "-F", "period,ip,sym,dso"]
    lines = subprocess.run(report, capture_output=True, text=True, check=True).stdout.splitlines()
    seconds = dict.fromkeys(STAGES, 0.0)
    for line in lines:
        period, _, name = line.strip().split(maxsplit=2)
        stage = next(stage for stage, pattern in STAGES.items() if re.search(pattern, name))
        seconds[stage] += int(period) / 1e9
    return seconds


def measure(name: str, repeat: int, scratch: Path) -> dict[str, Any]:
    files = Checkpoints(name, scratch)
    mdl = Mdl(scratch / name, files.files)
    for number in range(FIRST):
        files.place(number, mdl.root)
        mdl.commit()
    size = files.folder(0).joinpath(files.files[0]).stat().st_size
    data = scratch / "perf.data"
    program = str(mdl.program)
    commit = [program, "commit", "-q", "-m", "x"]
    rows: dict[str, list[dict[str, float]]] = {"commit": [], "checkout": []}
    for number in range(FIRST, FIRST + repeat):
        files.place(number, mdl.root)
        rows["commit"].append(sampled(commit, mdl.root, data))
    for back in range(repeat):
        mdl.drop_cache()
        (mdl.root / files.files[0]).unlink()
        argv = [program, "checkout", "-q", f"main~{back}", "--force"]
        rows["checkout"].append(sampled(argv, mdl.root, data))
    shutil.rmtree(mdl.root)
    shutil.rmtree(files.scratch, ignore_errors=True)
    return {
        "bytes": size,
        **{
            verb: {stage: median(row[stage] for row in measured) for stage in STAGES} for verb, measured in rows.items()
        },
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--repeat", type=int, default=20)
    args = options.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("perf is missing: install linux-perf")
    hertz = clock()
    with tempfile.TemporaryDirectory(prefix="mdl-stages-", dir=ROOT / "target") as scratch:
        results = {name: measure(name, args.repeat, Path(scratch)) for name in SETS}
    columns: list[tuple[str, Callable[[str], float]]] = [
        (
            f"{name} {verb}",
            lambda stage, name=name, verb=verb: results[name][verb][stage] * hertz / results[name]["bytes"],
        )
        for name in SETS
        for verb in ("commit", "checkout")
    ]
    rows = [[stage, *(f"{cycles(stage):.2f}" for _, cycles in columns)] for stage in STAGES]
    rows.append(["**all**", *(f"{sum(map(cycles, STAGES)):.2f}" for _, cycles in columns)])
    text = table(["cycles per byte", *(title for title, _ in columns)], rows) + prose(
        f"Medians of {args.repeat} commits and checkouts (cache deleted) of consecutive checkpoints after {FIRST}",
        f"versions; {hertz / 1e9:.2f} GHz; both threads together, so that half of it is the least wall time.",
    )
    publish("stages", "Cycles per byte of a commit and a checkout", text, {"sets": results, "hertz": hertz}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
