"""Composer: a callback that commits the trainer's state at an interval and can resume from it (paper, Listing 2).

Talks to Composer's `Callback`, its `State` and `_checkpoints`. What the state holds stays Composer's business.

    trainer = Trainer(..., callbacks=[MdlCallback("runs", interval="100ba")])
    trainer = Trainer(..., callbacks=[MdlCallback("runs", interval="100ba", resume="HEAD")])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from composer import Callback, Event, Logger, State
from composer.utils import create_interval_scheduler, dist, reproducibility

from ..errors import NotFoundError
from ._checkpoints import Checkpoints, RepoLike, numbers


class MdlCallback(Callback):
    """Commits model, optimizers, schedulers, timestamp and random states every `interval` (Composer's notation: "1ep",
    "100ba") and at the end of training.

    `resume`: a revision to start from; a repository that has no version yet starts afresh, so that one script serves
    the first start and every later one. `retention`: rules of `mdl.retention`. `commit`: keywords of `Repo.commit` for
    every version (policy, evaluate, branch, ...). All ranks gather the state; rank 0 has the repository.

    Data order is Composer's: exact with `composer.utils.dist.get_sampler`, whose order depends on seed and epoch alone.
    """

    def __init__(
        self,
        repo: RepoLike = None,
        interval: str | int = "1ep",
        *,
        resume: str | None = None,
        retention: Any = None,
        **commit: Any,
    ) -> None:
        super().__init__()
        self._checkpoints = Checkpoints(repo, retention=retention, **commit)
        self._due: Callable[[State, Event], bool] = create_interval_scheduler(interval, include_end_of_training=True)
        self._resume = resume
        self._rng: Any = None
        self._last_batch = -1

    def after_load(self, state: State, logger: Logger) -> None:
        """Restores the trainer to the version to resume from."""
        if self._resume is None:
            return
        try:
            saved = self._checkpoints.repo.load(self._resume)
        except NotFoundError:
            if self._checkpoints.repo.branches():
                raise
            return
        name = state.run_name
        composer = {"model": saved["model"], "optimizers": saved["optimizer"], **saved["composer"]}
        state.load_state_dict(composer, logger, strict=True)
        state.run_name = name
        self._checkpoints.resumed(self._resume)
        self._rng = saved["rng"]
        self._last_batch = int(state.timestamp.batch)

    def epoch_start(self, state: State, logger: Logger) -> None:
        """A version from between two epochs: the order of the next one is drawn from its random states."""
        self._restore_rng()

    def batch_start(self, state: State, logger: Logger) -> None:
        """A version from within an epoch: Composer has skipped the batches that were seen."""
        self._restore_rng()

    def batch_checkpoint(self, state: State, logger: Logger) -> None:
        """Commits if the interval says so."""
        self._commit_if_due(state, Event.BATCH_CHECKPOINT)

    def epoch_checkpoint(self, state: State, logger: Logger) -> None:
        """Commits if the interval says so."""
        self._commit_if_due(state, Event.EPOCH_CHECKPOINT)

    def iteration_checkpoint(self, state: State, logger: Logger) -> None:
        """Commits if the interval says so."""
        self._commit_if_due(state, Event.ITERATION_CHECKPOINT)

    def fit_end(self, state: State, logger: Logger) -> None:
        """Waits for pending commits."""
        self._checkpoints.end()

    def post_close(self) -> None:
        """Waits for pending commits, if training ended by an exception."""
        self._checkpoints.end()

    def _restore_rng(self) -> None:
        if self._rng is not None:
            saved, self._rng = self._rng, None
            reproducibility.load_rng_state(saved)

    def _commit_if_due(self, state: State, event: Event) -> None:
        batch = int(state.timestamp.batch)
        if not self._due(state, event) or batch == self._last_batch:
            return
        self._last_batch = batch
        gathered, rng = state.state_dict(), reproducibility.get_rng_state()
        if dist.get_global_rank() != 0:
            return
        version = {
            "model": gathered.pop("model"),
            "optimizer": gathered.pop("optimizers"),
            "rng": rng,
            "composer": gathered,
        }
        self._checkpoints.commit(
            version, f"batch {batch}", step=batch, epoch=int(state.timestamp.epoch), metrics=_metrics(state)
        )


def _metrics(state: State) -> dict[str, float]:
    """The loss of the last batch, and the metrics that the trainer has computed so far."""
    metrics = {"loss": state.loss} if not isinstance(state.loss, dict) else dict(state.loss)
    for name, metric in (state.train_metrics or {}).items():
        if metric.update_count:
            metrics[name] = metric.compute()
    for label, measured in (state.eval_metrics or {}).items():
        metrics.update(
            {f"{label}/{name}": metric.compute() for name, metric in measured.items() if metric.update_count}
        )
    return numbers(metrics)
