"""Which runs the small tasks' tables need, in the order in which they are made, and the processor hours they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quality.live import KILLS, SYSTEMS, label_of
from quality.tasks import TASKS

ORDERS = (0, 1, 2)
FAILURES = 10
FAILING = ("lossy", "adam", "paper", "paper-progress", "lossless")
"""Systems of the table with ten failures."""
WINDOWED = "windowed"
HUNDRED = {"gpt": 8, "conv": 12}
"""Steps between checkpoints of a run that has a hundred of them."""
TABLES = {
    "main": f"every system, {KILLS} restores",
    "failures": f"with {FAILURES} failures",
    "window": "the newest version exact",
    "policies": "policies of --policy-dir",
}

# Seconds of one core: the bench's own figures of 2026-11-24 (2 cores of AMD EPYC): processor time of training, commits
# and evaluations, and the start of the processes.
LIVE = {"gpt": 100.0, "conv": 50.0}
# For each version more than the task has by itself: a commit and its evaluations.
VERSION = {"gpt": 2.0, "conv": 0.7}
# Order 0 trains from the first step on; the others share its steps before the lossy part begins.
UNCOMPRESSED = {"gpt": 130.0, "conv": 37.0}
SHARED = {"gpt": 70.0, "conv": 37.0}
FINETUNE = {"exact": 210.0}
FINETUNE_STORED = 400.0


@dataclass(frozen=True)
class Piece:
    """What one process of `live` does; its label names its file."""

    task: str
    system: str
    order: int
    kills: int = KILLS
    every: int | None = None

    @property
    def label(self) -> str:
        return label_of(TASKS[self.task], self.system, self.order, self.kills, self.every)

    @property
    def seconds(self) -> float:
        kind = TASKS[self.task]
        more = (kind.steps - kind.start) // (self.every or kind.every) - (kind.steps - kind.start) // kind.every
        return LIVE[self.task] + more * VERSION[self.task]


def tables(
    tasks: Sequence[str], systems: Sequence[str], orders: Sequence[int], policies: Sequence[str] = ()
) -> dict[str, list[Piece]]:
    """The pieces of every table; one that two of them show belongs to the first."""
    made: dict[str, list[Piece]] = {
        "main": [
            Piece(task, system, order)
            for order in orders
            for system in systems
            if order < SYSTEMS[system].orders
            for task in tasks
        ],
        "failures": [
            Piece(task, system, order, FAILURES)
            for order in orders
            for system in FAILING
            if system in systems
            for task in tasks
        ],
        "window": [],
        "policies": [Piece(task, policy, order) for order in orders for policy in policies for task in tasks],
    }
    if WINDOWED in systems:
        made["window"] = [Piece(task, WINDOWED, order) for order in orders for task in tasks]
        made["window"] += [Piece(task, WINDOWED, 0, every=HUNDRED[task]) for task in tasks if 0 in orders]
    return made


def chosen(made: dict[str, list[Piece]], names: Sequence[str]) -> dict[str, list[Piece]]:
    """The pieces of some tables, each piece once."""
    seen: set[Piece] = set()
    out = {}
    for name in names:
        out[name] = [piece for piece in made[name] if piece not in seen]
        seen |= set(out[name])
    return out


def uncompressed_seconds(runs: Iterable[tuple[str, int]]) -> float:
    return sum((SHARED if order else UNCOMPRESSED)[task] for task, order in runs)


def tuned_seconds(systems: Iterable[str]) -> float:
    """Of the fine-tune's pieces, by their systems."""
    return sum(FINETUNE.get(system, FINETUNE_STORED) for system in systems)


def hours(pieces: Iterable[Piece]) -> float:
    return sum(piece.seconds for piece in pieces) / 3600


def full_hours() -> dict[str, float]:
    """What every table takes where nothing is there."""
    whole = chosen(tables(list(TASKS), list(SYSTEMS), ORDERS), ("main", "failures", "window"))
    plain = uncompressed_seconds((task, order) for task in TASKS for order in ORDERS) / 3600
    return {"uncompressed runs": plain, **{TABLES[name]: hours(pieces) for name, pieces in whole.items()}}


def statement(
    made: dict[str, list[Piece]],
    missing: dict[str, list[Piece]],
    plain: Sequence[tuple[str, int]],
    tuned: Sequence[str],
) -> str:
    """What is about to be made, table by table: said before any of it is started."""
    rows = [(f"uncompressed: {len(plain)} to train", uncompressed_seconds(plain) / 3600)] if plain else []
    rows += [
        (f"{TABLES[name]}: {len(missing[name])} of {len(pieces)} runs missing", hours(missing[name]))
        for name, pieces in made.items()
        if pieces
    ]
    if tuned:
        rows.append((f"fine-tune: {len(tuned)} pieces missing", tuned_seconds(tuned) / 3600))
    lines = [f"  {value:5.2f}  {name}" for name, value in rows]
    total = sum(value for _, value in rows)
    return "\n".join(["processor hours, about:", *lines, f"  {total:5.2f}  in all"])
