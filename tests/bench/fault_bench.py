"""Training runs that are killed again and again and go on from the repository: the layout of the paper's Table 5.

    python tests/bench/fault_bench.py [--jobs 2] [--failures 10] [--tasks gpt,conv] [--systems lossy,adam] [--out
    docs/benchmarks]

Each system trains the same model on the same batches. A run's process is ended by SIGKILL at moments evenly spread over
the run, somewhere between two checkpoints, and a new process goes on from the newest version. Runs that are done are
kept in target/fault.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fault.life import SYSTEMS
from quality.tasks import TASKS
from report import ROOT, median, parser, prose, publish, table

HOME = ROOT / "target" / "fault"
METRIC = {"gpt": "loss", "conv": "accuracy"}
MODELS = {"gpt": "GPT, 1.29 M parameters, AdamW", "conv": "residual conv net, 0.31 M parameters, SGD with momentum"}


def kills(task: str, failures: int) -> list[int]:
    """Steps of the checkpoints after which a run is killed: evenly spread, neither the first nor the last one."""
    count = TASKS[task].steps // TASKS[task].every
    return [round(count * (i + 1) / (failures + 1)) * TASKS[task].every for i in range(failures)]


def live(system: str, task: str, order: int, home: Path, until: int | None) -> list[dict[str, Any]]:
    """One life; it is killed somewhere in the interval after the checkpoint of step ``until``."""
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-m", "fault.life", system, task, str(order), str(home)]
    told: list[dict[str, Any]] = []
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(json.loads(line))
            if until is not None and told[-1].get("step") == until:
                interval = median([t["trained"] for t in told if "trained" in t])
                time.sleep(random.Random(until).uniform(0.1, 0.9) * interval)
                process.send_signal(signal.SIGKILL)
                break
        rest = process.stdout.readlines()
    killed = process.returncode == -signal.SIGKILL
    if killed != (until is not None):
        raise SystemExit(f"{system} {task}: a life ended with {process.returncode}")
    # A checkpoint that became durable while the signal was on its way counts; a line that was cut off does not.
    return told + [json.loads(line) for line in rest if line.endswith("}\n")]


def train(system: str, task: str, order: int, failures: int) -> dict[str, Any]:
    name = f"{system}-{task}-{order}-{failures}"
    done = HOME / f"{name}.json"
    if done.is_file():
        return json.loads(done.read_text())
    home = HOME / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    ends: list[int | None] = [None] if SYSTEMS[system].save or system == "none" else [*kills(task, failures), None]
    told = [line for until in ends for line in live(system, task, order, home, until)]
    packs = home / "repo" / ".mdl" / "packs"
    result = {
        "system": system,
        "task": task,
        "order": order,
        "failures": len(ends) - 1,
        "lives": told,
        "pack_bytes": sum(p.stat().st_size for p in packs.rglob("*") if p.is_file()) if packs.is_dir() else 0,
    }
    done.write_text(json.dumps(result) + "\n")
    shutil.rmtree(home)
    print(f"{name}: {told[-1]}", file=sys.stderr, flush=True)
    return result


def row(run: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """What a run came to, beside the uncompressed one of the same seeds."""
    metric = METRIC[run["task"]]
    final, start = run["lives"][-1]["final"][metric], base["lives"][-1]["final"][metric]
    worse = (final - start) / start if metric == "loss" else (start - final) / start
    commits = {t["step"]: t for t in run["lives"] if "step" in t}
    trained = sum(t["trained"] for t in run["lives"] if "trained" in t)
    logical = sum(t.get("logical", 0) for t in commits.values())
    stored = run["pack_bytes"]
    spent = sum(t["seconds"] for t in run["lives"] if "step" in t)
    return {
        "system": run["system"],
        "failures": run["failures"],
        "final": final,
        "degradation": 100 * worse,
        "same_bits": run["lives"][-1]["digest"] == base["lives"][-1]["digest"],
        "ratio": logical / stored if stored else None,
        "overhead": 100 * spent / trained,
        "seconds": median([t["seconds"] for t in commits.values()]) if commits else 0.0,
        "evaluations": sum(t.get("evaluations", 0) for t in commits.values()),
        "commits": len(commits),
    }


def section(task: str, runs: list[dict[str, Any]], order: int) -> tuple[str, list[dict[str, Any]]]:
    mine = {r["system"]: r for r in runs if r["task"] == task and r["order"] == order}
    if "none" not in mine:
        return "", []
    rows = [row(mine[name], mine["none"]) for name in SYSTEMS if name in mine]
    metric = METRIC[task]
    cells = [
        [
            SYSTEMS[r["system"]].title,
            r["failures"],
            f"{r['final']:.4f}",
            "same bits" if r["same_bits"] else f"{r['degradation']:+.2f}",
            "-" if r["ratio"] is None else f"{r['ratio']:.1f}",
            "-" if not r["commits"] else f"{r['overhead']:.1f}",
            "-" if not r["commits"] else f"{1000 * r['seconds']:.0f}",
            "-" if not r["commits"] else f"{100 * r['seconds'] / 1800:.4f}",
            r["evaluations"] or "-",
        ]
        for r in rows
    ]
    head = ["", "failures", metric, "deg. %", "CR", "ovr. % here", "ms a commit", "ovr. % at 30 min", "evaluations"]
    title = f"## {MODELS[task]}: {TASKS[task].steps} steps, a checkpoint each {TASKS[task].every}\n\n"
    return title + table(head, cells) + "\n", rows


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--failures", type=int, default=10)
    made.add_argument("--tasks", default="gpt,conv")
    made.add_argument("--systems", default=",".join(SYSTEMS))
    made.add_argument("--order", type=int, default=0)
    args = made.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    jobs = [(s, t, args.order, args.failures) for s in args.systems.split(",") for t in args.tasks.split(",")]
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = list(pool.map(lambda job: train(*job), jobs))
    sections = [section(task, runs, args.order) for task in args.tasks.split(",")]
    text = prose(
        "Each run stores a checkpoint at every interval and is killed (SIGKILL, in the middle of an interval) as",
        "often as the table says, evenly spread; a new process goes on from the newest version. All runs see the",
        "same batches from the same initial weights, so whatever differs comes from what was stored. *deg. %*:",
        "relative change of the final quality for the worse, on data that no gate sees. *CR*: bytes of all",
        "checkpoint files over the bytes of the repository's packs, first snapshots, headers, commits and what",
        "killed processes left included. Systems without optimizer store the weights and go on with the exact",
        "optimizer state. *ovr. % here*: seconds inside commits over seconds of training; intervals here last",
        "seconds where the paper's last half an hour and more, so the column beside it takes a commit's seconds",
        "over 1800. Lossless commits are made in the background: their figure is the stall.",
    )
    text += "\n" + "".join(s[0] for s in sections)
    publish(
        "fault_tolerance", "Failures during training", text, {"rows": [r for s in sections for r in s[1]]}, args.out
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
