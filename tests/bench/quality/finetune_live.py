"""One piece of the fine-tune: train, commit every checkpoint, be killed, go on from what was committed.

    python -m quality.finetune_live exact ORDER [--smoke]            (with tests and tests/bench on PYTHONPATH)
    python -m quality.finetune_live SYSTEM ORDER [--case first|base] [--kills 3] [--policy-dir DIR] [--smoke]

`exact` trains without storing and is what the others are compared with. In case `first` the first checkpoint has
nothing before it; in case `base` the pretrained file is committed exactly before the run. A killed run goes on from the
weights of a checkout of its last version and from its exact moments. SYSTEM is one of `live`'s without moments, or the
name of a TOML file in DIR. Every version is checked out and compared with the exact one (`bounds`). Nothing is shared
between pieces but the texts, so each can be made alone and on any machine with the same processor and packages.

Every piece uses one thread. Processor minutes of one piece, at 0.95 s a step (16 texts of up to 64 tokens; a second
thread makes it no cheaper): training 5, texts and models 0.5, the final scores twice 20 s, in `exact` 6 in all. A lossy
version takes 10 s in `mdl commit`, 1.5 s for each evaluation (about 5), 3 s for the checkout and the comparison: 5 more
for 15 versions, about 11 in all. A full table (3 orders, 2 cases, 3 and 5 restores) is 12 of them for each system.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import fcntl
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.models import MINILM

from quality import bounds
from quality.finetune import Finetune
from quality.live import HOME, ROOT, SYSTEMS, Evaluator, Repository, children_time, fresh, write
from quality.provenance import digest, made_with
from quality.trainer import MODEL, OPTIMIZER, Judge, Trainer

CASES = ("first", "base")
KEPT = ROOT / "docs" / "benchmarks" / "quality-finetune"
RECORDED = ("policy", "configuration", "quality")


@dataclass(frozen=True)
class Piece:
    """What one process does; its label names its file."""

    system: str
    order: int
    case: str = "first"
    kills: int = 3

    @property
    def label(self) -> str:
        if self.system == "exact":
            return f"exact-{self.order}"
        return f"{self.system}-{self.case}-{self.kills}-{self.order}"


def home(smoke: bool) -> Path:
    """Smokes are kept apart, so that they never mix with real runs."""
    return HOME / ("finetune-smoke" if smoke else "finetune")


def result(piece: Piece, smoke: bool) -> Path:
    return home(smoke) / "results" / f"{piece.label}.json"


def results(smoke: bool) -> dict[str, Path]:
    """The pieces that are done, by their labels: on this machine, and those that were kept with the report."""
    folders = [*([] if smoke else [KEPT]), home(smoke) / "results"]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.json"))}


def keep(out: Path) -> None:
    """Puts the pieces made here beside the report, so that a later run, anywhere, need not make them again."""
    folder = out / KEPT.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in (home(smoke=False) / "results").glob("*.json"):
        made = json.loads(path.read_text())
        # What `recorded` has, too.
        rows = [{key: value for key, value in row.items() if key != "quality"} for row in made["rows"]]
        text = json.dumps({**made, "rows": rows}, separators=(",", ":"))
        (folder / path.name).write_text(text.replace('{"step"', '\n{"step"') + "\n")


def policy_of(system: str, folder: Path | None) -> tuple[str | None, tuple[str, ...]]:
    """A policy's name or text, and the options of its gate. A file of the folder goes before a system of that name."""
    file = folder / f"{system}.toml" if folder else None
    if file is not None and file.exists():
        return file.read_text(), ()
    if system not in SYSTEMS or (SYSTEMS[system].policy is not None and SYSTEMS[system].moments):
        raise SystemExit(f"no system without moments and no policy file is called {system}")
    return SYSTEMS[system].policy, SYSTEMS[system].gate


