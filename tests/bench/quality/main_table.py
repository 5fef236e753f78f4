"""The main tables: every system with five restores, beside the uncompressed runs in the same data orders."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import median, table

from quality.kept import Run
from quality.live import SYSTEMS
from quality.plots import Axis, Series, chart
from quality.summary import (
    METRICS,
    NAMES,
    NOT_RUN,
    ends,
    item,
    judged,
    percent,
    position,
    ranged,
    scaled,
    verdict,
)
from quality.tasks import TASKS

WANTED = {("gpt", "lossy"): 35.0, ("conv", "lossy"): 25.0, ("gpt", "adam"): 13.0, ("conv", "adam"): 13.0}


def section(task: str, plain: Sequence[Run], sums: dict[str, dict[str, Any]]) -> str:
    metric, (scale, digits) = METRICS[task], scaled(task)
    header = ["system", "runs", f"final {metric}", "change", "in pairs"]
    header += [*(["loss"] if metric == "accuracy" else []), "in spread", "last checkpoint", "ratio", "tensors only"]
    header += ["lattice", "lossless", "evaluations", "commit s"]
    blank = [""] * len(header)
    first = [*blank]
    first[:3] = ["uncompressed", str(len(plain)), ranged([end * scale for end in ends(plain, task)], digits)]
    first[header.index("ratio")] = "1"
    rows = [first]
    for name, system in SYSTEMS.items():
        if name not in sums:
            rows.append([system.title, NOT_RUN, *blank[2:]])
            continue
        rows.append(line(task, sums[name], system.orders, windowed=system.exact_latest > 0))
    return table(header, rows)


def line(task: str, one: dict[str, Any], orders: int, windowed: bool) -> list[str]:
    scale, digits = scaled(task)
    return [
        one["title"],
        f"{len(one['orders'])}" + (f" of {orders}" if len(one["orders"]) < orders else ""),
        ranged([value * scale for value in one["final"]], digits),
        percent(one["change"]),
        percent(one["pair_change"]),
        *([percent(one["loss_change"])] if METRICS[task] == "accuracy" else []),
        judged(one),
        f"{statistics.fmean(one['final_checkpoint']) * scale:.{digits}f}",
        f"**{one['ratio']:.1f}**",
        # What is stored beside approximations, and collected later, counts among the tensors too.
        "" if windowed else f"{one['ratio_tensors']:.1f}",
        f"{one['lattices']}/{one['checkpoints']}",
        f"{one['fallbacks']}/{one['checkpoints']}",
        f"{one['evaluations']:.1f}",
        f"{one['commit_seconds']:.2f} + {one['evaluation_seconds']:.1f}",
    ]


def verdicts(task: str, sums: dict[str, dict[str, Any]]) -> list[str]:
    out = []
    for (model, name), wanted in WANTED.items():
        if model != task:
            continue
        what = f"{NAMES[task]}, {SYSTEMS[name].title}"
        if name not in sums:
            out.append(item(f"{what}: wanted {wanted:g}x: {NOT_RUN}."))
            continue
        one = sums[name]
        paired = f" ({percent(one['pair_change'])} in pairs)" if one["pair_changes"] else ""
        end = f"Mean final {METRICS[task]}: {percent(one['change'])}{paired}, {position(one)}."
        out.append(item(f"{what}: {verdict(one, wanted)}. {end}"))
    return out


def picture(task: str, plain: Sequence[Run], systems: dict[str, list[Run]], out: Path) -> list[str]:
    """The ratio at every checkpoint, and where runs end against what they store."""
    lines = [growth(runs) for runs in systems.values()]
    names = [f"quality-{task}-ratio.svg", f"quality-{task}-final.svg"]
    kind, kills = TASKS[task], next(iter(systems.values()))[0]["kills"]
    top = max(ratio for one in lines for _, ratio in one.points)
    title = f"{NAMES[task]}: ratio of every checkpoint (dashed: killed and resumed)"
    x, y = Axis("step", kind.start, kind.steps), Axis("raw bytes / bytes added", 1, top * 1.2, log=True)
    chart(out / names[0], title, lines, x, y, marks=kills)
    scale = scaled(task)[0]
    dots = [
        Series(
            one.name,
            [
                (run["raw_bytes"] / run["pack_bytes"], end * scale)
                for run, end in zip(runs, ends(runs, task), strict=True)
            ],
        )
        for one, runs in zip(lines, systems.values(), strict=True)
    ]
    band = [end * scale for end in ends(plain, task)]
    values = [value for one in dots for _, value in one.points] + band
    room = (max(values) - min(values)) * 0.1
    far = max(ratio for one in dots for ratio, _ in one.points)
    x = Axis("overall ratio", 1, far * 1.3, log=True)
    y = Axis(f"final {METRICS[task]}", min(values) - room, max(values) + room)
    title = f"{NAMES[task]}: where runs end (shaded: uncompressed runs)"
    chart(out / names[1], title, dots, x, y, lines=False, band=(min(band), max(band)))
    return names


def growth(runs: Sequence[Run]) -> Series:
    """Median ratio of what every checkpoint added to the packs, when it did."""
    versions = zip(*(one["rows"] for one in runs), strict=True)
    points = [(rows[0]["step"], median(row["raw_bytes"] / row["pack_bytes"] for row in rows)) for rows in versions]
    return Series(runs[0]["title"].replace("the paper's pipeline", "paper"), points)
