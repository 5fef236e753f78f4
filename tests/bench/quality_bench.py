"""What lossy checkpoints cost a training run that has to go on from them, and what they save.

    python tests/bench/quality_bench.py [--jobs 2] [--systems lossy,paper] [--out docs/benchmarks]
    python tests/bench/quality_bench.py --tasks gpt,conv --tables failures --orders 0 --plan
    python tests/bench/quality_bench.py --tasks gpt --tables policies --policy-dir DIR
    python tests/bench/quality_bench.py --tasks finetune --orders 0 --systems lossy --cases base --kills 3

Trains two small models without compression in several data orders, then with every system in the same orders: each
checkpoint goes through `mdl commit`, and five or ten times the run is killed and goes on from a checkout. quality/plan
says which runs a table needs, quality/live what one is. The third task is a fine-tune of a real pretrained model
(quality/finetune_live.py says what its pieces are and what they take). TOML files of --policy-dir are further systems,
called by their names. Runs that are done are kept in target/quality, and in compact form with the report, and not
repeated; --plan only says what is missing, --report only writes the report from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import quality.finetune_live as finetune
import quality.finetune_report as finetune_report
from quality import kept, live_report, plan
from quality.live import HOME, SYSTEMS
from quality.tasks import TASKS
from report import parser, publish


def python(*args: str) -> None:
    """Runs a module of the quality package; its output goes to a log of its own."""
    log = HOME / "logs" / ("-".join(Path(arg).name for arg in args if not arg.startswith("--")) + ".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here, here.parent, os.environ.get("PYTHONPATH", ""))))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with open(log, "w") as out:
        done = subprocess.run([sys.executable, "-m", *args], env=env, stdout=out, stderr=out, check=False)
    print(f"{'done' if done.returncode == 0 else 'FAILED'}: {' '.join(args)}", file=sys.stderr, flush=True)


def train(task: str, order: int) -> None:
    """An uncompressed run; other orders than the first share its steps up to where lossy checkpoints begin."""
    start, out = TASKS[task].start, str(kept.run_dir(task, order))
    prefix = ["--from", str(kept.run_dir(task, 0)), "--at", str(start)] if order and start else []
    python("quality.trainer", task, "--order", str(order), *prefix, "--out", out)


def measure(piece: plan.Piece, policy_dir: Path | None) -> None:
    options = ["--kills", str(piece.kills), *(["--every", str(piece.every)] if piece.every else [])]
    options += ["--policy-dir", str(policy_dir)] if piece.system not in SYSTEMS else []
    python("quality.live", piece.system, piece.task, str(piece.order), *options)


def small_tables(args: argparse.Namespace) -> dict[str, list[plan.Piece]]:
    """The pieces of the small tasks' tables that were asked for, done or not."""
    tasks = [task for task in listed(args.tasks) if task in TASKS]
    systems = [name for name in listed(args.systems) or SYSTEMS if name in SYSTEMS]
    policies = [name for name in policies_of(args) if name not in SYSTEMS]
    made = plan.tables(tasks, systems, numbers(args.orders), policies)
    return plan.chosen(made, listed(args.tables)) if not args.smoke else {}


def policies_of(args: argparse.Namespace) -> list[str]:
    found = sorted(path.stem for path in args.policy_dir.glob("*.toml")) if args.policy_dir else []
    return [name for name in found if name in (listed(args.systems) or found)]


def outdated(args: argparse.Namespace, pieces: Sequence[plan.Piece], done: dict[str, Path]) -> list[str]:
    """Runs that stay although the file of their policy has another text now."""
    found = [piece for piece in pieces if piece.system not in SYSTEMS and piece.label in done]
    return [
        piece.label
        for piece in found
        if json.loads(done[piece.label].read_text())["policy"] != (args.policy_dir / f"{piece.system}.toml").read_text()
    ]


def untrained(args: argparse.Namespace, missing: Sequence[plan.Piece]) -> list[tuple[str, int]]:
    """Uncompressed runs to make: those that the report lacks, and those whose checkpoints missing pieces go on from."""
    tasks = [task for task in listed(args.tasks) if task in TASKS and not args.smoke]
    needed = {(task, order) for task in tasks for order in numbers(args.orders) if not kept.history(task, order)}
    needed |= {(piece.task, piece.order) for piece in missing}
    # The steps before the lossy part are those of order 0 in every order.
    needed |= {(task, 0) for task, order in needed if order and TASKS[task].start}
    return sorted((one for one in needed if not kept.is_trained(*one)), key=lambda one: one[::-1])


