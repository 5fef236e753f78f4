"""The fine-tune's section of the report: every piece that was made, what it won and lost, and what was not run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from report import prose, table

from quality.bounds import ABOVE, WIPED
from quality.finetune_live import CASES, Piece, results

Run = dict[str, Any]
Group = tuple[str, str, int]
ORDERS, KILLS = (0, 1, 2), (3, 5)
SYSTEMS = ("lossless", "lossy")
WANTED = {"first": 25.0, "base": 40.0}
FAR = 0.005
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""Two-sided 95 % of Student's t, by degrees of freedom."""

PROTOCOL = (
    "MiniLM (22.7 M parameters, float32) learns which group of modules of Python's standard library a docstring or a",
    "comment belongs to: 300 steps of AdamW, a checkpoint every 20. A run is killed three or five times and goes on",
    "from the weights of its last version, checked out, and exact moments. In case *first* the first checkpoint is",
    "stored lossily with nothing before it; in case *base* the pretrained file is committed exactly before the run and",
    "its bytes stand apart. A run that is restored without loss ends with the bits of the uninterrupted one.",
)
COLUMNS = (
    "*in pairs*: final held-out loss against the uninterrupted run's in the same data order, mean and 95 % interval of",
    "the mean (Student's t). *MRR*: a first sentence of numpy's docstrings finds its rest, data that neither training",
    "nor gate touches; *long*: accuracy on texts of 256 tokens, four times the length of the training's. *ratio*:",
    "bytes of the checkpoints over what the packs grew by, in case *base* from the first version of the run on;",
    "*later*: from the second version on. *weight*, *update*: the largest error of any row, over the weight and over",
    "what changed since the previous exact checkpoint, computed in numpy from the exact checkpoint and the checked-out",
    "one, whatever the record says; a row whose update is zero and whose error is not counts as *over 0*. *after a",
    "restore*: in the first version after one, over what changed since the restored weights. *kept*: over what changed",
    "since the version before as it is stored, which is what bounds without exact contents go by; divided by what rows",
    "may have more that move fast. The two differ in rows whose update is smaller than their stored error.",
    f"*rows > {ABOVE}*: versions times rows with a larger error over the weight; *wiped*: rows of embeddings with an",
    f"error above {WIPED}. *exact*: versions whose checkout has the bits of what was committed. *record*: versions",
    "whose recorded largest error over the weight is not that of numpy.",
)


def load(smoke: bool) -> tuple[dict[int, Run], dict[Group, list[Run]]]:
    """The uninterrupted runs by order, and the others by system, case and number of restores."""
    base: dict[int, Run] = {}
    groups: dict[Group, list[Run]] = {}
    for path in results(smoke).values():
        one = json.loads(path.read_text())
        if one["system"] == "exact":
            base[one["order"]] = one
        else:
            groups.setdefault((one["system"], one["case"], one["kills"]), []).append(one)
    return base, dict(sorted(groups.items()))


def pieces(systems: Sequence[str], orders: Sequence[int], cases: Sequence[str], kills: Sequence[int]) -> list[Piece]:
    """What a full table needs, exact runs first; without loss the case makes no difference to the run."""
    made = [Piece("exact", order) for order in orders]
    for system in systems:
        chosen = cases[:1] if system == "lossless" else cases
        made += [Piece(system, order, case, count) for order in orders for case in chosen for count in kills]
    return made


