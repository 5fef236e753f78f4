"""`mdl.Repo`: commit, load, log, branches, tags and other methods."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

import mdl
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from same import check


def weights(x: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((40, 30), x), "b": torch.arange(30, dtype=torch.float32) * x}


@pytest.fixture
def history(repo: mdl.Repo) -> mdl.Repo:
    for step, loss in [(10, 3.0), (20, 1.0), (30, 2.0)]:
        repo.commit(
            {"model": weights(step)}, step=step, metrics={"loss": torch.tensor(loss)}, epoch=step / 10, wait=True
        )
    return repo


def test_versions_are_found_by_revisions(history: mdl.Repo) -> None:
    assert [c.step for c in history.log()] == [30, 20, 10]
    assert [c.step for c in history.log(limit=1)] == [30]
    best = history.show("main@best(loss)")
    assert (best.step, best.epoch, best.metrics, best.message) == (20, 2.0, {"loss": 1.0}, "step 20")
    assert history.load("main@step=10")["model"]["w"][0, 0] == 10
    assert history.resolve("main~2") == history.log()[2].id
    assert best.time.tzinfo is not None
    assert best.parents == [history.resolve("main~2")]


def test_branches_and_tags(history: mdl.Repo) -> None:
    history.branch("other", "main~1")
    history.commit({"model": weights(5)}, branch="other", step=25, wait=True)
    assert history.branches() == {"main": history.resolve("main"), "other": history.resolve("other")}
    assert history.resolve("other~1") == history.resolve("main~1")
    assert len(history.log(all=True)) == 4
    history.tag("v1", "main~2", "the first")
    assert history.tags() == {"v1": history.resolve("main@step=10")}
    with pytest.raises(mdl.UserError):
        history.branch("other")
    with pytest.raises(mdl.UserError):
        history.delete_branch("other")
    history.delete_branch("other", force=True)
    history.delete_tag("v1")
    assert (list(history.branches()), history.tags()) == (["main"], {})
    # A branch that is new begins at HEAD's version.
    made = history.commit({"model": weights(6)}, branch="new", wait=True)
    assert made.parents == [history.resolve("main")]
    assert made.branch == "new"


def test_differences(history: mdl.Repo) -> None:
    found = history.diff("main~1", "main")
    assert [f.path for f in found] == ["model.safetensors"]
    moved = {t.name: t for t in found[0].tensors}
    assert moved["w"].changed == 1.0
    assert moved["w"].max_abs == 10.0
    assert moved["w"].shape == (40, 30)


def test_slices_are_those_of_the_tensor(history: mdl.Repo) -> None:
    array = torch.randn(50, 20, 3)
    history.commit({"model": {"t": array, "s": torch.tensor(2.5), "h": torch.randn(6).bfloat16()}}, wait=True)
    lazy = history.tensor("main", "model.safetensors:t")
    assert (lazy.shape, lazy.dtype, lazy.nbytes, len(lazy)) == ((50, 20, 3), "f32", 12000, 50)
    keys = [
        0,
        -1,
        slice(3, 7),
        slice(None, None, 7),
        slice(40, 10),
        slice(10, 40, 3),
        (slice(2, 9), 4),
        (5, slice(1, 3), 2),
    ]
    keys += [..., slice(None, None, None), (..., 1), (slice(-5, None), slice(None, None, 2)), [1, 5, 2], np.int64(3)]
    for key in keys:
        assert torch.equal(lazy[key], array[key]), key
    assert np.array_equal(lazy.numpy()[::-1], array.numpy()[::-1])
    assert np.array_equal(np.asarray(lazy), array.numpy())
    assert history.tensor("main", "s")[...] == 2.5
    assert history.tensor("main", "h").torch().dtype == torch.bfloat16
    with pytest.raises(IndexError):
        lazy[50]
    with pytest.raises(mdl.NotFoundError):
        history.tensor("main", "nothing")


def test_bfloat16_becomes_numpys_where_ml_dtypes_is_installed(repo: mdl.Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    array = torch.randn(6).bfloat16()
    repo.commit({"model": {"h": array}}, wait=True)
    half = repo.tensor("main", "h")
    if importlib.util.find_spec("ml_dtypes") is not None:
        assert half.numpy().dtype == "bfloat16"
        assert half.numpy().tobytes() == array.view(torch.int16).numpy().tobytes()
    # None stands for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(mdl.StateError, match="ml_dtypes"):
        half.numpy()


def test_a_name_that_two_files_have_is_asked_back(repo: mdl.Repo) -> None:
    repo.commit({"a": {"w": torch.ones(1)}, "b": {"w": torch.zeros(1)}}, wait=True)
    with pytest.raises(mdl.UsageError, match=r"a\.safetensors:w"):
        repo.tensor("main", "w")
    assert repo.tensor("main", "b.safetensors:w")[0] == 0


def test_files_and_their_parts(history: mdl.Repo, tmp_path: pathlib.Path) -> None:
    files = history.files("main")
    assert {p: f.kind for p, f in files.items()} == {"model.safetensors": "tensors", "state.json": "bytes"}
    history.checkout("main", tmp_path / "out")
    whole = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert len(whole) == files["model.safetensors"].size
    assert history.read("main", "model.safetensors") == whole
    for start, length in [(0, 8), (5, 2000), (len(whole) - 3, 100), (len(whole), 5)]:
        assert history.read("main", "model.safetensors", start, length) == whole[start : start + length]
    done = history.checkout("main~1", tmp_path / "json", only="*.json")
    assert done.written == 1
    with pytest.raises(mdl.NotFoundError):
        history.read("main", "nothing")
    (tmp_path / "out" / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(mdl.UserError):
        history.checkout("main", tmp_path / "out")
    history.checkout("main", tmp_path / "out", force=True)


def test_further_files_come_along(repo: mdl.Repo, tmp_path: pathlib.Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x00\x01")
    files = {
        "config.json": "{}",
        "data/tokenizer.model": tmp_path / "tokenizer.model",
        "extra.safetensors": {"x": torch.ones(3)},
    }
    repo.commit({"model": weights(1)}, files=files, wait=True)
    assert repo.read("main", "config.json") == b"{}"
    assert repo.read("main", "data/tokenizer.model") == b"\x00\x01"
    assert repo.tensor("main", "extra.safetensors:x")[...].tolist() == [1, 1, 1]
    with pytest.raises(mdl.UsageError):
        repo.commit({}, files={"x": 3})
    with pytest.raises(mdl.UserError):
        repo.commit({"model": weights(1)}, files={"state.json": "{}"}, wait=True)
    for bad in ("../x", "/etc/x", ".mdl/x", "a//b", ""):
        with pytest.raises(mdl.MdlError):
            repo.commit({}, files={bad: b""}, wait=True)


def test_directories_as_a_framework_wrote_them(repo: mdl.Repo, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "checkpoint-5"
    (out / "sub").mkdir(parents=True)
    torch.save({"w": torch.arange(6.0).reshape(2, 3), "n": 3}, out / "optimizer.pt")
    (out / "sub" / "config.json").write_text("{}")
    pending = repo.commit_dir(out, step=5, wait=False)
    # The framework may rotate its checkpoints at once.
    for path in [out / "optimizer.pt", out / "sub" / "config.json"]:
        path.unlink()
    commit = pending.result()
    assert commit.files == 2
    assert repo.load()["optimizer"]["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not list((repo.path / "candidates").iterdir())
    with pytest.raises(mdl.NotFoundError):
        repo.commit_dir(tmp_path / "nothing")


def test_staged_files_are_joined(repo: mdl.Repo, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    program = """
import json, sys, numpy as np, mdl
repo = mdl.Repo.open(sys.argv[1])
staged = repo.stage({f"rank-{sys.argv[2]}.safetensors": {"w": np.full(9, float(sys.argv[2]))}})
print(json.dumps([(s.path, s.words) for s in staged]))
"""
    told = [run(program, str(repo.path), str(rank)).stdout for rank in range(3)]
    with pytest.raises(mdl.NotFoundError):
        repo.show()
    staged = [mdl.Staged(path, words) for text in told for path, words in json.loads(text)]
    commit = repo.commit_staged(staged, step=1, files={"index.json": "{}"})
    assert (commit.files, commit.tensors, commit.new_tensors) == (4, 3, 3)
    assert repo.tensor("main", "rank-2.safetensors:w")[0] == 2


def test_files_of_a_version_are_joined_into_another_without_being_read(repo: mdl.Repo, tmp_path: pathlib.Path) -> None:
    (tmp_path / "run.sh").write_text("true")
    (tmp_path / "run.sh").chmod(0o755)
    repo.commit({"model": weights(1)}, files={"run.sh": tmp_path / "run.sh"}, wait=True)
    kept = [s for s in repo.staged() if s.path != "state.json"]
    made = repo.commit_staged(kept, files={"note.txt": "later"})
    assert sorted(repo.files()) == ["model.safetensors", "note.txt", "run.sh"]
    assert (made.tensors, made.new_tensors) == (2, 0)
    assert made.stored_bytes < 4000
    repo.checkout("main", tmp_path / "out")
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o100


def test_export(history: mdl.Repo, tmp_path: pathlib.Path) -> None:
    history.commit({"model": weights(1), "ema": weights(2)}, wait=True)
    names = history.export_safetensors("main", tmp_path / "all.safetensors")
    assert sorted(names) == [f"{f}.safetensors:{n}" for f in ("ema", "model") for n in ("b", "w")]
    history.export_safetensors("main", tmp_path / "one.safetensors", only="model.safetensors:*")
    check(weights(1), dict(sorted(load_file(tmp_path / "one.safetensors").items(), reverse=True)))
    for only in ("nothing", ["model:*"]):
        with pytest.raises(mdl.NotFoundError, match="no tensor is to be exported"):
            history.export_safetensors("main", tmp_path / "none", only=only)
    assert not (tmp_path / "none").exists()


def test_clones(history: mdl.Repo, tmp_path: pathlib.Path) -> None:
    history.tag("v1", "main~1")
    copy = mdl.Repo.clone(history.path, tmp_path / "copy")
    assert [c.id for c in copy.log()] == [c.id for c in history.log()]
    assert copy.tags() == history.tags()
    copy.commit({"model": weights(4)}, step=40, wait=True)
    assert history.show().step == 30
    with pytest.raises(mdl.UserError):
        mdl.Repo.clone(history.path, tmp_path / "copy")


def test_the_command_line_sees_the_same(history: mdl.Repo, binary: pathlib.Path) -> None:
    told = subprocess.run([binary, "--repo", history.path, "--json", "log"], capture_output=True, check=True, text=True)
    assert [c["step"] for c in json.loads(told.stdout)] == [30, 20, 10]
    subprocess.run([binary, "--repo", history.path, "fsck"], check=True, capture_output=True)


def test_errors_have_kinds_hints_and_causes(tmp_path: pathlib.Path, history: mdl.Repo) -> None:
    with pytest.raises(mdl.NotFoundError) as found:
        mdl.Repo.open(tmp_path)
    with pytest.raises(mdl.NotFoundError):
        mdl.Repo.open(tmp_path / "nothing")
    assert isinstance(found.value, LookupError)
    with pytest.raises(mdl.UsageError):
        history.show("main~x")
    with pytest.raises(mdl.UserError):
        history.commit({"w": torch.ones(1)}, branch="no..name", wait=True)
    with pytest.raises(mdl.NotFoundError):
        history.commit({"w": torch.ones(1)}, resumed_from="nothing", wait=True)
    with pytest.raises(mdl.MdlError):
        history.commit({"w": torch.ones(1)}, policy="nothing", wait=True)
    pack = next((history.path / "packs").rglob("*"))
    while pack.is_dir():
        pack = next(pack.iterdir())
    for path in (p for p in (history.path / "packs").rglob("*") if p.is_file()):
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 4] ^= 1
        path.chmod(0o644)
        path.write_bytes(raw)
    with pytest.raises(mdl.CorruptError):
        [history.load(c.id) for c in mdl.Repo.open(history.path).log()]


def test_versions_without_a_state(repo: mdl.Repo, tmp_path: pathlib.Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "readme.txt").write_text("text")
    repo.commit_dir(tmp_path / "d")
    with pytest.raises(mdl.StateError):
        repo.load()
    np.savez(tmp_path / "d" / "arrays.npz", a=np.arange(3), b=np.ones((2, 2), np.float32))
    repo.commit_dir(tmp_path / "d")
    got = repo.load(framework="numpy")
    assert got["arrays"]["a"].tolist() == [0, 1, 2]
    assert list(repo.load(only="arrays.b", framework="numpy")["arrays"]) == ["b"]
    with pytest.raises(mdl.NotFoundError, match=r"did you mean arrays\.[ab]"):
        repo.load(only="array.b")
    with pytest.raises(mdl.NotFoundError, match=r"tensor not found: aa \(did you mean a\?\)"):
        repo.tensor("main", "aa")
    with pytest.raises(mdl.NotFoundError, match=r"did you mean arrays\.npz\?"):
        repo.checkout("main", tmp_path / "out", only="arays.npz")


def test_labels_say_what_a_resumed_run_gets_back(repo: mdl.Repo, tmp_path: pathlib.Path) -> None:
    model = torch.nn.Linear(300, 200)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": mdl.rng_state()}

    def label(**options: object) -> str | None:
        return repo.commit(options.pop("state", parts), wait=True, **options).resume  # type: ignore[arg-type]

    assert label() == "exact-resume"
    assert label(state={k: parts[k] for k in ("model", "optimizer")}) == "approximate"
    assert label(state=model.state_dict()) == "weights-only"
    assert label(state={"trainer": {"opts": [optimizer.state_dict()], "net": model.state_dict()}}) == "approximate"
    assert label(state={"step": 3}) is None
    assert label(resume="approximate") == "approximate"
    with pytest.raises(mdl.UsageError):
        label(resume="perfect")
    # A new version is exact, an approximation without exact contents beside it never is. (The weights move first:
    # what is stored already stays as it is.)
    bare = tmp_path / "bare.toml"
    bare.write_text('try = ["lattice"]\n[keep]\nexact_latest = 0\n')
    for policy, expected in (("lossy", "exact-resume"), (str(bare), "approximate")):
        with torch.no_grad():
            model.weight.add_(torch.randn_like(model.weight))
        assert label(policy=policy, evaluate=lambda directory: 1.0) == expected


def test_shards_are_joined_into_one_version(tmp_path: pathlib.Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    parts = [{"w": torch.full((4,), float(rank))} for rank in range(3)]
    for rank in (0, 2):
        done = repo.put_shard("run/1", rank, {f"part-{rank}.safetensors": parts[rank]})
        assert (done.rank, done.files, done.tensors, done.new_tensors) == (rank, 1, 1, 1)
    assert repo.sessions() == [mdl.Session("run/1", [0, 2], None)]
    with pytest.raises(mdl.UserError, match="rank 1 of 3"):
        repo.join_shards("run/1", 3)
    assert repo.branches() == {}
    staged = repo.stage({"part-1.safetensors": parts[1]})
    repo.put_shard("run/1", 1, staged=staged)
    commit = repo.join_shards("run/1", 3, step=1, files={"note.txt": "joined"})
    assert repo.join_shards("run/1", 3) == commit
    assert sorted(repo.files()) == ["note.txt", *(f"part-{rank}.safetensors" for rank in range(3))]
    assert [repo.tensor("main", f"part-{rank}.safetensors:w")[0].item() for rank in range(3)] == [0, 1, 2]
    assert repo.sessions() == [mdl.Session("run/1", [0, 1, 2], commit.id)]
    with pytest.raises(mdl.UserError, match="too late"):
        repo.put_shard("run/1", 1, {"x": b"x"})
    with pytest.raises(mdl.NotFoundError):
        repo.join_shards("run/2", 1)
