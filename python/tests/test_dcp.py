"""PyTorch Distributed Checkpoint in a repository: exact for any number of ranks, committed as a whole or not at all."""

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed.checkpoint")
sys.path.insert(0, str(Path(__file__).parent))

import dcp_ranks
import mdl
import numpy as np
import safetensors
import torch
import torch.distributed.checkpoint as dcp
from mdl.integrations import _dcp_read
from mdl.integrations._dcp_metadata import Blob, Chunk, from_json, to_json
from mdl.integrations.dcp import MdlReader, MdlWriter
from mdl.reading import Reader
from support.cli import binary
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mdl.Repo]:
    """A repository with four saves of four ranks: two states, the second of them twice, and one on another branch."""
    folder = tmp_path_factory.mktemp("dcp")
    repo = mdl.Repo.init(folder)
    saves = [(1, {"step": 1}), (2, {"step": 2, "metrics": {"loss": 0.5}}), (2, {"step": 3}), (3, {"branch": "other"})]
    assert dcp_ranks.run(folder, 4, dcp_ranks.save, str(folder), saves) == [0] * 4
    return folder, repo


def test_one_commit_per_save(saved: tuple[Path, mdl.Repo]) -> None:
    folder, repo = saved
    log = repo.log("main")
    assert [c.step for c in log] == [3, 2, 1]
    assert log[1].metrics == {"loss": 0.5}
    assert len(repo.log("other")) == 4
    assert {(folder / f"id-{rank}").read_text() for rank in range(4)} == {repo.resolve("other")}


def test_ordinary_safetensors_come_out(saved: tuple[Path, mdl.Repo], tmp_path: Path) -> None:
    _, repo = saved
    repo.checkout("main", tmp_path)
    found = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*") if p.is_file()}
    assert {f"{entry}/rank-{rank:05}.safetensors" for entry in ("model", "optim") for rank in range(4)} <= found
    with safetensors.safe_open(tmp_path / "model/rank-00001.safetensors", "pt") as file:
        assert "0.weight@10,0" in set(file.keys())
        assert file.get_tensor("0.weight@10,0").shape == (10, 24)
    json.loads((tmp_path / "dcp.json").read_bytes())


@pytest.mark.parametrize("world", [2, 8])
def test_loads_on_other_numbers_of_ranks(saved: tuple[Path, mdl.Repo], world: int) -> None:
    folder, _ = saved
    assert dcp_ranks.run(folder, world, dcp_ranks.load, str(folder), [("main", 2)]) == [0] * world


def test_loads_any_revision_on_one_rank(saved: tuple[Path, mdl.Repo]) -> None:
    folder, _ = saved
    loads = [("main", 2), ("main~2", 1), ("main@step=2", 2), ("other", 3)]
    assert dcp_ranks.run(folder, 1, dcp_ranks.load, str(folder), loads) == [0]


def test_loads_without_process_group(saved: tuple[Path, mdl.Repo]) -> None:
    _, repo = saved
    weight = torch.zeros(40, 24)
    state = {"model": {"0.weight": weight}, "step": 0, "note": {"tags": [None, None]}}
    dcp.load(state, storage_reader=MdlReader(repo, "main"))
    assert state["step"] == 14
    assert state["note"] == {"tags": ["a", 1]}
    rows = [repo.tensor("main", f"model/rank-{r:05}.safetensors:0.weight@{10 * r},0")[...] for r in range(4)]
    assert torch.equal(weight, torch.cat(rows))


def test_what_did_not_change_is_not_stored_again(saved: tuple[Path, mdl.Repo]) -> None:
    _, repo = saved
    third, second, _ = repo.log("main")
    assert second.stored_bytes > 20_000
    assert third.stored_bytes < second.stored_bytes / 50
    assert repo.files("main").keys() == repo.files("main~1").keys()
    assert repo.tensors("main").keys() == repo.tensors("main~2").keys()


