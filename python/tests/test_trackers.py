"""Trackers: the version's id, label and sizes in the tracker's run, the run's id and link in the version."""

from __future__ import annotations

import sys
import threading
import types
from pathlib import Path
from typing import Any

import mdl
import numpy as np
import pytest
from frameworks import need_here
from mdl.integrations._checkpoints import Checkpoints
from mdl.tracking import public_url


def commit(repo: mdl.Repo, step: int, **said: Any) -> Any:
    return repo.commit({"model": {"w": np.full((64, 64), step, "f4")}}, step=step, **said)


class Run:
    """A tracker that notes what it is told."""

    def __init__(self, name: str = "r1") -> None:
        self.name = name
        self.told: list[mdl.Commit] = []
        self.fails = False

    def meta(self) -> dict[str, str]:
        return {"run": self.name, "url": ""}

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


def test_a_second_run_takes_the_place_of_the_first(repo: mdl.Repo) -> None:
    first, second = repo.track(Run("r1")), Run("r2")
    pending = commit(repo, 1)
    repo.track(second)
    made = commit(repo, 2, wait=True)
    assert (pending.result().meta, made.meta) == ({"run": "r1"}, {"run": "r2"})
    assert ([c.step for c in first.told], [c.step for c in second.told]) == ([1], [2])
    repo.untrack(first)
    assert commit(repo, 3, wait=True).meta == {"run": "r2"}, "what has been replaced is not tracked"


def test_of_two_trackers_the_later_one_stands(repo: mdl.Repo) -> None:
    class Other(Run):
        pass

    repo.track(Run("r1"))
    repo.track(Other("r2"))
    assert commit(repo, 1, wait=True).meta == {"run": "r2"}


def test_a_callbacks_trackers_end_with_its_run(repo: mdl.Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    active = types.ModuleType("mdl.integrations.wandb")

    def track(repo: mdl.Repo) -> Run:
        runs.append(repo.track(Run(f"r{len(runs) + 1}")))
        return runs[-1]

    active.track = track  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mdl.integrations.wandb", active)
    mine = Run("mine")
    checkpoints = [Checkpoints(repo, track="wandb"), Checkpoints(repo, track=["wandb", mine])]
    for training in (checkpoints[0], checkpoints[1], checkpoints[0]):
        training.commit({"w": np.zeros(2, "f4")}, "a version", step=len(runs))
        training.end()
        assert commit(repo, 9, wait=True).meta == {}, "no run goes on"
    assert [c.meta.get("run") for c in reversed(repo.log()) if c.step != 9] == ["r1", "mine", "r3"]


def test_without_an_active_run_versions_are_made_and_it_is_said(
    repo: mdl.Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = types.ModuleType("mdl.integrations.mlflow")

    def track(repo: mdl.Repo) -> None:
        raise mdl.UsageError("no MLflow run is active")

    none.track = track  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mdl.integrations.mlflow", none)
    checkpoints = Checkpoints(repo, track="mlflow")
    with pytest.warns(RuntimeWarning, match="no MLflow run is active"):
        checkpoints.commit({"w": np.zeros(2, "f4")}, "a version")
    checkpoints.end()
    assert len(repo.log()) == 1
    with pytest.raises(mdl.UsageError, match="'comet'"):
        Checkpoints(repo, track="comet")


def test_threads_may_tell_at_once(repo: mdl.Repo) -> None:
    run, start = repo.track(Run()), threading.Barrier(8)
    made = commit(repo, 1, wait=True)
    errors: list[Exception] = []

    def tell() -> None:
        start.wait()
        try:
            for _ in range(2000):
                repo._note(made, {"trackers": (run,)})
                repo._tell()
        except Exception as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=tell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert (errors, len(run.told)) == ([], 1 + 8 * 2000)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://wandb.ai/a/p/runs/1?apiKey=s3cret", "https://wandb.ai/a/p/runs/1"),
        ("https://ada:s3cret@host:5000/ml#s3cret", "https://host:5000/ml"),
        ("postgresql+psycopg://ada:p%40s3cret@db/mlflow?password=s3cret", "postgresql+psycopg://db/mlflow"),
        ("http://ada:s3c/ret@host/", ""),
        ("http://ada:s3@c/ret@host/", ""),
        ("http://ada:s3c?ret@host/", ""),
        ("https://host:5000/a@b", "https://host:5000/a@b"),
        ("file:///home/a@b/mlruns", "file:///home/a@b/mlruns"),
        ("sqlite:////data/a@b/mlflow.db", "sqlite:////data/a@b/mlflow.db"),
        ("databricks://profile", "databricks://profile"),
        ("/data/a@b?/mlruns", "/data/a@b?/mlruns"),
    ],
)
def test_addresses_lose_what_may_be_secret(url: str, public: str) -> None:
    assert public_url(url) == public


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
    assert "wandb.run" not in commit(repo, 20, wait=True).meta, "the run has ended"
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
