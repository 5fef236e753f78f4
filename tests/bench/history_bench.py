"""What the hundredth version costs beside the first: commits and checkouts of a training run's checkpoints.

    python tests/bench/history_bench.py [--versions 128] [--rounds 3] [--pieces f32,bf16,...] [--before PROGRAM]

Every checkpoint of a run of a byte-level GPT is committed, in order, by mdl and by git-lfs (with a sync after its
commit, since git-lfs leaves the bytes to the page cache). Each figure is the least of the rounds. Then every version is
checked out, with mdl's cache of decoded tensors deleted, and some again in a fresh clone, by git-lfs and by DVC.
`--before` is an earlier mdl: for the bytes that its chains take, and for what `mdl compact` makes of them. Sets with
moments have `--moments` versions (disk). A piece that is in target/history/results is not measured again; the run is
trained on first use (target/history/run, about ten minutes).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history import pieces
from history.sets import RUN, SETS
from report import ROOT, machine, median, parser, prose, publish, table

RESULTS = ROOT / "target" / "history" / "results"


def worst(values: Sequence[float], unit: float) -> str:
    """The worst, in brackets the median."""
    return f"{max(values) / unit:.2f} ({median(values) / unit:.2f})"


def row(name: str, data: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    commits, outs = data["commit"], data["checkout"]
    snapshot = outs["mdl"][0]
    beside = [a / b for a, b in zip(commits["mdl"], commits["git-lfs"], strict=True)]
    return [
        name,
        f"{data['raw'] / 1e6:.1f}",
        str(data["versions"]),
        worst(commits["mdl"], commits["mdl"][0]),
        f"{max(beside):.2f} ({median(beside):.2f})",
        worst(outs["mdl"], snapshot),
        worst(data["clone"], snapshot),
        f"{median(outs['mdl']) / median(outs['git-lfs']):.2f}",
        f"{median(outs['mdl']) / median(outs['dvc']):.2f}",
        f"{data['head, cache'] / snapshot:.2f}",
        f"{data['mdl stored'] / before['stored']:.3f}" if before else "",
        f"{data['mdl stored'] / 1e6:.0f} + {data['cache'] / 1e6:.0f}",
        f"{data['git-lfs stored'] / 1e6:.0f}",
    ]


HEADER = [
    "set",
    "MB a version",
    "versions",
    "commit n / commit 1",
    "commit / git-lfs",
    "checkout / snapshot, no cache",
    "in a clone",
    "median checkout / git-lfs",
    "/ DVC",
    "HEAD, cache",
    "bytes / before",
    "stored + cache, MB",
    "git-lfs, MB",
]


def page(found: dict[str, Any]) -> str:
    rows = [row(name, found[name], found.get(f"{name} before")) for name in SETS if name in found]
    rounds = sorted({found[name]["rounds"] for name in SETS if name in found})
    text = table(HEADER, rows) + prose(
        f"Versions two steps of AdamW apart, of a byte-level GPT; least of {', '.join(map(str, rounds))} rounds",
        "(DVC's commits: one); the worst version, in brackets the median. git-lfs and DVC are followed by a sync of",
        "their file system. mdl syncs what it writes itself. A snapshot is version 0. *bytes / before*: packs,",
        "beside those of an earlier build's chains of 16.",
    )
    made = sorted({piece["made"]["commit"] for piece in found.values()})
    text += prose(f"Pieces were measured at {', '.join(made)} and are kept until they are deleted.")
    for name in SETS:
        if old := found.get(f"{name} before"):
            outs = old["checkout"]
            text += prose(
                f"**Compaction** of the earlier build's repository ({name}) takes {old['compact']:.1f} s,",
                f"{old['stored'] / 1e6:.0f} MB become {old['stored, compacted'] / 1e6:.0f}, and a checkout takes",
                f"{worst(outs, outs[0])} snapshots. Ids stay.",
            )
    if small := found.get("thousand"):
        outs, commits = small["checkout"], small["commit"]
        verbs = ", ".join(f"`{verb}` {seconds * 1e3:.0f}" for verb, seconds in small["verbs"].items())
        text += prose(
            f"**{small['versions']} versions** of 1 MiB, between those of the run: {verbs} ms; commits",
            f"{median(commits) * 1e3:.0f} ms in the median, {median(commits[-50:]) * 1e3:.0f} ms the last 50;",
            f"a checkout {worst(outs, outs[0])} snapshots.",
        )
    if quantised := found.get("lossy"):
        outs, commits = quantised["checkout"], quantised["commit"]
        text += prose(
            "**Lossy** (f32, no exact version kept, an evaluator that costs nothing,",
            f"{len(pieces.RESTORES)} restores):",
            f"of 16 versions the newest checks out in {outs[-1] / outs[0]:.2f}, the slowest in",
            f"{max(outs) / outs[0]:.2f} times the first one's {outs[0]:.3f} s, the cache deleted; commit",
            f"{quantised['versions']} takes {commits[-1] / commits[1]:.2f} times commit 2's {commits[1]:.2f} s",
            f"(the median of the last ten {median(commits[-10:]) / commits[1]:.2f}).",
        )
    return text


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--versions", type=int, default=128)
    options.add_argument("--moments", type=int, default=48, help="versions of sets with moments")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--pieces", help="of these only; default all")
    options.add_argument("--before", type=Path, help="an earlier mdl")
    args = options.parse_args()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(__file__).resolve().parents[i]) for i in (0, 1))}
    subprocess.run(
        [sys.executable, "-m", "history.training", str(RUN), "--versions", str(args.versions)], env=env, check=True
    )
    rounds = args.rounds
    steps: dict[str, Callable[[Path], dict[str, Any]]] = {}
    for name, (_, moments) in SETS.items():
        n = min(args.moments, args.versions) if moments else args.versions
        steps[name] = lambda scratch, name=name, n=n: pieces.one_set(name, n, rounds, scratch)
        if args.before and not moments:
            steps[f"{name} before"] = lambda scratch, name=name, n=n: pieces.before(
                name, n, rounds, scratch, args.before.absolute()
            )
    steps["thousand"] = lambda scratch: pieces.thousand(min(1000, 8 * (args.versions - 1)), rounds, scratch)
    steps["lossy"] = lambda scratch: pieces.lossy(min(48, args.versions), rounds, scratch)
    wanted = args.pieces.split(",") if args.pieces else list(steps)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        kept = RESULTS / f"{name}.json"
        if kept.exists():
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="mdl-history-", dir=ROOT / "target") as scratch:
            found = steps[name](Path(scratch))
        kept.write_text(json.dumps({"made": machine(), **found}) + "\n")
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    found = {file.stem: json.loads(file.read_text()) for file in RESULTS.glob("*.json")}
    publish("history", "Histories of many versions", page(found), {"pieces": found}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
