"""The lossless coder on all cores, beside ZipNN with threads, z4ai and `zstd -1 -T0`, on MiniLM in f32 and bf16.

    python tests/bench/cores_bench.py [--rounds 3]

Each coder gets every core its own way: mdl codes segments side by side, ZipNN and z4ai take a number of threads (and
all tensors joined, which suits them), zstd its workers and its own in-memory benchmark. Rounds are interleaved, every
run is the best of its passes, and the median of the rounds is given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from codec_bench import WORKER, example, normal
from report import ROOT, median, parser, peer_python, prose, publish, table
from support import models
from zipnn_worker import payload

CORES = os.cpu_count() or 1
ZSTD = re.compile(r":\s*(\d+) ->\s*(\d+) \(x[\d.]+\),\s*([\d.]+) MB/s,\s*([\d.]+) MB/s")


def lines(argv: list[str | Path]) -> list[dict[str, Any]]:
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, cwd=ROOT, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def mdl(program: Path, dtype: str) -> dict[str, Any]:
    cast: list[str | Path] = ["--cast", "bf16"] if dtype == "bf16" else []
    rows = lines([program, models.MINILM, *cast, "--repeat", "8"])
    return normal(next(row for row in rows if row["what"] == dtype))


def worker(python: Path, what: str, dtype: str, passes: int) -> dict[str, Any]:
    cast: list[str | Path] = ["--cast", "bf16"] if dtype == "bf16" else []
    more = ["--whole", "--threads", str(CORES), "--passes", str(passes)]
    return lines([python, WORKER, what, models.MINILM, *cast, *more])[0]


def zstd(dtype: str) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(payload(models.MINILM, dtype == "bf16")))
        file.flush()
        done = subprocess.run(
            ["zstd", "-b1", "-e1", "-i2", f"-T{CORES}", file.name], capture_output=True, text=True, check=True
        )
    found = ZSTD.findall(done.stdout.replace("\r", "\n") + done.stderr.replace("\r", "\n"))
    if not found:
        raise SystemExit(f"zstd printed no figures: {done.stdout} {done.stderr}")
    raw, coded, encode, decode = found[-1]
    seconds = {"encode_s": int(raw) / float(encode) / 1e6, "decode_s": int(raw) / float(decode) / 1e6}
    return {"raw": int(raw), "coded": int(coded), **seconds}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    pins = ["numpy==2.4.6", "safetensors==0.8.0"]
    zipnn = peer_python("zipnn", ["zipnn==0.5.4", *pins], no_deps=True)
    z4ai = peer_python("z4ai", ["z4ai==0.2.0", *pins])
    mine = example()
    if mine is None:
        raise SystemExit(1)
    coders: dict[str, Callable[[str], dict[str, Any]]] = {
        "mdl": lambda dtype: mdl(mine, dtype),
        "ZipNN": lambda dtype: worker(zipnn, "zipnn", dtype, 8),
        "z4ai": lambda dtype: worker(z4ai, "z4ai", dtype, 1),
        "zstd -1": zstd,
    }
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(args.rounds):
        for dtype in ("f32", "bf16"):
            for name, run in coders.items():
                runs.setdefault(f"{dtype}, {name}", []).append(run(dtype))
    cells = []
    for label, rows in runs.items():
        speeds = [median(row["raw"] / row[f"{step}_s"] / 1e6 for row in rows) for step in ("encode", "decode")]
        ratio = rows[0]["raw"] / rows[0]["coded"]
        cells.append([label, f"{ratio:.4f}", *(f"{speed:,.0f}" for speed in speeds)])
    text = table(["coder", "ratio", "encode, MB/s", "decode, MB/s"], cells) + prose(
        f"Median of {args.rounds} interleaved rounds on {CORES} cores, in memory, the f32 tensors of MiniLM.",
        "ZipNN 0.5.4 and z4ai 0.2.0 get all tensors joined and as many threads as there are cores.",
    )
    publish("cores", "The lossless coder on all cores", text, {"runs": runs}, args.out)


if __name__ == "__main__":
    main()
