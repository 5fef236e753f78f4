"""Lossy commits from the command line: what a candidate directory holds is what a checkout gives, in any container."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import NOT_FOUND, OK, USAGE, USER, Mdl, assert_same, differences
from support.tensors import read_safetensors

KEEP = 'mkdir -p "$SEEN" && cp -rL "$MDL_CANDIDATE_DIR" "$SEEN/$(ls "$SEEN" | wc -l)" && echo "any text" && echo 1.5'
"""An evaluator that finds everything equally good, and keeps a copy of all it was shown."""


def checkpoint(folder: Path, seed: int) -> Path:
    """Weights, an npz and a `.pt` with moments, and files without tensors."""
    makers.write_small_checkpoint(folder, seed)
    rng = np.random.default_rng(seed)
    np.savez(folder / "extra.npz", proj=rng.standard_normal((64, 48)).astype(np.float32), bias=np.ones(48, np.float32))
    makers.torch_zip(folder / "state.pt", makers.training_state(seed))
    return folder


def none_exact(mdl: Mdl, file: Path, policy: str) -> Path:
    """The built-in policy of this name, under which no version is exact."""
    file.write_text(mdl.run("policy", "show", policy).out + "\n[keep]\nexact_latest = 0\n")
    return file


def shown(folder: Path) -> list[Path]:
    return [folder / str(i) for i in range(len(list(folder.iterdir())))]


@pytest.mark.parametrize("policy", ["lattice", "bins", "paper"])
def test_what_was_judged_is_what_a_checkout_gives(mdl: Mdl, source: Path, tmp_path: Path, policy: str) -> None:
    own = none_exact(mdl, tmp_path / "own.toml", policy)
    for step in (1, 2):
        checkpoint(source, step)
        seen = tmp_path / f"seen-{step}"
        done = mdl.json("commit", source, "--step", str(step), "--policy", own, "--eval", KEEP, env={"SEEN": str(seen)})
        quality = done["quality"]
        assert quality["family"] == ("lattice" if policy == "lattice" else "bins")
        assert (quality["exact"], quality["measured"]) == (1.5, 1.5)
        copies = shown(seen)
        assert_same(copies[0], source)
        out = mdl.checkout("main", tmp_path / f"out-{step}")
        assert any(not differences(copy, out) for copy in copies[1:]), "nobody saw what was committed"
        assert differences(source, out)
        # The containers' own checksums fit what is in them.
        for name in ("extra.npz", "state.pt"):
            assert zipfile.ZipFile(out / name).testzip() is None
        exact, got = (np.load(folder / "extra.npz") for folder in (source, out))
        assert not np.array_equal(exact["proj"], got["proj"])
        assert np.array_equal(exact["bias"], got["bias"])
        tensors, _ = read_safetensors(out / "model.safetensors")
        kept = [t for t in tensors if t.name.endswith("bias")]
        assert kept
        assert len(tensors) == 2 * len(kept)
    mdl.fsck()
    assert "relative error" in mdl.run("log").out
    assert not list((mdl.store / "candidates").iterdir())


def test_a_checkout_that_is_committed_again_is_small(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    checkpoint(source, 1)
    mdl.run("commit", source, "-m", "one", "--policy", "lossy", "--eval", "echo 1")
    out = mdl.checkout("main", tmp_path / "out")
    before = mdl.size()
    again = ("--policy", "lossy", "--eval", "echo 1", "--resumed-from", "main", "--step", "2")
    done = mdl.json("commit", out, "-m", "again", *again)
    assert mdl.size() - before < 64 << 10
    assert done["resumed_from"] == done["parent"]
    assert done["new_tensors"] == 0
    assert_same(mdl.checkout("main", tmp_path / "again"), out)


@pytest.mark.parametrize("command", ["exit 1", "echo nan", "echo inf", "echo", "echo 1; kill -9 $$", "sleep 60"])
def test_an_evaluator_that_gives_no_number_costs_no_bits(mdl: Mdl, source: Path, tmp_path: Path, command: str) -> None:
    checkpoint(source, 1)
    argv = ("commit", source, "-m", "x", "--policy", "lossy", "--eval", command, "--eval-timeout", "1")
    mdl.run(*argv, code=USER).complains("gave no number")
    assert mdl.commit_id("main") is None
    assert "kept exact" in mdl.run(*argv, "--keep-going", code=OK).err
    assert_same(mdl.checkout("main", tmp_path / "out"), source)


def test_moments_are_quantised_under_a_policy_that_says_so(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    checkpoint(source, 1)
    for moments in ("log8", "log4", "factored"):
        policy = tmp_path / f"{moments}.toml"
        policy.write_text(f'try = []\n[optimizer]\nmoments = "{moments}"\n[keep]\nexact_latest = 0\n')
        done = mdl.json("commit", source, "-m", moments, "--policy", policy, "--eval", "echo 1")
        out = mdl.checkout("main", tmp_path / moments)
        assert sorted(differences(source, out)) == ["differs: state.pt"]
        assert zipfile.ZipFile(out / "state.pt").testzip() is None
        assert done["quality"]["moments"] == moments
        assert done["quality"]["family"] == "lossless"


def test_plans_store_nothing(mdl: Mdl, source: Path) -> None:
    checkpoint(source, 1)
    plan = mdl.json("plan", source, "--policy", "lossy", "--eval", "echo 1")
    assert mdl.commit_id("main") is None
    chosen = [c for c in plan["candidates"] if c["configuration"] == plan["plan"]["configuration"]]
    assert len(chosen) == 1
    assert chosen[0]["passes"]
    assert "would be committed" in mdl.run("plan", source, "--quality", "0.1", "--eval", "echo 1").out
    mdl.run("plan", source, code=USAGE).complains("policy")


def test_policies_can_be_listed_shown_edited_and_tested(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    names = {p["name"] for p in mdl.json("policy", "list")["policies"]}
    assert {"lossless", "lossy", "lattice", "bins", "paper"} <= names
    text = mdl.run("policy", "show", "paper").out
    mine = tmp_path / "mine.toml"
    mine.write_text(text + '\n[fixed]\nfamily = "bins"\nbins = 16\n')
    mdl.run("policy", "edit", "mine", "--from", mine)
    assert mdl.run("policy", "show", "mine").out == mine.read_text()
    checkpoint(source, 1)
    rows = {t["tensor"]: t["treatment"] for t in mdl.json("policy", "test", "mine", source)["tensors"]}
    assert rows["model.safetensors:layers.0.weight"].startswith("weight")
    assert rows["model.safetensors:layers.0.bias"] == "exact"
    mdl.run("commit", source, "-m", "unjudged", "--policy", "mine")
    assert "unevaluated" in mdl.run("log").out
    mine.write_text("try = [1]\n")
    mdl.run("policy", "test", mine, code=USER).complains("policy")
    mdl.run("policy", "show", "nobody", code=NOT_FOUND).complains("nobody")
    mdl.run("commit", source, "-m", "x", "--policy", "nobody", code=NOT_FOUND).complains("nobody")


def test_gates_and_gradients_are_checked(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    checkpoint(source, 1)
    base = ("commit", source, "-m", "x", "--eval", "echo 1")
    mdl.run(*base, "--quality", "0.1", "--progress", "0.1", code=USAGE)
    mdl.run(*base, "--quality", "-1", code=USAGE)
    mdl.run(*base, "--grads", tmp_path / "none.safetensors", code=6)
    (tmp_path / "text.txt").write_text("no tensors\n")
    mdl.run(*base, "--grads", tmp_path / "text.txt", code=USER).complains("no tensors")
    assert mdl.commit_id("main") is None
    done = mdl.json(*base, "--grads", source / "model.safetensors", "--higher-is-better")
    assert done["quality"]["sensitivity"] == "gradients"
    assert done["quality"]["direction"] == "higher-is-better"


def test_help_names_the_environment_of_the_evaluator(mdl: Mdl) -> None:
    assert re.search(r"MDL_CANDIDATE_DIR", mdl.run("commit", "--help").out)
