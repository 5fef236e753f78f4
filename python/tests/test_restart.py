"""A run under a lossy policy that is interrupted, and goes on from its newest version: the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
torch.set_num_threads(1)

EVERY, STEPS = 5, 30


class Run:
    """A small net and AdamW on drawn data, committed every few steps under the default policy."""

    def __init__(self, where: Path) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 24))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.repo = mdl.Repo.init(where)
        self.step, self.asked = 0, 0
        self.compressor: mdl.Compressor | None = None
        made = torch.Generator().manual_seed(1)
        self.held_out = torch.randn(64, 48, generator=made)
        self.rule = torch.randn(48, 24, generator=made)

    def validation(self) -> float:
        self.asked += 1
        return nn.functional.mse_loss(self.model(self.held_out), self.held_out @ self.rule).item()

    def resume(self, rev: str = "main") -> None:
        state: Any = self.repo.load(rev)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        mdl.set_rng_state(state["rng"])
        self.step = state["step"]
        self._watch(resumed_from=self.repo.resolve(rev), branch=rev)

    def _watch(self, **more: Any) -> None:
        self.compressor = mdl.Compressor(
            self.model, self.validation, repo=self.repo, threshold=0.05, interval=EVERY, start=self.step,
            optimizer=self.optimizer, scheduler=self.scheduler, state=lambda: {"step": self.step}, **more,
        )  # fmt: skip

    def train(self, until: int) -> None:
        if self.compressor is None:
            self._watch()
        while self.step < until:
            self.step += 1
            data = torch.randn(32, 48)
            loss = nn.functional.mse_loss(self.model(data), data @ self.rule)
            self.compressor.before_gradient_flush()
            self.optimizer.zero_grad()
            loss.backward()
            self.compressor.on_backward_pass_end()
            self.optimizer.step()
            self.scheduler.step()
            if self.step % EVERY == 0:
                self.compressor.compress(self.step, {"loss": loss.item()})

    def everything(self) -> list[bytes]:
        """The bits of all that training goes on with."""
        moments = [t for s in self.optimizer.state_dict()["state"].values() for t in s.values()]
        tensors = [*self.model.state_dict().values(), *moments, torch.get_rng_state()]
        return [t.numpy().tobytes() for t in tensors]


def alike(commit: mdl.Commit) -> tuple[Any, ...]:
    """What a version says of itself and of its approximation, but for ids and what a collection changes."""
    names = ("exact", "measured", "configuration", "sensitivity", "rel_l2", "max_abs")
    return commit.step, commit.metrics, *(commit.quality[name] for name in names)


@pytest.mark.parametrize("collected", [False, True], ids=["with-all-kept", "after-a-collection"])
def test_a_restart_from_the_newest_version_ends_with_the_same_bits(
    tmp_path: Path, collect: Callable[[mdl.Repo], mdl.Repo], collected: bool
) -> None:
    whole = Run(tmp_path / "whole")
    whole.train(STEPS)
    first = Run(tmp_path / "again")
    first.train(15)
    # It dies two steps after a version, which are lost.
    first.train(17)
    first.repo.close()
    second = Run(tmp_path / "again")
    torch.manual_seed(99)
    if collected:
        second.repo = collect(second.repo)
    second.resume()
    assert second.step == 15
    second.train(STEPS)
    assert second.everything() == whole.everything()
    # Later commits succeed, and find what those of the run find that was never interrupted.
    log, expected = second.repo.log(), whole.repo.log()
    assert [c.step for c in log] == [30, 25, 20, 15, 10, 5]
    assert [alike(c) for c in log] == [alike(c) for c in expected]
    assert {c.resume for c in log[:4]} == {"exact-resume"}
    assert {c.quality["family"] for c in log} <= {"lattice", "bins"}, [c.quality["configuration"] for c in log]
    assert log[2].resumed_from == log[3].id
    kept = second.repo.load()
    assert [t.numpy().tobytes() for t in kept["model"].values()] == whole.everything()[: len(kept["model"])]


def test_a_restart_from_an_aged_version_is_an_approximation_and_goes_on(
    tmp_path: Path, collect: Callable[[mdl.Repo], mdl.Repo]
) -> None:
    run = Run(tmp_path / "run")
    run.train(15)
    exact = run.repo.load("main@step=10")
    again = Run(tmp_path / "run")
    again.repo = collect(run.repo)
    again.repo.branch("side", "main@step=10")
    with pytest.warns(RuntimeWarning, match="an approximation stands"):
        again.resume("side")
    weights = exact["model"]["0.weight"]
    distance = float((again.model[0].weight.detach() - weights).norm() / weights.norm())
    assert 0 < distance < 0.15
    again.train(25)
    log = again.repo.log("side")
    assert [(c.step, c.fidelity) for c in log] == [
        (25, "exact"),
        (20, "exact"),
        (15, "exact"),
        (10, "approximate"),
        (5, "approximate"),
    ]
    assert [c.resumed_from for c in log[:3]] == [None, None, log[3].id]
