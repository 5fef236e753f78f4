"""One life of a training run: takes up the newest version, trains, commits, until it is done or killed.

    python -m fault.life SYSTEM TASK ORDER HOME        (with tests/bench on PYTHONPATH)

Every durable checkpoint is a line of JSON on standard output; the process that reads them decides when to kill.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mdl
import torch
from quality.tasks import TASKS, Task
from torch.nn.utils import clip_grad_norm_

MOMENTS = """try = ["lattice", "bins"]

[gate]
progress = 0.25

[optimizer]
moments = "log4"
"""


@dataclass(frozen=True)
class System:
    """How checkpoints are stored. ``moments``: the optimizer's state is in them, else it is kept elsewhere, exactly."""

    title: str
    policy: str | None = None
    threshold: float | None = None
    moments: bool = False
    lossless: bool = False
    save: bool = False


SYSTEMS = {
    "none": System("uncompressed, never killed"),
    "torch-save": System("`torch.save` + fsync, weights and optimizer", save=True),
    "lossless": System("mdl, lossless, weights and optimizer", lossless=True, moments=True),
    "lossy": System("mdl, default", "lossy"),
    "paper": System("the paper's pipeline and gate (0.05)", "paper", 0.05),
    "adam": System("mdl, default, with optimizer (moments log4)", "moments", moments=True),
}


class Run:
    """Model, optimizer and step."""

    def __init__(self, task: Task, order: int) -> None:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.task, self.order, self.step = task, order, 0
        self.model = task.model()
        self.optimizer = task.optimiser(self.model)

    def batch(self) -> None:
        """One step up to the gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.task.rate(self.step)
        self.task.loss(self.model, self.task.batch(self.order, self.step)).backward()
        if self.task.clip:
            clip_grad_norm_(self.model.parameters(), self.task.clip)

    def update(self) -> None:
        self.optimizer.step()
        self.step += 1

    def digest(self) -> str:
        """Of all weights: equal for equal bits."""
        h = hashlib.blake2b(digest_size=16)
        for tensor in self.model.state_dict().values():
            h.update(tensor.numpy().tobytes())
        return h.hexdigest()


def tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


class Keeper:
    """Takes checkpoints of a run, and gives the newest one back."""

    def __init__(self, system: System, run: Run, home: Path) -> None:
        self.system, self.run, self.home = system, run, home
        self.exact = home / "optimizer.pt"
        self.repo = None if system.save or system.title.startswith("uncompressed") else mdl.Repo.init(home / "repo")
        self.compressor: Any = None

    def take_up(self) -> None:
        """Goes on from the newest version, if there is one."""
        run, resumed = self.run, None
        if self.repo is not None and self.repo.branches():
            resumed = self.repo.resolve("main")
            state = self.repo.load(resumed)
            run.model.load_state_dict(state["model"])
            run.step = state["progress"]["step"]
            kept = state.get("optimizer") or torch.load(self.exact.with_suffix(f".{run.step}"), weights_only=True)
            run.optimizer.load_state_dict(kept)
        if self.system.policy is not None:
            self.compressor = self._compressor(resumed)

    def _compressor(self, resumed: str | None) -> Any:
        run, system, policy = self.run, self.system, str(self.system.policy)
        if policy == "moments":
            policy = str(self.home / "moments.toml")
            Path(policy).write_text(MOMENTS)
        return mdl.Compressor(
            run.model,
            lambda: run.task.gate_scores(run.model)["loss"],
            repo=self.repo,
            policy=policy,
            threshold=system.threshold,
            optimizer=run.optimizer if system.moments else None,
            interval=run.task.every,
            state=lambda: {"progress": {"step": run.step}},
            rng=False,
            resumed_from=resumed,
            start=run.step,
        )

    def keep(self) -> None:
        """Takes a checkpoint; says so when it is durable."""
        run, step = self.run, self.run.step
        began = time.perf_counter()
        if self.system.save:
            save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}, self.home / "state.pt")
            tell(step=step, seconds=time.perf_counter() - began)
        elif self.system.lossless and self.repo is not None:
            parts = {
                "model": run.model.state_dict(),
                "optimizer": run.optimizer.state_dict(),
                "progress": {"step": step},
            }
            pending = self.repo.commit(parts, step=step)
            seconds = time.perf_counter() - began
            pending.add_done_callback(lambda p: tell(step=step, seconds=seconds, **told(p.result())))
        elif self.compressor is not None:
            if not self.system.moments:
                torch.save(run.optimizer.state_dict(), self.exact.with_suffix(f".{step}"))
                began = time.perf_counter()
            commit = self.compressor.compress(step)
            tell(step=step, seconds=time.perf_counter() - began, **told(commit))

    def close(self) -> None:
        if self.repo is not None:
            self.repo.close()


def told(commit: mdl.Commit) -> dict[str, Any]:
    quality = commit.quality or {}
    return {
        "stored": commit.stored_bytes,
        "logical": commit.logical_bytes,
        "evaluations": quality.get("evaluations", 0),
        "family": quality.get("family", "lossless"),
    }


def save(state: Any, path: Path) -> None:
    """As a careful user of torch.save does it: temporary file, sync, rename."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main() -> None:
    name, task_name, order, home = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    task = TASKS[task_name]()
    run = Run(task, order)
    keeper = Keeper(SYSTEMS[name], run, home)
    keeper.take_up()
    tell(begins=run.step)
    began = time.perf_counter()
    while run.step < task.steps:
        run.batch()
        if keeper.compressor is not None:
            keeper.compressor.on_backward_pass_end()
            keeper.compressor.before_gradient_flush()
        run.update()
        run.optimizer.zero_grad(set_to_none=True)
        if run.step % task.every == 0:
            tell(trained=time.perf_counter() - began, at=run.step)
            keeper.keep()
            began = time.perf_counter()
    keeper.close()
    tell(final=task.final_scores(run.model), digest=run.digest())


if __name__ == "__main__":
    main()
