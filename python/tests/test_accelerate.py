"""Accelerate: what `save_state` writes, committed and loaded back; custom objects; retention."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

need("torch", "accelerate")
sys.path.insert(0, str(Path(__file__).parent / "training"))

import accelerate  # noqa: E402
import common  # noqa: E402
import mdl  # noqa: E402
import torch  # noqa: E402
from mdl.data import ResumableLoader  # noqa: E402
from mdl.integrations.accelerate import load_state, save_state  # noqa: E402


class Loop:
    """A model, its optimizer and its loader, prepared."""

    def __init__(self, seed: int) -> None:
        common.seed(seed)
        self.accelerator = accelerate.Accelerator(cpu=True)
        model = common.network()
        optimizer, scheduler = common.optimizer_and_scheduler(model)
        prepared = self.accelerator.prepare(model, optimizer, common.loader(), scheduler)
        self.model, self.optimizer, loader, self.scheduler = prepared
        self.loader = ResumableLoader(loader)
        self.accelerator.register_for_checkpointing(self.loader)

    def train(self, steps: int, after: Any = None) -> None:
        """`steps` steps from where it stands; `after(done)` after each, within the loop over batches."""
        done = 0
        while done < steps:
            for inputs, labels in self.loader:
                self.accelerator.backward(torch.nn.functional.cross_entropy(self.model(inputs), labels))
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                done += 1
                if after is not None:
                    after(done)
                if done == steps:
                    break

    def digests(self) -> dict[str, str]:
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        return dict(common.digests_of({name: part.state_dict() for name, part in parts.items()}))


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    """Accelerate keeps one state per process; each test has its own."""
    accelerate.state.AcceleratorState._reset_state(True)
    yield
    accelerate.state.AcceleratorState._reset_state(True)


def test_goes_on_within_an_epoch_and_at_its_ends(tmp_path: Path) -> None:
    straight = Loop(1)
    at = (5, 31, 32, 33)

    def save(done: int) -> None:
        if done in at:
            save_state(straight.accelerator, tmp_path / "repo", step=done, metrics={"seen": done})

    straight.train(40, save)
    repo = mdl.Repo.open(tmp_path / "repo")
    straight.accelerator.free_memory()
    for step in at:
        accelerate.state.AcceleratorState._reset_state(True)
        again = Loop(99)
        commit = load_state(again.accelerator, repo, f"main@step={step}")
        assert (commit.step, commit.metrics) == (step, {"seen": step})
        again.train(40 - step)
        assert again.digests() == straight.digests(), f"from step {step}"


def test_a_version_has_accelerates_files_and_leaves_none_behind(tmp_path: Path) -> None:
    loop = Loop(1)
    loop.train(2)
    commit = save_state(loop.accelerator, tmp_path / "repo", "two steps", step=2, wait=True)
    assert commit.message == "two steps"
    names = set(mdl.Repo.open(tmp_path / "repo").files(commit.id))
    assert {"model.safetensors", "optimizer.bin", "scheduler.bin", "custom_checkpoint_0.pkl"} <= names
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]
    assert [path.name for path in (tmp_path / "repo").iterdir()] == [".mdl"]


def test_a_version_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    mdl.Repo.init(tmp_path / "repo")
    loop = Loop(1)
    before = loop.digests()
    with pytest.raises(mdl.NotFoundError):
        load_state(loop.accelerator, tmp_path / "repo", "main")
    assert loop.digests() == before


def test_retention_is_applied(tmp_path: Path) -> None:
    loop = Loop(1)
    for step in (1, 2, 3):
        pending = save_state(loop.accelerator, tmp_path / "repo", step=step, retention=mdl.retention.LatestN(1))
    pending.result()
    kept = [commit.step for commit in mdl.Repo.open(tmp_path / "repo").log() if not commit.pruned]
    assert kept == [3]
