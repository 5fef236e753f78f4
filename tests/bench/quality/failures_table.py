"""Ten failures, in the layout of the Inshrinkerator paper's Table 5: what a system saves beside what it costs a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from report import prose, table

from quality.kept import Runs
from quality.live import SYSTEMS
from quality.plan import FAILING, FAILURES, ORDERS
from quality.summary import METRICS, NAMES, NOT_RUN, ends, listed, scaled, summarise
from quality.tasks import TASKS

TEXT = (
    f"The layout of the paper's Table 5: {FAILURES} failures, evenly spread, each followed by a restore of the last",
    "checkpoint. *CR*: compression ratio, as *ratio* above. *Deg. %*: relative degradation of the final quality (GPT:",
    "loss; conv: accuracy) against the uncompressed run in the same data order, mean of the pairs; above 0 is worse.",
    "*by order*: every pair, in the order of the data orders. *Ovr. %*: processor time of commits and evaluations over",
    "that of training; the paper's intervals are hours of training, these are seconds. The paper itself has 29.8x at",
    "0.61 % for GPT-2 Medium and 39.1x at 0.50 % for ResNet-152.",
)


def degradations(task: str, one: dict[str, Any]) -> list[float]:
    sign = -1 if METRICS[task] == "accuracy" else 1
    # Plus zero, or no change of an accuracy would be shown as -0.
    return [sign * change + 0.0 for change in one["pair_changes"]]


def cells(task: str, one: dict[str, Any] | None) -> list[str]:
    if one is None:
        return [NOT_RUN, "", "", ""]
    found = dict(zip(one["orders"], degradations(task, one), strict=False))
    every = [f"{found[order] * 100:+.2f}" if order in found else NOT_RUN for order in ORDERS]
    mean = f"{statistics.fmean(found.values()) * 100:+.2f}" if found else ""
    return [f"**{one['ratio']:.1f}**", mean, " / ".join(every), f"{one['overhead'] * 100:.0f}"]


def heading(task: str, plain: Sequence[dict[str, Any]]) -> str:
    scale, digits = scaled(task)
    base = statistics.fmean(ends(plain, task)) * scale
    return f"{NAMES[task]} (base {METRICS[task]} {base:.{digits}f}): CR"


def section(runs: Runs) -> tuple[str, dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {task: {} for task in TASKS}
    tasks = [task for task in TASKS if runs.plain[task]]
    for task in tasks:
        for name in FAILING:
            found = runs.select(task, name, FAILURES)
            if found:
                sums[task][name] = summarise(task, found, list(runs.plain[task].values()))
    header = ["system"]
    for task in tasks:
        header += [heading(task, list(runs.plain[task].values())), "Deg. %", "by order", "Ovr. %"]
    rows = [
        [SYSTEMS[name].title, *(cell for task in tasks for cell in cells(task, sums[task].get(name)))]
        for name in FAILING
    ]
    text = f"\n## With {FAILURES} failures\n" + prose(*TEXT) + "\n"
    text += table(header, rows) if tasks else f"Uncompressed runs: {NOT_RUN}.\n"
    lossless = [
        f"{NAMES[task]}: {sum(one['lossless']['exact_end'])} of {len(one['lossless']['exact_end'])}"
        for task, one in sums.items()
        if "lossless" in one
    ]
    if lossless:
        text += prose("Runs restored losslessly that end bit for bit as if never killed:", listed(lossless) + ".")
    return text, {task: one for task, one in sums.items() if one}
