"""The report of the small tasks: all tables from the runs that are there, what is missing named as such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import prose

from quality import disagreements, failures_table, finetune_report, frontier_table, main_table, window_table
from quality.kept import Run, Runs
from quality.live import KILLS, SYSTEMS
from quality.plan import ORDERS, full_hours, tuned_seconds
from quality.summary import NAMES, NOT_RUN, summarise
from quality.tasks import TASKS

PROTOCOL = (
    f"A run stores a checkpoint every 50 steps, is killed {KILLS} times, evenly spread, and goes on from a checkout of",
    "its last commit. A run that is killed and restored without loss ends with the same bits as one that is not, so",
    "every difference below comes from the lossy checkpoints. Each system runs in the same data orders; the data order",
    "alone moves the final quality of uncompressed runs by the range in the first row of a table.",
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
    "its configuration space and its search; what they choose is stored by mdl's own coder. *runs*: data orders.",
    f"*{NOT_RUN}*: what no run was made for yet. Restores are from approximations (`[keep] exact_latest = 0`) but for",
    "*the newest version exact*, whose ratio is that after `gc`.",
)


def write(runs: Runs, out: Path | None) -> tuple[str, dict[str, Any]]:
    """Markdown and data; pictures go to `out`."""
    data: dict[str, Any] = {}
    checks: list[str] = []
    tables = ""
    for task in TASKS:
        plain = list(runs.plain[task].values())
        systems = {name: found for name in SYSTEMS if (found := runs.select(task, name))}
        sums = {name: summarise(task, found, plain) for name, found in systems.items()} if plain else {}
        checks += main_table.verdicts(task, sums)
        tables += f"\n## {heading(task, plain)}\n\n"
        tables += main_table.section(task, plain, sums) if plain else f"Uncompressed runs: {NOT_RUN}.\n"
        if not sums:
            continue
        if out is not None:
            names = main_table.picture(task, plain, systems, out)
            tables += "\n" + "\n".join(f"![{name}]({name})" for name in names) + "\n"
        ends = [one["final"] for one in plain]
        data[task] = {"uncompressed": ends, "systems": list(sums.values()), "runs": slim(systems)}
    window, data["window"], more = window_table.section(runs)
    failures, data["failures"] = failures_table.section(runs)
    frontier, found = frontier_table.section(runs)
    text = "\n".join([intro(), "", *checks, *more, ""]) + tables + notes(data) + failures + window + frontier
    return text + disagreements.section(runs), data | found


def intro() -> str:
    tuned = finetune_report.pieces(finetune_report.SYSTEMS, ORDERS, finetune_report.CASES, finetune_report.KILLS)
    every = full_hours() | {"fine-tune": tuned_seconds([piece.system for piece in tuned]) / 3600}
    hours = [f"{name} {value:.1f}" for name, value in every.items()]
    made = "`make bench-quality` makes all runs that are not there yet and writes this page."
    each = f"Processor hours that the tables take, each run counted once: {'; '.join(hours)}."
    return prose(made, each).lstrip("\n") + prose(*PROTOCOL)


def heading(task: str, plain: Sequence[Run]) -> str:
    if not plain:
        return NAMES[task]
    kind = TASKS[task]
    count = (kind.steps - kind.start) // kind.every
    size = plain[0]["parameters"] / 1e6
    if task == "gpt":
        return f"GPT: {size:.2f} M parameters, AdamW, {count} checkpoints from step {kind.start} to {kind.steps}"
    return f"Conv: residual net, {size:.2f} M parameters, SGD with momentum, {count} checkpoints from the start"


def notes(data: dict[str, Any]) -> str:
    text = "\n## How to read it\n" + prose(*COLUMNS)
    ends = []
    for task in TASKS:
        sums = {one["system"]: one for one in data.get(task, {}).get("systems", [])}
        if "lossy" in sums:
            default = sums["lossy"]
            text += prose(
                f"{NAMES[task]}, default: commits and evaluations take {default['overhead']:.0%} of the processor time",
                f"of training, with a checkpoint every {TASKS[task].every} small steps; the first checkpoint is",
                f"{default['first_share']:.0%} of all bytes, what is not tensors {default['other_share']:.0%}.",
            )
        if "lossless" in sums:
            ends.append(f"{NAMES[task]}: {'yes' if all(sums['lossless']['exact_end']) else 'NO'}")
    if ends:
        text += prose("Killed and restored losslessly, ends bit for bit as if never killed:", ", ".join(ends) + ".")
    return text


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
