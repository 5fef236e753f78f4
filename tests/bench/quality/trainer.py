"""A training run that can be killed at any checkpoint and resumed from files, bit for bit where the files are exact.

    python -m quality.trainer gpt --order 1 --from RUN --at 800 --out RUN1     (with tests/bench on PYTHONPATH)

writes RUN1/step-00850/{model,optimizer}.safetensors and RUN1/grads/step-00850.safetensors every 50 steps, and
RUN1/history.json. The gradient averages are those of the paper's section 4.5: 0.9 of the newest gradient and 0.1 of
what was, over the batches since the checkpoint before.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from quality.tasks import TASKS, Scores, Task

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
NEWEST = 0.9


def step_dir(run: Path, step: int) -> Path:
    return run / f"step-{step:05d}"


def grads_file(run: Path, step: int) -> Path:
    return run / "grads" / f"step-{step:05d}.safetensors"


class Trainer:
    """Model, optimiser and step of one run; everything that a checkpoint holds and nothing else."""

    def __init__(self, task: Task, order: int) -> None:
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.task, self.order, self.step = task, order, 0
        self.model = task.model()
        self.optimiser = task.optimiser(self.model)
        self.grads: dict[str, torch.Tensor] = {}

    def advance(self, to: int) -> float:
        """Trains up to step `to`; the mean training loss on the way."""
        total = 0.0
        self.grads = {}
        for step in range(self.step, to):
            for group in self.optimiser.param_groups:
                group["lr"] = self.task.rate(step) * group.get("scale", 1.0)
            loss = self.task.loss(self.model, self.task.batch(self.order, step))
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self._average_gradients()
            if self.task.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip)
            self.optimiser.step()
            total += loss.item()
        count = to - self.step
        self.step = to
        return total / max(1, count)

    def _average_gradients(self) -> None:
        for name, p in self.model.named_parameters():
            if name in self.grads:
                self.grads[name].mul_(1 - NEWEST).add_(p.grad, alpha=NEWEST)
            else:
                self.grads[name] = p.grad.clone()

    def moments(self) -> dict[str, torch.Tensor]:
        return {
            f"{name}.{key}": value
            for name, p in self.model.named_parameters()
            for key, value in self.optimiser.state[p].items()
            if torch.is_tensor(value) and value.dim() > 0
        }

    def save(self, folder: Path, grads: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        grads.parent.mkdir(parents=True, exist_ok=True)
        meta = {"step": str(self.step)}  # one entry: safetensors writes several in a random order
        weights = {name: value.contiguous() for name, value in self.model.state_dict().items()}
        save_file(weights, folder / MODEL, metadata=meta)
        save_file({name: value.contiguous() for name, value in self.moments().items()}, folder / OPTIMIZER, meta)
        save_file(self.grads, grads, metadata=meta)

    @classmethod
    def load(cls, task: Task, order: int, weights: Path, moments: Path) -> Trainer:
        """A new run that goes on from the weights of one folder and the moments of another (or the same) one."""
        run = cls(task, order)
        with safe_open(moments / OPTIMIZER, "pt") as file:
            run.step = int(file.metadata()["step"])
        run.model.load_state_dict(load_file(weights / MODEL))
        state = load_file(moments / OPTIMIZER)
        for name, p in run.model.named_parameters():
            mine = {key.removeprefix(f"{name}."): state[key] for key in state if key.rpartition(".")[0] == name}
            if "exp_avg" in mine:
                mine["step"] = torch.tensor(float(run.step))
            run.optimiser.state[p] = mine
        return run


class Judge:
    """Scores weights files with a model of its own, so that judging leaves no trace in the run."""

    def __init__(self, task: Task) -> None:
        self.task, self.model = task, task.model()

    def gate(self, folder: Path) -> Scores:
        self.model.load_state_dict(load_file(folder / MODEL))
        return self.task.gate_scores(self.model)

    def final(self, folder: Path) -> Scores:
        self.model.load_state_dict(load_file(folder / MODEL))
        return self.task.final_scores(self.model)


def uncompressed(task: Task, order: int, out: Path, prefix: Path | None, at: int, stop: int) -> dict[str, Any]:
    """A run without kills that keeps every checkpoint; it goes on from step `at` of `prefix` where one is given."""
    run = Trainer.load(task, order, step_dir(prefix, at), step_dir(prefix, at)) if prefix else Trainer(task, order)
    judge = Judge(task)
    history: list[dict[str, Any]] = []
    began = time.monotonic()
    cpu = time.process_time()
    while run.step < stop:
        training = run.advance(run.step + task.every)
        run.save(step_dir(out, run.step), grads_file(out, run.step))
        history.append({"step": run.step, "training": training, **judge.gate(step_dir(out, run.step))})
        print(task.name, order, history[-1], round(time.monotonic() - began, 1), flush=True)
    result = {
        "task": task.name,
        "order": order,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "start": at if prefix else 0,
        "history": history,
        "final": judge.final(step_dir(out, run.step)),
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }
    (out / "history.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--order", type=int, default=0, help="data order")
    parser.add_argument("--from", dest="prefix", type=Path, help="run to go on from")
    parser.add_argument("--at", type=int, default=0, help="step of that run")
    parser.add_argument("--stop", type=int, help="last step")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    task = TASKS[args.task]()
    result = uncompressed(task, args.order, args.out, args.prefix, args.at, args.stop or task.steps)
    print(json.dumps(result["final"]), result["seconds"])


if __name__ == "__main__":
    main()
