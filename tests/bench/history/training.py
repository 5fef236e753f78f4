"""A training run of a byte-level GPT that keeps every checkpoint: weights and AdamW's moments, a few steps apart.

    PYTHONPATH=tests/bench:tests python -m history.training target/history/run [--versions 128]

writes run/00000/{model,optimizer}.safetensors (f32) up to run/00127, and goes on from the last one that is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import torch
from quality.tasks import GPT, cosine, generator, library_text
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FIRST, EVERY, PEAK = 60, 2, 6e-4
"""The step of the first version, steps between versions, and the highest learning rate."""
ROWS, CONTEXT = 4, 128


def version_dir(run: Path, number: int) -> Path:
    return run / f"{number:05d}"


def batch(text: Tensor, step: int) -> Tensor:
    starts = torch.randint(0, len(text) - CONTEXT - 1, (ROWS,), generator=generator("history", step))
    return torch.stack([text[s : s + CONTEXT + 1] for s in starts.tolist()]).long()


def moments(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {f"{name}.{key}": value for name, p in named for key, value in optimiser.state[p].items() if value.dim()}


def save(directory: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    making = directory.with_name(f"{directory.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    save_file(dict(model.state_dict()), making / MODEL)
    save_file(moments(model, optimiser), making / OPTIMIZER)
    making.rename(directory)


def restore(directory: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    model.load_state_dict(load_file(directory / MODEL))
    kept = load_file(directory / OPTIMIZER)
    for name, p in model.named_parameters():
        state = {key: kept[f"{name}.{key}"] for key in ("exp_avg", "exp_avg_sq")}
        optimiser.state[p] = {"step": torch.tensor(float(step)), **state}


def train(run: Path, versions: int) -> None:
    model = GPT(width=384, layers=6, heads=6, context=CONTEXT)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.1)
    text = torch.from_numpy(library_text(4_000_000).copy())
    done = sum(version_dir(run, n).exists() for n in range(versions))
    step = 0
    if done:
        step = FIRST + (done - 1) * EVERY
        restore(version_dir(run, done - 1), step, model, optimiser)
    last = FIRST + (versions - 1) * EVERY
    while step < last:
        for group in optimiser.param_groups:
            group["lr"] = cosine(step, last, PEAK)
        tokens = batch(text, step)
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step >= FIRST and (step - FIRST) % EVERY == 0:
            number = (step - FIRST) // EVERY
            save(version_dir(run, number), model, optimiser)
            print(f"version {number}, step {step}: loss {loss.item():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--versions", type=int, default=128)
    args = parser.parse_args()
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    train(args.run, args.versions)


if __name__ == "__main__":
    main()
