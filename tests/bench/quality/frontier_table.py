"""Policies tried beside the systems: the frontier of caps, and runs that each change one cause of the loss alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from report import prose, table

from quality.kept import Run, Runs
from quality.live import KILLS, SYSTEMS
from quality.summary import METRICS, NAMES, NOT_RUN, capped, judged, listed, percent, ranged, scaled, summarise
from quality.tasks import TASKS

CAUSE = "cause-"
REFERENCE = "lossy"
FRONTIER = (
    "Policies beside the default one. *bounds*: their caps, as the first version's record has them: the largest error",
    "of a row over the weight, over the update, and over the weight where nothing tells the update. *in pairs*:",
    "against the uncompressed run in the same data order, mean of the pairs; *in spread*: whether the mean of the",
    "orders that were run lies in the range of the uncompressed runs (one order alone is a hint, no verdict). Rows go",
    "from the highest ratio to the lowest; the default is among them.",
)
CAUSES = (
    "Policies that each switch off or on one thing that could cost quality; otherwise they are the default. Columns as",
    "in the table before.",
)
HEADER = ["model", "policy", "stores", "bounds", "orders", "restores", "versions", "final", "in pairs"]
HEADER += ["in spread", "ratio"]


def is_cause(system: str) -> bool:
    return system.startswith(CAUSE)


def groups(runs: Runs, taken: Callable[[str], bool]) -> list[list[Run]]:
    """Runs that differ in their data order only, of the policies that are taken."""
    keys = {
        (one["task"], one["system"], len(one["kills"]), one["every"])
        for one in runs.live
        if one["system"] not in SYSTEMS and taken(one["system"])
    }
    return [found for key in sorted(keys) if (found := runs.select(*key))]


def row(task: str, one: dict[str, Any]) -> list[Any]:
    scale, digits = scaled(task)
    name = "**default**" if one["system"] == REFERENCE else one["system"]
    stores = "weights + moments" if one["moments"] else "weights"
    final = f"{METRICS[task]} {ranged([value * scale for value in one['final']], digits)}"
    counts = [listed(one["orders"]), one["kills"], one["versions"]]
    change = [percent(one["pair_change"]), judged(one), f"**{one['ratio']:.1f}**"]
    return [NAMES[task], name, stores, capped(one["bounds"]), *counts, final, *change]


def lines(runs: Runs, found: list[list[Run]]) -> tuple[str, list[dict[str, Any]]]:
    """The table of some policies, the default beside them where it was run."""
    rows: list[list[Any]] = []
    data: list[dict[str, Any]] = []
    for task in TASKS:
        plain = list(runs.plain[task].values())
        mine = [one for one in found if one[0]["task"] == task]
        if not mine or not plain:
            continue
        default = runs.select(task, REFERENCE, KILLS)
        sums = [summarise(task, one, plain) for one in [*mine, *([default] if default else [])]]
        sums.sort(key=lambda one: -one["ratio"])
        rows += [row(task, one) for one in sums]
        data += [{"task": task, **one} for one in sums]
    return table(HEADER, rows) if rows else "", data


def section(runs: Runs) -> tuple[str, dict[str, Any]]:
    caps, frontier = lines(runs, groups(runs, lambda name: not is_cause(name)))
    causes, found = lines(runs, groups(runs, is_cause))
    text = "\n## The frontier of caps\n" + prose(*FRONTIER) + "\n" + (caps or f"Policies: {NOT_RUN}.\n")
    text += "\n## Where the loss comes from: one cause at a time\n" + prose(*CAUSES) + "\n"
    text += causes or f"Policies that are called `{CAUSE}NAME`: {NOT_RUN}.\n"
    return text, {"frontier": frontier, "causes": found}
