"""What the runs of one system say together: ratio, where they end, and how that lies to the uncompressed runs."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from report import median

from quality.kept import Run
from quality.plan import ORDERS

NAMES = {"gpt": "GPT", "conv": "conv"}
METRICS = {"gpt": "loss", "conv": "accuracy"}
NOT_RUN = "not run"


def scaled(task: str) -> tuple[float, int]:
    """Factor and digits in which a task's metric is shown: accuracies in percent."""
    return (100.0, 2) if METRICS[task] == "accuracy" else (1.0, 4)


def ends(runs: Sequence[Run], task: str) -> list[float]:
    return [one["final"][METRICS[task]] for one in runs]


def family(row: Run) -> str:
    """What a lossy commit took: lattice, bins, or lossless where nothing passed the gate; none without a policy."""
    return row.get("family", "")


def pairs(task: str, runs: Sequence[Run]) -> list[float]:
    """Relative change of the final metric against the uncompressed run in the same data order, run by run."""
    metric = METRICS[task]
    return [one["final"][metric] / one["uncompressed"][metric] - 1 for one in runs if "uncompressed" in one]


def summarise(task: str, runs: Sequence[Run], plain: Sequence[Run]) -> dict[str, Any]:
    metric = METRICS[task]
    rows = [row for one in runs for row in one["rows"]]
    raw, packs, tensors = (sum(one[key] for one in runs) for key in ("raw_bytes", "pack_bytes", "stored_bytes"))
    changes = pairs(task, runs)
    exact = [row["exact_bytes"] for one in runs for row in one["rows"][-1:] if "exact_bytes" in row]
    return {
        "system": runs[0]["system"],
        "title": runs[0]["title"],
        "moments": runs[0]["moments"],
        "bounds": runs[0]["bounds"],
        "orders": [one["order"] for one in runs],
        "kills": len(runs[0]["kills"]),
        "versions": len(runs[0]["rows"]),
        **placed(task, ends(runs, task), ends(plain, task)),
        "final_checkpoint": [one["final_checkpoint"][metric] for one in runs],
        "pair_changes": changes,
        "pair_change": statistics.fmean(changes) if changes else None,
        "loss_change": statistics.fmean(one["final"]["loss"] for one in runs)
        / statistics.fmean(one["final"]["loss"] for one in plain)
        - 1,
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
        "exact_bytes": statistics.fmean(exact) if exact else None,
    }


def placed(task: str, final: Sequence[float], plain: Sequence[float]) -> dict[str, Any]:
    """Where the mean end lies in the range of the uncompressed runs: 0 is their best end, 1 their worst."""
    best, worst = (max(plain), min(plain)) if METRICS[task] == "accuracy" else (min(plain), max(plain))
    mean = statistics.fmean(final)
    inside = min(plain) <= mean <= max(plain)
    return {
        "uncompressed": list(plain),
        "final": list(final),
        "change": mean / statistics.fmean(plain) - 1,
        "position": (mean - best) / (worst - best) if worst != best else None,
        "within_spread": inside,
        "no_worse": inside or (mean > best) == (best > worst),
    }


def judged(one: dict[str, Any]) -> str:
    if one["within_spread"]:
        return "yes"
    return "better" if one["no_worse"] else "**no**"


def position(one: dict[str, Any]) -> str:
    """The mean's place against the uncompressed runs, in words."""
    state = {"yes": "inside", "better": "better than", "**no**": "**outside**"}[judged(one)]
    plain = one["uncompressed"]
    apart = (max(plain) - min(plain)) / statistics.fmean(plain)
    text = f"{state} the range of {len(plain)} uncompressed runs, which are {apart:.2%} apart"
    if one["position"] is None:
        return text
    return f"{text}: {one['position']:.0%} of the way from their best to their worst"


def ranged(values: Sequence[float], digits: int) -> str:
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.2%}"


def listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))


def capped(bounds: dict[str, Any]) -> str:
    """The caps of a policy, as its record has them."""
    return listed([f"{key} {bounds[key]:g}" for key in ("weight", "update", "first") if key in bounds]) or "none"


def verdict(one: dict[str, Any], wanted: float, orders: Sequence[int] = ORDERS) -> str:
    """Whether the ratio is the wanted one; some of the data orders decide nothing."""
    ratio = one["ratio"]
    text = f"{ratio:.1f}x, wanted {wanted:g}x: " + ("met" if ratio >= wanted else f"missed by {1 - ratio / wanted:.1%}")
    left = [order for order in orders if order not in one["orders"]]
    return f"{text} so far, order {listed(left)} {NOT_RUN}" if left else text


def item(text: str) -> str:
    """One of a list, wrapped as other paragraphs are."""
    return textwrap.fill(text, 116, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
