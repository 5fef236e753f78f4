"""Keras on torch: a commit after every epoch, and `restore` of any of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from frameworks import need

need("torch", "keras")
os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402
import mdl  # noqa: E402
import numpy as np  # noqa: E402
from mdl.integrations.keras import MdlCallback, restore  # noqa: E402


def build(seed: int) -> keras.Model:
    """A small net with dropout and batch norm, compiled."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    dropout = layers.Dropout(0.2, seed=seed)
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, "relu"), layers.BatchNormalization(), dropout, layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-2), loss, metrics=["accuracy"])
    return model


def fit(model: keras.Model, first: int, callbacks: list[Any]) -> None:
    """Up to 4 epochs of 6 batches, shuffled."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((48, 8)).astype("float32")
    labels = inputs[:, :3].argmax(1)
    options = {"batch_size": 8, "epochs": 4, "initial_epoch": first, "verbose": 0}
    model.fit(inputs, labels, validation_split=0.25, callbacks=callbacks, **options)


def variables(model: keras.Model) -> list[Any]:
    return [*model.weights, *model.optimizer.variables]


def test_goes_on_to_the_same_end(tmp_path: Path) -> None:
    straight = build(1)
    fit(straight, 0, [MdlCallback(tmp_path / "repo")])
    repo = mdl.Repo.open(tmp_path / "repo")
    commits = repo.log()
    assert [commit.epoch for commit in commits] == [4, 3, 2, 1]
    assert [commit.step for commit in commits] == [20, 15, 10, 5]
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(commits[0].metrics)

    for done in (1, 3):
        again = build(2)
        fit(again, int(restore(again, repo, f"main~{4 - done}").epoch), [MdlCallback(tmp_path / "again")])
        for one, other in zip(variables(straight), variables(again), strict=True):
            one, other = (keras.ops.convert_to_numpy(variable.value) for variable in (one, other))
            np.testing.assert_array_equal(one, other, err_msg=f"from epoch {done}")


def test_another_model_is_refused(tmp_path: Path) -> None:
    fit(build(1), 0, [MdlCallback(tmp_path / "repo")])
    other = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])
    other.compile("adam", "mse")
    with pytest.raises(mdl.UserError, match="model"):
        restore(other, tmp_path / "repo")
