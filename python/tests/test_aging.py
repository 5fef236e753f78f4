"""Versions that are exact while they are new: what Python reads of them before and after a collection."""

from __future__ import annotations

import contextlib
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mdl
import numpy as np
import pytest
from safetensors.numpy import load_file

FILE = "model.safetensors"
Collect = Callable[[mdl.Repo], mdl.Repo]


def weights(step: int) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(7).standard_normal((64, 256)).astype(np.float32)
    moved = np.random.default_rng(step).standard_normal((64, 256)).astype(np.float32)
    return {"w": drawn + np.float32(0.02 * step) * moved}


@pytest.fixture
def history(repo: mdl.Repo) -> mdl.Repo:
    """Three versions under the policy ``lossy``, of which only the newest stays exact."""
    for step in (1, 2, 3):
        state = {"model": weights(step), "optimizer": {"m": np.full(8, float(step))}, "rng": {"seed": step}}
        repo.commit(state, step=step, policy="lossy", quality=0.5, evaluate=lambda _: 1.0)
    return repo


@contextlib.contextmanager
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_new_version_is_exact_and_keeps_an_approximation_beside_it(history: mdl.Repo) -> None:
    for commit in history.log():
        assert commit.fidelity == "exact"
        assert commit.resume == "exact-resume"
        assert (commit.aged is None) == (commit.step == 3)
        assert commit.quality["family"] in ("lattice", "bins")
        assert 0 < commit.quality["exact_bytes"] < commit.stored_bytes
        with silent():
            assert np.array_equal(history.load(commit.id)["model"]["w"], weights(commit.step)["w"])
    assert history.log("main~1", limit=1)[0].aged == "exact: latest 1"


def test_a_collection_leaves_the_approximation_and_readers_are_told_once(
    history: mdl.Repo, collect: Collect, tmp_path: pathlib.Path
) -> None:
    again = collect(history)
    newest, before, _ = again.log()
    with silent():
        assert np.array_equal(again.load()["model"]["w"], weights(3)["w"])
    assert (newest.fidelity, newest.resume, newest.aged) == ("exact", "exact-resume", None)
    assert (before.fidelity, before.resume) == ("approximate", "approximate")
    assert "fidelity='approximate'" in repr(before)
    with pytest.warns(RuntimeWarning, match=f"{before.short_id}: its exact contents are gone .exact: latest 1."):
        stood: Any = again.load("main~1")
    with silent():
        # Every way of reading gives the same bits, and says no more of it.
        stored = stood["model"]["w"]
        assert np.array_equal(again.tensor("main~1", f"{FILE}:w").numpy(), stored)
        again.checkout("main~1", tmp_path / "out")
        assert np.array_equal(load_file(tmp_path / "out" / FILE)["w"], stored)
        again.export_safetensors("main~1", tmp_path / "all.safetensors", only=f"{FILE}:*")
        assert np.array_equal(load_file(tmp_path / "all.safetensors")["w"], stored)
        assert again.files("main~1") == again.files("main")
        (difference,) = [t for d in again.diff("main~1", "main") for t in d.tensors if t.name == "w"]
    exact = weights(2)["w"]
    assert 0 < np.linalg.norm(stored - exact) < 0.15 * np.linalg.norm(exact)
    assert difference.rel_l2 == pytest.approx(
        np.linalg.norm(weights(3)["w"] - stored) / np.linalg.norm(stored), rel=1e-4
    )
    # What no search touches is as it was.
    assert np.array_equal(stood["optimizer"]["m"], np.full(8, 2.0))


def test_every_way_of_reading_tensors_warns(history: mdl.Repo, collect: Collect, tmp_path: pathlib.Path) -> None:
    path = collect(history).path
    for read in (
        lambda repo: repo.load("main~1", only="model"),
        lambda repo: repo.tensor("main~1", "w"),
        lambda repo: repo.checkout("main~1", tmp_path / "out"),
        lambda repo: repo.export_safetensors("main~1", tmp_path / "all.safetensors"),
    ):
        with mdl.Repo.open(path) as repo, pytest.warns(RuntimeWarning, match="an approximation stands") as said:
            read(repo)
        # It points at the line that reads.
        assert [w.filename for w in said] == [__file__]


def test_a_tag_keeps_a_version_exact(history: mdl.Repo, collect: Collect) -> None:
    history.tag("good", "main~1")
    again = collect(history)
    assert [c.fidelity for c in again.log()] == ["exact", "exact", "approximate"]
    with silent():
        assert np.array_equal(again.load("good")["model"]["w"], weights(2)["w"])


def test_aging_is_taken_back_while_the_exact_contents_are_there(history: mdl.Repo, collect: Collect) -> None:
    id = history.resolve("main~1")
    assert history.undo_prune([id]) == [id]
    assert [c.aged is None for c in history.log()] == [True, True, False]
    again = collect(history)
    assert [c.fidelity for c in again.log()] == ["exact", "exact", "approximate"]
    with pytest.raises(mdl.UserError, match="exact contents of version"):
        again.undo_prune([again.resolve("main~2")])


def test_retention_decides_what_is_there_and_the_policy_what_is_exact(history: mdl.Repo, collect: Collect) -> None:
    assert len(history.prune(mdl.retention.LatestN(2)).pruned) == 1
    again = collect(history)
    assert [c.fidelity for c in again.log()] == ["exact", "approximate", "gone"]


def test_a_policy_without_exact_contents_is_approximate_from_the_beginning(
    repo: mdl.Repo, tmp_path: pathlib.Path
) -> None:
    policy = tmp_path / "bare.toml"
    policy.write_text('try = ["lattice"]\n[keep]\nexact_latest = 0\n')
    state = {"model": weights(1), "optimizer": {"m": np.full(8, 1.0)}, "rng": {"seed": 1}}
    commit = repo.commit(state, policy=str(policy), quality=0.5, evaluate=lambda _: 1.0, wait=True)
    assert (commit.fidelity, commit.resume, commit.aged) == ("approximate", "approximate", None)
    with silent():
        assert not np.array_equal(repo.load()["model"]["w"], weights(1)["w"])


def test_what_was_pruned_after_it_aged_is_gone(history: mdl.Repo, collect: Collect) -> None:
    aged = collect(history)
    aged.prune(mdl.retention.CustomSteps([2]))
    again = collect(aged)
    assert [c.fidelity for c in again.log()] == ["exact", "approximate", "gone"]
    with pytest.raises(mdl.NotFoundError, match="pruned"):
        again.load("main~2")


def test_a_cache_of_files_tells_the_two_apart(history: mdl.Repo, collect: Collect) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"mdl://{history.path.parent}/{FILE}@main~1"
    key = fsspec.filesystem("mdl", skip_instance_cache=True).ukey(url)
    assert fsspec.filesystem("mdl", skip_instance_cache=True).ukey(url) == key
    collect(history)
    assert fsspec.filesystem("mdl", skip_instance_cache=True).ukey(url) != key


def test_training_goes_on_from_an_approximation(history: mdl.Repo, collect: Collect) -> None:
    again = collect(history)
    again.branch("side", "main~1")
    with pytest.warns(RuntimeWarning, match="an approximation stands"):
        state = again.load("side")
    state["model"]["w"] = state["model"]["w"] + np.float32(0.001)
    options: dict[str, Any] = {"policy": "lossy", "quality": 0.5, "evaluate": lambda _: 1.0}
    commit = again.commit(state, step=4, branch="side", resumed_from="side", **options).result()
    assert (commit.fidelity, commit.resume) == ("exact", "exact-resume")
    assert np.array_equal(again.load("side")["model"]["w"], state["model"]["w"])
