"""What a commit costs the training step that asks for it: the snapshot, beside torch.save and plain copies, in one run.

The state is a real model (MiniLM, 22.7 M parameters in f32) with AdamW's moments after a step: 272 MB. Each round moves
the weights as a step would, then takes, in turn: torch.save to the repository's disk (with and without fsync), a copy
of every tensor into memory that exists, a copy into fresh memory, `repo.commit(wait=False)`, and how long that commit
then takes in the background. A training loop with commits at an interval shows what the background work takes from the
steps beside it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mdl
from report import BENCH, median, parser, prose, publish, table
from support import models


class Holder(torch.nn.Module):
    """A model that only has weights."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in weights.items():
            self.register_parameter(
                name.replace(".", "_"), torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
            )


def training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = Holder({k: v for k, v in load_file(models.MINILM).items() if v.is_floating_point()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step(model, optimizer)
    return model, optimizer


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-3
    optimizer.step()


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for item in items for t in tensors_of(item)]


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def save(state: Any, path: Path, sync: bool) -> None:
    torch.save(state, path)
    if sync:
        with open(path, "rb+") as file:
            os.fsync(file.fileno())


def beside(state: Any, flat: list[torch.Tensor], kept: list[torch.Tensor], path: Path) -> dict[str, float]:
    """Seconds of what a commit is compared with."""
    seconds = {
        "save": timed(lambda: save(state, path, False)),
        "save_sync": timed(lambda: save(state, path, True)),
        "copy": timed(lambda: [k.copy_(t) for k, t in zip(kept, flat, strict=True)]),
        "fresh": timed(lambda: [t.clone() for t in flat]),
    }
    path.unlink()
    return seconds


def rounds(folder: Path, count: int) -> dict[str, list[float]]:
    model, optimizer = training()
    repo = mdl.Repo.init(folder / "repo")
    out: dict[str, list[float]] = {
        k: [] for k in ("save", "save_sync", "copy", "fresh", "first", "stall", "background")
    }
    flat: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    for n in range(count + 1):
        step(model, optimizer)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": mdl.rng_state()}
        flat = tensors_of(state)
        kept = kept or [torch.empty_like(t).copy_(t) for t in flat]
        seconds = beside(state, flat, kept, folder / "state.pt")
        began = time.perf_counter()
        pending = repo.commit(state, step=n)
        seconds["first" if n == 0 else "stall"] = time.perf_counter() - began
        pending.result()
        seconds["background"] = time.perf_counter() - began
        for name, value in seconds.items():
            out[name].append(value)
    out["bytes"] = [float(sum(t.numel() * t.element_size() for t in flat))]
    out["stored"] = [float(c.stored_bytes) for c in repo.log()[:-1]]
    repo.close()
    return out


class Net(torch.nn.Module):
    """A transformer whose state is about the paper's ratio of state to step time, small enough for two cores."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
        self.body = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def loop(folder: Path, steps: int, every: int | None) -> float:
    """Seconds of a training loop, the last commit durable."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(32, 64, 256)
    repo = mdl.Repo.init(folder / f"loop-{time.monotonic_ns()}")
    began = time.perf_counter()
    for n in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), data).backward()
        optimizer.step()
        if every and (n + 1) % every == 0:
            repo.commit(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": mdl.rng_state()}, step=n + 1
            )
    repo.flush()
    return time.perf_counter() - began


def overheads(folder: Path, repeats: int, steps: int, every: int) -> dict[str, Any]:
    """A run with commits beside one without, in turn, so that what the machine does meanwhile meets both."""
    loop(folder, 5, None)
    pairs = []
    for _ in range(repeats):
        without = loop(folder, steps, None)
        pairs.append((without, loop(folder, steps, every)))
    without, with_commits = median(p[0] for p in pairs), median(p[1] for p in pairs)
    commits = steps // every
    return {
        "steps": steps,
        "every": every,
        "repeats": repeats,
        "without": without,
        "with": with_commits,
        "commits": commits,
        "ratios": [b / a - 1 for a, b in pairs],
        # Seconds that one commit adds to the run, wherever they arise: in the stall or in slower steps beside it.
        "per_commit": (with_commits - without) / commits,
    }


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=15)
    made.add_argument("--steps", type=int, default=120)
    made.add_argument("--every", type=int, default=40)
    made.add_argument("--repeats", type=int, default=5)
    args = made.parse_args()
    models.require()
    BENCH.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="stall-", dir=BENCH))
    try:
        measured = rounds(folder, args.rounds)
        run = overheads(folder, args.repeats, args.steps, args.every)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    middle = {name: median(values) for name, values in measured.items()}
    mb = middle["bytes"] / 1e6
    stall = middle["stall"]
    rows = [
        [label, f"{1000 * middle[key]:.0f}", f"{mb / middle[key] / 1000:.2f}", f"{stall / middle[key]:.2f}"]
        for label, key in [
            ("`torch.save`", "save"),
            ("`torch.save` + fsync", "save_sync"),
            ("copy into memory that is there", "copy"),
            ("copy into fresh memory", "fresh"),
            ("`repo.commit(wait=False)`: the stall", "stall"),
            ("the very first one, its memory fresh", "first"),
            ("until that commit is durable", "background"),
        ]
    ]
    # An interval of half an hour, as the paper's: what a commit costs, over what passes between two.
    share = 100 * run["per_commit"] / 1800
    body = [
        table(["", "ms", "GB/s", "the stall is this part of it"], rows),
        prose(
            f"State: {mb:.0f} MB in {args.rounds} rounds, medians. Stored per commit: {middle['stored'] / 1e6:.0f} MB "
            f"(random steps of AdamW, lossless)."
        ),
        prose(
            f"A loop of {run['steps']} steps with a commit each {run['every']} took {run['with']:.2f} s, without "
            f"{run['without']:.2f} s (medians of {run['repeats']} pairs, in turn; per pair "
            f"{', '.join(f'{100 * r:+.1f} %' for r in run['ratios'])})."
        ),
        prose(
            f"That is {1000 * run['per_commit']:.0f} ms a commit, in the stall and "
            f"in steps that share the cores with the background work: {share:.3f} % of a run that commits every "
            f"30 minutes."
        ),
    ]
    publish(
        "stall", "What a commit costs the training step", "".join(body), {"rounds": measured, "loop": run}, args.out
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
