"""Composer: the callback in a real trainer, and resuming within and between epochs.

Composer 0.32 asks for older versions of torch and numpy than the other frameworks; it lies in a directory of its own
(requirements-composer.txt). `mcli`, the client of its vendor's platform, is imported and not used: a stub.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

# Behind everything else: what the other frameworks use comes first.
sys.path.append(str(Path(sys.prefix) / "composer"))
need("torch", "composer")
if importlib.util.find_spec("mcli") is None:
    sys.modules["mcli"] = types.ModuleType("mcli")
sys.path.insert(0, str(Path(__file__).parent / "training"))

import common  # noqa: E402
import mdl  # noqa: E402
import torch  # noqa: E402
from composer import ComposerModel, Trainer  # noqa: E402
from composer.utils import dist  # noqa: E402
from mdl.integrations.composer import MdlCallback  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(ComposerModel):
    """The common net."""

    def __init__(self) -> None:
        super().__init__()
        self.net = common.network()

    def forward(self, batch: Any) -> torch.Tensor:
        return self.net(batch[0])

    def loss(self, outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1])


def train(seed: int, *callbacks: MdlCallback) -> dict[str, str]:
    """Two epochs of 32 batches; digests of what came out."""
    common.seed(seed)
    data, model = common.dataset(), Model()
    optimizer, scheduler = common.optimizer_and_scheduler(model)
    trainer = Trainer(
        model=model, optimizers=optimizer, schedulers=scheduler, max_duration="2ep", seed=seed, device="cpu",
        step_schedulers_every_batch=True, progress_bar=False, log_to_console=False, callbacks=list(callbacks),
        train_dataloader=DataLoader(data, batch_size=common.BATCH, sampler=dist.get_sampler(data, shuffle=True)),
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    return dict(common.digests_of(state))


def test_one_line_commits_at_the_interval_and_at_the_end(tmp_path: Path) -> None:
    train(3, MdlCallback(tmp_path / "repo", interval="20ba"))
    repo = mdl.Repo.open(tmp_path / "repo")
    commits = repo.log()
    assert [commit.step for commit in commits] == [64, 60, 40, 20]
    assert commits[1].epoch == 1
    assert commits[0].metrics["loss"] > 0
    assert {"model.safetensors", "optimizer.safetensors", "state.json"} <= set(repo.files())


def test_goes_on_to_the_same_end(tmp_path: Path) -> None:
    straight = train(3, MdlCallback(tmp_path / "repo", interval="16ba"))
    repo = mdl.Repo.open(tmp_path / "repo")
    # 16 and 48 lie within an epoch, 32 between two.
    for step in (16, 32, 48):
        name = f"from-{step}"
        repo.branch(name, f"main@step={step}")
        resumed = train(99, MdlCallback(tmp_path / "repo", interval="16ba", resume=name, branch=name))
        assert resumed == straight, f"from step {step}"
        assert mdl.Repo.open(tmp_path / "repo").show(name).step == 64


def test_a_first_start_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    straight = train(3)
    assert train(3, MdlCallback(tmp_path / "repo", resume="HEAD")) == straight
    assert [commit.epoch for commit in mdl.Repo.open(tmp_path / "repo").log()] == [2, 1]
