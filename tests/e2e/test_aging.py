"""Exact while new, from the command line: what a version gives, and what every listing says of it, as it ages."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import faults, scale
from support.cli import NOT_FOUND, USER, Mdl, assert_same, copy_tree, differences, files_of
from support.tensors import Tensor, read_safetensors, write_safetensors

SAMPLE = 12
KILLED = -9
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MDL_THREADS": "1"}
LOSSY = ("--policy", "lossy", "--eval", "echo 1")
MODEL = "model.safetensors"


class Training:
    """A run whose weights move by little from version to version, and a copy of each as it was."""

    def __init__(self, mdl: Mdl, home: Path) -> None:
        self.mdl, self.home = mdl, home
        self.rng = np.random.default_rng(3)
        names = ("emb.weight", "w.weight")
        self.weights = {name: self.rng.standard_normal((96, 64)).astype(np.float32) for name in names}

    def write(self, step: int) -> Path:
        folder = self.home / f"step-{step}"
        folder.mkdir(parents=True)
        for name, value in self.weights.items():
            # Training does not reach all of the embedding's rows.
            reached = value[:60] if name == "emb.weight" else value
            reached += self.rng.normal(0, 0.01, reached.shape).astype(np.float32)
        write_safetensors(folder / MODEL, [Tensor.of(name, value) for name, value in self.weights.items()])
        (folder / "config.json").write_text(f'{{"step": {step}}}')
        return folder

    def commit(self, step: int, *options: str) -> str:
        folder = self.write(step)
        return self.mdl.commit(folder, f"step {step}", "--step", str(step), *LOSSY, *options)["commit"]

    def exact(self, step: int) -> Path:
        return self.home / f"step-{step}"


@pytest.fixture
def training(mdl: Mdl, tmp_path: Path) -> Training:
    return Training(mdl, tmp_path / "exact")


def rows_off(exact: Path, stored: Path) -> float:
    """The largest error of a row over the row, of both files' tensors."""
    worst = 0.0
    before, after = ({t.name: t for t in read_safetensors(folder / MODEL)[0]} for folder in (exact, stored))
    for name, tensor in before.items():
        a, b = tensor.array(), after[name].array()
        worst = max(worst, float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)).max()))
    return worst


