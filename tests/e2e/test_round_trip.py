"""What is committed comes back byte for byte: real models, every container, odd cases, after gc, with no index."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import Zoo
from support import makers, models
from support.cli import OK, USER, Mdl, assert_same, copy_tree, differences, files_of
from support.tensors import Tensor, read_safetensors, write_safetensors


def both_versions(zoo: Zoo, mdl: Mdl, out: Path) -> None:
    """Checks both versions of the zoo out of a repository and compares every byte."""
    assert_same(zoo.second, mdl.checkout("main", out / "second"))
    assert_same(zoo.first, mdl.checkout("main~1", out / "first"))


def test_every_model_and_container_comes_back(zoo: Zoo, tmp_path: Path) -> None:
    assert differences(zoo.first, zoo.second), "the two versions are the same, the test would prove little"
    both_versions(zoo, zoo.mdl, tmp_path)


def test_fsck_is_clean(zoo: Zoo) -> None:
    zoo.mdl.run("fsck", "--quick")
    zoo.mdl.fsck()


def test_after_gc_and_compact(zoo: Zoo, tmp_path: Path) -> None:
    copy_tree(zoo.mdl.repo, tmp_path / "repo")
    mdl = Mdl(tmp_path / "repo")
    mdl.run("gc", "--prune-now")
    both_versions(zoo, mdl, tmp_path / "after-gc")
    shutil.rmtree(tmp_path / "after-gc")
    mdl.run("compact")
    both_versions(zoo, mdl, tmp_path / "after-compact")
    mdl.fsck()


def test_tensors_are_found_in_every_container(zoo: Zoo) -> None:
    found = zoo.mdl.tensors("main")
    names = {path: {n for p, n in found if p == path} for path, _ in found}
    real = {t.name for t in read_safetensors(zoo.second / "minilm" / "model.safetensors")[0]}
    assert names["minilm/model.safetensors"] == real
    for path in (
        "full.pth",
        "tiny.pth",
        models.WORDLLAMA.name,
        "state.pt",
        "scripted.pt",
        "numpy/stored.npz",
        "numpy/c.npy",
        "tiny.gguf",
        "odd/strange.safetensors",
        "sharded/model-00001-of-00004.safetensors",
    ):
        assert names.get(path), f"no tensor found in {path}"


def test_cat_gives_the_tensor_and_its_slices(zoo: Zoo, minilm: list[Tensor]) -> None:
    tensor = next(t for t in minilm if t.name == "encoder.layer.3.output.dense.weight")
    where = "main:minilm/model.safetensors"
    assert zoo.mdl.bytes("cat", where, tensor.name, "--raw") == tensor.data
    array = np.load(io.BytesIO(zoo.mdl.bytes("cat", where, tensor.name, "--npy")))
    assert array.dtype == np.float32
    assert np.array_equal(array, tensor.array())
    part = np.load(io.BytesIO(zoo.mdl.bytes("cat", where, tensor.name, "--npy", "--slice", "3:10,:5")))
    assert np.array_equal(part, tensor.array()[3:10, :5])


def test_verify_says_whether_a_file_is_the_committed_one(zoo: Zoo, tmp_path: Path) -> None:
    file = zoo.second / "small" / "model.safetensors"
    zoo.mdl.run("verify", file, "main:small/model.safetensors")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(raw)
    assert zoo.mdl.run("verify", wrong, "main:small/model.safetensors", code=(1, 5)).code != 0


def test_checkout_of_a_part(zoo: Zoo, tmp_path: Path) -> None:
    zoo.mdl.checkout("main", tmp_path / "out", "--only", "numpy/*", "--only", "tiny.gguf")
    wanted = {n for n in files_of(zoo.second) if n.startswith("numpy/") or n == "tiny.gguf"}
    assert set(files_of(tmp_path / "out")) == wanted
    assert all((tmp_path / "out" / n).read_bytes() == (zoo.second / n).read_bytes() for n in wanted)


@pytest.mark.parametrize("name", sorted(makers.odd_files()))
def test_odd_file_alone(name: str, mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """The doubtful ones may be refused by name; with --allow-damaged every one of them comes back."""
    makers.make_folder(source, {name: makers.odd_files()[name]})
    if name in makers.DOUBTFUL:
        refused = mdl.run("commit", source, "-m", "x", code=(OK, USER)).code == USER
        if refused:
            mdl.run("commit", source, "-m", "x", code=USER).complains(name)
            mdl.run("commit", source, "-m", "x", "--allow-damaged")
    else:
        mdl.run("commit", source, "-m", "x")
    assert_same(source, mdl.checkout("main", tmp_path / "out"))


def test_odd_bits_of_every_float_come_back_through_a_delta(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """NaN payloads, -0.0 and subnormals against a parent whose values differ everywhere, both ways round."""
    versions = [makers.strange_floats()]
    versions.append([Tensor(t.name, t.dtype, t.shape, t.data[::-1]) for t in versions[0]])
    flipped = [bytes(b ^ 1 if i % 2 == 0 else b for i, b in enumerate(t.data)) for t in versions[0]]
    versions.append([Tensor(t.name, t.dtype, t.shape, d) for t, d in zip(versions[0], flipped, strict=True)])
    folders = []
    for i, tensors in enumerate(versions):
        folders.append(source / str(i))
        write_safetensors(folders[-1] / "model.safetensors", tensors)
        mdl.commit(folders[-1], f"version {i}")
    for i, folder in enumerate(reversed(folders)):
        assert_same(folder, mdl.checkout(f"main~{i}", tmp_path / f"out{i}"))


def test_long_chain_of_deltas(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """Forty small steps: past the depth bound, every fifth version comes back, before and after compact and gc."""
    weights, rng = makers.random_f32((128, 128), 1), np.random.default_rng(2)
    for i in range(40):
        weights = weights + (rng.standard_normal(weights.shape) * 1e-5).astype(np.float32)
        write_safetensors(source / str(i) / "model.safetensors", [Tensor.of("w", weights)])
        mdl.commit(source / str(i), f"step {i}", "--step", str(i))
    ids = [entry["id"] for entry in mdl.log("main")]
    for stage in ("as committed", "compact", "gc"):
        if stage != "as committed":
            mdl.run(stage, *(["--prune-now"] if stage == "gc" else []))
        assert [entry["id"] for entry in mdl.log("main")] == ids
        for i in range(0, 40, 5):
            assert_same(source / str(i), mdl.checkout(f"main@step={i}", tmp_path / f"{stage}-{i}"))


# --- the index is disposable -----------------------------------------------------------------------------------------


def damage_nothing(index: Path) -> None:
    assert index.exists()


def damage_delete(index: Path) -> None:
    shutil.rmtree(index)


def damage_truncate(index: Path) -> None:
    for path in files_of(index).values():
        os.truncate(path, path.stat().st_size // 2)


def damage_garbage(index: Path) -> None:
    for i, path in enumerate(files_of(index).values()):
        path.write_bytes(np.random.default_rng(i).bytes(max(64, path.stat().st_size)))


def damage_zero(index: Path) -> None:
    for path in files_of(index).values():
        path.write_bytes(bytes(path.stat().st_size))


def damage_bits(index: Path) -> None:
    for i, path in enumerate(files_of(index).values()):
        raw, rng = bytearray(path.read_bytes()), np.random.default_rng(i)
        for at in rng.integers(0, len(raw), min(200, len(raw))) if raw else ():
            raw[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(raw)


def damage_replace_by_file(index: Path) -> None:
    shutil.rmtree(index)
    index.write_bytes(b"not a folder")


DAMAGES = (
    damage_nothing,
    damage_delete,
    damage_truncate,
    damage_garbage,
    damage_zero,
    damage_bits,
    damage_replace_by_file,
)


def works_fully(mdl: Mdl, source: Path, out: Path) -> None:
    """The whole daily cycle: log, checkout, commit, checkout of the new commit, fsck."""
    assert [entry["message"].strip() for entry in mdl.log("main")] == ["checkpoint 3", "checkpoint 2", "checkpoint 1"]
    assert_same(source, mdl.checkout("main", out / "before"))
    makers.write_small_checkpoint(source, 4)
    mdl.commit(source, "checkpoint 4")
    assert_same(source, mdl.checkout("main", out / "after"))
    mdl.fsck()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__.removeprefix("damage_"))
def test_index_damaged(damage: Callable[[Path], None], small: Mdl, source: Path, tmp_path: Path) -> None:
    damage(small.index)
    works_fully(small, source, tmp_path)


HOLDER = """
import fcntl, sys
files = [open(path, "r+b") for path in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(index: Path) -> Iterator[None]:
    """Another process holds an exclusive lock on every file of the index, as a second sled would on its `db`."""
    paths = [str(path) for path in files_of(index).values()]
    assert paths, "the index has no files to lock"
    argv = [sys.executable, "-c", HOLDER, *paths]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            assert holder.stdin is not None
            holder.stdin.close()


def test_index_locked_by_another_process(small: Mdl, source: Path, tmp_path: Path) -> None:
    with locked(small.index):
        with next(iter(files_of(small.index).values())).open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        works_fully(small, source, tmp_path)


def test_index_read_only(small: Mdl, source: Path, tmp_path: Path) -> None:
    """For root a folder's mode means nothing; there this only repeats the plain cycle."""
    for base, dirs, files in os.walk(small.index):
        for name in (*dirs, *files):
            os.chmod(os.path.join(base, name), 0o555)
    os.chmod(small.index, 0o555)
    try:
        works_fully(small, source, tmp_path)
    finally:
        os.chmod(small.index, 0o755)
        for base, dirs, _ in os.walk(small.index):
            for name in dirs:
                os.chmod(os.path.join(base, name), 0o755)


def test_store_has_all_the_truth(small: Mdl, source: Path, tmp_path: Path) -> None:
    """A copy of the repository without the index, moved elsewhere, is the repository."""
    shutil.copytree(small.repo, tmp_path / "copy", ignore=shutil.ignore_patterns("index"))
    assert not (tmp_path / "copy" / ".mdl" / "index").exists()
    works_fully(Mdl(tmp_path / "copy"), source, tmp_path)


def test_bare_repository(source: Path, tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "bare", "--bare")
    makers.write_small_checkpoint(source, 1)
    mdl.commit(source, "first")
    assert_same(source, mdl.checkout("main", tmp_path / "out"))


def test_commit_json_has_the_promised_fields(mdl: Mdl, source: Path) -> None:
    makers.write_small_checkpoint(source, 1)
    report = mdl.commit(source, "first", "--step", "7", "--epoch", "1", "--metric", "loss=0.5", "--meta", "run=a")
    assert report["branch"] == "main"
    assert report["files"] == 3
    assert report["tensors"] == report["new_tensors"] == 8
    assert report["logical_bytes"] == sum(p.stat().st_size for p in files_of(source).values())
    assert 0 < report["stored_bytes"] <= mdl.size()
    entry = mdl.log("main")[0]
    assert entry["id"] == report["commit"]
    assert (entry["step"], entry["epoch"]) == (7, 1)
    assert json.dumps(entry).count("loss") == 1
