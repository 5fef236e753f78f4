"""The small tasks' runs that are done: those of this machine, and those that were kept with the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quality.live import HOME, KILLS, ROOT
from quality.plan import ORDERS
from quality.tasks import TASKS
from quality.trainer import step_dir

Run = dict[str, Any]
KEPT = ROOT / "docs" / "benchmarks" / "quality-runs"
PLAIN = "uncompressed-"
ROW = (
    "step",
    "raw_bytes",
    "pack_bytes",
    "stored_bytes",
    "seconds",
    "evaluations",
    "evaluation_seconds",
    "killed",
    "configuration",
    "family",
    "exact_bytes",
)
"""What the report needs of a version."""
CAPS = ("weight", "update", "first")


@dataclass
class Runs:
    """Uncompressed runs by task and order, and all others, in compact form."""

    plain: dict[str, dict[int, Run]] = field(default_factory=lambda: {task: {} for task in TASKS})
    live: list[Run] = field(default_factory=list)

    def select(self, task: str, system: str, kills: int = KILLS, every: int | None = None) -> list[Run]:
        """The runs of a system, one for each data order."""
        wanted = (task, system, kills, every or TASKS[task].every)
        found = [one for one in self.live if (one["task"], one["system"], len(one["kills"]), one["every"]) == wanted]
        return sorted(found, key=lambda one: one["order"])


def results() -> dict[str, Path]:
    """Where the runs with checkpoints stored by a system are, by label. This machine's go before kept ones."""
    found = {path.stem: path for path in sorted(KEPT.glob("*.json")) if not path.stem.startswith(PLAIN)}
    return found | {path.stem: path for path in sorted((HOME / "results").glob("*.json"))}


def run_dir(task: str, order: int) -> Path:
    return HOME / "runs" / f"{task}-{order}"


def history(task: str, order: int) -> Path | None:
    """What the uncompressed run measured: this machine's, else the kept one."""
    places = (run_dir(task, order) / "history.json", KEPT / f"{PLAIN}{task}-{order}.json")
    return next((path for path in places if path.exists()), None)


def is_trained(task: str, order: int) -> bool:
    """Whether the uncompressed run's checkpoints are on this machine: a run of a system takes its own from there."""
    run = run_dir(task, order)
    return (run / "history.json").exists() and step_dir(run, TASKS[task].steps).exists()


def compact(run: Run) -> Run:
    """A run without what the report does not need; one that is compact already stays as it is."""
    rows = []
    for row in run["rows"]:
        quality = row.get("quality") or {}
        every = {**{key: quality[key] for key in ("family", "exact_bytes") if key in quality}, **row}
        rows.append({key: rounded(every[key]) for key in ROW if every.get(key) is not None})
    first = (run["rows"][0].get("quality") or {}).get("bounds") or {}
    bounds = {key: first[key] for key in CAPS if first.get(key) is not None}
    out = {"bounds": bounds, **run, "every": run.get("every") or TASKS[run["task"]].every, "rows": rows}
    return {**out, "evaluation_errors": [error[:200] for error in out.get("evaluation_errors", [])[:3]]}


def rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def load() -> Runs:
    runs = Runs()
    for task in TASKS:
        for order in ORDERS:
            path = history(task, order)
            if path is not None:
                runs.plain[task][order] = json.loads(path.read_text())
    runs.live = [run for _, run in loaded()]
    return runs


def loaded() -> Iterator[tuple[Path, Run]]:
    """File and run. Each has its uncompressed run's end with it: another machine's may end differently."""
    for path in results().values():
        run = compact(json.loads(path.read_text()))
        beside = history(run["task"], run["order"])
        if "uncompressed" not in run and beside is not None:
            run["uncompressed"] = json.loads(beside.read_text())["final"]
        yield path, run


def keep(out: Path) -> None:
    """Puts the runs of this machine beside the report, so that a later one, anywhere, need not make them again."""
    folder = out / KEPT.name
    folder.mkdir(parents=True, exist_ok=True)
    for path, run in loaded():
        if path.parent != KEPT:
            write(folder / path.name, run)
    for path in (HOME / "runs").glob("*/history.json"):
        write(folder / f"{PLAIN}{path.parent.name}.json", json.loads(path.read_text()))


def write(file: Path, run: Run) -> None:
    """Writes JSON with a line for each version: small, and a diff shows what changed."""
    file.write_text(json.dumps(run, separators=(",", ":")).replace('{"step"', '\n{"step"') + "\n")
