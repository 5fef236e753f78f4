"""`mdl prune --to`: versions go down from exact over approximate to weights only, with optimizer files as PyTorch saves
them, here, in clones and on a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import USAGE, USER, Mdl, assert_same, copy_tree
from support.makers import Storage, View
from support.server import Server
from support.tensors import Tensor, write_safetensors

SHAPE = (96, 64)
LOSSY = ("--policy", "lossy", "--eval", "echo 1")
STATE = ("optimizer.pt", "rng_state.pth")


def write(folder: Path, step: int) -> Path:
    """Weights, what `torch.save(optimizer.state_dict())` writes for Adam, a random state, and how it was set up."""
    rng = np.random.default_rng(step)
    folder.mkdir(parents=True)
    start = np.random.default_rng(0).standard_normal(SHAPE)
    weights = (start + 0.01 * rng.standard_normal(SHAPE)).astype(np.float32)
    write_safetensors(folder / "model.safetensors", [Tensor.of("layers.0.weight", weights)])
    moments = [Storage.of(str(k), (rng.standard_normal(SHAPE) * 1e-3).astype(np.float32)) for k in (0, 1)]
    first, second = (View.whole(m, SHAPE) for m in moments)
    state = {"state": {0: {"step": step, "exp_avg": first, "exp_avg_sq": second}}, "param_groups": [{"params": [0]}]}
    makers.torch_zip(folder / "optimizer.pt", state)
    random = Storage.of("0", rng.integers(0, 256, 5056, dtype=np.uint8))
    makers.torch_zip(folder / "rng_state.pth", {"cpu": View.whole(random, (5056,))})
    (folder / "optimizer.yaml").write_text("lr: 0.001\n")
    return folder


def commit(mdl: Mdl, home: Path, step: int, *options: str) -> Path:
    folder = write(home / str(step), step)
    mdl.commit(folder, f"step {step}", "--step", str(step), *options)
    return folder


def stripped(folder: Path, to: Path) -> Path:
    """The same without its optimizer and random state."""
    shutil.rmtree(to, ignore_errors=True)
    copy_tree(folder, to)
    for name in STATE:
        (to / name).unlink()
    return to


def fidelities(mdl: Mdl) -> list[str]:
    return [entry["fidelity"] for entry in mdl.log("main")]


def test_optimizer_state_goes_before_the_weights_do(mdl: Mdl, tmp_path: Path) -> None:
    folders = {step: commit(mdl, tmp_path / "src", step) for step in (1, 2, 3)}
    dry = mdl.json("prune", "--keep-latest", "1", "--to", "weights", "--dry-run")
    assert (dry["to"], len(dry["pruned"]), dry["no_state"], dry["mixed"]) == ("weights", 2, 0, 0)
    by_level = {level["to"]: level for level in dry["levels"]}
    assert {to: level["versions"] for to, level in by_level.items()} == {"gone": 2, "weights": 2, "approximate": 0}
    assert by_level["gone"]["freed_bytes"] > by_level["weights"]["freed_bytes"] == dry["freed_bytes"] > 50_000
    said = mdl.run("prune", "--keep-latest", "1", "--dry-run").out
    assert all(f"--to {level}" in said for level in by_level)

    assert "2 versions to their weights" in mdl.run("prune", "--keep-latest", "1", "--to", "weights").out
    assert_same(folders[1], mdl.checkout("main@step=1", tmp_path / "before"))
    assert fidelities(mdl) == ["exact"] * 3
    assert "with optimizer state until a collection: optimizer.pt, rng_state.pth to go" in mdl.run("show", "main~1").out
    assert len(mdl.json("prune", "--undo")["restored"]) == 2
    mdl.run("gc", "--prune-now")
    assert_same(folders[1], mdl.checkout("main@step=1", tmp_path / "undone"))

    mdl.run("prune", "--keep-latest", "1", "--to", "weights")
    before = mdl.size()
    assert mdl.json("gc", "--prune-now")["aged_versions"] == 2
    assert before - mdl.size() > 50_000
    mdl.fsck()
    for step in (1, 2):
        done = mdl.run("checkout", f"main@step={step}", "--to", tmp_path / f"out-{step}")
        assert "no optimizer state: optimizer.pt, rng_state.pth went" in done.err
        assert_same(stripped(folders[step], tmp_path / "want"), tmp_path / f"out-{step}")
    assert_same(folders[3], mdl.checkout("main", tmp_path / "newest"))
    newest, second, _ = mdl.log("main")
    assert (newest["fidelity"], newest["resume"], newest["weights"]) == ("exact", "exact-resume", None)
    assert (second["fidelity"], second["resume"]) == ("weights", "weights-only")
    assert second["weights"] | {"date": ""} == {
        "date": "", "rules": "latest 1", "without": list(STATE), "contents": False,
    }  # fmt: skip
    assert "weights, without optimizer.pt, rng_state.pth since" in mdl.run("show", "main~1").out
    assert mdl.run("log", "--oneline").out.count(" weights ") == 2
    mdl.run("prune", "--undo", "main~1", code=USER).complains("optimizer state")
    mdl.run("prune", "--keep-latest", "1", "--to", "nothing", code=USAGE)
    mdl.run("compact")
    mdl.run("stats")
    mdl.fsck()


def test_the_whole_ladder(mdl: Mdl, tmp_path: Path) -> None:
    lossless = commit(mdl, tmp_path / "src", 1)
    for step in (2, 3, 4, 5, 6):
        commit(mdl, tmp_path / "src", step, *LOSSY)
    said = mdl.run("prune", "--keep-latest", "2", "--to", "approximate").out
    assert "1 version left as they are: no approximation was committed with them" in said
    mdl.run("gc", "--prune-now")
    assert fidelities(mdl) == ["exact", "approximate", "approximate", "approximate", "approximate", "exact"]
    stand_in = mdl.checkout("main@step=2", tmp_path / "stand-in")
    mdl.run("prune", "--keep-latest", "3", "--to", "weights")
    mdl.run("gc", "--prune-now")
    assert fidelities(mdl) == ["exact", "approximate", "approximate", "weights", "weights", "weights"]
    assert_same(stripped(stand_in, tmp_path / "want"), mdl.checkout("main@step=2", tmp_path / "weights"))
    assert_same(stripped(lossless, tmp_path / "want"), mdl.checkout("main@step=1", tmp_path / "first"))
    mdl.run("prune", "--keep-latest", "4")
    mdl.run("gc", "--prune-now")
    assert fidelities(mdl) == ["exact", "approximate", "approximate", "weights", "gone", "gone"]
    mdl.fsck()


@pytest.mark.parametrize("way", ["directory", "server"])
def test_clones_and_servers_have_what_is_left(mdl: Mdl, tmp_path: Path, way: str) -> None:
    folders = {step: commit(mdl, tmp_path / "src", step) for step in (1, 2, 3)}
    mdl.run("prune", "--keep-latest", "2", "--to", "weights")
    mdl.run("gc", "--prune-now")
    mdl.run("prune", "--keep-latest", "1", "--to", "weights")
    root = tmp_path / "root"
    there = Mdl.init(root / "team" / "model", "--bare")

    def look(place: Mdl, name: str) -> None:
        place.fsck()
        assert fidelities(place) == ["exact", "weights", "weights"]
        for step in (1, 2):
            want = stripped(folders[step], tmp_path / "want")
            assert_same(want, place.checkout(f"main@step={step}", tmp_path / f"{name}-{step}"))
        assert_same(folders[3], place.checkout("main", tmp_path / f"{name}-3"))

    with Server(root) as server:
        url = f"{server.url}/team/model" if way == "server" else str(there.repo)
        mdl.run("push", url, "main")
        look(there, "there")
        clone = Mdl(tmp_path / "clone")
        mdl.run("clone", url, clone.repo, repo_flag=False)
        look(clone, "clone")
        if way == "server":
            told = server.get("/api/v1/repos/team/model/log").json()
            commits = told["commits"]
            assert [c["fidelity"] for c in commits] == ["exact", "weights", "weights"]
            page = server.get(f"/team/model/commit/{commits[1]['commit']}").body.decode()
            assert "optimizer.pt" in page
            assert "was let go" in page
    clone.run("gc", "--prune-now")
    look(clone, "collected")
