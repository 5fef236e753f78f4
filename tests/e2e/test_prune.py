"""`mdl prune`: which versions lose their contents; the others keep every byte, and predicted savings come true."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from support.cli import CORRUPT, NOT_FOUND, USAGE, USER, Mdl, assert_same
from support.tensors import Tensor, write_safetensors

N = 20


def train(mdl: Mdl, source: Path, n: int = N, *options: str, first: int = 1, apart: bool = False) -> dict[int, Path]:
    """Commits n versions of a small model that drifts (or, apart, shares nothing); returns their folders by step."""
    rng = np.random.default_rng(first)
    weights = rng.standard_normal((96, 64)).astype(np.float32)
    folders = {}
    for step in range(first * 100, (first + n) * 100, 100):
        noise = rng.standard_normal(weights.shape).astype(np.float32)
        weights = noise if apart else weights + np.float32(1e-4) * noise
        folder = source / str(step)
        folder.mkdir(parents=True)
        write_safetensors(folder / "model.safetensors", [Tensor.of("w", weights)])
        (folder / "state.json").write_text(f'{{"step": {step}}}\n')
        loss = abs(step - 1180) / 1000 + 1
        mdl.commit(folder, f"step {step}", "--step", str(step), "--metric", f"loss={loss}", *options)
        folders[step] = folder
    return folders


def steps(versions: Iterable[dict]) -> list[int]:
    return [v["step"] for v in versions]


def intact(mdl: Mdl, folders: dict[int, Path], kept: Iterable[int], out: Path) -> None:
    for step in kept:
        assert_same(folders[step], mdl.checkout(f"main@step={step}", out / f"{step}-{len(list(out.iterdir()))}"))


def test_twenty_versions(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """Dry run, prune, undo, collect: what the dry run promised is what is freed, to the byte."""
    out = tmp_path / "out"
    out.mkdir()
    mdl.run("config", "delta.max_depth", "0")
    folders = train(mdl, source)
    rules = ("--keep-latest", "3", "--keep-every-steps", "500", "--keep-best", "2:loss:min", "--keep-steps", "100,700")
    kept = [2000, 1900, 1800, 1500, 1200, 1100, 1000, 700, 500, 100]
    gone = sorted(set(folders) - set(kept), reverse=True)
    before = mdl.packed()

    dry = mdl.json("prune", *rules, "--dry-run")
    assert (steps(dry["kept"]), steps(dry["pruned"])) == (kept, gone)
    assert (dry["dry_run"], dry["branches"], mdl.packed()) == (True, ["main"], before)
    done = mdl.json("prune", *rules)
    assert done == dry | {"dry_run": False, "levels": []}

    # The grace: nothing goes, everything is marked and can still be read, and taken back.
    assert mdl.json("gc")["freed_bytes"] == 0
    marked = {c["step"]: c["pruned"] for c in mdl.log("main")}
    assert sorted(s for s, p in marked.items() if p) == sorted(gone)
    assert "latest 3" in marked[gone[0]]["rules"]
    intact(mdl, folders, folders, out)
    assert steps(mdl.json("prune", "--undo", f"main@step={gone[0]}")["restored"]) == [gone[0]]
    assert len(mdl.json("prune", "--undo")["restored"]) == len(gone) - 1
    mdl.run("gc", "--prune-now")
    intact(mdl, folders, folders, out)

    mdl.json("prune", *rules)
    assert mdl.json("gc", "--prune-now", "--dry-run")["freed_bytes"] == dry["freed_bytes"]
    freed = mdl.json("gc", "--prune-now")
    assert freed["freed_bytes"] == dry["freed_bytes"] == before - mdl.packed()
    assert freed["pruned_versions"] == len(gone)
    assert mdl.packed() < before * 0.6
    intact(mdl, folders, kept, out)
    assert mdl.fsck().out.strip().endswith("no problems")
    assert len(mdl.log("main")) == N

    lost = f"main@step={gone[0]}"
    for verb in (
        ("checkout", lost, "--to", tmp_path / "no"),
        ("ls", lost),
        ("cat", f"{lost}:model.safetensors", "w"),
        ("diff", lost, "main"),
        ("verify", folders[gone[0]] / "model.safetensors", lost),
        ("branch", "again", lost),
        ("tag", "again", lost),
        ("prune", "--undo", lost),
    ):
        mdl.run(*verb, code=NOT_FOUND).complains("was pruned on 20", "latest 3, every 500 steps", "hint")
    mdl.run("show", lost).names("Pruned:", "loss=")
    # A version whose parent is gone is shown without what changed.
    assert mdl.json("show", "main@step=1500")["changes"] is None
    mdl.run("prune", "--undo", code=USER).complains("no pruning to take back")

    # The run goes on.
    train(mdl, source / "more", 2, first=21)
    mdl.run("prune", *rules)
    mdl.run("compact")
    mdl.run("gc", "--prune-now")
    left = steps(c for c in mdl.log("main") if not c["pruned"])
    assert left == [2200, 2100, 2000, 1500, 1200, 1100, 1000, 700, 500, 100]
    intact(mdl, folders, [2000, 1500, 100], out)
    mdl.run("fsck")
    mdl.run("stats")


def test_compaction_frees_the_bases(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """Deltas hold on to the versions they were made from; compact before gc lets go of them."""
    out = tmp_path / "out"
    out.mkdir()
    folders = train(mdl, source)
    before = mdl.packed()
    report = mdl.json("prune", "--keep-every-steps", "500", "--keep-latest", "1")
    assert report["base_bytes"] > report["freed_bytes"] / 2
    mdl.run("compact")
    mdl.run("gc", "--prune-now")
    assert mdl.packed() < before / 2
    intact(mdl, folders, [500, 1000, 1500, 2000], out)
    mdl.run("fsck")


def test_tags_and_branches_hold_on(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    folders = train(mdl, source, 8)
    mdl.run("tag", "paper", "main@step=200", "-m", "the one in the paper")
    mdl.run("tag", "light", "main@step=700")
    mdl.run("branch", "side", "main@step=400")
    side = train(mdl, source / "side", 2, "--branch", "side", first=31)
    # main alone: side holds 100 to 400.
    report = mdl.json("prune", "--branch", "main", "--keep-latest", "1", "--dry-run")
    assert steps(report["pruned"]) == [600, 500]
    # Both: each lets go of what they share, except for the tags.
    mdl.run("prune", "--keep-latest", "1")
    mdl.run("gc", "--prune-now")
    assert {c["step"] for c in mdl.json("log", "--all") if not c["pruned"]} == {800, 700, 200, 3200}
    intact(mdl, folders, [800, 700, 200], out)
    assert_same(side[3200], mdl.checkout("side", out / "side"))
    assert_same(folders[200], mdl.checkout("paper", out / "paper"))
    mdl.run("fsck")


def test_nothing_is_pruned_over_damage(mdl: Mdl, source: Path) -> None:
    train(mdl, source, 6, apart=True)
    pack = max((mdl.store / "packs").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    whole = pack.read_bytes()
    pack.write_bytes(whole[:-100])
    mdl.run("prune", "--keep-latest", "2", code=CORRUPT)
    assert not (mdl.store / "pruned").exists()
    pack.write_bytes(whole)
    mdl.run("prune", "--keep-latest", "2")
    assert (mdl.store / "pruned").exists()


def test_wrong_words(mdl: Mdl, source: Path) -> None:
    mdl.run("prune", code=USAGE).complains("nothing says what is to be kept", "--keep-latest")
    mdl.run("prune", "--keep-latest", "0", code=USAGE)
    mdl.run("prune", "--keep-best", "loss", code=USAGE).complains("N:METRIC")
    mdl.run("prune", "--keep-every", "soon", code=USAGE).complains("number of seconds")
    mdl.run("prune", "--undo", "--keep-latest", "1", code=USAGE)
    mdl.run("prune", "--branch", "none", "--keep-latest", "1", code=NOT_FOUND)
    train(mdl, source, 3)
    result = mdl.run("prune", "--keep-best", "1:los:min")
    result.names("Nothing to prune")
    result.complains("keeps all")
    rules = '{"rule": "Any", "rules": [{"rule": "LatestDuration", "seconds": 86400}]}'
    assert mdl.json("prune", "--rules", rules)["pruned"] == []
    mdl.run("prune", "--keep-best", "1:lr", code=USER).complains("@min(lr)")
