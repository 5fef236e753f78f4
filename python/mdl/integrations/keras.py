"""Keras: a callback that commits the model's and the optimizer's variables, and `restore`.

Talks to Keras 3's variables, on any of its backends, to `rng` and to `_checkpoints`. It does not store the
architecture: the program that builds the model does.

    model.fit(x, y, epochs=10, callbacks=[MdlCallback("runs")])
    model.fit(x, y, epochs=10, initial_epoch=restore(model, "runs").epoch, callbacks=[MdlCallback("runs")])
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import keras

from ..errors import UserError
from ..rng import rng_state, set_rng_state
from ._checkpoints import Checkpoints, RepoLike, existing_repo, numbers

# Random states of restored models that have not trained since.
_restored: WeakKeyDictionary[keras.Model, dict[str, Any]] = WeakKeyDictionary()


class MdlCallback(keras.callbacks.Callback):
    """Commits after every epoch, with the epoch's logs as metrics.

    `retention`: rules of `mdl.retention`. `commit`: keywords of `Repo.commit` for every version (policy, branch, ...).
    """

    def __init__(self, repo: RepoLike = None, *, retention: Any = None, **commit: Any) -> None:
        super().__init__()
        self._checkpoints = Checkpoints(repo, retention=retention, **commit)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """After `restore`: sets the random states once more, since `fit` may have looked at a batch to build the
        model."""
        state = _restored.pop(self.model, None)
        if state is not None:
            set_rng_state(state)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Commits in the background. `epoch` counts from 0; the version's epoch is how many are done."""
        state = {entry: _values(variables) for entry, variables in _parts(self.model).items()}
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        done = epoch + 1
        self._checkpoints.commit(
            {**state, "rng": rng_state()}, f"epoch {done}", step=step, epoch=done, metrics=numbers(logs or {})
        )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Waits for what is still being stored."""
        self._checkpoints.end()


def restore(model: keras.Model, repo: RepoLike = None, rev: str = "HEAD") -> Any:
    """Sets `model`, compiled and built, its optimizer and the random states to `rev`; returns that commit.

    Raises NotFoundError if there is no such version, UserError if it is of another model.
    """
    source = existing_repo(repo)
    state = source.load(rev)
    model.optimizer.build(model.trainable_variables)
    for entry, variables in _parts(model).items():
        _set(entry, variables, list(state[entry].values()))
    set_rng_state(state["rng"])
    _restored[model] = state["rng"]
    return source.show(rev)


def _parts(model: keras.Model) -> dict[str, list[Any]]:
    """A version's entries, and the variables that they hold, in an order that follows from how the model was built.

    Metrics are left out: they begin anew with every epoch.
    """
    return {
        "model": model.trainable_variables,
        "model_state": model.non_trainable_variables,
        "optimizer": model.optimizer.variables,
    }


def _values(variables: list[Any]) -> dict[str, Any]:
    """Arrays by the variables' paths; where two have one path, the later one's is marked."""
    values: dict[str, Any] = {}
    for variable in variables:
        name = variable.path
        while name in values:
            name += "+"
        values[name] = keras.ops.convert_to_numpy(variable.value)
    return values


def _set(entry: str, variables: list[Any], values: list[Any]) -> None:
    """Assigns by order: a second model of one program has other layer names."""
    shapes = [tuple(variable.shape) for variable in variables]
    if shapes != [tuple(value.shape) for value in values]:
        raise UserError(
            f"the version's {entry} does not fit the model: {len(values)} variables for {len(shapes)}, or other shapes",
            "build and compile the model as it was",
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
