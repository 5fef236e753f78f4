"""jax: states with `jax.Array`s, and directories as Orbax writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mdl
import numpy as np
import pytest
from frameworks import need_here


def state(seed: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    key = jax.random.PRNGKey(seed)
    w = jax.random.normal(key, (32, 8))
    return {
        "params": {"w": w, "tied": w, "half": w.astype(jnp.bfloat16)},
        "opt_state": {"mu": w * 0.1, "count": jnp.array(seed)},
        "rng": key,
    }


def test_a_state_comes_back_bit_for_bit(repo: mdl.Repo) -> None:
    need_here("jax")
    import jax
    import jax.numpy as jnp

    given = state(3)
    made = repo.commit(given, step=jnp.array(7), metrics={"loss": jnp.float32(0.5)}).result()
    assert (made.step, made.metrics, made.resume) == (7, {"loss": 0.5}, "exact-resume")
    assert "params.safetensors:tied" not in repo.tensors(), "tied weights are stored once"
    back = repo.load()
    same = jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(np.asarray(a), b), given, back)
    assert jax.tree.all(same), same
    assert back["params"]["tied"] is back["params"]["w"]
    drawn = jax.random.normal(jnp.asarray(back["rng"]), (4,))
    assert np.array_equal(drawn, jax.random.normal(given["rng"], (4,)))


def test_a_typed_key_is_refused_by_name(repo: mdl.Repo) -> None:
    need_here("jax")
    import jax

    with pytest.raises(mdl.StateError, match=r"(?s)state\['rng'\].*key_data"):
        repo.commit({"rng": jax.random.key(1), "w": np.zeros(3)}, wait=True)


def test_a_state_is_copied_before_its_buffers_are_given_away(repo: mdl.Repo) -> None:
    need_here("jax")
    import jax

    step = jax.jit(lambda tree: jax.tree.map(lambda a: a + 1, tree), donate_argnums=0)
    params = {"w": jax.numpy.zeros((256, 256))}
    for i in range(4):
        repo.commit({"params": params}, step=i)
        params = step(params)
    repo.flush()
    assert [float(repo.load(f"main@step={i}")["params"]["w"][0, 0]) for i in range(4)] == [0, 1, 2, 3]


def test_orbax_directories_are_versions_and_restore_from_one(tmp_path: Path) -> None:
    need_here("jax", "orbax")
    import jax
    import orbax.checkpoint as ocp

    repo = mdl.init(tmp_path / "repo")
    saved = {"params": state(1)["params"], "count": np.arange(3)}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(jax.tree.map(lambda a, s=step: a * s, saved)))
            manager.wait_until_finished()
            repo.commit_dir(tmp_path / "run" / str(step), step=step)
    assert [c.step for c in repo.log()] == [2, 1]
    (tmp_path / "back").mkdir()
    repo.checkout("main@step=1", tmp_path / "back" / "1")
    with ocp.CheckpointManager(tmp_path / "back") as manager:
        restored = manager.restore(1, args=ocp.args.StandardRestore(saved))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), saved, restored))


def test_an_orbax_layout_without_orbax(tmp_path: Path) -> None:
    """As it lies on disk: OCDBT's manifest and data files, and JSON beside them."""
    step = tmp_path / "run" / "100"
    rng = np.random.default_rng(0)
    for name, content in {
        "_CHECKPOINT_METADATA": json.dumps({"item_handlers": {"default": "StandardCheckpointHandler"}}).encode(),
        "default/_METADATA": b"{}",
        "default/_sharding": b"{}",
        "default/manifest.ocdbt": rng.bytes(123),
        "default/d/0f1e": rng.bytes(2000),
        "default/ocdbt.process_0/d/aa": rng.bytes(50_000),
        "default/ocdbt.process_0/manifest.ocdbt": rng.bytes(300),
    }.items():
        (step / name).parent.mkdir(parents=True, exist_ok=True)
        (step / name).write_bytes(content)
    repo = mdl.init(tmp_path / "repo")
    made = repo.commit_dir(step, step=100)
    assert (made.files, made.tensors, made.resume) == (7, 0, None)
    repo.checkout("HEAD", tmp_path / "back")
    for file in step.rglob("*"):
        if file.is_file():
            assert (tmp_path / "back" / file.relative_to(step)).read_bytes() == file.read_bytes()
