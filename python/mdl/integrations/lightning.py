"""Lightning: a callback that commits checkpoints, and runs that resume from a version bit for bit.

Talks to `ModelCheckpoint`, to `_lightning_io` and `_lightning_loops`. It does not know when checkpoints are taken:
`ModelCheckpoint` does. Works with `lightning` and with `pytorch_lightning`, whichever the program uses.

    trainer = Trainer(callbacks=[MdlCallback("runs", every_n_train_steps=100)])
    trainer.fit(model, ckpt_path="main")        # any revision; "last" and "best" as usual

Where Lightning expects a file, there is a pointer: a line of JSON that names the version. It appears when the version
is durable, so a pointer that exists can be loaded. Removing it (`save_top_k`) removes no version; `retention` does.
"""

from __future__ import annotations

import os
from typing import Any

from ..rng import rng_state, set_rng_state
from ._checkpoints import RepoLike, numbers
from ._lightning_io import OURS, MdlCheckpointIO, ModelCheckpoint
from ._lightning_loops import leave_finished_epoch, put_back, wrap, wrapped

__all__ = ["MdlCallback", "MdlCheckpointIO"]


class MdlCallback(ModelCheckpoint):
    """`ModelCheckpoint` that commits to `repo`, with everything needed to resume bit for bit.

    Besides what Lightning puts into a checkpoint, a version holds the random states and each train loader's place in
    its epoch, and metrics. Checkpoints of other `ModelCheckpoint`s of the trainer go to the repository as well.

    Loaders with a `state_dict` of their own are left to Lightning; others are wrapped in `ResumableLoader`, which draws
    the first epoch's order when training starts. `retention` and the `commit` keywords (policy, evaluate, branch, meta,
    grads, higher_is_better, quality, progress, track) are those of `MdlCheckpointIO`; all others are ModelCheckpoint's.
    `save_top_k` is -1 by default: a pointer to every version.
    """

    _COMMIT = ("branch", "evaluate", "grads", "higher_is_better", "meta", "policy", "progress", "quality", "track")

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **options: Any) -> None:
        commit = {name: options.pop(name) for name in self._COMMIT if name in options}
        super().__init__(**{"save_top_k": -1, **options})
        self._repo, self._commit = repo, {"retention": retention, **commit}
        self._resume: dict[str, Any] | None = None
        self._before_validation: dict[str, Any] | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Installs the repository as checkpoint storage, unless the program did so itself."""
        super().setup(trainer, pl_module, stage)
        if not isinstance(trainer.strategy.checkpoint_io, MdlCheckpointIO):
            trainer.strategy.checkpoint_io = MdlCheckpointIO(self._repo, **self._commit)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Adds the random states, the loaders' positions and the metrics."""
        # Lightning saves before it asks for the batch that would end the epoch, and may end it early.
        ended = bool(trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
        places = [loader.state_dict(ended=ended, with_rng=False) for loader in wrapped(trainer)]
        checkpoint[OURS] = {
            "rng": self._before_validation or rng_state(),
            "loaders": places,
            "metrics": numbers(trainer.callback_metrics),
        }
        if places:
            # Lightning found the same places through `state_dict`, and would look for someone to give them to too
            # early.
            checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keeps what `on_train_start` sets, if training is what the checkpoint is loaded for."""
        if trainer.state.fn != "fit":
            return
        self._resume = checkpoint.get(OURS)
        if isinstance(trainer.strategy.checkpoint_io, MdlCheckpointIO):
            trainer.strategy.checkpoint_io.training_goes_on()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Wraps the loaders, puts them in their places, and starts the epoch anew from there."""
        super().on_train_start(trainer, pl_module)
        resume, self._resume = self._resume, None
        loaders = wrap(trainer)
        if resume is not None:
            put_back(loaders, resume)
            leave_finished_epoch(trainer.fit_loop)
        if loaders:
            # Lightning made its iterators before this hook, from the unwrapped loaders.
            iter(trainer.fit_loop._data_fetcher)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Wraps loaders that Lightning has reloaded meanwhile; their iterators are made after this hook."""
        wrap(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Commits if it is time, and notes the random states in case validation follows, which draws before its first
        hook."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if trainer.enable_validation:
            self._before_validation = rng_state()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Makes validation leave no trace in the random states: a run that goes on may skip the one that comes
        first."""
        if trainer.state.fn == "fit" and self._before_validation is not None:
            set_rng_state(self._before_validation)
        super().on_validation_end(trainer, pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Forgets the random states from before a validation, which is over now."""
        self._before_validation = None

    def _link_checkpoint(self, trainer: Any, filepath: str, linkpath: str) -> None:  # type: ignore[override]
        """For `save_last="link"`: Lightning's own would link to a pointer that is not there yet."""
        io = trainer.strategy.checkpoint_io
        if not isinstance(io, MdlCheckpointIO):
            super()._link_checkpoint(trainer, filepath, linkpath)
        elif trainer.is_global_zero and os.path.abspath(filepath) != os.path.abspath(linkpath):
            io.link_checkpoint(filepath, linkpath)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Waits for pending commits, however the run ended."""
        super().teardown(trainer, pl_module, stage)
        trainer.strategy.checkpoint_io.teardown()
