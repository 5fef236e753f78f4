"""One live run: train, commit every checkpoint with a policy, be killed, and go on from what was committed.

    python -m quality.live SYSTEM TASK ORDER [--kills 5] [--every STEPS] [--policy-dir DIR]

with tests/bench on PYTHONPATH. KILLS times, evenly spread, the training state is thrown away and taken up again from a
checkout of the last commit: its weights, and its moments where the system stores them, else the exact ones (the ratio
of weights alone then stands for a trainer that keeps its moments elsewhere). --every commits more often than the task
does. What the run costs and where it ends goes to target/quality/results.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import fcntl
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import tomllib

from quality.provenance import made_with
from quality.tasks import TASKS, Task
from quality.trainer import MODEL, OPTIMIZER, Judge, Trainer, grads_file, step_dir

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "target" / "quality"
KILLS = 5

CLIENT = """#!/bin/sh
set -e
answer='{home}/answer.'$$
mkfifo "$answer"
printf '%s %s\\n' "$answer" "$MDL_CANDIDATE_DIR" > '{home}/ask'
cat "$answer"
rm -f "$answer"
"""


@dataclass(frozen=True)
class System:
    """How checkpoints are stored: policy, gate, the score that the gate looks at, whether moments are in; in how many
    data orders it is tried at least; and how many of the newest versions stay exact: with none, as here, a killed run
    goes on from an approximation."""

    title: str
    policy: str | None
    gate: tuple[str, ...] = ()
    moments: bool = False
    score: str = "loss"
    orders: int = 3
    exact_latest: int = 0

    def metric(self, task: str) -> str:
        """Digits may be judged by accuracy, as the paper does for its vision models; text has its loss only."""
        return self.score if task == "conv" else "loss"


WITH_MOMENTS = """try = ["lattice", "bins"]

[gate]
progress = 0.25

[optimizer]
moments = "log4"
"""

# In the order in which they are run.
SYSTEMS = {
    "lossy": System("mdl, default", "lossy"),
    "paper": System("the paper's pipeline, its gate (0.05)", "paper", ("--quality", "0.05"), score="accuracy"),
    "adam": System("mdl, default, moments log4", WITH_MOMENTS, moments=True),
    "paper-progress": System("the paper's pipeline, our gate", "paper", ("--progress", "0.25")),
    "careful": System("mdl, default, progress gate 0.1", "lossy", ("--progress", "0.1")),
    "bins": System("mdl, bins only", "bins", orders=1),
    "lattice": System("mdl, lattice only", "lattice"),
    "windowed": System("mdl, default, the newest version exact", "lossy", exact_latest=1),
    "lossless": System("lossless, weights + moments", None, moments=True, orders=1),
}


class Evaluator:
    """Answers `mdl commit --eval` from this process over FIFOs: no framework is imported for each evaluation."""

    def __init__(self, task: Task, metric: str, home: Path) -> None:
        self.judge, self.metric, self.home = Judge(task), metric, home
        self.count, self.seconds = 0, 0.0
        self.errors: list[str] = []

    def __enter__(self) -> Evaluator:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        os.mkfifo(self.home / "ask")
        client = self.home / "client.sh"
        client.write_text(CLIENT.format(home=self.home))
        self.command = f"sh '{client}'"
        # Read and write: the end that this process holds open itself keeps the other side from reading an end of file.
        self.questions = os.fdopen(os.open(self.home / "ask", os.O_RDWR), "rb", buffering=0)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with open(self.home / "ask", "wb", buffering=0) as pipe:
            pipe.write(b"quit\n")
        self.thread.join()
        self.questions.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _serve(self) -> None:
        while (line := self.questions.readline().decode().rstrip("\n")) != "quit":
            answer, _, folder = line.partition(" ")
            began = time.thread_time()
            try:
                value = f"{self.judge.gate(Path(folder))[self.metric]:.17g}\n"
            except Exception as error:
                self.errors.append(f"{folder}: {error!r}")
                value = "nan\n"
            self.count += 1
            self.seconds += time.thread_time() - began
            self._reply(Path(answer), value)

    def _reply(self, answer: Path, value: str) -> None:
        for _ in range(500):  # the client may be gone: do not wait for it for ever
            try:
                pipe = os.open(answer, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                time.sleep(0.01)
            else:
                with os.fdopen(pipe, "wb") as file:
                    file.write(value.encode())
                return


class Repository:
    """The real binary on a repository of this run's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = os.environ.get("MDL_BIN", str(ROOT / "target" / "release" / "mdl"))
        subprocess.run([self.binary, "-q", "init", str(folder)], check=True, stdout=subprocess.DEVNULL)

    def run(self, *args: str) -> dict[str, Any]:
        argv = [self.binary, "--repo", str(self.folder), "--json", *args]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def policy(self, text: str, exact_latest: int, file: Path) -> Path:
        """Writes a policy, given by its name or as text, under which so many of the newest versions stay exact."""
        if "\n" not in text:
            argv = [self.binary, "--repo", str(self.folder), "policy", "show", text]
            text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        keep = "" if "[keep]" in text else f"\n[keep]\nexact_latest = {exact_latest}\n"
        file.write_text(text + keep)
        return file

    def packs(self) -> int:
        return sum(file.stat().st_size for file in (self.folder / ".mdl" / "packs").rglob("*") if file.is_file())


