"""Lightning: resuming from any version of a run ends the same; pointers, revisions, `save_top_k`, `last`, storage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

need("torch", "pytorch_lightning")
sys.path.insert(0, str(Path(__file__).parent / "training"))

import common  # noqa: E402
import mdl  # noqa: E402
import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from lightning_module import Module, state_of, trainer  # noqa: E402
from mdl.integrations.lightning import MdlCallback, MdlCheckpointIO  # noqa: E402
from torch.utils.data import DataLoader, Subset  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
EPOCH = 6
STEPS = 14
OF_MODEL_CHECKPOINT = ("every_", "save_", "monitor", "mode", "dirpath", "retention")


def small_loader(batch: int = 8) -> DataLoader[Any]:
    """48 samples, shuffled: 6 batches of 8."""
    return DataLoader(Subset(common.dataset(), range(48)), batch_size=batch, shuffle=True)


def fit(repo: Path, rev: str | None = None, loaders: Any = None, seed: int = 5, **options: Any) -> pl.Trainer:
    """One run of STEPS steps, or of as many epochs as `options` say."""
    common.seed(seed)
    checkpoint = {name: options.pop(name) for name in list(options) if name.startswith(OF_MODEL_CHECKPOINT)}
    if "max_epochs" not in options:
        options["max_steps"] = STEPS
    run = trainer(repo.parent / f"root-of-{repo.name}", MdlCallback(repo, **checkpoint), **options)
    validation = DataLoader(common.dataset(), batch_size=64) if options.get("limit_val_batches") else None
    run.fit(Module(), loaders or small_loader(), validation, ckpt_path=rev)
    return run


def go_on(repo: Path, source: Path, rev: str, **options: Any) -> pl.Trainer:
    """A run from `rev` of `source`, with everything seeded differently, that commits to `repo`."""
    return fit(repo, rev, seed=99, plugins=[MdlCheckpointIO(source)], **options)


def digests(run: pl.Trainer) -> dict[str, str]:
    return dict(common.digests_of(state_of(run)))


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"every_n_train_steps": 1}, [1, EPOCH - 1, EPOCH, EPOCH + 1]),
        ({"every_n_train_steps": 1, "limit_train_batches": 4}, [3, 4, 5]),
        ({"every_n_train_steps": 3, "limit_val_batches": 2, "val_check_interval": 3}, [3, 6, 9]),
        ({"every_n_epochs": 1, "limit_val_batches": 2}, [6, 12]),
        ({"every_n_epochs": 1, "save_on_train_epoch_end": True}, [6, 12]),
        ({"every_n_epochs": 1, "save_on_train_epoch_end": True, "max_epochs": 3}, [6, 12]),
    ],
    ids=["steps", "limited epochs", "validation within epochs", "validation end", "epoch end", "epoch end, max_epochs"],
)
def test_every_version_goes_on_to_the_same_end(options: dict[str, Any], steps: list[int], tmp_path: Path) -> None:
    straight = fit(tmp_path / "straight", **options)
    commits = {commit.step: commit for commit in mdl.Repo.open(tmp_path / "straight").log()}
    for step in steps:
        resumed = go_on(tmp_path / f"from-{step}", tmp_path / "straight", commits[step].id, **options)
        assert resumed.global_step == straight.global_step
        assert digests(resumed) == digests(straight), f"from step {step}"


def test_several_loaders_go_on(tmp_path: Path) -> None:
    def loaders() -> dict[str, DataLoader[Any]]:
        return {"a": small_loader(), "b": small_loader(16)}

    class Both(Module):
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return super().training_step(batch["a"], index) + super().training_step(batch["b"], index)

    def both(repo: Path, rev: str | None, seed: int) -> pl.Trainer:
        common.seed(seed)
        run = trainer(tmp_path / "root", MdlCallback(tmp_path / repo, every_n_train_steps=1), max_steps=10)
        run.fit(Both(), loaders(), ckpt_path=rev)
        return run

    straight = both(Path("straight"), None, 5)
    # The shorter loader goes round within the epoch; step 2 is in its first round, step 5 in its second.
    mdl.Repo.clone(tmp_path / "straight", tmp_path / "copy")
    for step in (2, 6, 8):
        assert digests(both(Path("copy"), f"main@step={step}", 99)) == digests(straight), f"from step {step}"


def test_a_version_holds_a_checkpoint_and_its_numbers(tmp_path: Path) -> None:
    fit(tmp_path / "repo", every_n_train_steps=4, limit_val_batches=1, val_check_interval=3)
    repo = mdl.Repo.open(tmp_path / "repo")
    commits = repo.log()
    assert [commit.step for commit in commits] == [12, 8, 4]
    assert commits[0].epoch == 1
    assert set(commits[0].metrics) >= {"loss", "val_loss"}
    assert {"model.safetensors", "optimizer.safetensors", "state.json"} <= set(repo.files("HEAD"))
    loaded = repo.load("HEAD")
    assert loaded["hyper_parameters"] == {"note": "x"}
    assert "net.0.weight" in loaded["model"]


def test_the_metric_names_a_version_to_go_on_from(tmp_path: Path) -> None:
    run = fit(tmp_path / "repo", monitor="loss", every_n_train_steps=2)
    best = mdl.Repo.open(tmp_path / "repo").show("main@best(loss)")
    callback = run.checkpoint_callback
    assert callback.best_model_score == pytest.approx(best.metrics["loss"])
    assert json.loads(Path(callback.best_model_path).read_text())["mdl_commit"] == best.id
    again = fit(tmp_path / "repo", "main@best(loss)", every_n_train_steps=100)
    assert again.global_step == STEPS


def test_pointers_come_and_go_and_versions_stay(tmp_path: Path) -> None:
    where = tmp_path / "pointers"
    run = fit(tmp_path / "repo", every_n_train_steps=2, save_top_k=1, save_last="link", dirpath=where)
    names = sorted(path.name for path in where.iterdir())
    assert names == ["epoch=2-step=14.ckpt", "last.ckpt"]
    repo = mdl.Repo.open(tmp_path / "repo")
    assert [commit.step for commit in repo.log()] == [14, 12, 10, 8, 6, 4, 2]
    loaded = run.strategy.checkpoint_io.load_checkpoint(where / "last.ckpt")
    assert loaded["global_step"] == 14
    common.seed(1)
    again = trainer(tmp_path, MdlCallback(tmp_path / "repo", save_last="link", dirpath=where), max_steps=16)
    again.fit(Module(), small_loader(), ckpt_path="last")
    assert again.global_step == 16


def test_going_on_is_noted(tmp_path: Path) -> None:
    fit(tmp_path / "repo", every_n_train_steps=5)
    fit(tmp_path / "repo", "main@step=5", every_n_train_steps=7)
    repo = mdl.Repo.open(tmp_path / "repo")
    newest = repo.log()
    assert [commit.step for commit in newest] == [14, 7, 10, 5]
    assert newest[1].resumed_from == newest[3].id
    assert newest[0].resumed_from is None


def test_files_of_torch_save_are_still_read(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.arange(3)}, "global_step": 1}, tmp_path / "old.ckpt")
    loaded = MdlCheckpointIO(tmp_path / "repo").load_checkpoint(tmp_path / "old.ckpt", weights_only=True)
    assert loaded["state_dict"]["a"].tolist() == [0, 1, 2]


def test_what_is_neither_file_nor_revision_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(mdl.NotFoundError):
        MdlCheckpointIO(tmp_path / "repo").load_checkpoint(tmp_path / "nothing.ckpt")


def test_a_state_that_cannot_be_stored_stops_the_run(tmp_path: Path) -> None:
    class Odd(Module):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["odd"] = object()

    run = trainer(tmp_path, MdlCallback(tmp_path / "repo", every_n_train_steps=1), max_steps=3)
    with pytest.raises(mdl.StateError, match="odd"):
        run.fit(Odd(), small_loader())
