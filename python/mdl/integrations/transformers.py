"""Hugging Face's Trainer: a callback that commits every checkpoint it writes, and resuming from a version.

Talks to `TrainerCallback`, the Trainer's checkpoint folders and `_checkpoints`. What is in the folders stays the
Trainer's business: they are committed and brought back as files, byte for byte, so `from_pretrained` reads them too.

    Trainer(model, args, callbacks=[MdlCallback("runs")], ...).train()
    resume_from_mdl(trainer, "runs")
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..repo import Repo
from ._checkpoints import Checkpoints, RepoLike, existing_repo, numbers, scratch_parent, scratch_prefix


class MdlCallback(TrainerCallback):
    """Commits `checkpoint-{step}` when the Trainer has written it.

    The files are linked aside first and stored in the background; the Trainer's rotation (`save_total_limit`) may take
    the folder away meanwhile. `remove`: folders go once a later one is durable in the repository, so that one folder is
    left, and the best one where the Trainer tracks it. `retention`: rules of `mdl.retention` for the repository.
    `commit`: keywords of `Repo.commit_dir` for every version (policy, evaluate, branch, ...).

    A version's metrics are what the Trainer logged since the version before, the latest of each name.
    """

    def __init__(self, repo: RepoLike = None, *, remove: bool = False, retention: Any = None, **commit: Any) -> None:
        self._repo, self._remove = repo, remove
        self._options = {"retention": retention, **commit}
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
            folder, folder.name, step=state.global_step, epoch=state.epoch, metrics=self._metrics(state)
        )
        if self._remove:
            best = state.best_model_checkpoint
            pending.add_done_callback(lambda done: self._remove_older(folder, best, done))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Waits for pending commits."""
        if self._checkpoints is not None:
            self._checkpoints.flush()

    def resumed(self, rev: str) -> None:
        """Says that training was restored from `rev`: the next version notes it. `resume_from_mdl` does this."""
        self._opened().resumed(rev)

    def _opened(self) -> Checkpoints:
        # Only the rank that commits opens the repository, and only when needed.
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self._repo, **self._options)
        return self._checkpoints

    def _metrics(self, state: TrainerState) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for entry in state.log_history:
            if entry.get("step", 0) > self._logged_up_to:
                metrics.update(numbers(entry))
        self._logged_up_to = state.global_step
        return {name: value for name, value in metrics.items() if name not in ("step", "epoch")}

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