def test_a_version_ages_and_every_listing_says_so(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    ids = [training.commit(step) for step in (1, 2, 3)]
    for step, commit in enumerate(ids, 1):
        assert_same(training.exact(step), mdl.checkout(commit, tmp_path / f"before-{step}"))
    assert [e["fidelity"] for e in mdl.log("main")] == ["exact"] * 3
    assert [bool(e["aged"]) for e in mdl.log("main")] == [False, True, True]
    assert "exact until a collection: aged" in mdl.run("show", "main~1").out
    assert mdl.run("log", "--oneline").out.count(" exact lattice ") == 3

    before = mdl.size()
    assert mdl.json("gc", "--prune-now")["aged_versions"] == 2
    assert mdl.size() < before
    mdl.fsck()
    newest, second, first = mdl.log("main")
    assert (newest["fidelity"], newest["resume"], newest["aged"]) == ("exact", "weights-only", None)
    for entry in (second, first):
        assert entry["fidelity"] == "approximate"
        assert entry["aged"]["exact_contents"] is False
        assert entry["aged"]["rules"] == "exact: latest 1"
    assert mdl.run("log", "--oneline").out.count(" approximate lattice ") == 2
    assert "approximate since" in mdl.run("show", "main~1").out
    assert_same(training.exact(3), mdl.checkout("main", tmp_path / "after-3"))
    done = mdl.run("checkout", "main~1", "--to", tmp_path / "after-2")
    assert "is approximate" in done.err
    assert "exact: latest 1" in done.err
    assert differences(training.exact(2), tmp_path / "after-2") == [f"differs: {MODEL}"]
    assert 0 < rows_off(training.exact(2), tmp_path / "after-2") <= 0.15
    quality = mdl.json("show", "main~1")["quality"]
    assert quality["bounds"]["worst_row"] == pytest.approx(rows_off(training.exact(2), tmp_path / "after-2"), rel=1e-3)
    # The id names what was committed, and what is compared is what is there.
    assert mdl.commit_id("main~1") == ids[1]
    mdl.run("verify", tmp_path / "after-2" / MODEL, f"main~1:{MODEL}")
    mdl.run("verify", training.exact(2) / MODEL, f"main~1:{MODEL}", code=1)
    assert [c["path"] for c in mdl.json("show", "main")["changes"]] == ["config.json", MODEL]


def test_undo_takes_exact_contents_back_until_they_are_collected(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    ids = [training.commit(step) for step in (1, 2, 3)]
    assert "Took back 1 version" in mdl.run("prune", "--undo", ids[0]).out
    mdl.run("gc", "--prune-now")
    assert_same(training.exact(1), mdl.checkout(ids[0], tmp_path / "kept"))
    assert differences(training.exact(2), mdl.checkout(ids[1], tmp_path / "aged"))
    mdl.run("prune", "--undo", ids[1], code=USER).complains("exact contents", "gone")
    mdl.fsck()


def test_a_tag_keeps_a_version_exact(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    training.commit(1)
    mdl.run("tag", "good")
    for step in (2, 3):
        training.commit(step)
    mdl.run("gc", "--prune-now")
    assert_same(training.exact(1), mdl.checkout("good", tmp_path / "good"))
    assert [e["fidelity"] for e in mdl.log("main")] == ["exact", "approximate", "exact"]


def test_a_signature_of_a_commit_outlives_its_exact_contents(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    """A commit's id is a hash of all that it says, its exact tree included: whoever signed the id signed that."""
    training.commit(1)
    training.commit(2)
    said = mdl.json("show", "main~1")
    mdl.run("gc", "--prune-now")
    now = mdl.json("show", "main~1")
    assert now["commit"] == said["commit"]
    assert now["tree"] != said["tree"]
    assert (said["fidelity"], now["fidelity"]) == ("exact", "approximate")
    mdl.run("prune", "--keep-latest", "1")
    mdl.run("compact")
    mdl.run("gc", "--prune-now")
    mdl.run("checkout", "main~1", "--to", tmp_path / "gone", code=NOT_FOUND).complains("pruned")
    mdl.fsck()


def test_clones_have_the_approximation_of_what_aged(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    for step in (1, 2):
        training.commit(step)
    clones = [Mdl(tmp_path / name) for name in ("early", "late")]
    mdl.run("clone", mdl.repo, clones[0].repo, repo_flag=False)
    assert_same(training.exact(1), mdl.checkout("main~1", tmp_path / "exact-1"))
    mdl.run("gc", "--prune-now")
    mdl.run("clone", mdl.repo, clones[1].repo, repo_flag=False)
    stand_in = mdl.checkout("main~1", tmp_path / "stand-in")
    assert differences(training.exact(1), stand_in)
    for clone in clones:
        clone.fsck()
        assert [e["fidelity"] for e in clone.log("main")] == ["exact", "approximate"]
        assert_same(stand_in, clone.checkout("main~1", tmp_path / f"{clone.repo.name}-1"))
        assert_same(training.exact(2), clone.checkout("main", tmp_path / f"{clone.repo.name}-2"))


def strike(mdl: Mdl, tmp_path: Path, args: tuple[str | Path, ...], check: Callable[[Mdl], None]) -> None:
    """Kills a command on copies of a repository at a sample of its system calls that change the disk."""
    tmp_path.mkdir()
    count = Mdl(copy_tree(mdl.repo, tmp_path / "count"))
    calls = faults.calls_of(count.argv(*args), tmp_path / "trace.log", count.environment(ONE_THREAD), count.repo)
    points = scale.sample(faults.spread(faults.points(calls), SAMPLE), 4)
    struck = 0
    for name, nth in points:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        copy = Mdl(copy_tree(mdl.repo, tmp_path / "copy"))
        done = copy.run(*args, code=(0, KILLED, 137), env=ONE_THREAD, prefix=faults.killed_at(name, nth))
        struck += done.code != 0
        check(copy)
    assert struck >= 0.7 * len(points), f"only {struck} of {len(points)} kills took place"


@pytest.mark.skipif(faults.why_not() is not None, reason="no strace")
def test_commit_and_gc_killed_anywhere_lose_nothing(mdl: Mdl, training: Training, tmp_path: Path) -> None:
    ids = [training.commit(step) for step in (1, 2)]
    approximate = Mdl(copy_tree(mdl.repo, tmp_path / "aged"))
    approximate.run("gc", "--prune-now")
    stand_in = approximate.checkout(ids[0], tmp_path / "stand-in")
    third = training.write(3)

    def check(copy: Mdl) -> None:
        copy.fsck()
        newest = copy.log("main")[0]["step"]
        assert_same(training.exact(newest), copy.checkout("main", fresh(tmp_path / "out")))
        first = copy.checkout(ids[0], fresh(tmp_path / "first"))
        assert not differences(first, training.exact(1)) or not differences(first, stand_in)
        # What the kill left undone is done by the next ones.
        copy.run("commit", third, "-m", "again", "--step", "3", *LOSSY)
        copy.run("gc", "--prune-now")
        copy.fsck()
        assert_same(third, copy.checkout("main", fresh(tmp_path / "out")))
        assert_same(stand_in, copy.checkout(ids[0], fresh(tmp_path / "first")))

    commit: tuple[str | Path, ...] = ("commit", third, "-m", "step 3", "--step", "3", *LOSSY)
    strike(mdl, tmp_path / "commits", commit, check)
    strike(mdl, tmp_path / "collections", ("gc", "--prune-now"), check)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def test_a_run_that_restarts_from_its_newest_version_is_given_its_bits(
    mdl: Mdl, training: Training, tmp_path: Path
) -> None:
    """Killed after every version, collected every time: each checkout is what was committed."""
    for step in range(1, 6):
        commit = training.commit(step, *(["--resumed-from", "main"] if step > 1 else []))
        mdl.run("gc", "--prune-now")
        assert_same(training.exact(step), mdl.checkout(commit, tmp_path / f"out-{step}"))
    assert [e["fidelity"] for e in mdl.log("main")] == ["exact"] + ["approximate"] * 4
    mdl.fsck()


def test_a_signature_holds_when_the_version_has_aged_and_what_it_gives_is_said(
    mdl: Mdl, training: Training, tmp_path: Path
) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is missing (openssh-client)")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"ada@example.org {(tmp_path / 'key.pub').read_text()}")
    first = training.commit(1, "--key", str(key))
    verify = ("verify-commit", first, "--deep", "--allowed-signers", signers)
    assert "the signature names" not in mdl.run(*verify).out
    exact = json.loads(mdl.run("attest", "export", first).out)["subject"]
    for step in (2, 3):
        training.commit(step)
    mdl.run("gc", "--prune-now")
    said = mdl.run(*verify)
    said.names("the signature names the exact contents", "and the approximation", "gives today is: approximate")
    assert mdl.json(*verify)["status"] == "good"
    # A statement is of the files that the version gives now.
    out = mdl.checkout(first, tmp_path / "now")
    *subjects, version = json.loads(mdl.run("attest", "export", first).out)["subject"]
    assert version["annotations"] == {"fidelity": "approximate"}
    now = {s["name"]: s["digest"]["sha256"] for s in subjects}
    assert now == {rel: hashlib.sha256(path.read_bytes()).hexdigest() for rel, path in files_of(out).items()}
    assert now[MODEL] != {s["name"]: s["digest"].get("sha256") for s in exact}[MODEL]
