"""Lightning: every version of a run goes on to the same end; pointers, revisions, `save_top_k`, `last`, and what is stored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

need("torch", "pytorch_lightning")
sys.path.insert(0, str(Path(__file__).parent / "training"))

import common  # noqa: E402
import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from lightning_module import Module, state_of, trainer  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import mdl  # noqa: E402
from mdl.integrations.lightning import MdlCallback, MdlCheckpointIO  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def fit(repo: Path, *, rev: str | None = None, steps: int = 14, loaders: Any = None, **options: Any) -> pl.Trainer:
    """One run of 6 batches per epoch."""
    common.seed(5 if rev is None else 99)
    checkpoint = {name: options.pop(name) for name in list(options) if name.startswith(("every_", "save_", "monitor"))}
    run = trainer(repo.parent / f"root-{rev}", MdlCallback(repo, **checkpoint), max_steps=steps, **options)
    val = options.get("limit_val_batches", 0)
    validation = DataLoader(common.dataset(), batch_size=64) if val else None
    run.fit(Module(), loaders or small_loader(), validation, ckpt_path=rev)
    return run


def small_loader(workers: int = 0, batch: int = 8) -> DataLoader[Any]:
    """48 samples, shuffled."""
    data = torch.utils.data.Subset(common.dataset(), range(48))
    return DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers)


def same(one: pl.Trainer, other: pl.Trainer) -> bool:
    return dict(common.digests_of(state_of(one))) == dict(common.digests_of(state_of(other)))


@pytest.mark.parametrize(
    "options",
    [
        {"every_n_train_steps": 1},
        {"every_n_epochs": 1, "save_on_train_epoch_end": True},
        {"every_n_epochs": 1, "limit_val_batches": 2, "num_sanity_val_steps": 0},
        {"every_n_train_steps": 1, "limit_train_batches": 4},
        {"every_n_train_steps": 2, "limit_val_batches": 1, "val_check_interval": 3},
    ],
    ids=["every step", "epoch end", "validation end", "limited epochs", "validation within epochs"],
)
def test_every_version_goes_on_to_the_same_end(options: dict[str, Any], tmp_path: Path) -> None:
    straight = fit(tmp_path / "straight", **options)
    versions = [commit for commit in mdl.Repo.open(tmp_path / "straight").log() if commit.step < 14]
    assert len(versions) >= 2
    # Sampled where there is one per step: the epoch's first, last and inner ones.
    for commit in versions if len(versions) < 7 else [versions[i] for i in (1, 2, 3, 7, 8)]:
        resumed = fit(tmp_path / f"resumed-{commit.step}", rev=None, **options) if commit.step == 0 else None
        copy = tmp_path / f"copy-{commit.id[:12]}"
        resumed = resume(copy, tmp_path / "straight", commit.id, options)
        assert same(straight, resumed), f"from step {commit.step}"


def resume(repo: Path, source: Path, rev: str, options: dict[str, Any], **more: Any) -> pl.Trainer:
    """A run from `rev` of `source`, read through a checkpoint IO of its own, that commits to `repo`."""
    plugin = MdlCheckpointIO(source)
    return fit(repo, rev=rev, plugins=[plugin], **{**options, **more})
