"""Lightning's `CheckpointIO`: commits a checkpoint's dictionary, and writes a pointer where Lightning expects a file.

Talks to `_checkpoints`. It does not know trainers and loops: `lightning` does. Works with `lightning` and with
`pytorch_lightning`, whichever the program uses.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

__all__ = ["OURS", "MdlCheckpointIO", "ModelCheckpoint"]

# Common names: a version of a Lightning run has `model.safetensors`, like every other.
_NAMES = {"state_dict": "model", "optimizer_states": "optimizer"}
OURS = "mdl"
"""The key of a checkpoint below which is what `MdlCallback` adds."""
_POINTER_BYTES = 4096


#: Held while something is done to pointers; not the object's own, which may be pickled.
_ORDER = threading.RLock()


class MdlCheckpointIO(CheckpointIO):
    """Stores the checkpoint's dictionary as a state in `repo` instead of as a file:
    `Trainer(plugins=[MdlCheckpointIO(repo)])`.

    `retention`: rules of `mdl.retention`. `commit`: keywords of `Repo.commit` for every version (policy, branch, ...).
    A path to load is a pointer that `save_checkpoint` left, a revision of `repo`, or a file of `torch.save`.
    """

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **commit: Any) -> None:
        self._checkpoints = Checkpoints(repo, retention=retention, **commit)
        #: By path: the commit, and the action on the pointer once it is durable.
        self._pending: dict[str, tuple[Any, collections.deque[Callable[[], None]]]] = {}
        self._loaded: str | None = None

    @property
    def repo(self) -> Any:
        """The repository."""
        return self._checkpoints.repo

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Commits `checkpoint` in the background; a pointer at `path` follows. `storage_options`: keywords of
        `Repo.commit`."""
        path = os.fspath(path)
        state = {_NAMES.get(name, name): value for name, value in checkpoint.items()}
        about = {
            "step": checkpoint.get("global_step"),
            "epoch": checkpoint.get("epoch"),
            "metrics": _metrics(checkpoint),
        }
        pending = self._checkpoints.commit(state, Path(path).stem, **{**about, **(storage_options or {})})
        self._pending[path] = (pending, collections.deque())
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
        """Makes `link` a link to the pointer at `path` once that exists: a link never dangles."""
        self._when_durable(path, lambda: _link(path, link))

    def teardown(self) -> None:
        """Waits for what is still being stored."""
        self._checkpoints.end()

    def training_goes_on(self) -> None:
        """Says that training was restored from what was loaded last: the next version notes it."""
        if self._loaded is not None:
            self._checkpoints.resumed(self._loaded)

    def _when_durable(self, path: str, action: Callable[[], None]) -> None:
        """Does something to the pointer at `path` once its version is durable, in the order in which it was asked for.

        A commit that failed leaves no pointer, and is raised at the next call.
        """
        if path not in self._pending:
            action()
            return
        pending, actions = self._pending[path]
        with _ORDER:
            actions.append(action)
        # Called on the thread that made the commit or, once it is durable, on this one: both go by the list.
        pending.add_done_callback(lambda done: self._act(done, actions))

    def _act(self, done: Any, actions: collections.deque[Callable[[], None]]) -> None:
        with _ORDER:
            while actions:
                action = actions.popleft()
                if not done.exception():
                    action()

    def _point(self, path: str, commit: str) -> None:
        _replace(
            path,
            lambda part: part.write_text(json.dumps({"mdl_commit": commit, "repository": str(self.repo.path)}) + "\n"),
        )


def _metrics(checkpoint: dict[str, Any]) -> dict[str, float]:
    """What the callback measured; without the callback, what the ModelCheckpoints monitor."""
    if OURS in checkpoint:
        return checkpoint[OURS]["metrics"]
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