def test_small_changes_are_small(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    torch.manual_seed(0)
    weight = torch.randn(400, 300)
    for step in range(3):
        dcp.save({"model": {"w": weight}}, storage_writer=MdlWriter(repo, step=step))
        weight[step, :] += 1e-3
    assert repo.show("main").stored_bytes < 0.1 * repo.show("main~2").stored_bytes


def test_a_killed_rank_leaves_no_commit(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    repo.commit({"x": torch.zeros(3)}, wait=True)
    before = repo.branches()
    for victim in (0, 1):
        codes = dcp_ranks.run(tmp_path, 2, dcp_ranks.die, str(tmp_path), victim)
        assert codes[victim] == -9
        assert codes[1 - victim] == 3
        assert repo.branches() == before
        assert len(repo.log(all=True)) == 1
    if binary().exists():
        for verb in ("fsck", "gc", "fsck"):
            subprocess.run([binary(), verb], cwd=tmp_path, check=True, capture_output=True)
    # What was staged does not disturb the next save.
    dcp.save({"x": torch.ones(3)}, storage_writer=MdlWriter(tmp_path, step=1))
    assert [c.step for c in mdl.Repo.open(tmp_path).log()] == [1, None]


def test_a_rank_that_fails_leaves_no_commit(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    assert dcp_ranks.run(tmp_path, 2, dcp_ranks.fail, str(tmp_path)) == [0, 0]
    assert repo.branches() == {}


def test_saves_are_finished_sessions(saved: tuple[Path, mdl.Repo]) -> None:
    _, repo = saved
    sessions = repo.sessions()
    assert {s.commit for s in sessions} == {c.id for c in repo.log("other")} | {c.id for c in repo.log("main")}
    assert all(s.ranks == [0, 1, 2, 3] and s.name.startswith("dcp/") for s in sessions)


def test_planners_that_reuse_plans(tmp_path: Path) -> None:
    """Their plans name the session of an older save; each save is a version all the same."""
    repo = mdl.Repo.init(tmp_path)
    assert dcp_ranks.run(tmp_path, 2, dcp_ranks.save_reusing_plans, str(tmp_path), 4) == [0, 0]
    assert [c.step for c in repo.log()] == [3, 2, 1, 0]
    for step in range(4):
        state = {"w": torch.zeros(12), "all": torch.zeros(3)}
        dcp.load(state, storage_reader=MdlReader(repo, f"main@step={step}"))
        assert torch.equal(state["w"], torch.arange(12.0) + step)
        assert torch.equal(state["all"], torch.full((3,), float(step)))


def test_ranks_without_anything_to_write(tmp_path: Path) -> None:
    """What all ranks have alike is written by one of them."""
    repo = mdl.Repo.init(tmp_path)
    assert dcp_ranks.run(tmp_path, 3, dcp_ranks.save_alike, str(tmp_path)) == [0, 0, 0]
    state = {"w": torch.zeros(5)}
    dcp.load(state, storage_reader=MdlReader(repo))
    assert torch.equal(state["w"], torch.ones(5))


@pytest.mark.parametrize("process", [False, True])
def test_saves_in_the_background(tmp_path: Path, process: bool) -> None:
    world = 1 if process else 2
    repo = mdl.Repo.init(tmp_path)
    assert dcp_ranks.run(tmp_path, world, dcp_ranks.save_async, str(tmp_path), process) == [0] * world
    state = {"w": torch.zeros(12), "step": 0}
    dcp.load(state, storage_reader=MdlReader(repo))
    assert state["step"] == 5
    assert torch.equal(state["w"], torch.arange(12.0))


def test_checkpoint_ids_name_branches_and_revisions(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "one")
    mdl.Repo.init(tmp_path / "two")
    writer = MdlWriter(repo)
    for place, value in ((None, 1.0), ("exp", 2.0), (f"mdl://{tmp_path}/two@exp", 3.0)):
        dcp.save({"w": torch.full((2,), value)}, storage_writer=writer, checkpoint_id=place)
    found = []
    for place in ("exp~1", "exp", f"mdl://{tmp_path}/two@exp", f"mdl://{tmp_path}/one"):
        state = {"w": torch.zeros(2)}
        dcp.load(state, storage_reader=MdlReader(repo), checkpoint_id=place)
        found.append(state["w"][0].item())
    assert found == [1.0, 2.0, 3.0, 1.0]
    assert MdlReader(f"mdl://{tmp_path}/one@exp").id == repo.resolve("exp")
    assert MdlReader.validate_checkpoint_id(f"mdl://{tmp_path}/two@exp")
    assert not MdlWriter.validate_checkpoint_id(tmp_path / "two")
    assert not MdlWriter.validate_checkpoint_id("s3://bucket/run")
    with pytest.raises(mdl.UsageError):
        writer.reset(tmp_path)


def test_ranks_that_see_different_versions_do_not_mix_them(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    plans = []
    for value in (1.0, 2.0):
        dcp.save({"w": torch.full((2,), value)}, storage_writer=MdlWriter(repo))
        plans.append(MdlReader(repo).prepare_local_plan(LoadPlan([])))
    reader = MdlReader(repo)
    assert reader.prepare_global_plan(plans[1:] * 2) == plans[1:] * 2
    with pytest.raises(mdl.ConflictError):
        reader.prepare_global_plan(plans)


def test_errors_name_what_is_missing(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    repo.commit({"x": torch.zeros(3)}, wait=True)
    with pytest.raises(mdl.NotFoundError, match="no distributed checkpoint"):
        MdlReader(repo)
    with pytest.raises(mdl.NotFoundError):
        MdlReader(repo, "nowhere")
    broken = repo.commit_staged([], files={"dcp.json": b'{"mdl_dcp": 1}'}).id
    with pytest.raises(mdl.StateError, match="none of mdl's"):
        MdlReader(repo, broken)
    newer = repo.commit_staged([], files={"dcp.json": b'{"mdl_dcp": 2}'}).id
    with pytest.raises(mdl.StateError, match="update mdl"):
        MdlReader(repo, newer)


def test_retention_is_applied(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    for step in range(4):
        writer = MdlWriter(repo, step=step, retention=mdl.retention.LatestN(2))
        dcp.save({"w": torch.full((4,), float(step))}, storage_writer=writer)
    assert [c.step for c in repo.log() if not c.pruned] == [3, 2]


def test_writers_can_be_pickled(tmp_path: Path) -> None:
    writer = pickle.loads(pickle.dumps(MdlWriter(mdl.Repo.init(tmp_path), step=4, branch="b")))
    dcp.save({"w": torch.ones(2)}, storage_writer=writer)
    reader = pickle.loads(pickle.dumps(MdlReader(tmp_path, "b")))
    assert reader.repo.show("b").step == 4


def test_metadata_survive_as_json() -> None:
    sizes = torch.Size([4, 3])
    strange = TensorProperties(torch.bfloat16, requires_grad=True, memory_format=torch.channels_last)
    chunks = [ChunkStorageMetadata(torch.Size([i, 0]), torch.Size([2, 3])) for i in (0, 2)]
    said = {"w": TensorStorageMetadata(strange, sizes, chunks), "x": BytesStorageMetadata()}
    places = {
        MetadataIndex("w", [0, 0]): Chunk("a", "w@0,0"),
        MetadataIndex("w", [2, 0]): Chunk("b", "w@2,0", ("uint4", (2, 3))),
        MetadataIndex("x"): Blob("c", 5, 7),
    }
    for planner_data in (None, {"w": ("w",), "x": ("x", 0)}, {"any": {1: (2.5, b"x", torch.Size([1]))}}):
        back = from_json(to_json(Metadata(said, planner_data, version="1.0.0"), places))
        assert back.state_dict_metadata == said
        assert back.storage_data == places
        assert back.planner_data == planner_data
        assert back.version == "1.0.0"
    del places[MetadataIndex("x")]
    with pytest.raises(mdl.StateError, match="no rank wrote x"):
        to_json(Metadata(said), places)


class Boxes:
    """A planner whose targets are handed to it, and a reader that counts what is asked of the repository."""

    def __init__(self, native: Any) -> None:
        self.native, self.targets, self.ranges, self.filled = native, [], [], []

    def resolve_tensor(self, item: Any) -> Any:
        return self.targets[item.dest_index.index]

    def commit_tensor(self, item: Any, tensor: Any) -> None:
        pass

    def load_bytes(self, item: Any, value: Any) -> None:
        self.targets.append(value.getvalue())

    def tensor_range(self, rev: str, path: str, name: str, span: tuple[int, int]) -> bytes:
        self.ranges.append(span)
        return self.native.tensor_range(rev, path, name, span)

    def fill(self, rev: str, jobs: list[Any]) -> None:
        self.filled += [(job[1], job[3]) for job in jobs]
        self.native.fill(rev, jobs)

    def tensors(self, *args: Any) -> Any:
        return self.native.tensors(*args)

    def read(self, *args: Any) -> bytes:
        self.ranges.append(args[2:])
        return self.native.read(*args)


def box(i: int, offsets: Any, lengths: Any, name: str = "w") -> ReadItem:
    zeros = [0] * len(lengths)
    index = MetadataIndex(name, zeros, i)
    return ReadItem(
        LoadItemType.TENSOR, index, zeros, MetadataIndex(name, zeros), torch.Size(offsets), torch.Size(lengths)
    )


Stored = tuple[np.ndarray, Boxes, Reader, dict[MetadataIndex, Any]]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    repo = mdl.Repo.init(tmp_path)
    values = np.arange(64 * 50 * 3, dtype=np.float32).reshape(64, 50, 3)
    repo.commit_staged([], files={"f.safetensors": {"w": values}, "b": bytes(range(256)) * 40})
    boxes = Boxes(repo._read)
    reader = Reader(boxes, repo.resolve())
    return values, boxes, reader, {MetadataIndex("w", [0, 0, 0]): Chunk("f.safetensors", "w")}


@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("budget", [1, 5000, 1 << 28])
@pytest.mark.parametrize("seed", range(4))
def test_any_boxes_are_read_exactly(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, small: int, budget: int, seed: int
) -> None:
    values, boxes, reader, places = stored
    monkeypatch.setattr(_dcp_read, "SMALL", small)
    monkeypatch.setattr(_dcp_read, "BUDGET", budget)
    rng = np.random.default_rng(seed)
    items, want = [], []
    for i in range(rng.integers(1, 6)):
        start = [int(rng.integers(0, n)) for n in values.shape]
        count = [int(rng.integers(1, n - s + 1)) for n, s in zip(values.shape, start, strict=True)]
        items.append(box(i, start, count))
        want.append(values[tuple(slice(s, s + n) for s, n in zip(start, count, strict=True))])
        dtype = [torch.float32, torch.float64][i % 2]
        boxes.targets.append(torch.zeros(count[::-1], dtype=dtype).permute(2, 1, 0))
    _dcp_read.read(reader, items, places, boxes)
    for got, expected in zip(boxes.targets, want, strict=True):
        assert np.array_equal(got.numpy(), expected)


def test_only_the_rows_that_are_wanted_are_read_and_each_once(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    values, boxes, reader, places = stored
    monkeypatch.setattr(_dcp_read, "SMALL", 0)
    items = [box(0, (4, 0, 0), (6, 50, 3)), box(1, (6, 10, 0), (6, 10, 3)), box(2, (40, 0, 0), (1, 50, 3))]
    boxes.targets = [torch.zeros(tuple(i.lengths)) for i in items]
    _dcp_read.read(reader, items, places, boxes)
    assert boxes.ranges == [(4 * 600, 8 * 600), (40 * 600, 600)]
    assert boxes.filled == []
    assert np.array_equal(boxes.targets[1].numpy(), values[6:12, 10:20])


def test_a_part_goes_right_into_the_tensor_that_wants_it(stored: Stored) -> None:
    values, boxes, reader, places = stored
    boxes.targets = [torch.zeros(64, 50, 3)]
    _dcp_read.read(reader, [box(0, (0, 0, 0), (64, 50, 3))], places, boxes)
    assert boxes.filled == [("w", values.nbytes)]
    assert boxes.ranges == []
    assert np.array_equal(boxes.targets[0].numpy(), values)


def test_neighbouring_bytes_are_read_together(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    _, boxes, reader, _ = stored
    names = {f"b{i}": Blob("b", i * 100, 100) for i in range(20)}
    places = {MetadataIndex(name): blob for name, blob in names.items()}
    items = [
        ReadItem(LoadItemType.BYTE_IO, index, torch.Size([0]), index, torch.Size([0]), torch.Size([0]))
        for index in reversed(places)
    ]
    _dcp_read.read(reader, items, places, boxes)
    whole = bytes(range(256)) * 40
    assert boxes.targets == [whole[i * 100 : i * 100 + 100] for i in range(20)]
    assert boxes.ranges == [(0, 2000)]
    monkeypatch.setattr(_dcp_read, "BUDGET", 500)
    boxes.ranges.clear()
    _dcp_read.read(reader, items, places, boxes)
    assert boxes.ranges == [(i * 500, 500) for i in range(4)]
    places[MetadataIndex("b19")] = Blob("b", 10_200, 100)
    with pytest.raises(mdl.CorruptError):
        _dcp_read.read(reader, items, places, boxes)


def test_what_other_planners_pickle_is_kept(tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path)
    big = {"array": np.arange(100_000), "text": "x" * 1000}
    nested = {"flatten_state_dict": False, "flatten_sharded_tensors": False}
    planner = dcp.DefaultSavePlanner(**nested)
    dcp.save({"a/../b": big, "w": torch.ones(2)}, storage_writer=MdlWriter(repo), planner=planner)
    state = {"a/../b": None, "w": torch.zeros(2)}
    dcp.load(state, storage_reader=MdlReader(repo), planner=dcp.DefaultLoadPlanner(**nested))
    assert np.array_equal(state["a/../b"]["array"], big["array"])
    assert torch.load(io.BytesIO(repo.read("HEAD", "rank-00000.bytes")), weights_only=False)["text"] == big["text"]
