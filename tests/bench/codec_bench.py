"""The lossless coder beside ZipNN and memcpy on MiniLM, f32 and bf16, one pinned thread each, interleaved.

mdl's side is `cargo run --release -p mdl-codec --example bench_lossless -- MODEL [--cast bf16] --one-thread`, which
prints JSON lines; ZipNN runs on the same tensors in its own environment. Every round runs each of them, pinned to the
same core, and takes the best of eight passes; throughput is input bytes over the median time of the rounds, in memory.
Speed-ups are taken within each round, whose runs saw the same neighbours, and their median is given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import ROOT, median, parser, peer_python, prose, publish, table
from support import models

WORKER = Path(__file__).with_name("zipnn_worker.py")
PASSES = 8
ENCODE_WANTED, DECODE_WANTED = 3.0, 2.0
Runs = dict[tuple[str, str], list[dict[str, Any]]]


def pinned(argv: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Runs a command on the last core with every thread pool at one, and parses the JSON lines it prints."""
    pin = ["taskset", "-c", str((os.cpu_count() or 1) - 1)] if shutil.which("taskset") else []
    threads = dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [*pin, *map(str, argv)], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **threads}, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def example() -> Path | None:
    """The codec's bench example, built now; None (and a word on stderr) where it does not build."""
    command = ["cargo", "build", "--release", "--locked", "-p", "mdl-codec", "--example", "bench_lossless"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        print("the codec example does not build: mdl is left out", file=sys.stderr)
        return None
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "bench_lossless"


def normal(row: dict[str, Any]) -> dict[str, Any]:
    """One JSON line as {name, raw, coded, encode_s, decode_s}; the codec example gives rates, the worker seconds."""
    if "encode_s" in row:
        return row
    seconds = {f"{step}_s": row["bytes"] / (row[f"{step}_mb_s"] * 1e6) for step in ("encode", "decode")}
    return {"name": "mdl", "raw": row["bytes"], "coded": row["coded"], **seconds}


def commands(dtype: str, python: Path, mine: Path | None) -> dict[str, list[str | Path]]:
    """What runs in every round, by label."""
    cast: list[str | Path] = ["--cast", "bf16"] if dtype == "bf16" else []
    passes = ["--passes", str(PASSES)]
    out: dict[str, list[str | Path]] = {
        "memcpy": [python, WORKER, "memcpy", models.MINILM, *cast, *passes],
        "zipnn": [python, WORKER, "zipnn", models.MINILM, *cast, *passes],
        "zipnn, one buffer": [python, WORKER, "zipnn", models.MINILM, *cast, "--whole", *passes],
    }
    if mine is not None:
        out["mdl"] = [mine, models.MINILM, *cast, "--one-thread", "--repeat", str(PASSES)]
    return out


def collect(rounds: int, python: Path, mine: Path | None) -> Runs:
    runs: Runs = {}
    for i in range(rounds):
        for dtype in ("f32", "bf16"):
            todo = list(commands(dtype, python, mine).items())
            for label, argv in todo[i % len(todo) :] + todo[: i % len(todo)]:
                lines = [line for line in pinned(argv) if line.get("what", dtype) == dtype]
                if len(lines) != 1:
                    raise SystemExit(f"{label} printed {len(lines)} lines about {dtype}, not one")
                runs.setdefault((dtype, label), []).append(normal(lines[0]))
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
    return runs


def summary(runs: Runs) -> list[dict[str, Any]]:
    """Per dtype and coder: ratio, throughput, and the speed over the faster of ZipNN's two ways of being called."""
    out = []
    for (dtype, name), rows in sorted(runs.items()):
        took = {step: median(row[f"{step}_s"] for row in rows) for step in ("encode", "decode")}
        entry: dict[str, Any] = {"dtype": dtype, "name": name, "ratio": rows[0]["raw"] / rows[0]["coded"]}
        for step, seconds in took.items():
            entry[f"{step}_mb_s"] = rows[0]["raw"] / seconds / 1e6
        out.append(entry)
    for entry in out:
        mine = runs[entry["dtype"], entry["name"]]
        rivals = [rows for (dtype, name), rows in runs.items() if dtype == entry["dtype"] and name.startswith("zipnn")]
        for step in ("encode_s", "decode_s"):
            ratios = [min(r[step] for r in their) / row[step] for row, *their in zip(mine, *rivals, strict=True)]
            entry[f"{step[:-2]}_vs_zipnn"] = median(ratios)
    return out


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--check", action="store_true", help="fail where the promised speed-ups are missed")
    args = options.parse_args()
    python = peer_python("zipnn", ["zipnn==0.5.4", "numpy==2.4.6", "safetensors==0.8.0"], no_deps=True)
    runs = collect(args.rounds, python, example())
    rows = summary(runs)
    cells = [
        [
            f"{r['dtype']}, {r['name']}",
            f"{r['ratio']:.4f}" if r["name"] != "memcpy" else "-",
            f"{r['encode_mb_s']:,.0f}",
            f"{r['decode_mb_s']:,.0f}",
            f"{r['encode_vs_zipnn']:.2f}",
            f"{r['decode_vs_zipnn']:.2f}",
        ]
        for r in rows
    ]
    header = ["coder", "ratio", "encode, MB/s", "decode, MB/s", "encode / ZipNN", "decode / ZipNN"]
    text = table(header, cells) + prose(
        f"Median of {args.rounds} interleaved rounds on one pinned core, in memory, the f32 tensors of MiniLM.",
        f"Every run is the best of {PASSES} passes. ZipNN 0.5.4 is called once per tensor and once on all of them;",
        "speed-ups are over the faster of the two, round by round, and the median is given.",
        f"The promise: encode at least {ENCODE_WANTED:g} times, decode at least {DECODE_WANTED:g} times as fast.",
    )
    data = {"rows": rows, "runs": {f"{d}/{n}": v for (d, n), v in runs.items()}}
    publish("codec", "The lossless coder beside ZipNN", text, data, args.out)
    mine = [r for r in rows if r["name"].startswith("mdl")]
    missed = [r for r in mine if r["encode_vs_zipnn"] < ENCODE_WANTED or r["decode_vs_zipnn"] < DECODE_WANTED]
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
