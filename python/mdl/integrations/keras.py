"""Keras: a callback that commits the model's and the optimizer's variables, and the way back.

Talks to Keras 3's state tree, on any of its backends, to `rng` and to `_checkpoints`. It does not store the architecture:
the program that builds the model does.

    model.fit(x, y, epochs=10, callbacks=[MdlCallback("runs")])
    model.fit(x, y, epochs=10, initial_epoch=restore(model, "runs").epoch, callbacks=[MdlCallback("runs")])
"""

from __future__ import annotations

from typing import Any

import keras

from ..rng import rng_state, set_rng_state
from ._checkpoints import Checkpoints, RepoLike, existing_repo, numbers

# Keras' names of the parts of a state tree, and the files of a version that they become.
_PARTS = {
    "model": "trainable_variables",
    "model_state": "non_trainable_variables",
    "optimizer": "optimizer_variables",
    "metrics": "metrics_variables",
}


class MdlCallback(keras.callbacks.Callback):
    """Commits after every epoch, with the epoch's logs as metrics.

    `retention`: rules of `mdl.retention`. `commit`: keywords of `Repo.commit` for every version (policy, branch, ...).
    """

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **commit: Any) -> None:
        super().__init__()
        self._checkpoints = Checkpoints(repo, retention=retention, **commit)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits in the background. `epoch` counts from 0; the version's epoch is how many are done."""
        tree = self.model.get_state_tree(value_format="numpy_array")
        state = {name: tree[part] for name, part in _PARTS.items() if tree.get(part)}
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        done = epoch + 1
        self._checkpoints.commit(
            {**state, "rng": rng_state()}, f"epoch {done}", step=step, epoch=done, metrics=numbers(logs or {})
        )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Waits for what is still being stored."""
        self._checkpoints.flush()


def restore(model: keras.Model, repo: RepoLike = None, rev: str = "HEAD") -> Any:
    """Sets `model`, compiled and built, its optimizer and the random states to `rev`; returns that commit.

    Raises NotFoundError if there is no such version.
    """
    source = existing_repo(repo)
    state = source.load(rev)
    model.optimizer.build(model.trainable_variables)
    model.set_state_tree({part: state[name] for name, part in _PARTS.items() if name in state})
    set_rng_state(state["rng"])
    return source.show(rev)
