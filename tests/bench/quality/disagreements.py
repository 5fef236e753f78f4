"""What should be known about runs that a table shows together: other programs, other policies, other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from report import prose

from quality.kept import Run, Runs
from quality.live import KILLS, SYSTEMS, label_of
from quality.plan import FAILING, FAILURES, HUNDRED, ORDERS, WINDOWED
from quality.summary import capped, item, listed
from quality.tasks import TASKS

MANY = 24


def label(run: Run) -> str:
    return label_of(TASKS[run["task"]], run["system"], run["order"], len(run["kills"]), run["every"])


def labels(runs: Iterable[Run]) -> str:
    """The names of runs; of many the number and the first ones."""
    names = sorted(map(label, runs))
    return listed(names) if len(names) <= MANY else f"{len(names)} runs, among them {listed(names[:5])}"


def program(run: Run) -> str:
    sha = run.get("mdl_sha256", "")[:12]
    packages = f", Python {run['python']}, torch {run['torch']}" if "torch" in run else ""
    return f"{run.get('mdl') or 'mdl'} ({f'sha256 {sha}' if sha else 'its sha256 was not written down'}{packages})"


def grouped(runs: Iterable[Run], key: Callable[[Run], str]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return dict(sorted(found.items()))


def is_shown(run: Run) -> bool:
    """Whether a table has a place for the run."""
    if run["order"] not in ORDERS:
        return False
    if run["system"] not in SYSTEMS:
        return True
    kills, own = len(run["kills"]), run["every"] == TASKS[run["task"]].every
    if kills == FAILURES:
        return own and run["system"] in FAILING
    often = run["every"] == HUNDRED[run["task"]] and run["system"] == WINDOWED and run["order"] == 0
    return kills == KILLS and (own or often)


def programs(runs: Sequence[Run]) -> str:
    found = grouped(runs, program)
    if len(found) < 2:
        return "".join(prose(f"All runs were made with {name}.") for name in found)
    # Those of the most common one need no names: they are the rest.
    *others, (most, rest) = sorted(found.items(), key=lambda pair: len(pair[1]))
    lines = [item(f"{name}: {labels(made)}.") for name, made in others]
    lines.append(item(f"{most}: the other {len(rest)} runs."))
    return prose(f"The runs were made with {len(found)} different programs:") + "\n" + "\n".join(lines) + "\n"


def policies(runs: Sequence[Run]) -> list[str]:
    """Runs of one system that were not made under one policy, or not under the bench's."""
    out = []
    changed = [one for one in runs if one["system"] in SYSTEMS and one["policy"] != SYSTEMS[one["system"]].policy]
    if changed:
        out.append(f"Made under another text of their policy than the bench has now: {labels(changed)}.")
    for name, made in grouped(runs, lambda one: f"{one['task']}, {one['system']}").items():
        caps = grouped(made, lambda one: capped(one["bounds"]))
        if len(caps) > 1:
            each = "; ".join(f"{bounds}: {labels(some)}" for bounds, some in caps.items())
            out.append(f"{name}: not all runs have the same bounds. {each}.")
        elif len({one["policy"] for one in made}) > 1:
            out.append(f"{name}: not all runs have the same text of their policy: {labels(made)}.")
    return out


def section(runs: Runs) -> str:
    shown = [one for one in runs.live if is_shown(one)]
    notes = policies(shown)
    elsewhere = [
        one
        for one in shown
        if "uncompressed" in one
        and one["order"] in runs.plain[one["task"]]
        and one["uncompressed"] != runs.plain[one["task"]][one["order"]]["final"]
    ]
    single = [one for one in shown if "uncompressed" not in one]
    failed = [one for one in shown if one["evaluation_errors"]]
    replaced = [one for one in shown if one.get("mdl_replaced")]
    left = [one for one in runs.live if not is_shown(one)]
    for made, what in (
        (elsewhere, "Paired with an uncompressed run of their own, which ends differently from the one shown here"),
        (single, "Without an uncompressed run in their data order, so in no pair"),
        (failed, "Some evaluations failed, and their candidates were rejected"),
        (replaced, "The program was replaced while they ran"),
        (left, "In no table"),
    ):
        notes += [f"{what}: {labels(made)}."] if made else []
    text = programs(shown) + ("\n" if notes else "") + "".join(item(note) + "\n" for note in notes)
    return f"\n## What made the runs\n{text}" if text else ""
