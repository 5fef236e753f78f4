"""Resume labels: what a run gets back when it resumes from a version: exact-resume, approximate, weights-only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import makers
from support.cli import Mdl
from support.makers import Storage, View


def tensors(names: list[str]) -> dict[str, View]:
    values = [Storage.of(str(i), makers.random_f32((40,), i)) for i in range(len(names))]
    return {name: View.whole(value, (40,)) for name, value in zip(names, values, strict=True)}


def weights(folder: Path) -> None:
    makers.write_small_checkpoint(folder, 1)


def trainer(folder: Path) -> None:
    """What Hugging Face's Trainer writes."""
    weights(folder)
    makers.torch_zip(folder / "optimizer.pt", {"state": {0: tensors(["exp_avg", "exp_avg_sq"])}})
    makers.torch_zip(folder / "scheduler.pt", {"last_epoch": 3})
    random = Storage.of("0", np.arange(5056, dtype=np.uint8))
    makers.torch_zip(folder / "rng_state.pth", {"cpu": View.whole(random, (5056,))})


def without_random_state(folder: Path) -> None:
    trainer(folder)
    (folder / "rng_state.pth").unlink()


def accelerate(folder: Path) -> None:
    weights(folder)
    makers.torch_zip(folder / "optimizer.bin", {"state": {}})
    (folder / "random_states_0.pkl").write_bytes(b"\x80\x04}.")


def one_file(folder: Path) -> None:
    makers.torch_zip(folder / "last.pt", makers.training_state(1))


def one_file_without(*keys: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        state: dict[str, Any] = makers.training_state(1)
        makers.torch_zip(folder / "last.pt", {k: v for k, v in state.items() if k not in keys})

    return make


CASES = [
    (weights, "weights-only"),
    (trainer, "exact-resume"),
    (without_random_state, "approximate"),
    (accelerate, "exact-resume"),
    (one_file, "exact-resume"),
    (one_file_without("rng_state"), "approximate"),
    (one_file_without("optimizer", "rng_state"), "weights-only"),
]


@pytest.mark.parametrize(("make", "label"), CASES)
def test_labels_follow_from_what_is_there(mdl: Mdl, source: Path, make: Callable[[Path], None], label: str) -> None:
    make(source)
    done = mdl.commit(source, "first")
    assert done["resume"] == label
    # Known files are told from their manifests.
    assert mdl.commit(source, "again", "--allow-empty")["resume"] == label
    assert [entry["resume"] for entry in mdl.log("main")] == [label, label]
    assert mdl.json("show", "main")["resume"] == label
    for options in ((), ("--oneline",)):
        mdl.run("log", *options).names(label)


def test_without_tensors_there_is_no_label(mdl: Mdl, source: Path) -> None:
    (source / "optimizer.pt.txt").write_text("no tensors\n")
    assert mdl.commit(source, "text")["resume"] is None
    assert "Resume:" not in mdl.run("log").out


def test_lossy_versions_resume_approximately_unless_they_are_exact_while_new(
    mdl: Mdl, source: Path, tmp_path: Path
) -> None:
    one_file(source)
    own = tmp_path / "own.toml"
    own.write_text(mdl.run("policy", "show", "lossy").out + "\n[keep]\nexact_latest = 0\n")
    assert mdl.commit(source, "lossy", "--policy", own, "--eval", "echo 1")["resume"] == "approximate"
    makers.torch_zip(source / "last.pt", makers.training_state(2))
    assert mdl.commit(source, "new", "--policy", "lossy", "--eval", "echo 1")["resume"] == "exact-resume"
    makers.torch_zip(source / "last.pt", makers.training_state(3))
    mdl.commit(source, "newer", "--policy", "lossy", "--eval", "echo 1")
    mdl.run("gc", "--prune-now")
    assert [entry["resume"] for entry in mdl.log("main")] == ["exact-resume", "approximate", "approximate"]
    kept = mdl.commit(source, "kept", "--policy", "lossy", "--eval", "exit 1", "--keep-going", "--allow-empty")
    assert kept["quality"]["family"] == "lossless"
    assert kept["resume"] == "exact-resume"
