"""Hugging Face's Trainer: a callback that commits every checkpoint it writes, and resuming from a version.

Talks to `TrainerCallback`, the Trainer's checkpoint folders and `_checkpoints`. What is in the folders stays the
Trainer's business: they are committed and brought back as files, byte for byte, so `from_pretrained` reads them too.

    Trainer(model, args, callbacks=[MdlCallback("runs")], ...).train()
    resume_from_mdl(trainer, "runs")
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..compressor import Compressor
from ..repo import Repo
from ._checkpoints import Checkpoints, RepoLike, existing_repo, find_repo, kept, numbers, scratch_parent, scratch_prefix


class MdlCallback(TrainerCallback):
    """Commits `checkpoint-{step}` when the Trainer has written it.

    The files are linked aside first and stored in the background; the Trainer's rotation (`save_total_limit`) may take
    the folder away meanwhile. `remove`: folders go once a later one is durable in the repository, so that one folder is
    left, and the best one where the Trainer tracks it. `retention`: rules of `mdl.retention` for the repository.
    `commit`: keywords of `Repo.commit_dir` for every version (policy, evaluate, branch, ...).

    A version's metrics are what the Trainer logged since the version before, the latest of each name, of those that
    `keep` names by globs (`keep="all"`: all). By default `loss`, `eval_loss`, `learning_rate`, `grad_norm` and what
    `metric_for_best_model` names. `track`: `"wandb"` or `"mlflow"`, for the run that the Trainer reports to, or a
    tracker of `mdl.integrations`.
    """

    def __init__(
        self,
        repo: RepoLike = None,
        *,
        remove: bool = False,
        retention: Any = None,
        keep: str | Iterable[str] | None = None,
        track: Any = None,
        **commit: Any,
    ) -> None:
        self._repo, self._remove, self._keep = repo, remove, keep
        self._options = {"retention": retention, "track": track, **commit}
        self._checkpoints: Checkpoints | None = None
        self._logged_up_to = 0
        self._kept: list[Path] = []

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Skips the log entries of the run before, which belong to other versions."""
        self._logged_up_to = state.global_step

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Commits the folder that was just written; errors are raised in the Trainer."""
        if args.world_size > 1 and torch.distributed.is_initialized():
            # Every rank writes its random state into the folder; only then is it complete.
            torch.distributed.barrier()
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        pending = self._opened().commit_dir(
            folder, folder.name, step=state.global_step, epoch=state.epoch, metrics=self._metrics(args, state)
        )
        if self._remove:
            best = state.best_model_checkpoint
            pending.add_done_callback(lambda done: self._remove_older(folder, best, done))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Waits for pending commits."""
        if self._checkpoints is not None:
            self._checkpoints.end()

    def resumed(self, rev: str) -> None:
        """Says that training was restored from `rev`: the next version notes it. `resume_from_mdl` does this."""
        self._opened().resumed(rev)

    def _opened(self) -> Checkpoints:
        # Only the rank that commits opens the repository, and only when needed.
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self._repo, **self._options)
        return self._checkpoints

    def _metrics(self, args: TrainingArguments, state: TrainerState) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for entry in state.log_history:
            if entry.get("step", 0) > self._logged_up_to:
                metrics.update(numbers(entry))
        self._logged_up_to = state.global_step
        metrics.pop("step", None)
        # The version has its epoch.
        metrics.pop("epoch", None)
        best = args.metric_for_best_model
        return kept(metrics, self._keep, best, best and f"eval_{best}")

    def _remove_older(self, folder: Path, best: str | None, done: Any) -> None:
        """Runs when `folder` is durable. A folder that could not be stored stays."""
        if done.exception() is not None:
            return
        older, self._kept = self._kept, [folder]
        for path in older:
            if best is not None and path.resolve() == Path(best).resolve():
                self._kept.append(path)
            elif path != folder:
                shutil.rmtree(path, ignore_errors=True)


class CompressorCallback(TrainerCallback):
    """Lossy versions from the Trainer's loop by `mdl.Compressor`: gradients are averaged before each, and candidates
    measured on the live model.

    `evaluate(model)` gives one number for the model, in evaluation mode. `interval`: steps between versions, by default
    the Trainer's `save_steps`. `options`: keywords of `mdl.Compressor` (threshold, policy, window, retention, ...). A
    version is the state of the model, the optimizer, the scheduler and the random generators, not the Trainer's folder:
    `repo.load` gives it back, and the Trainer's own saving may be off (`save_strategy="no"`).

        Trainer(model, args, callbacks=[CompressorCallback("runs", lambda model: loss_of(model, batches))]).train()
    """

    def __init__(
        self,
        repo: RepoLike = None,
        evaluate: Callable[[Any], Any] | None = None,
        *,
        interval: int | None = None,
        keep: str | Iterable[str] | None = None,
        **options: Any,
    ) -> None:
        self._repo, self._evaluate, self._interval, self._keep = repo, evaluate, interval, keep
        self._options = options
        #: Set while it trains.
        self.compressor: Compressor | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **has: Any) -> None:
        """Takes the model, as it is trained, the optimizer and the scheduler."""
        self._every = int(self._interval or args.save_steps)
        model, evaluate = has["model"], self._evaluate
        self.compressor = Compressor(
            model,
            None if evaluate is None else lambda: evaluate(model),
            repo=find_repo(self._repo),
            optimizer=has.get("optimizer"),
            scheduler=has.get("lr_scheduler"),
            interval=self._every,
            start=state.global_step,
            **self._options,
        )

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Gradients are there, accumulated and clipped."""
        if self.compressor is not None:
            self.compressor.on_backward_pass_end()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Averages them in before the Trainer throws them away."""
        if self.compressor is not None:
            self.compressor.before_gradient_flush()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Commits, at multiples of the interval."""
        if self.compressor is None or state.global_step % self._every:
            return
        logged = numbers(state.log_history[-1]) if state.log_history else {}
        metrics = {name: value for name, value in logged.items() if name not in ("step", "epoch")}
        self.compressor.compress(state.global_step, metrics=kept(metrics, self._keep), epoch=state.epoch)


def resume_from_mdl(trainer: Trainer, repo: RepoLike = None, rev: str = "HEAD", **train: Any) -> Any:
    """Trains on from `rev`: model, optimizer, scheduler, scaler, random state, data order and the Trainer's own counts.

    The version is checked out beside the repository for as long as the Trainer reads it, which is until its first step.
    Returns what `trainer.train` returns. Raises NotFoundError if there is no such version.
    """
    source = existing_repo(repo)
    commit = source.resolve(rev)
    folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=scratch_parent(source)))
    tidy = _RemoveAfterFirstStep(folder)
    trainer.add_callback(tidy)
    try:
        source.checkout(commit, folder, force=True)
        if trainer.is_world_process_zero():
            _tell(trainer, source, commit)
        return trainer.train(resume_from_checkpoint=str(folder), **train)
    finally:
        trainer.remove_callback(tidy)
        shutil.rmtree(folder, ignore_errors=True)


def _tell(trainer: Trainer, source: Repo, commit: str) -> None:
    """Tells the trainer's own callback, if it commits to the repository that training goes on from."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, MdlCallback) and callback._opened().repo.path == source.path:
            callback.resumed(commit)


class _RemoveAfterFirstStep(TrainerCallback):
    """Frees the disk as soon as a step has been made, when everything of the folder has been read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_step_end(self, *_: Any, **__: Any) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
