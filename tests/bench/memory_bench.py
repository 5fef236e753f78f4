"""Peak memory of committing and checking out a generated 6 GiB sharded checkpoint; everything is deleted afterwards.

The weights are normal noise in f32, written shard by shard. Each command runs as the only child of a small process that
reports `getrusage(RUSAGE_CHILDREN)`, so what is counted is that command and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import BENCH, parser, prose, publish, table
from support.cli import Mdl, binary, differences, tree_size
from support.tensors import header_bytes

LIMIT_MIB = 1024
MIB = 1 << 20
SHARD = 1 << 30
COLUMNS = 4096
CHILD = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"code": done.returncode, "seconds": time.perf_counter() - began, "rss_kib": used.ru_maxrss,
                  "user": used.ru_utime, "system": used.ru_stime}))
"""


def generate(folder: Path, gib: float, tensor_mib: int) -> int:
    """Writes the shards and their index as a stream, one tensor at a time; returns the bytes of all of them."""
    folder.mkdir(parents=True)
    rows = max(1, tensor_mib * MIB // (4 * COLUMNS))
    size, total = rows * COLUMNS * 4, int(gib * (1 << 30))
    per_shard, count = max(1, SHARD // size), max(1, total // size)
    shards = -(-count // per_shard)
    rng, weight_map = np.random.default_rng(1), {}
    for s in range(shards):
        names = [f"layers.{i}.weight" for i in range(s * per_shard, min(count, (s + 1) * per_shard))]
        header = {
            name: {"dtype": "F32", "shape": [rows, COLUMNS], "data_offsets": [k * size, (k + 1) * size]}
            for k, name in enumerate(names)
        }
        path = folder / f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        with path.open("wb") as file:
            file.write(header_bytes(header))
            for _ in names:
                file.write((rng.standard_normal((rows, COLUMNS), np.float32) * np.float32(0.02)).tobytes())
        weight_map |= dict.fromkeys(names, path.name)
    index = {"metadata": {"total_size": count * size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return tree_size(folder)


def measured(mdl: Mdl, *args: str | Path) -> dict[str, Any]:
    argv = [sys.executable, "-c", CHILD, *mdl.argv(*args)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, env=mdl.environment())
    row = json.loads(done.stdout)
    if row["code"] != 0:
        raise SystemExit(f"mdl {args[0]} ended with exit code {row['code']}")
    return row


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--gib", type=float, default=6.0)
    options.add_argument("--tensor-mib", type=int, default=64, help="size of every tensor")
    options.add_argument("--check", action="store_true", help=f"fail above {LIMIT_MIB} MiB")
    options.add_argument("--generate-only", action="store_true", help="write the checkpoint, time it, delete it")
    args = options.parse_args()
    BENCH.mkdir(parents=True, exist_ok=True)
    need = int(args.gib * 3.2 * (1 << 30))
    if shutil.disk_usage(BENCH).free < need:
        raise SystemExit(f"needs {need >> 30} GiB of free disk")
    root = Path(tempfile.mkdtemp(prefix="memory-", dir=BENCH))
    try:
        began = time.perf_counter()
        size = generate(root / "model", args.gib, args.tensor_mib)
        print(f"generated {size / (1 << 30):.2f} GiB in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        if args.generate_only:
            return 0
        if not binary().is_file():
            raise SystemExit(f"{binary()} is missing; run `make build`")
        return report(root, size, args)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def report(root: Path, size: int, args: Any) -> int:
    mdl = Mdl.init(root / "repo")
    rows = {"commit": measured(mdl, "commit", root / "model", "-m", "large")}
    stored = mdl.size()
    os.sync()
    rows["checkout"] = measured(mdl, "checkout", "main", "--to", root / "out")
    wrong = differences(root / "model", root / "out")
    if wrong:
        raise SystemExit(f"the checkout differs: {wrong}")
    cells = [
        [
            name,
            f"{row['rss_kib'] / 1024:,.0f}",
            f"{row['seconds']:.1f}",
            f"{row['user'] + row['system']:.1f}",
            f"{size / row['seconds'] / 1e6:,.0f}",
        ]
        for name, row in rows.items()
    ]
    text = table(["command", "peak RSS, MiB", "wall, s", "CPU, s", "MB/s"], cells) + prose(
        f"{size:,} bytes of normally distributed f32 in shards of 1 GiB, tensors of {args.tensor_mib} MiB;",
        f"stored in {stored:,} bytes (ratio {size / stored:.3f}). The checkout was compared byte for byte.",
        f"The promise: below {LIMIT_MIB} MiB.",
    )
    publish("memory", "Memory on a 6 GiB checkpoint", text, {"bytes": size, "stored": stored, "rows": rows}, args.out)
    worst = max(row["rss_kib"] for row in rows.values()) / 1024
    return 1 if args.check and worst >= LIMIT_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
