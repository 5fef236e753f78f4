"""Hugging Face's Trainer: rotation, removal, metrics, `from_pretrained`, and resuming from any version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

need("torch", "transformers", "accelerate")
sys.path.insert(0, str(Path(__file__).parent / "training"))

import common  # noqa: E402
import mdl  # noqa: E402
import torch  # noqa: E402
from hf_trainer import Tokens, build  # noqa: E402
from mdl.integrations.transformers import CompressorCallback, MdlCallback, resume_from_mdl  # noqa: E402
from transformers import GPT2LMHeadModel  # noqa: E402


def digests(trainer: Any) -> dict[str, str]:
    state = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
    return dict(common.digests_of(state))


def run(folder: Path, repo: Path, steps: int = 12, every: int = 3, **callback: Any) -> Any:
    common.seed()
    trainer = build(folder, steps, every, [MdlCallback(repo, **callback)])
    trainer.train()
    return trainer


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_every_version_is_kept_while_folders_rotate(tmp_path: Path) -> None:
    trainer = run(tmp_path / "out", tmp_path / "repo")
    repo = mdl.Repo.open(tmp_path / "repo")
    commits = repo.log()
    assert [commit.step for commit in commits] == [12, 9, 6, 3]
    assert checkpoints(tmp_path / "out") == ["checkpoint-12", "checkpoint-9"]
    assert commits[0].message == "checkpoint-12"
    assert commits[0].epoch == pytest.approx(12 / 32)
    logged = [entry["loss"] for entry in trainer.state.log_history if entry.get("step") == 12 and "loss" in entry]
    assert commits[0].metrics["loss"] == logged[0]
    assert {"loss", "grad_norm", "learning_rate"} <= set(commits[0].metrics)
    assert not {"step", "epoch"} & set(commits[0].metrics)


def test_a_version_is_the_folder_and_loads_with_from_pretrained(tmp_path: Path) -> None:
    trainer = run(tmp_path / "out", tmp_path / "repo")
    repo = mdl.Repo.open(tmp_path / "repo")
    repo.checkout("HEAD", tmp_path / "back")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out" / "checkpoint-12").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == written
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "back")
    assert torch.equal(model.transformer.wte.weight, trainer.model.transformer.wte.weight)


def test_folders_go_when_their_successor_is_durable(tmp_path: Path) -> None:
    run(tmp_path / "out", tmp_path / "repo", remove=True)
    assert checkpoints(tmp_path / "out") == ["checkpoint-12"]
    assert [commit.step for commit in mdl.Repo.open(tmp_path / "repo").log()] == [12, 9, 6, 3]


def test_goes_on_from_any_version_and_says_so(tmp_path: Path) -> None:
    straight = run(tmp_path / "out", tmp_path / "repo")
    common.seed(99)
    trainer = build(tmp_path / "again", 12, 3, [MdlCallback(tmp_path / "repo", branch="again")])
    resume_from_mdl(trainer, tmp_path / "repo", "main@step=6")
    assert digests(trainer) == digests(straight)
    repo = mdl.Repo.open(tmp_path / "repo")
    commits = repo.log("again")
    assert [commit.step for commit in commits[:2]] == [12, 9]
    assert commits[1].resumed_from == repo.resolve("main@step=6")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".mdl-")] == []


def test_a_version_that_is_not_there_trains_nothing(tmp_path: Path) -> None:
    mdl.Repo.init(tmp_path / "repo")
    trainer = build(tmp_path / "out", 3, 0, [])
    with pytest.raises(mdl.NotFoundError):
        resume_from_mdl(trainer, tmp_path / "repo")
    assert trainer.state.global_step == 0


def test_retention_is_applied(tmp_path: Path) -> None:
    run(tmp_path / "out", tmp_path / "repo", retention=mdl.retention.LatestN(2))
    kept = [commit.step for commit in mdl.Repo.open(tmp_path / "repo").log() if not commit.pruned]
    assert kept == [12, 9]


def test_metrics_that_matter_are_kept_and_others_on_demand(tmp_path: Path) -> None:
    common.seed()
    data = torch.utils.data.Subset(Tokens(), range(8))
    options = {"eval_strategy": "steps", "eval_steps": 3, "metric_for_best_model": "eval_runtime"}
    trainer = build(tmp_path / "out", 3, 3, [MdlCallback(tmp_path / "repo", branch="few")], data, **options)
    trainer.add_callback(MdlCallback(tmp_path / "repo", branch="all", keep="all"))
    trainer.add_callback(MdlCallback(tmp_path / "repo", branch="globs", keep=["eval_*"]))
    trainer.train()
    repo = mdl.Repo(tmp_path / "repo")
    few = set(repo.show("few").metrics)
    assert few == {"loss", "grad_norm", "learning_rate", "eval_loss", "eval_runtime"}
    assert few < set(repo.show("all").metrics)
    assert "eval_samples_per_second" in repo.show("globs").metrics
    assert "loss" not in repo.show("globs").metrics


def test_the_compressor_averages_the_trainers_gradients(tmp_path: Path) -> None:
    common.seed()
    asked: list[float] = []

    def evaluate(model: torch.nn.Module) -> float:
        tokens = torch.stack([Tokens()[i]["input_ids"] for i in range(16)])
        asked.append(float(model(input_ids=tokens, labels=tokens).loss))
        return asked[-1]

    callback = CompressorCallback(tmp_path / "repo", evaluate, interval=4, threshold=0.05, window=2)
    trainer = build(tmp_path / "out", 9, 0, [callback], gradient_accumulation_steps=2)
    taken: list[int] = []
    begin = callback.on_train_begin

    def watched(args: Any, state: Any, control: Any, **has: Any) -> None:
        begin(args, state, control, **has)
        average = callback.compressor._gradients
        take = average.take
        average.take = lambda: (taken.append(state.global_step + 1), take())[1]

    callback.on_train_begin = watched
    trainer.train()
    assert taken == [3, 4, 7, 8], "the last batches before each checkpoint"
    repo = mdl.Repo(tmp_path / "repo")
    versions = repo.log()
    assert [(c.step, c.epoch) for c in versions] == [(8, pytest.approx(0.5)), (4, pytest.approx(0.25))]
    assert asked
    assert versions[0].quality is not None
    assert versions[0].metrics["loss"] > 0
    assert set(repo.load("HEAD")) >= {"model", "optimizer", "scheduler", "rng"}

    common.seed()
    straight = build(tmp_path / "straight", 9, 0, [], gradient_accumulation_steps=2)
    straight.train()
    assert digests(trainer) == digests(straight), "training goes on as if nothing had been measured"
