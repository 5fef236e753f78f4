"""What lossy checkpoints cost a training run that has to go on from them, and what they save.

    python tests/bench/quality_bench.py [--jobs 2] [--systems lossy,paper] [--out docs/benchmarks]
    python tests/bench/quality_bench.py --tasks finetune --orders 0 --systems lossy --cases base --kills 3

Trains two small models without compression in several data orders, then with every system in the same orders: each
checkpoint goes through `mdl commit`, and five times the run is killed and goes on from a checkout. The third task is a
fine-tune of a real pretrained model (quality/finetune_live.py says what its pieces are and what they take); TOML files
of --policy-dir are further systems of it, called by their names. Runs that are done are kept in target/quality and not
repeated; --report only writes the report from them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import quality.finetune_live as finetune
import quality.finetune_report as finetune_report
from quality.live import HOME, SYSTEMS
from quality.plots import Axis, Series, chart
from quality.tasks import TASKS
from report import median, parser, prose, publish, table

ORDERS = (0, 1, 2)
Run = dict[str, Any]
NAMES = {"gpt": "GPT", "conv": "conv"}
METRICS = {"gpt": "loss", "conv": "accuracy"}
WANTED = {("gpt", "lossy"): 45.0, ("conv", "lossy"): 30.0, ("gpt", "adam"): 13.0, ("conv", "adam"): 13.0}

PROTOCOL = (
    "The protocol is that of the paper's Table 5, at a small scale: a run stores a checkpoint every 50 steps, is",
    "killed five times, evenly spread, and goes on from a checkout of its last commit. A run that is killed and",
    "restored without loss ends with the same bits as one that is not, so every difference below comes from the",
    "lossy checkpoints. Each system runs in the same data orders; the data order alone moves the final quality of",
    "uncompressed runs by the range in the first row.",
)
COLUMNS = (
    "*ratio*: bytes of all checkpoint files over what the repository's packs grew by, with headers, commits and",
    "reports; *tensors only* leaves those out. Systems without moments store `model.safetensors` alone and go on",
    "from lossy weights with exact moments; those with moments store both files and restore both. *change*: of",
    "the mean final quality against the mean of the uncompressed runs; *in pairs*: against the uncompressed run",
    "in the same data order, mean of the pairs; *loss*: as *change*, of the final loss. *in spread*: whether",
    "the mean lies between the worst and the best uncompressed run. *last checkpoint*: quality",
    "of the last commit, checked out. *lattice*: checkpoints that the lattice won. *lossless*: those for which",
    "nothing passed the gate. *commit s*: processor seconds per checkpoint, median: `mdl commit` alone + its",
    "evaluations. Final quality is measured on data that the gates never see. The paper's pipeline is its quantiser,",
    "its configuration space and its search; what they choose is stored by mdl's own coder.",
)


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


def history(task: str, order: int) -> Path:
    return HOME / "runs" / f"{task}-{order}" / "history.json"


def result(task: str, system: str, order: int) -> Path:
    return HOME / "results" / f"{task}-{system}-{order}.json"


def train(task: str, order: int) -> None:
    """An uncompressed run; other orders than the first share its steps up to where lossy checkpoints begin."""
    if history(task, order).exists():
        return
    start = TASKS[task].start
    prefix = ["--from", str(history(task, 0).parent), "--at", str(start)] if order and start else []
    python("quality.trainer", task, "--order", str(order), *prefix, "--out", str(history(task, order).parent))


def measure(task: str, system: str, order: int) -> None:
    if not result(task, system, order).exists():
        python("quality.live", system, task, str(order))


def run_all(tasks: Sequence[str], systems: Sequence[str], orders: Sequence[int], jobs: int) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda task: train(task, 0), tasks))
        rest: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        for order in orders:
            rest += [(train, (task, order)) for task in tasks]
            chosen = [system for system in systems if order < SYSTEMS[system].orders]
            rest += [(measure, (task, system, order)) for system in chosen for task in tasks]
        list(pool.map(lambda job: job[0](*job[1]), rest))


def fine_tune(args: argparse.Namespace) -> None:
    """The pieces of the third task, those that are not done."""
    policies = sorted(path.stem for path in args.policy_dir.glob("*.toml")) if args.policy_dir else []
    systems = listed(args.systems) or [*finetune_report.SYSTEMS, *policies]
    cases, kills = args.cases.split(","), [int(count) for count in args.kills.split(",")]
    orders = [int(order) for order in args.orders.split(",")]
    jobs = []
    for piece in finetune_report.pieces([name for name in systems if name != "exact"], orders, cases, kills):
        if finetune.done(piece, args.smoke, args.policy_dir):
            continue
        job = ["quality.finetune_live", piece.system, str(piece.order)]
        if piece.system != "exact":
            job += ["--case", piece.case, "--kills", str(piece.kills)]
            job += ["--policy-dir", str(args.policy_dir)] if args.policy_dir else []
        jobs.append([*job, *(["--smoke"] if args.smoke else [])])
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: python(*job), jobs))


def listed(names: str | None) -> list[str]:
    return names.split(",") if names else []


def load(task: str) -> tuple[list[Run], dict[str, list[Run]]]:
    """The uncompressed runs, and those of every system that has any."""
    base = [json.loads(path.read_text()) for path in sorted(HOME.glob(f"runs/{task}-*/history.json"))]
    found = {}
    for name in SYSTEMS:
        paths = sorted((HOME / "results").glob(f"{task}-{name}-[0-9]*.json"))
        if paths:
            found[name] = [json.loads(path.read_text()) for path in paths]
    return base, found


def family(row: dict[str, Any]) -> str:
    """What a lossy commit took: lattice, bins, or lossless where nothing passed the gate; none without a policy."""
    return (row.get("quality") or {}).get("family", "")


def ranged(values: Sequence[float], digits: int) -> str:
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def summarise(task: str, name: str, runs: list[Run], base: list[Run]) -> dict[str, Any]:
    metric = METRICS[task]
    by_order = {one["order"]: one["final"] for one in base}
    plain = [one["final"][metric] for one in base]
    ends = [one["final"][metric] for one in runs]
    mean = statistics.fmean(ends)
    rows = [row for one in runs for row in one["rows"]]
    raw, packs = (sum(one[key] for one in runs) for key in ("raw_bytes", "pack_bytes"))
    tensors = sum(one["stored_bytes"] for one in runs)
    pairs = [one for one in runs if one["order"] in by_order]
    return {
        "system": name,
        "title": SYSTEMS[name].title,
        "moments": SYSTEMS[name].moments,
        "uncompressed": plain,
        "runs": len(runs),
        "final": ends,
        "final_checkpoint": [one["final_checkpoint"][metric] for one in runs],
        "change": mean / statistics.fmean(plain) - 1,
        "pair_change": statistics.fmean(one["final"][metric] / by_order[one["order"]][metric] - 1 for one in pairs),
        "loss_change": statistics.fmean(one["final"]["loss"] for one in runs)
        / statistics.fmean(one["final"]["loss"] for one in base)
        - 1,
        "within_spread": min(plain) <= mean <= max(plain),
        "no_worse": mean <= max(plain) if metric == "loss" else mean >= min(plain),
        "ratio": raw / packs,
        "ratio_tensors": raw / tensors,
        "ratios": [one["raw_bytes"] / one["pack_bytes"] for one in runs],
        "fallbacks": sum(family(row) == "lossless" for row in rows),
        "lattices": sum(family(row) == "lattice" for row in rows),
        "checkpoints": len(rows),
        "evaluations": statistics.fmean(row["evaluations"] for row in rows),
        "commit_seconds": median(row["seconds"] for row in rows),
        "evaluation_seconds": median(row["evaluation_seconds"] for row in rows),
        "overhead": statistics.fmean(row["seconds"] + row["evaluation_seconds"] for row in rows)
        / statistics.fmean(one["interval_seconds"] for one in runs),
        "first_share": sum(one["rows"][0]["pack_bytes"] for one in runs) / packs,
        "other_share": 1 - tensors / packs,
        "exact_end": [one["exact_end"] for one in runs],
    }


def judged(one: dict[str, Any]) -> str:
    if one["within_spread"]:
        return "yes"
    return "better" if one["no_worse"] else "**no**"


def section(task: str, base: list[Run], sums: list[dict[str, Any]]) -> str:
    metric, scale, digits = METRICS[task], *((100.0, 2) if METRICS[task] == "accuracy" else (1.0, 4))
    plain = [one["final"][metric] * scale for one in base]
    header = [
        "system",
        "runs",
        f"final {metric}",
        "change",
        "in pairs",
        *(["loss"] if metric == "accuracy" else []),
        "in spread",
    ]
    header += ["last checkpoint", "ratio", "tensors only", "lattice", "lossless", "evaluations", "commit s"]
    rows = [["uncompressed", len(base), ranged(plain, digits)]]
    rows[0] += [""] * (len(header) - len(rows[0]))
    rows[0][header.index("ratio")] = "1"
    for one in sums:
        last = statistics.fmean(one["final_checkpoint"]) * scale
        rows.append(
            [
                one["title"],
                one["runs"],
                ranged([value * scale for value in one["final"]], digits),
                f"{one['change']:+.2%}",
                f"{one['pair_change']:+.2%}",
                *([f"{one['loss_change']:+.2%}"] if metric == "accuracy" else []),
                judged(one),
                f"{last:.{digits}f}",
                f"**{one['ratio']:.1f}**",
                f"{one['ratio_tensors']:.1f}",
                f"{one['lattices']}/{one['checkpoints']}",
                f"{one['fallbacks']}/{one['checkpoints']}",
                f"{one['evaluations']:.1f}",
                f"{one['commit_seconds']:.2f} + {one['evaluation_seconds']:.1f}",
            ]
        )
    return table(header, rows)


def picture(task: str, base: list[Run], systems: dict[str, list[Run]], out: Path) -> list[str]:
    """The ratio at every checkpoint, and where runs end against what they store."""
    kind = TASKS[task]
    lines = []
    for name, runs in systems.items():
        steps = [row["step"] for row in runs[0]["rows"]]
        ratios = [
            median(one["rows"][i]["raw_bytes"] / one["rows"][i]["pack_bytes"] for one in runs)
            for i in range(len(steps))
        ]
        lines.append(
            Series(SYSTEMS[name].title.replace("the paper's pipeline", "paper"), list(zip(steps, ratios, strict=True)))
        )
    top = max(ratio for line in lines for _, ratio in line.points)
    steps = Axis("step", kind.start, kind.steps)
    kills = next(iter(systems.values()))[0]["kills"]
    names = [f"quality-{task}-ratio.svg", f"quality-{task}-final.svg"]
    title = f"{NAMES[task]}: ratio of every checkpoint (dashed: killed and resumed)"
    chart(out / names[0], title, lines, steps, Axis("raw bytes / bytes added", 1, top * 1.2, log=True), marks=kills)
    metric, scale = METRICS[task], 100.0 if METRICS[task] == "accuracy" else 1.0
    dots = [
        Series(line.name, [(one["raw_bytes"] / one["pack_bytes"], one["final"][metric] * scale) for one in runs])
        for line, runs in zip(lines, systems.values(), strict=True)
    ]
    plain = [one["final"][metric] * scale for one in base]
    values = [value for one in dots for _, value in one.points] + plain
    room = (max(values) - min(values)) * 0.1
    far = max(ratio for one in dots for ratio, _ in one.points)
    x, y = (
        Axis("overall ratio", 1, far * 1.3, log=True),
        Axis(f"final {metric}", min(values) - room, max(values) + room),
    )
    title = f"{NAMES[task]}: where runs end (shaded: uncompressed runs)"
    chart(out / names[1], title, dots, x, y, lines=False, band=(min(plain), max(plain)))
    return names


def verdicts(task: str, sums: list[dict[str, Any]]) -> list[str]:
    out = []
    for one in sums:
        wanted = WANTED.get((task, one["system"]))
        if wanted:
            met = "met" if one["ratio"] >= wanted else f"missed by {1 - one['ratio'] / wanted:.1%}"
            out.append(f"- {NAMES[task]}, {one['title']}: {one['ratio']:.1f}x, wanted {wanted:g}x: {met}.")
            state = {"yes": "within", "better": "better than", "**no**": "**outside**"}[judged(one)]
            plain = one["uncompressed"]
            apart = (max(plain) - min(plain)) / statistics.fmean(plain)
            out.append(
                f"  Mean final {METRICS[task]}: {one['change']:+.2%} ({one['pair_change']:+.2%} in pairs), {state}"
                f" the range of {len(plain)} uncompressed runs, which are {apart:.2%} apart."
            )
    return out


def write_report(out: Path | None, smoke: bool) -> None:
    text, data, pictures, checks = "", {}, [], []
    for task in TASKS if not smoke else ():
        base, systems = load(task)
        if not systems or not base:
            continue
        sums = [summarise(task, name, runs, base) for name, runs in systems.items()]
        text += f"\n## {heading(task, base)}\n\n{section(task, base, sums)}"
        if out is not None:
            names = picture(task, base, systems, out)
            text += "\n" + "\n".join(f"![{name}]({name})" for name in names) + "\n"
            pictures += names
        checks += verdicts(task, sums)
        data[task] = {"uncompressed": [one["final"] for one in base], "systems": sums, "runs": slim(systems)}
    text = "\n".join([intro(), "", *checks, ""]) + text + notes(data)
    tuned, runs = finetune_report.section(smoke)
    if out is not None and tuned:
        finetune.keep(out)
    if out is not None and lost(data, out):
        print("quality.md is left as it is: it shows runs that are not here", file=sys.stderr)
        if tuned:
            publish("quality-finetune", "Quality after restores: a fine-tune", tuned, runs, out)
        return
    text += tuned
    data |= {"finetune": runs} if runs else {}
    publish("quality", "Quality after restores", text, data, out)


def lost(data: dict[str, Any], out: Path) -> bool:
    """Whether a page that is there shows runs which this machine does not have: it is not to be written over."""
    page = out / "quality.json"
    return page.exists() and any(task in json.loads(page.read_text()) and task not in data for task in TASKS)


def slim(systems: dict[str, list[Run]]) -> dict[str, Any]:
    """What the plots show, checkpoint by checkpoint: one row of values for each run."""
    return {
        name: {
            "steps": " ".join(str(row["step"]) for row in runs[0]["rows"]),
            "configurations": [" | ".join(row.get("configuration") or "" for row in one["rows"]) for one in runs],
            "pack_bytes": [" ".join(str(row["pack_bytes"]) for row in one["rows"]) for one in runs],
        }
        for name, runs in systems.items()
    }


def heading(task: str, base: list[Run]) -> str:
    kind = TASKS[task]
    count = (kind.steps - kind.start) // kind.every
    size = base[0]["parameters"] / 1e6
    if task == "gpt":
        return f"GPT: {size:.2f} M parameters, AdamW, {count} checkpoints from step {kind.start} to {kind.steps}"
    return f"Conv: residual net, {size:.2f} M parameters, SGD with momentum, {count} checkpoints from the start"


def intro() -> str:
    return "`make bench-quality` trains all runs (hours of one core) and writes this page.\n" + prose(*PROTOCOL)


def notes(data: dict[str, Any]) -> str:
    lossless = [(task, one) for task in data for one in data[task]["systems"] if one["system"] == "lossless"]
    ends = [f"{NAMES[task]}: {'yes' if all(one['exact_end']) else 'NO'}" for task, one in lossless]
    text = "\n## How to read it\n" + prose(*COLUMNS)
    for task in data:
        default = next((one for one in data[task]["systems"] if one["system"] == "lossy"), None)
        if default:
            text += prose(
                f"{NAMES[task]}, default: commits and evaluations take {default['overhead']:.0%} of the processor time",
                f"of training, with a checkpoint every {TASKS[task].every} small steps; the first checkpoint is",
                f"{default['first_share']:.0%} of all bytes, what is not tensors {default['other_share']:.0%}.",
            )
    if ends:
        text += prose("Killed and restored losslessly, ends bit for bit as if never killed:", ", ".join(ends) + ".")
    return text


def main() -> int:
    args_parser: argparse.ArgumentParser = parser(__doc__)
    args_parser.add_argument("--tasks", default=",".join([*TASKS, "finetune"]))
    args_parser.add_argument("--systems", help=f"of {', '.join(SYSTEMS)} (all), or files of --policy-dir")
    args_parser.add_argument("--orders", default="0,1,2", help="data orders (default 0,1,2)")
    args_parser.add_argument("--cases", default="first,base", help="finetune: what lies before the run")
    args_parser.add_argument("--kills", default="3,5", help="finetune: how often it is killed")
    args_parser.add_argument("--policy-dir", type=Path, help="finetune: policies as systems, NAME.toml each")
    args_parser.add_argument("--smoke", action="store_true", help="finetune: two checkpoints, kept apart")
    args_parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="runs at a time")
    args_parser.add_argument("--report", action="store_true", help="only write the report of what is there")
    args = args_parser.parse_args()
    tasks = args.tasks.split(",")
    small = [task for task in tasks if task in TASKS]
    if not args.report and small and not args.smoke:
        systems = [name for name in listed(args.systems) or SYSTEMS if name in SYSTEMS]
        run_all(small, systems, [int(order) for order in args.orders.split(",")], args.jobs)
    if not args.report and "finetune" in tasks:
        fine_tune(args)
    write_report(None if args.smoke else args.out, args.smoke)
    return 0


if __name__ == "__main__":
    sys.exit(main())
