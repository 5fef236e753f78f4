"""Trackers: the version's id, label and sizes in the tracker's run, the run's id and link in the version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mdl
import numpy as np
import pytest
from frameworks import need_here


def commit(repo: mdl.Repo, step: int, **said: Any) -> Any:
    return repo.commit({"model": {"w": np.full((64, 64), step, "f4")}}, step=step, **said)


class Run:
    """A tracker that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[mdl.Commit] = []
        self.fails = False

    def meta(self) -> dict[str, str]:
        return {"run": "r1", "url": ""}

    def committed(self, commit: mdl.Commit) -> None:
        if self.fails:
            raise ConnectionError("the tracker is away")
        self.told.append(commit)


def test_a_tracker_is_told_of_what_is_durable_and_its_run_stands_in_the_version(repo: mdl.Repo) -> None:
    run = repo.track(Run())
    first = commit(repo, 1, wait=True)
    assert [c.id for c in run.told] == [first.id]
    assert first.meta == {"run": "r1"}
    pending = [commit(repo, step, meta={"run": "mine"}) for step in (2, 3)]
    repo.flush()
    assert [c.id for c in run.told[1:]] == [p.result().id for p in pending]
    assert repo.show().meta == {"run": "mine"}, "what the caller says stands"
    repo.untrack(run)
    commit(repo, 4, wait=True)
    assert len(run.told) == 3


def test_staged_and_sharded_versions_are_told_too(repo: mdl.Repo) -> None:
    run = repo.track(Run())
    repo.commit_staged(repo.stage({"a.bin": b"a"}), step=1)
    repo.put_shard("s", 0, {"b.bin": b"b"})
    repo.join_shards("s", 1, step=2)
    assert [(c.step, c.meta) for c in run.told] == [(1, {"run": "r1"}), (2, {"run": "r1"})]


def test_a_tracker_that_fails_costs_no_version(repo: mdl.Repo) -> None:
    run = repo.track(Run())
    run.fails = True
    with pytest.warns(RuntimeWarning, match="the tracker is away"):
        commit(repo, 1, wait=True)
    assert repo.show().step == 1


def test_wandb(repo: mdl.Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_here("wandb")
    import wandb
    from mdl.integrations.wandb import track

    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(mdl.UsageError, match=r"wandb\.init"):
        track(repo)
    run = wandb.init(project="gpt", mode="offline", dir=tmp_path)
    track(repo)
    made = commit(repo, 10, wait=True)
    run.log({"loss": 1.0})
    assert run.summary["mdl.version"] == made.id
    assert run.summary["mdl.resume"] == "weights-only"
    summary = dict(run.summary)
    run.finish()
    assert made.meta["wandb.run"].endswith(f"gpt/{run.id}")
    assert "wandb.url" not in made.meta, "it is offline"
    assert summary["mdl/version"] == made.id
    assert summary["mdl/stored_bytes"] == made.stored_bytes
    assert (summary["_step"], summary["loss"]) == (0, 1.0), "training's own rows are counted alone"


def test_mlflow(repo: mdl.Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_here("mlflow")
    # Its plain files, which need no database.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow
    from mdl.integrations.mlflow import track

    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with pytest.raises(mdl.UsageError, match="start_run"):
        track(repo)
    with mlflow.start_run() as run:
        tracker = track(repo)
        first, second = commit(repo, 10, wait=True), commit(repo, 20)
        repo.flush()
        repo.untrack(tracker)
    seen = mlflow.get_run(run.info.run_id).data
    assert seen.tags["mdl.version"] == second.result().id
    assert seen.tags["mdl.version.10"] == first.id
    assert seen.tags["mdl.resume"] == "weights-only"
    history = mlflow.tracking.MlflowClient().get_metric_history(run.info.run_id, "mdl.stored_bytes")
    assert [(m.step, m.value) for m in history] == [(10, first.stored_bytes), (20, second.result().stored_bytes)]
    assert first.meta["mlflow.run_id"] == run.info.run_id
    assert first.meta["mlflow.experiment_id"] == "0"
    assert first.meta["mlflow.tracking_uri"].startswith("file:")
    assert "mlflow.url" not in first.meta, "no server"


def test_tensorboard(repo: mdl.Repo, tmp_path: Path) -> None:
    need_here("torch", "tensorboard")
    from mdl.integrations.tensorboard import track
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path / "logs")
    track(repo, writer)
    made = [commit(repo, step, wait=True) for step in (10, 20)]
    writer.close()
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    scalars = events.Scalars("mdl/stored_bytes")
    assert [(s.step, s.value) for s in scalars] == [(c.step, c.stored_bytes) for c in made]
    texts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("mdl/version/text_summary")]
    assert texts == [f"`{c.id}` (weights-only)" for c in made]
    assert made[0].meta == {"tensorboard.logdir": str(tmp_path / "logs")}


def test_aim(repo: mdl.Repo, tmp_path: Path) -> None:
    need_here("aim")
    import aim
    from mdl.integrations.aim import track

    aim.Repo.from_path(str(tmp_path), init=True)
    run = aim.Run(repo=str(tmp_path), experiment="gpt", system_tracking_interval=None)
    track(repo, run)
    made = commit(repo, 10, wait=True)
    assert made.meta == {"aim.run": run.hash, "aim.experiment": "gpt"}
    assert run["mdl", "version"] == made.id
    assert run["mdl", "versions", "10"] == made.id
    (metric,) = [m for m in run.metrics() if m.name == "mdl.stored_bytes"]
    assert metric.values.last_value() == made.stored_bytes
    run.close()
