"""Shared by the training scripts: data, a model that uses random numbers, and a record of a run that compares bit for
bit.

Each script is run as `python SCRIPT MODE REPO OUT`. MODE: `straight` trains all steps, `killed` commits as it goes and
is killed without warning at KILLED_AT, `resumed` goes on from the newest version. OUT gets the account.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = 200
COMMIT_EVERY = 25
KILLED_AT = 107
BATCH = 8
SAMPLES = 256
"""32 steps are an epoch: step 100 lies within one."""

MODES = ("straight", "killed", "resumed")


class Account:
    """Losses of a run as exact text, and digests of the tensors at its end."""

    def __init__(self, mode: str, out: Path) -> None:
        self._mode, self._out = mode, out
        self._losses: dict[str, str] = {}

    def step(self, step: int, loss: Any) -> None:
        """Notes the loss of `step`; in a run that is to be killed, kills it when its time has come."""
        self._losses[str(step)] = float(loss).hex()
        if self._mode == "killed" and step == KILLED_AT:
            self.write({})
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, state: dict[str, Any]) -> None:
        """Writes the account, with a digest of every tensor and number in `state`."""
        digests = dict(digests_of(state))
        self._out.write_text(json.dumps({"losses": self._losses, "state": digests}))


def digests_of(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    """Every leaf's dotted name with a digest of its type, shape and bits."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from digests_of(each, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from digests_of(each, f"{name}.{index}")
    elif isinstance(value, torch.Tensor):
        bits = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        yield name, f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(bits).hexdigest()}"
    else:
        yield name, repr(value)


def arguments() -> tuple[str, str, Account]:
    """Mode, repository and account of this run."""
    mode, repo, out = sys.argv[1:]
    assert mode in MODES
    return mode, repo, Account(mode, Path(out))


def seed(value: int = 7) -> None:
    """Sets every generator, and one thread: what is compared must not depend on the machine's load."""
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
    torch.set_num_threads(1)


def dataset() -> TensorDataset:
    """256 points of a noisy teacher: 16 features, 4 classes."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 16, generator=generator)
    teacher = torch.randn(16, 4, generator=generator)
    return TensorDataset(inputs, (inputs @ teacher).argmax(1))


def loader(generator: torch.Generator | None = None) -> DataLoader[Any]:
    """Shuffled anew in every epoch."""
    return DataLoader(dataset(), batch_size=BATCH, shuffle=True, generator=generator)


def network() -> torch.nn.Module:
    """A net with dropout and batch norm: it draws, and it has buffers."""
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 4),
    )


def optimizer_and_scheduler(
    model: torch.nn.Module,
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW under a cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
