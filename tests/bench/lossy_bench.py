"""The lossy engine beside zstd -1 on MiniLM f32: one pinned thread, one process, interleaved stages.

mdl's side and zstd's are one binary, `cargo run --release -p mdl-codec --example bench_lossy -- MODEL`, which prints
the seconds of processor time of every stage once a round. A stage counts with the best of its rounds, a pipeline with
the sum of its stages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import ROOT, parser, prose, publish, table
from support import models

ENCODE_WANTED, DECODE_WANTED, CHAIN_WANTED = 2.0, 2.5, 3.0
BINS = ("survey", "cluster", "quantise")
# Label, stages of encoding, stage of decoding, its size.
PIPELINES = (
    ("zstd -1", ("zstd_encode",), "zstd_decode", "zstd"),
    ("bins, alone", (*BINS, "bins_encode"), "bins_decode", "bins"),
    ("bins, given the parent", (*BINS, "bins_delta_encode"), "bins_delta_decode", "bins_delta"),
    ("lattice, alone", ("lattice_quantise", "lattice_encode"), "lattice_decode", "lattice"),
    (
        "lattice, given the parent",
        ("lattice_quantise", "lattice_delta_encode"),
        "lattice_delta_decode",
        "lattice_delta",
    ),
)


def measure(rounds: int, move: float) -> list[dict[str, Any]]:
    """The lines that the example prints, pinned to the last core."""
    build = ["cargo", "build", "--release", "--locked", "-p", "mdl-codec", "--example", "bench_lossy"]
    subprocess.run(build, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    pin = ["taskset", "-c", str((os.cpu_count() or 1) - 1)] if shutil.which("taskset") else []
    binary = target / "release" / "examples" / "bench_lossy"
    argv = [*pin, str(binary), str(models.MINILM), "--repeat", str(rounds), "--move", str(move)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def summary(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float], float]:
    """Rows of the pipelines, the best seconds of every stage, and how many snapshots a chain takes to decode."""
    rounds = [line for line in lines if "round" in line]
    last = lines[-1]
    best = {name: min(line[name] for line in rounds) for name in rounds[0] if name not in ("round", "bytes")}
    rows = []
    for label, stages, decode, size in PIPELINES:
        encode = sum(best[stage] for stage in stages)
        rows.append(
            {
                "name": label,
                "ratio": last["bytes"] / last["sizes"][size],
                "encode_mb_s": last["bytes"] / encode / 1e6,
                "decode_mb_s": last["bytes"] / best[decode] / 1e6,
                "encode_vs_zstd": best["zstd_encode"] / encode,
                "decode_vs_zstd": best["zstd_decode"] / best[decode],
            }
        )
    return rows, best, best["chain_decode"] / best["snapshot_decode"]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--move", type=float, default=0.02, help="a step's move, in root mean squares of the tensor")
    options.add_argument("--check", action="store_true", help="fail where the promised speed-ups are missed")
    args = options.parse_args()
    models.require()
    lines = measure(args.rounds, args.move)
    rows, best, chain = summary(lines)
    last = lines[-1]
    sizes = last["sizes"]
    delta = sizes["chain_deltas"] / sizes["chain_length"]
    cells = [
        [
            r["name"],
            f"{r['ratio']:.2f}",
            f"{r['encode_mb_s']:,.0f}",
            f"{r['decode_mb_s']:,.0f}",
            f"{r['encode_vs_zstd']:.2f}",
            f"{r['decode_vs_zstd']:.2f}",
        ]
        for r in rows
    ]
    stages = [[name, f"{1e3 * s:.1f}", f"{last['bytes'] / s / 1e6:,.0f}"] for name, s in best.items()]
    header = ["pipeline", "ratio", "encode, MB/s", "decode, MB/s", "encode / zstd", "decode / zstd"]
    text = (
        table(header, cells)
        + prose(
            f"{last['tensors']} tensors of MiniLM ({last['bytes'] / 1e6:.0f} MB of f32), one thread, in memory; MB/s",
            f"of f32 in processor time; best of {args.rounds} interleaved rounds stage by stage. Bins: survey of",
            "every tensor, thresholds, exact clustering to 32 bins a tensor, reconstruction, palette. Lattice: steps",
            "of an eighth of a tensor's root mean square. The parent's weights are",
            f"{args.move:g} root mean squares away.",
            f"The promise: encode at least {ENCODE_WANTED:g} times, decode at least {DECODE_WANTED:g} times as fast.",
        )
        + prose(
            f"A snapshot and {sizes['chain_length']} deltas, each as far from the last, decode in {chain:.1f} times",
            f"the time of the snapshot (promised: {CHAIN_WANTED:g}); a delta takes {delta / 1e6:.2f} MB, the snapshot",
            f"{sizes['snapshot'] / 1e6:.2f} MB. All {last['keys']:,} keys of the model cluster to 32 bins in",
            f"{1e3 * best['cluster_all']:.2f} ms.",
        )
        + "\n## Stages\n\n"
        + table(["stage", "ms", "MB/s"], stages)
    )
    publish("lossy", "The lossy engine beside zstd -1", text, {"rows": rows, "chain": chain, "lines": lines}, args.out)
    mine = [r for r in rows if r["name"].endswith("alone")]
    fast = any(r["encode_vs_zstd"] >= ENCODE_WANTED and r["decode_vs_zstd"] >= DECODE_WANTED for r in mine)
    return 1 if args.check and not (fast and chain <= CHAIN_WANTED) else 0


if __name__ == "__main__":
    sys.exit(main())