def paired(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and half of its 95 % interval; one pair has none."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, STUDENT.get(len(values) - 1, 2.6) * statistics.stdev(values) / len(values) ** 0.5


def shown(value: tuple[float, float | None], percent: bool = True) -> str:
    form = "{:+.2%}" if percent else "{:+.4f}"
    mean, half = form.format(value[0]), "one pair" if value[1] is None else "± " + form.format(value[1]).lstrip("+")
    return f"{mean} ({half})"


def agrees(row: Run) -> bool | None:
    """Whether the record has the largest error over the weight that was computed here; None without a record. That over
    the update may differ: of a parent that is a reconstruction itself the writer knows the error on average only."""
    recorded = (row.get("recorded") or {}).get("worst_row")
    if recorded is None:
        return None
    return abs(row["bounds"]["weight"]["row"] - recorded) <= 1e-3 * max(abs(recorded), 1e-9)


def beyond(row: Run) -> bool | None:
    """Whether a true error is above a cap of the record; None without one. An update begins at what is kept: without
    exact contents the stored version, which is also what training was restored from."""
    caps, found = row.get("recorded"), row["bounds"]
    if not caps:
        return None
    for kind in ("weight", "update", "first"):
        cap, mine = caps.get(kind), found.get("kept" if kind == "update" else kind)
        if cap is None or mine is None:
            continue
        if mine["over_zero"] or max(mine["row"], mine["tensor"]) > cap * (1 + 1e-6):
            return True
    return False


def summarise(runs: list[Run], base: dict[int, Run]) -> dict[str, Any]:
    rows = [row for one in runs for row in one["rows"]]
    pairs = [(one, base[one["order"]]) for one in runs if one["order"] in base]
    updates = [row["bounds"]["update"] for row in rows if row["bounds"]["update"]]
    trained, kept = ([row["bounds"][key] for row in rows if row["bounds"].get(key)] for key in ("trained", "kept"))
    later = [row for one in runs for row in one["rows"][1:]]
    checks, caps = [agrees(row) for row in rows], [beyond(row) for row in rows]
    return {
        "orders": [one["order"] for one in runs],
        "loss": [one["final"]["loss"] for one in runs],
        "loss_change": paired([a["final"]["loss"] / b["final"]["loss"] - 1 for a, b in pairs]) if pairs else None,
        "mrr": statistics.fmean(one["final"]["mrr"] for one in runs),
        "mrr_change": paired([a["final"]["mrr"] - b["final"]["mrr"] for a, b in pairs]) if pairs else None,
        "long": statistics.fmean(one["final"]["long_accuracy"] for one in runs),
        "last_loss": statistics.fmean(one["final_checkpoint"]["loss"] for one in runs),
        "last_mrr": statistics.fmean(one["final_checkpoint"]["mrr"] for one in runs),
        "ratio": sum(one["raw_bytes"] for one in runs) / sum(one["pack_bytes"] for one in runs),
        "later": sum(row["raw_bytes"] for row in later) / sum(row["pack_bytes"] for row in later),
        "base_bytes": runs[0]["base_bytes"],
        "weight": max(row["bounds"]["weight"]["row"] for row in rows),
        "weight_tensor": max(row["bounds"]["weight"]["tensor"] for row in rows),
        "update": max((one["row"] for one in updates), default=0.0),
        "update_tensor": max((one["tensor"] for one in updates), default=0.0),
        "trained": max((one["row"] for one in trained), default=0.0),
        "kept": max((one["row"] for one in kept), default=0.0),
        "over_zero": sum(row["bounds"]["weight"]["over_zero"] for row in rows) + sum(o["over_zero"] for o in updates),
        "above": sum(row["bounds"]["above"] for row in rows),
        "wiped": sum(row["bounds"]["wiped_embeddings"] for row in rows),
        "exact_versions": sum(row["same_bits"] for row in rows),
        "versions": len(rows),
        "same_end": [
            a["rows"][-1]["model"] == b["rows"][-1]["model"] and a["rows"][-1]["moments"] == b["rows"][-1]["moments"]
            for a, b in pairs
        ],
        "beyond": sum(cap is True for cap in caps),
        "records": sum(check is not None for check in checks),
        "records_wrong": sum(check is False for check in checks),
        "pack_bytes": [[row["pack_bytes"] for row in one["rows"]] for one in runs],
        "cpu_minutes": statistics.fmean(one["cpu_seconds"] for one in runs) / 60,
        "binaries": sorted({one.get("mdl_sha256", "")[:12] for one in runs}),
    }


def title(group: Group) -> str:
    return f"{group[0]}, {group[1]}, {group[2]} restores"


def main_table(base: dict[int, Run], sums: dict[Group, Run]) -> str:
    header = ["run", "orders", "final loss", "in pairs", "MRR", "MRR in pairs", "long", "ratio", "later", "base, MB"]
    rows: list[list[Any]] = []
    if base:
        start, ends = next(iter(base.values()))["before"], [one["final"] for one in base.values()]
        rows.append(["before the fine-tune", "", f"{start['loss']:.4f}", "", f"{start['mrr']:.4f}"])
        rows[-1] += ["", f"{start['long_accuracy']:.3f}", "", "", ""]
        losses = [one["loss"] for one in ends]
        spread = f"{statistics.fmean(losses):.4f} ({min(losses):.4f} to {max(losses):.4f})"
        mrr, long = (statistics.fmean(one[key] for one in ends) for key in ("mrr", "long_accuracy"))
        rows.append(["uninterrupted", len(base), spread, "", f"{mrr:.4f}", "", f"{long:.3f}", "1", "1", ""])
    for group, one in sums.items():
        change, general = one["loss_change"], one["mrr_change"]
        rows.append(
            [
                title(group),
                len(one["orders"]),
                f"{statistics.fmean(one['loss']):.4f}",
                shown(change) if change else "",
                f"{one['mrr']:.4f}",
                shown(general, percent=False) if general else "",
                f"{one['long']:.3f}",
                f"**{one['ratio']:.1f}**",
                f"{one['later']:.1f}",
                f"{one['base_bytes'] / 1e6:.1f}" if one["base_bytes"] else "",
            ]
        )
    return table(header, rows)


def bounds_table(sums: dict[Group, Run]) -> str:
    header = ["run", "weight: row", "tensor", "update: row", "tensor", "after a restore", "kept: row"]
    header += ["over 0", f"rows > {ABOVE}", "wiped", "exact", "record", "CPU min"]
    rows = []
    for group, one in sums.items():
        errors = ("weight", "weight_tensor", "update", "update_tensor", "trained", "kept")
        values = [f"{one[key]:.3g}" for key in errors]
        counts = [f"{one[key]:,}" for key in ("over_zero", "above", "wiped")]
        record = f"{one['records_wrong']}/{one['records']} differ" if one["records"] else "none"
        exact = f"{one['exact_versions']}/{one['versions']}"
        rows.append([title(group), *values, *counts, exact, record, f"{one['cpu_minutes']:.0f}"])
    return table(header, rows)


def claims(group: Group, one: Run, base: dict[int, Run]) -> list[tuple[str, str]]:
    """(Wins, Losses or Open, what), for everything that is asked of this run; fewer than three pairs decide nothing."""
    name, out = title(group), []
    pairs = len(one["same_end"])

    def judge(won: bool, what: str, decided: bool = True) -> None:
        out.append((("Wins" if won else "Losses") if decided else "Open", f"{name}: {what}"))

    if group[0] in ("lossless", "windowed"):
        ends = one["same_end"]
        judge(all(ends), f"{sum(ends)} of {pairs} runs end with the uninterrupted run's bits", pairs > 0)
        return out
    judge(one["ratio"] >= WANTED[group[1]], f"{one['ratio']:.1f}x, wanted {WANTED[group[1]]:g}x")
    judge(one["above"] == 0, f"{one['above']:,} rows with an error above {ABOVE} of their weight")
    judge(one["wiped"] == 0, f"{one['wiped']:,} rows of embeddings wiped")
    if one["loss_change"]:
        change = one["loss_change"]
        judge(abs(change[0]) <= FAR, f"final loss {shown(change)}, wanted within {FAR:.1%}", pairs >= 3)
    if one["mrr_change"]:
        values = [run["final"]["mrr"] for run in base.values()]
        noise = max(values) - min(values)
        what = f"MRR {shown(one['mrr_change'], percent=False)}, data orders are {noise:.4f} apart"
        judge(abs(one["mrr_change"][0]) <= noise, what, pairs >= 3)
    if one["records"]:
        judge(not one["records_wrong"], f"{one['records_wrong']} records differ from numpy's")
        judge(not one["beyond"], f"{one['beyond']} of {one['records']} versions beyond the caps of their record")
    return out


def missing(found: dict[Group, list[Run]], base: dict[int, Run]) -> list[str]:
    made = {Piece("exact", order).label for order in base}
    made |= {Piece(*group[:1], one["order"], *group[1:]).label for group, runs in found.items() for one in runs}
    systems = [*SYSTEMS, *sorted({group[0] for group in found} - set(SYSTEMS))]
    return [piece.label for piece in pieces(systems, ORDERS, CASES, KILLS) if piece.label not in made]


def section(smoke: bool) -> tuple[str, dict[str, Any]]:
    """Markdown and data; nothing where no piece was made."""
    base, found = load(smoke)
    if not base and not found:
        return "", {}
    sums = {group: summarise(runs, base) for group, runs in found.items()}
    text = f"\n## Fine-tune of a pretrained model{' (smoke: says nothing)' if smoke else ''}\n" + prose(*PROTOCOL)
    text += "\n" + main_table(base, sums) + "\n" + bounds_table(sums)
    every = [claim for group, one in sums.items() for claim in claims(group, one, base)]
    for name in ("Wins", "Losses", "Open"):
        lines = [f"- {what}." for kind, what in every if kind == name]
        text += f"\n{name}:\n\n" + "\n".join(lines or ["- none."]) + "\n"
    binaries = sorted({name for one in sums.values() for name in one["binaries"]})
    if len(binaries) > 1:
        text += prose(f"The runs were made with {len(binaries)} different programs: {', '.join(binaries)}.")
    absent = missing(found, base)
    text += prose("Not run (system-case-restores-order):", ", ".join(absent) + ".") if absent else ""
    text += prose(*COLUMNS)
    return text, {
        "uninterrupted": {order: {key: one[key] for key in ("before", "final")} for order, one in base.items()},
        "runs": {title(group): one for group, one in sums.items()},
        "not_run": absent,
    }
