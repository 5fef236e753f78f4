"""Lightning: checkpoints that are versions, and runs that go on from one to the bit.

Talks to Lightning's `CheckpointIO` and `ModelCheckpoint`, to `mdl.data` and to `_checkpoints`. Works with `lightning` and
with `pytorch_lightning`, whichever the program uses. It does not know when checkpoints are taken: `ModelCheckpoint` does.

    trainer = Trainer(callbacks=[MdlCallback("runs", every_n_train_steps=100)])
    trainer.fit(model, ckpt_path="main")        # any revision; "last" and "best" as usual

Where Lightning expects a file, there is a pointer: a line of JSON that names the version. It appears when the version is
durable, so a pointer that exists can be loaded. Removing it (`save_top_k`) removes no version; `retention` does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import ResumableLoader
from ..rng import rng_state, set_rng_state
from ._checkpoints import Checkpoints, RepoLike, numbers


def _prefer_unified() -> bool:
    """Whether the program uses `lightning` rather than `pytorch_lightning`: classes of one are none of the other's."""
    if "lightning.pytorch" in sys.modules or "pytorch_lightning" in sys.modules:
        return "lightning.pytorch" in sys.modules
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        return False
    return True


if TYPE_CHECKING or not _prefer_unified():
    from lightning_fabric.plugins import CheckpointIO, TorchCheckpointIO
    from pytorch_lightning.callbacks import ModelCheckpoint
else:
    from lightning.fabric.plugins import CheckpointIO, TorchCheckpointIO
    from lightning.pytorch.callbacks import ModelCheckpoint

# Names that say the same everywhere: a version of a Lightning run has `model.safetensors`, as every other.
_NAMES = {"state_dict": "model", "optimizer_states": "optimizer"}
_OURS = "mdl"
_POINTER_BYTES = 4096


