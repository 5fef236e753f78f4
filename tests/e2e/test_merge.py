"""Merges as a person meets them: two clones, conflicts with the flags that resolve them, soups, recipes, kills."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import CONFLICT, USAGE, USER, Mdl
from support.tensors import Tensor, read_safetensors, write_safetensors


def weights(mdl: Mdl, a: list[float], b: list[float], **texts: str) -> None:
    tensors = [("layer.a", a), ("layer.b", b)]
    write_safetensors(
        mdl.repo / "model.safetensors",
        [Tensor(name, "F32", [len(v)], np.array(v, np.float32).tobytes()) for name, v in tensors],
    )
    for name, text in texts.items():
        (mdl.repo / f"{name}.json").write_text(text)


def values(mdl: Mdl) -> dict[str, list[float]]:
    tensors = read_safetensors(mdl.repo / "model.safetensors")[0]
    return {t.name: list(struct.unpack(f"<{len(t.data) // 4}f", t.data)) for t in tensors}


@pytest.fixture
def parted(tmp_path: Path) -> Mdl:
    """`main`, checked out, and `exp`, which have parted."""
    mdl = Mdl.init(tmp_path / "run")
    weights(mdl, [0, 0, 4], [1, 1], config="{}")
    mdl.commit(None, "base")
    mdl.run("branch", "exp")
    weights(mdl, [2, 0, 4], [1, 3])
    mdl.commit(None, "ours")
    mdl.run("switch", "exp")
    weights(mdl, [4, 8, 4], [1, 1], config='{"by": "exp"}')
    mdl.commit(None, "theirs")
    mdl.run("switch", "main")
    return mdl


def test_parted_histories_want_a_strategy(parted: Mdl) -> None:
    parted.run("merge", "exp", code=CONFLICT).complains("parted", "--strategy", "mdl rebase exp")
    parted.run("merge", "exp", "--ff-only", code=CONFLICT)
    parted.run("merge", "exp", "--strategy", "best", code=USAGE).complains("task-arithmetic", "ties")
    parted.run("merge", "exp", "--strategy", "average", "--density", "0.5", code=USER).complains("density")
    assert parted.log()[0]["message"].strip() == "ours"


def test_a_merge_has_both_parents_and_its_recipe_makes_it_again(parted: Mdl) -> None:
    done = parted.json("merge", "exp", "--strategy", "slerp", "--t", "0.25", "-m", "both")
    shown = parted.json("show", "HEAD")
    assert len(shown["parents"]) == 2
    assert done["recipe"]["strategy"] == {"method": "slerp", "t": 0.25}
    assert '"method":"slerp"' in shown["meta"]["mdl.merge"]
    assert (parted.repo / "config.json").read_text() == '{"by": "exp"}'
    assert parted.json("status")["clean"]
    for threads in ("1", "2", "8"):
        verified = parted.run("--json", "merge", "--verify", "HEAD", env={"RAYON_NUM_THREADS": threads})
        assert '"result": "same"' in verified.out.replace('":"', '": "')
    parted.run("merge", "--verify", "HEAD~1", code=USER).complains("no recipe")
    parted.fsck()


def test_what_changes_add_up_to(parted: Mdl) -> None:
    parted.run("merge", "exp", "-s", "task-arithmetic", "--weight", "0.5,1")
    assert values(parted) == {"layer.a": [5, 8, 4], "layer.b": [1, 2]}


def test_conflicts_change_nothing_and_name_the_way_out(parted: Mdl) -> None:
    weights(parted, [2, 0], [1, 3], config="main")
    parted.commit(None, "another shape")
    before = parted.log()[0]["commit"]
    refused = parted.run("merge", "exp", "--strategy", "average", code=CONFLICT)
    refused.complains("2 conflicts; nothing was changed", "--for")
    assert "config.json: more than one side changed it" in refused.out
    assert "model.safetensors layer.a: the sides have other dtypes or shapes" in refused.out
    assert parted.log()[0]["commit"] == before
    assert parted.json("status")["clean"]
    parted.run("merge", "exp", "-s", "average", "--for", "config.json=theirs", "--for", "*.a=ours")
    assert values(parted) == {"layer.a": [2, 0], "layer.b": [1, 2]}
    assert (parted.repo / "config.json").read_text() == '{"by": "exp"}'
    parted.run("merge", "--verify", "HEAD")


def test_uncommitted_changes_stop_a_merge_before_anything_is_written(parted: Mdl) -> None:
    (parted.repo / "config.json").write_text("not committed")
    parted.run("merge", "exp", "--strategy", "average", code=USER).complains("config.json")
    assert (parted.repo / "config.json").read_text() == "not committed"
    assert not parted.json("status")["in_progress"]


def test_soups(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "run")
    for step, value in enumerate([100, 1, 2, 6]):
        weights(mdl, [value], [value], config=str(step))
        mdl.commit(None, f"step {step}")
    mdl.run("soup", "main~3..main")
    assert values(mdl)["layer.a"] == [3]
    assert (mdl.repo / "config.json").read_text() == "3"
    mdl.run("merge", "--verify", "HEAD")
    mdl.run("soup", "main~4..main~1", "--ema", "0.5")
    assert values(mdl)["layer.a"] == [3.75]
    mdl.run("merge", "--verify", "HEAD")
    script = "tail -c 4 $MDL_CANDIDATE_DIR/model.safetensors | od -An -tf4 | awk '{d = $1 - 5; print d < 0 ? -d : d}'"
    done = mdl.json("soup", "main~5", "main~4", "main~2", "main~3", "--greedy", "--eval", script)
    assert len(done["tried"]) >= 6
    assert abs(values(mdl)["layer.b"][0] - 5) <= min(t["value"] for t in done["tried"]) + 1e-6
    mdl.run("soup", "main~1", code=USER).complains("two versions")


def test_two_clones_come_together_in_two_commands(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "one")
    makers.write_small_checkpoint(mdl.repo, 1, layers=2, width=32)
    mdl.commit(None, "base")
    bare = Mdl.init(tmp_path / "origin", "--bare")
    mdl.run("remote", "add", "origin", str(bare.repo))
    mdl.run("push", "origin", "main")
    mdl.run("clone", str(bare.repo), str(tmp_path / "two"))
    other = Mdl(tmp_path / "two")
    for side, seed in ((mdl, 2), (other, 3)):
        texts = {path: path.read_bytes() for path in side.repo.rglob("*") if path.suffix in (".json", ".txt")}
        makers.write_small_checkpoint(side.repo, seed, layers=2, width=32)
        for path, text in texts.items():
            path.write_bytes(text)
        side.commit(None, f"seed {seed}")
    mdl.run("push", "origin", "main")
    other.run("push", "origin", "main", code=CONFLICT)
    other.run("fetch")
    other.run("merge", "origin/main", "--strategy", "ties", "--density", "0.5")
    other.run("push", "origin", "main")
    mdl.run("pull")
    assert mdl.log()[0]["commit"] == other.log()[0]["commit"]
    mdl.run("merge", "--verify", "HEAD")