def run_small(plain: Sequence[tuple[str, int]], missing: Sequence[plan.Piece], args: argparse.Namespace) -> None:
    """Uncompressed runs before those that go on from them, the first order before those that share its steps."""
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda one: train(*one), [one for one in plain if one[1] == 0]))
        list(pool.map(lambda one: train(*one), [one for one in plain if one[1] != 0]))
        list(pool.map(lambda piece: measure(piece, args.policy_dir), missing))


def tuned_pieces(args: argparse.Namespace) -> list[finetune.Piece]:
    """The pieces of the third task that are not done."""
    systems = listed(args.systems) or [*finetune_report.SYSTEMS, *policies_of(args)]
    names = [name for name in systems if name != "exact"]
    pieces = finetune_report.pieces(names, numbers(args.orders), listed(args.cases), numbers(args.kills))
    return [piece for piece in pieces if not finetune.done(piece, args.smoke, args.policy_dir)]


def run_tuned(pieces: Sequence[finetune.Piece], args: argparse.Namespace) -> None:
    jobs = []
    for piece in pieces:
        job = ["quality.finetune_live", piece.system, str(piece.order)]
        if piece.system != "exact":
            job += ["--case", piece.case, "--kills", str(piece.kills)]
            job += ["--policy-dir", str(args.policy_dir)] if args.policy_dir else []
        jobs.append([*job, *(["--smoke"] if args.smoke else [])])
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: python(*job), jobs))


def listed(names: str | None) -> list[str]:
    return names.split(",") if names else []


def numbers(names: str) -> list[int]:
    return [int(name) for name in listed(names)]


def write_report(out: Path | None, smoke: bool) -> None:
    text, data = live_report.write(kept.load(), out) if not smoke else ("", {})
    if out is not None:
        kept.keep(out)
    tuned, runs = finetune_report.section(smoke)
    if out is not None and tuned:
        finetune.keep(out)
    if out is not None and lost(data, out):
        print("quality.md is left as it is: it shows runs that are not here", file=sys.stderr)
        if tuned:
            publish("quality-finetune", "Quality after restores: a fine-tune", tuned, runs, out)
        return
    data |= {"finetune": runs} if runs else {}
    publish("quality", "Quality after restores", text + tuned, data, out)


def lost(data: dict[str, Any], out: Path) -> bool:
    """Whether a page that is there shows runs that are neither on this machine nor kept: it is not written over."""
    page = out / "quality.json"
    return page.exists() and any(task in json.loads(page.read_text()) and task not in data for task in TASKS)


def main() -> int:
    args_parser: argparse.ArgumentParser = parser(__doc__)
    args_parser.add_argument("--tasks", default=",".join([*TASKS, "finetune"]))
    args_parser.add_argument("--systems", help=f"of {', '.join(SYSTEMS)} (all), or files of --policy-dir")
    args_parser.add_argument("--tables", default=",".join(plan.TABLES), help="small tasks: which tables (all)")
    args_parser.add_argument("--orders", default="0,1,2", help="data orders (default 0,1,2)")
    args_parser.add_argument("--cases", default="first,base", help="finetune: what lies before the run")
    args_parser.add_argument("--kills", default="3,5", help="finetune: how often it is killed")
    args_parser.add_argument("--policy-dir", type=Path, help="policies as systems, NAME.toml each")
    args_parser.add_argument("--smoke", action="store_true", help="finetune: two checkpoints, kept apart")
    args_parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="runs at a time")
    args_parser.add_argument("--plan", action="store_true", help="only say what is missing, and what it takes")
    args_parser.add_argument("--report", action="store_true", help="only write the report of what is there")
    args = args_parser.parse_args()
    if not args.report:
        made = small_tables(args)
        done = kept.results()
        missing = {name: [piece for piece in pieces if piece.label not in done] for name, pieces in made.items()}
        pieces = [piece for some in missing.values() for piece in some]
        plain = untrained(args, pieces)
        tuned = tuned_pieces(args) if "finetune" in listed(args.tasks) else []
        print(plan.statement(made, missing, plain, [piece.system for piece in tuned]), file=sys.stderr, flush=True)
        old = outdated(args, [piece for some in made.values() for piece in some], done)
        if old:
            print(f"kept, though their policy's text is another one now: {', '.join(old)}", file=sys.stderr)
        if args.plan:
            return 0
        run_small(plain, pieces, args)
        run_tuned(tuned, args)
    write_report(None if args.smoke else args.out, args.smoke)
    return 0


if __name__ == "__main__":
    sys.exit(main())