def done(piece: Piece, smoke: bool, folder: Path | None) -> bool:
    """A piece that was made under another text of its policy is made anew."""
    path = results(smoke).get(piece.label)
    if path is None:
        return False
    return piece.system == "exact" or json.loads(path.read_text())["policy"] == policy_of(piece.system, folder)[0]


def kill_points(task: Finetune, kills: int) -> list[int]:
    """Steps of the checkpoints after which the run is killed: evenly spread, never the last one."""
    last = task.steps // task.every
    points = {round(last * (i + 1) / (kills + 1)) for i in range(kills)}
    return [point * task.every for point in sorted(points) if 0 < point < last]


def exact(task: Finetune, piece: Piece, out: Path) -> dict[str, Any]:
    """The run that nothing disturbs; of its checkpoints only the digests are kept."""
    run, judge, rows = Trainer(task, piece.order), Judge(task), []
    before = task.final_scores(run.model)
    began, cpu = time.monotonic(), time.process_time()
    while run.step < task.steps:
        training = run.advance(run.step + task.every)
        run.save(out / "exact", out / "grads.safetensors")
        row = {"step": run.step, "training": training, **judge.gate(out / "exact")}
        rows.append({**row, **digests(out / "exact")})
        print(piece.label, json.dumps(rows[-1]), flush=True)
    used = time.process_time() - cpu
    return {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "rows": rows,
        "before": before,
        "final": judge.final(out / "exact"),
        "training_cpu_seconds": round(used, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def digests(folder: Path) -> dict[str, str]:
    return {"model": digest(folder / MODEL), "moments": digest(folder / OPTIMIZER)}


@dataclass(frozen=True)
class Before:
    """The weights of the version before: as training had them, and as they are stored."""

    exact: Path | None = None
    kept: Path | None = None


class Stored:
    """A run whose versions go into a repository."""

    def __init__(self, task: Finetune, piece: Piece, folder: Path | None, out: Path) -> None:
        self.task, self.piece, self.out = task, piece, out
        self.policy, self.gate = policy_of(piece.system, folder)
        self.kills = kill_points(task, piece.kills)
        self.repo = Repository(out / "repo")
        self.rows: list[dict[str, Any]] = []
        self.options: list[str] = []
        if self.policy is not None:
            exact_latest = SYSTEMS[piece.system].exact_latest if piece.system in SYSTEMS else 0
            self.options = [
                "--policy",
                str(self.repo.policy(self.policy, exact_latest, out / "policy.toml")),
                *self.gate,
            ]

    def commit(self, staged: Path, message: str, *options: str) -> dict[str, Any]:
        return self.repo.run("commit", str(staged), "-m", message, *options)

    def base(self) -> int:
        """Commits the pretrained file, every bit of it; the bytes that this takes."""
        staged = fresh(self.out / "staged")
        staged.mkdir()
        shutil.copyfile(MINILM, staged / MODEL)
        before = self.repo.packs()
        self.commit(staged, "pretrained")
        return self.repo.packs() - before

    def version(self, step: int, evaluator: Evaluator, resumed: str | None, before: Before) -> dict[str, Any]:
        """Commits the exact checkpoint, checks it out and measures how far the two are apart."""
        staged, back = fresh(self.out / "staged"), fresh(self.out / "back")
        staged.mkdir()
        shutil.copyfile(self.out / "exact" / MODEL, staged / MODEL)
        options = ["--step", str(step), *self.options]
        if self.options:
            options += ["--eval", evaluator.command, "--eval-timeout", "1800", "--lower-is-better"]
            options += ["--grads", str(self.out / "grads.safetensors")]
            options += ["--resumed-from", resumed] if resumed else []
        packs, evaluations, seconds = self.repo.packs(), evaluator.count, evaluator.seconds
        at = children_time()
        report = self.commit(staged, f"step {step}", *options)
        row = {
            "step": step,
            "commit": report["commit"],
            "raw_bytes": (staged / MODEL).stat().st_size,
            "pack_bytes": self.repo.packs() - packs,
            "stored_bytes": report["stored_bytes"],
            "seconds": children_time() - at,
            "evaluations": evaluator.count - evaluations,
            "evaluation_seconds": evaluator.seconds - seconds,
            "killed": step in self.kills,
            **{key: report[key] for key in RECORDED if key in report},
        }
        self.repo.run("checkout", report["commit"], "--to", str(back))
        restored = self.out / "restored.safetensors" if resumed else None
        fast = ((report.get("quality") or {}).get("bounds") or {}).get("fast", 1.0)
        found = self.out / "exact" / MODEL, back / MODEL
        row["bounds"] = bounds.measure(*found, before.exact, restored, before.kept, fast)
        shown = self.repo.run("show", report["commit"])
        row["recorded"] = ((shown.get("quality") or {}).get("bounds")) or (report.get("quality") or {}).get("bounds")
        return {**row, **digests(self.out / "exact"), "same_bits": digest(back / MODEL) == digest(staged / MODEL)}

    def run(self) -> dict[str, Any]:
        task, out = self.task, self.out
        began, cpu, training, resumed = time.monotonic(), time.process_time(), 0.0, None
        base = self.base() if self.piece.case == "base" else None
        start = self.repo.packs()
        before = Before(MINILM, MINILM) if base else Before()
        run = Trainer(task, self.piece.order)
        with Evaluator(task, "loss", out / "eval") as evaluator:
            for step in range(task.every, task.steps + 1, task.every):
                at = time.thread_time()
                run.advance(step)
                training += time.thread_time() - at
                run.save(out / "exact", out / "grads.safetensors")
                self.rows.append(self.version(step, evaluator, resumed, before))
                print(self.piece.label, json.dumps(self.rows[-1]), flush=True)
                resumed, before = None, Before(out / "previous.safetensors", out / "kept.safetensors")
                shutil.copyfile(out / "exact" / MODEL, before.exact)
                shutil.copyfile(out / "back" / MODEL, before.kept)
                if step in self.kills:
                    run = Trainer.load(task, self.piece.order, out / "back", out / "exact")
                    resumed = self.rows[-1]["commit"]
                    shutil.copyfile(out / "back" / MODEL, out / "restored.safetensors")
            final, last = evaluator.judge.final(out / "exact"), evaluator.judge.final(out / "back")
        self.repo.run("gc", "--prune-now")
        return {
            "policy": self.policy,
            "gate": list(self.gate),
            "kill_points": self.kills,
            "rows": self.rows,
            "base_bytes": base,
            "raw_bytes": sum(row["raw_bytes"] for row in self.rows),
            "pack_bytes": self.repo.packs() - start,
            "final": final,
            "final_checkpoint": last,
            "training_cpu_seconds": round(training, 1),
            "cpu_seconds": round(time.process_time() - cpu + children_time(), 1),
            "seconds": round(time.monotonic() - began, 1),
            "evaluation_errors": evaluator.errors,
        }


def make(piece: Piece, smoke: bool, folder: Path | None) -> dict[str, Any]:
    out = home(smoke) / "live" / piece.label
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = open(out.with_suffix(".lock"), "w")  # noqa: SIM115 - held until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fresh(out).mkdir()
    task = Finetune(smoke)
    binary = os.environ.get("MDL_BIN", "")
    if piece.system == "exact":
        made = exact(task, piece, out)
    else:
        stored = Stored(task, piece, folder, out)
        binary, made = stored.repo.binary, stored.run()
    about = {"system": piece.system, "order": piece.order, "case": piece.case, "kills": piece.kills}
    made = {**about, "steps": task.steps, "every": task.every, **made, **(made_with(binary) if binary else {})}
    write(result(piece, smoke), made)
    shutil.rmtree(out)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("order", type=int)
    parser.add_argument("--case", choices=CASES, default="first")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--policy-dir", type=Path)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    made = make(Piece(args.system, args.order, args.case, args.kills), args.smoke, args.policy_dir)
    print(json.dumps(made["final"]))


if __name__ == "__main__":
    sys.exit(main())
