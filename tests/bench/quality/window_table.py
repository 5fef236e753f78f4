"""The newest version exact: restarts end with the uninterrupted run's bits, and what that costs in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from report import prose, table

from quality.kept import Runs
from quality.live import SYSTEMS
from quality.plan import HUNDRED, ORDERS, WINDOWED
from quality.summary import NAMES, NOT_RUN, capped, item, summarise, verdict
from quality.tasks import TASKS

WANTED = {("gpt", 16): 14.0, ("gpt", 100): 30.0, ("conv", 24): 11.0, ("conv", 100): 22.0}
TEXT = (
    "The default policy with a window of one (`[keep] exact_latest = 1`): a killed run goes on from the exact bits of",
    "its newest version, so it has to end where the uninterrupted one does. *ratio*: after `gc`, which takes the exact",
    "contents of all versions but the newest. *exact contents*: what those of the newest take beside its",
    "approximation, mean of the runs. *same bits*: runs that end with the weights and the moments of the uncompressed",
    "run in the same data order. A hundred versions: a commit every 8 steps of GPT and every 12 of conv, in one data",
    "order. The conv run has 24 checkpoints of its own, not 16; it is measured against the 11x wanted for 16.",
)


def cases() -> Iterator[tuple[str, int, int | None, tuple[int, ...]]]:
    """Task, versions, steps between them where they are not the task's, and the data orders to run."""
    for task, kind in TASKS.items():
        for every, orders in ((None, ORDERS), (HUNDRED[task], (0,))):
            yield task, (kind.steps - kind.start) // (every or kind.every), every, orders


def section(runs: Runs) -> tuple[str, dict[str, Any], list[str]]:
    """Markdown, data and verdicts."""
    rows, data, checks = [], {}, []
    for task, versions, every, orders in cases():
        found = runs.select(task, WINDOWED, every=every)
        wanted = WANTED[task, versions]
        what = f"{NAMES[task]}, the newest version exact, {versions} versions"
        if not found or not runs.plain[task]:
            rows.append([NAMES[task], versions, NOT_RUN, "", f"{wanted:g}", "", "", ""])
            checks.append(item(f"{what}: wanted {wanted:g}x: {NOT_RUN}."))
            continue
        one = summarise(task, found, list(runs.plain[task].values()))
        data[f"{task}-{versions}"] = one
        same = f"{sum(one['exact_end'])} of {len(one['exact_end'])}"
        same = same if all(one["exact_end"]) else f"**{same}**"
        beside = "" if one["exact_bytes"] is None else f"{one['exact_bytes']:,.0f} B"
        rows.append([NAMES[task], versions, f"{len(one['orders'])} of {len(orders)}", f"**{one['ratio']:.1f}**"])
        rows[-1] += [f"{wanted:g}", same, beside, capped(one["bounds"])]
        end = f"Ends with the uninterrupted run's bits in {same} runs."
        checks.append(item(f"{what}: {verdict(one, wanted, orders)}. {end}"))
    header = ["model", "versions", "runs", "ratio", "wanted", "same bits", "exact contents", "bounds"]
    text = f"\n## {SYSTEMS[WINDOWED].title.removeprefix('mdl, default, ').capitalize()}\n"
    return text + prose(*TEXT) + "\n" + table(header, rows), data, checks