def kill_points(task: Task, kills: int, every: int) -> list[int]:
    """Steps of the checkpoints after which the run is killed."""
    first, last = task.start / every, task.steps / every
    return [round(first + (last - first) * (i + 1) / (kills + 1)) * every for i in range(kills)]


def label_of(task: Task, system: str, order: int, kills: int = KILLS, every: int | None = None) -> str:
    """Names a run, and its file."""
    often = f"-every{every}" if every not in (None, task.every) else ""
    return f"{task.name}-{system}-{order}" + (f"-kills{kills}" if kills != KILLS else "") + often


def began_from(task: Task, order: int, folder: Path) -> Path:
    """The checkpoint that a run begins at: it tells what changed up to the first version."""
    begin = step_dir(stored_run(task, 0), task.start)
    run = Trainer.load(task, order, begin, begin) if task.start else Trainer(task, order)
    run.save(folder, folder / "grads.safetensors")
    return folder


def system_of(name: str, folder: Path | None) -> System:
    """A system, or a policy file of the folder as one."""
    file = folder / f"{name}.toml" if folder else None
    if file is not None and file.exists():
        text = file.read_text()
        kept = tomllib.loads(text).get("optimizer", {}).get("moments", "exact")
        return System(f"mdl, {name}", text, moments=kept != "exact")
    return SYSTEMS[name]


