"""MLflow: each version's id, label and sizes in the run, the run's id and address in each version.

    with mlflow.start_run():
        mdl.integrations.mlflow.track(repo)

The run's tags ``mdl.version`` and ``mdl.resume`` are of the newest version, ``mdl.version.STEP`` of each; the metrics
``mdl.stored_bytes`` and ``mdl.logical_bytes`` have a value for each step. A version's meta has ``mlflow.run_id``,
``mlflow.experiment_id`` and ``mlflow.tracking_uri``, and ``mlflow.url`` where that is a server.
"""

from __future__ import annotations

import time
from typing import Any

import mlflow
from mlflow.entities import Metric, RunTag
from mlflow.tracking import MlflowClient

from ..commits import Commit
from ..errors import UsageError
from ..repo import Repo
from ..tracking import facts, public_url


class MlflowTracker:
    """An MLflow run that is told of versions."""

    def __init__(self, run_id: str, client: Any) -> None:
        self.run_id, self._client = run_id, client
        self._experiment = client.get_run(run_id).info.experiment_id
        # Credentials in it are none of the version's.
        self._uri = public_url(getattr(client, "tracking_uri", None) or mlflow.get_tracking_uri())

    def meta(self) -> dict[str, str]:
        """The run's id and address."""
        url = f"{self._uri.rstrip('/')}/#/experiments/{self._experiment}/runs/{self.run_id}"
        return {
            "mlflow.run_id": self.run_id,
            "mlflow.experiment_id": str(self._experiment),
            "mlflow.tracking_uri": self._uri,
            "mlflow.url": url if self._uri.startswith("http") else "",
        }

    def committed(self, commit: Commit) -> None:
        """Adds the version to the run, by one request."""
        said, step, now = facts(commit), commit.step or 0, time.time_ns() // 1_000_000
        metrics = [Metric(f"mdl.{name}", said[name], now, step) for name in ("stored_bytes", "logical_bytes")]
        tags = {"mdl.version": commit.id, "mdl.resume": said["resume"]}
        if commit.step is not None:
            tags[f"mdl.version.{commit.step}"] = commit.id
        self._client.log_batch(self.run_id, metrics, tags=[RunTag(name, value) for name, value in tags.items()])


def track(repo: Repo, run_id: str | None = None, client: Any = None) -> MlflowTracker:
    """Tells the run ``run_id`` (default: the active one) of every version from now on.

    Raises:
        UsageError: no run is active.
    """
    active = mlflow.active_run()
    run_id = active.info.run_id if run_id is None and active is not None else run_id
    if run_id is None:
        raise UsageError("no MLflow run is active", "call mlflow.start_run before, or give run_id")
    return repo.track(MlflowTracker(run_id, MlflowClient() if client is None else client))