class MdlCheckpointIO(CheckpointIO):
    """Stores the checkpoint's dictionary as a state in `repo` instead of as a file: `Trainer(plugins=[MdlCheckpointIO(repo)])`.

    `retention`: rules of `mdl.retention`. `commit`: keywords of `Repo.commit` for every version (policy, branch, ...).
    A path to load is a pointer that `save_checkpoint` left, a revision of `repo`, or a file of `torch.save`.
    """

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **commit: Any) -> None:
        self._checkpoints = Checkpoints(repo, retention=retention, **commit)
        self._pending: dict[str, Any] = {}
        self._loaded: str | None = None

    @property
    def repo(self) -> Any:
        """The repository."""
        return self._checkpoints.repo

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Commits `checkpoint` in the background; a pointer at `path` follows. `storage_options`: keywords of `Repo.commit`."""
        path = os.fspath(path)
        state = {_NAMES.get(name, name): value for name, value in checkpoint.items()}
        about = {
            "step": checkpoint.get("global_step"),
            "epoch": checkpoint.get("epoch"),
            "metrics": _metrics(checkpoint),
        }
        pending = self._checkpoints.commit(state, Path(path).stem, **{**about, **(storage_options or {})})
        self._pending[path] = pending
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._when_durable(path, lambda: self._point(path, pending.result().id))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The dictionary that was saved. Raises NotFoundError if `path` is neither a file nor a revision."""
        self._checkpoints.flush()
        path = os.fspath(path)
        rev = _read_pointer(path)
        if rev is None and os.path.isfile(path):
            return TorchCheckpointIO().load_checkpoint(path, map_location or "cpu", weights_only)
        self._loaded = self.repo.resolve(rev or path)
        state = self.repo.load(self._loaded, map_location="cpu" if map_location is None else map_location)
        names = {new: old for old, new in _NAMES.items()}
        return {names.get(name, name): value for name, value in state.items()}

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Removes the pointer. The version stays until `retention` lets it go."""
        path = os.fspath(path)
        self._when_durable(path, lambda: Path(path).unlink(missing_ok=True))

    def link_checkpoint(self, path: str, link: str) -> None:
        """Makes `link` a link to the pointer at `path`, when that is there: a link never leads nowhere."""
        self._when_durable(path, lambda: _link(path, link))

    def teardown(self) -> None:
        """Waits for what is still being stored."""
        self._checkpoints.flush()

    def training_goes_on(self) -> None:
        """Says that training was restored from what was loaded last: the next version notes it."""
        if self._loaded is not None:
            self._checkpoints.resumed(self._loaded)

    def _when_durable(self, path: str, action: Callable[[], None]) -> None:
        """Does something to the pointer at `path` once its version is durable, in the order in which it was asked for.

        A commit that failed leaves no pointer, and is raised at the next call.
        """
        pending = self._pending.get(path)
        if pending is None:
            action()
        else:
            pending.add_done_callback(lambda done: None if done.exception() else action())

    def _point(self, path: str, commit: str) -> None:
        _replace(
            path,
            lambda part: part.write_text(json.dumps({"mdl_commit": commit, "repository": str(self.repo.path)}) + "\n"),
        )


class MdlCallback(ModelCheckpoint):
    """`ModelCheckpoint` that commits to `repo`, with everything that is needed to go on to the bit.

    Besides what Lightning puts into a checkpoint, a version holds the random states and each train loader's place in its
    epoch, and metrics. Checkpoints of other `ModelCheckpoint`s of the trainer go to the repository as well.

    Loaders with a `state_dict` of their own are left to Lightning; others are wrapped in `ResumableLoader`, which draws the
    first epoch's order when training starts. `retention` and the `commit` keywords (policy, evaluate, branch, meta, grads,
    higher_is_better) are those of `MdlCheckpointIO`; all others are ModelCheckpoint's. `save_top_k` is -1 by default:
    a pointer to every version.
    """

    _COMMIT = ("branch", "evaluate", "grads", "higher_is_better", "meta", "policy")

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **options: Any) -> None:
        commit = {name: options.pop(name) for name in self._COMMIT if name in options}
        super().__init__(**{"save_top_k": -1, **options})
        self._repo, self._commit = repo, {"retention": retention, **commit}
        self._resume: dict[str, Any] | None = None
        self._before_validation: dict[str, Any] | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Puts the repository in the place of files, unless the program did so itself."""
        super().setup(trainer, pl_module, stage)
        if not isinstance(trainer.strategy.checkpoint_io, MdlCheckpointIO):
            trainer.strategy.checkpoint_io = MdlCheckpointIO(self._repo, **self._commit)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Adds the random states, the loaders' places and the metrics."""
        # Lightning saves before it asks for the batch that would end the epoch, and may end it early.
        ended = bool(trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
        places = [loader.state_dict(ended=ended, with_rng=False) for loader in _wrapped(trainer)]
        checkpoint[_OURS] = {
            "rng": self._before_validation or rng_state(),
            "loaders": places,
            "metrics": numbers(trainer.callback_metrics),
        }
        if places:
            # Lightning found the same places through `state_dict`, and would look for someone to give them to too early.
            checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keeps what `on_train_start` sets, if training is what the checkpoint is loaded for."""
        if trainer.state.fn != "fit":
            return
        self._resume = checkpoint.get(_OURS)
        if isinstance(trainer.strategy.checkpoint_io, MdlCheckpointIO):
            trainer.strategy.checkpoint_io.training_goes_on()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Wraps the loaders, puts them in their places, and starts the epoch anew from there."""
        super().on_train_start(trainer, pl_module)
        resume, self._resume = self._resume, None
        loaders = _wrap(trainer)
        if resume is not None:
            _put_back(loaders, resume)
            _leave_finished_epoch(trainer.fit_loop)
        if loaders:
            # Lightning made its iterators before this hook, of the loaders as they were.
            iter(trainer.fit_loop._data_fetcher)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Wraps loaders that Lightning has reloaded meanwhile; their iterators are made after this hook."""
        _wrap(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Commits if it is time, and notes the random states in case validation follows, which draws before its first hook."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if trainer.enable_validation:
            self._before_validation = rng_state()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Makes validation leave no trace in the random states: a run that goes on may skip the one that comes first."""
        if trainer.state.fn == "fit" and self._before_validation is not None:
            set_rng_state(self._before_validation)
        super().on_validation_end(trainer, pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Validation is over, if there was one."""
        self._before_validation = None

    def _link_checkpoint(self, trainer: Any, filepath: str, linkpath: str) -> None:  # type: ignore[override]
        """For `save_last="link"`: Lightning's own would link to a pointer that is not there yet."""
        io = trainer.strategy.checkpoint_io
        if not isinstance(io, MdlCheckpointIO):
            super()._link_checkpoint(trainer, filepath, linkpath)
        elif trainer.is_global_zero and os.path.abspath(filepath) != os.path.abspath(linkpath):
            io.link_checkpoint(filepath, linkpath)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Waits for what is still being stored, however the run ended."""
        super().teardown(trainer, pl_module, stage)
        trainer.strategy.checkpoint_io.teardown()


def _wrapped(trainer: Any) -> list[ResumableLoader]:
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else [loader for loader in combined.flattened if isinstance(loader, ResumableLoader)]


def _wrap(trainer: Any) -> list[ResumableLoader]:
    """All train loaders in `ResumableLoader`s; none where one of them cannot be: then order is the program's matter."""
    combined = trainer.fit_loop._combined_loader
    if combined is None or not all(_can_go_on(loader) for loader in combined.flattened):
        return []
    combined.flattened = [
        loader if isinstance(loader, ResumableLoader) else ResumableLoader(loader) for loader in combined.flattened
    ]
    return combined.flattened


def _can_go_on(loader: Any) -> bool:
    """Whether iterating `loader` again gives the epoch again: a map-style DataLoader does, a stream need not."""
    if isinstance(loader, ResumableLoader):
        return True
    import torch.utils.data as data

    own = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
    return isinstance(loader, data.DataLoader) and not own and not isinstance(loader.dataset, data.IterableDataset)


def _put_back(loaders: list[ResumableLoader], resume: dict[str, Any]) -> None:
    """Each loader to its place. The first to be asked for a batch sets the random states, after every other hook ran."""
    if len(loaders) != len(resume["loaders"]):
        set_rng_state(resume["rng"])
        return
    for index, (loader, place) in enumerate(zip(loaders, resume["loaders"], strict=True)):
        loader.load_state_dict({**place, "rng": resume["rng"] if index == 0 else None})


def _leave_finished_epoch(loop: Any) -> None:
    """A version from `on_train_epoch_end`: with `max_steps` Lightning would enter the epoch again, and without validation
    train a batch more than it has. The next epoch starts as it would have."""
    if not getattr(loop, "restarted_on_epoch_end", False):
        return
    progress = loop.epoch_progress
    progress.current.completed = progress.current.processed
    progress.total.completed = progress.total.processed
    # The fit loop's own setter takes a run with `max_steps` for one that was interrupted, always.
    loop._restarting = loop.epoch_loop.restarting = False
    loop.reset_restart_stage()


def _metrics(checkpoint: dict[str, Any]) -> dict[str, float]:
    """What the callback measured; without the callback, what the ModelCheckpoints monitor."""
    if _OURS in checkpoint:
        return checkpoint[_OURS]["metrics"]
    states = [state for state in checkpoint.get("callbacks", {}).values() if isinstance(state, dict)]
    return numbers({state["monitor"]: state.get("current_score") for state in states if state.get("monitor")})


def _replace(path: str, make: Callable[[Path], Any]) -> None:
    """Puts what `make` makes in the place of `path`, at once."""
    target = Path(path)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    make(part)
    os.replace(part, target)


def _link(path: str, link: str) -> None:
    _replace(link, lambda part: part.symlink_to(os.path.relpath(path, os.path.dirname(link))))


def _read_pointer(path: str) -> str | None:
    """The commit that the pointer at `path` names; None if there is no pointer."""
    try:
        if os.path.getsize(path) > _POINTER_BYTES:
            return None
        pointer = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None
    return pointer.get("mdl_commit") if isinstance(pointer, dict) else None