def live(
    name: str, task: Task, order: int, kills: int = KILLS, every: int | None = None, folder: Path | None = None
) -> dict[str, Any]:
    system = system_of(name, folder)
    label = label_of(task, name, order, kills, every)
    every = every or task.every
    killed = kill_points(task, kills, every)
    home = HOME / "live" / label
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = open(home.with_name(f"{label}.lock"), "w")  # noqa: SIM115 - held until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    repo = Repository(home / "repo")
    program = made_with(repo.binary)
    policy = []
    if system.policy is not None:
        file = repo.policy(system.policy, system.exact_latest, home / "policy.toml")
        policy = ["--policy", str(file), *system.gate]
    stored = stored_run(task, order)
    run: Trainer | None = None
    if every != task.every:
        begin = step_dir(stored_run(task, 0), task.start)
        run = Trainer.load(task, order, begin, begin) if task.start else Trainer(task, order)
    since = began_from(task, order, home / "since")
    rows: list[dict[str, Any]] = []
    resumed: str | None = None
    began, training, trained = time.monotonic(), 0.0, 0
    metric = system.metric(task.name)
    with Evaluator(task, metric, home / "eval") as evaluator:
        for step in range(task.start + every, task.steps + 1, every):
            exact, staged, grads = home / "exact", home / "staged", home / "grads.safetensors"
            at = time.thread_time()
            if run is None:  # not killed yet: as the uncompressed run, bit for bit
                shutil.copytree(step_dir(stored, step), exact, dirs_exist_ok=True)
                shutil.copyfile(grads_file(stored, step), grads)
            else:
                run.advance(step)
                trained += every
                training += time.thread_time() - at
                run.save(exact, grads)
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            for file in (MODEL, OPTIMIZER) if system.moments else (MODEL,):
                shutil.copyfile(exact / file, staged / file)
            options = list(policy)
            if policy:
                better = "--lower-is-better" if metric == "loss" else "--higher-is-better"
                options += ["--eval", evaluator.command, "--eval-timeout", "600", better, "--grads", str(grads)]
                options += ["--resumed-from", resumed] if resumed else []
                options += ["--since", str(since)] if not rows else []
            before, evaluations, seconds = repo.packs(), evaluator.count, evaluator.seconds
            at = children_time()
            report = repo.run("commit", str(staged), "-m", f"step {step}", "--step", str(step), *options)
            took = children_time() - at
            resumed = None
            rows.append(
                {
                    "step": step,
                    "raw_bytes": sum(file.stat().st_size for file in staged.iterdir()),
                    "pack_bytes": repo.packs() - before,
                    "stored_bytes": report["stored_bytes"],
                    "seconds": took,
                    "evaluations": evaluator.count - evaluations,
                    "evaluation_seconds": evaluator.seconds - seconds,
                    "killed": step in killed,
                    **{key: report[key] for key in ("policy", "configuration", "quality") if key in report},
                }
            )
            print(label, json.dumps(rows[-1]), flush=True)
            if step in killed:
                repo.run("checkout", report["commit"], "--to", str(fresh(home / "restored")))
                run = None
                moments = home / "restored" if system.moments else exact
                run = Trainer.load(task, order, home / "restored", moments)
                resumed = report["commit"]
        repo.run("checkout", report["commit"], "--to", str(fresh(home / "last")))
        repo.run("gc", "--prune-now")
    result = {
        "system": name,
        "title": system.title,
        "task": task.name,
        "order": order,
        "policy": system.policy,
        "gate": list(system.gate),
        "metric": metric,
        "moments": system.moments,
        "kills": killed,
        "every": every,
        "rows": rows,
        "raw_bytes": sum(row["raw_bytes"] for row in rows),
        "pack_bytes": repo.packs(),
        "stored_bytes": sum(row["stored_bytes"] for row in rows),
        "final": evaluator.judge.final(exact),
        "final_checkpoint": evaluator.judge.final(home / "last"),
        "exact_end": same_bytes(exact, step_dir(stored, task.steps)),
        "interval_seconds": round(training / trained * every, 2),
        "seconds": round(time.monotonic() - began, 1),
        "evaluation_errors": evaluator.errors,
        **program,
        "mdl_replaced": made_with(repo.binary) != program,
    }
    write(HOME / "results" / f"{label}.json", result)
    for folder in ("exact", "staged", "restored", "last"):
        shutil.rmtree(home / folder, ignore_errors=True)
    return result


def children_time() -> float:
    """Processor seconds of the programs that this one ran; wall time says little on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stored_run(task: Task, order: int) -> Path:
    """The uncompressed run in the same data order."""
    return HOME / "runs" / f"{task.name}-{order}"


def same_bytes(a: Path, b: Path) -> bool:
    """Whether the run ended where the uncompressed one without kills did, bit for bit, moments included."""
    return all(
        (b / file).exists() and (a / file).read_bytes() == (b / file).read_bytes() for file in (MODEL, OPTIMIZER)
    )


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(data, indent=1) + "\n")
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", help=f"of {', '.join(SYSTEMS)}, or a file of --policy-dir")
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("order", type=int)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--every", type=int, help="steps between checkpoints")
    parser.add_argument("--policy-dir", type=Path, help="policies as systems, NAME.toml each")
    args = parser.parse_args()
    result = live(args.system, TASKS[args.task](), args.order, args.kills, args.every, args.policy_dir)
    summary = {key: result[key] for key in ("final", "final_checkpoint", "exact_end", "seconds")}
    print(json.dumps({**summary, "ratio": result["raw_bytes"] / result["pack_bytes"]}))


if __name__ == "__main__":
    sys.exit(main())
