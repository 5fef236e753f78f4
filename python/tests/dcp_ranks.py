"""Code of the ranks of test_dcp, each a process of its own, and the server that forks them.

A server that has torch loaded forks the ranks: they start in no time and share nothing with the test's own process.
"""

import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from mdl.integrations.dcp import MdlReader, MdlWriter
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as Piece
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch.distributed.fsdp",
        "torch.distributed.tensor",
        "torch.distributed._shard.sharded_tensor",
        "torch.distributed.checkpoint.state_dict",
        "mdl.integrations.dcp",
        # Sharding imports these at its first use, which takes longer than all else.
        "torch._dynamo",
        "torch._inductor.utils",
        "numpy.random",
    ]
)
DEADLINE = 120


def run(folder: Path, world: int, function: Callable[..., None], *args: Any) -> list[int | None]:
    """Runs ``function(rank, world, *args)`` on so many ranks; returns their exit codes."""
    store = folder / f"store-{len(list(folder.glob('store-*')))}"
    ranks = [CONTEXT.Process(target=_rank, args=(store, rank, world, function, args)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(DEADLINE)
        if process.is_alive():
            process.kill()
    return [process.exitcode for process in ranks]


def _rank(store: Path, rank: int, world: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        function(rank, world, *args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # Ranks that wait for one that was killed would not come back from a clean end.
    os._exit(0)


def build(seed: int) -> tuple[DeviceMesh, torch.nn.Module, torch.optim.Optimizer]:
    """A model sharded over all ranks, and its optimizer after one step; the same numbers for any number of ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 10), torch.nn.Linear(10, 3, bias=False)
    )
    model[1].running_mean.normal_()
    gradients = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for name, p in model.named_parameters():
        p.grad = distribute_tensor(gradients[name], p.device_mesh, p.placements)
    optimizer.step()
    return mesh, model, optimizer


def state_of(
    mesh: DeviceMesh, model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int, placements: dict[str, Any]
) -> dict[str, Any]:
    """Everything that can be in a checkpoint; ``placements`` says how the tensors of ``extra`` are spread."""
    torch.manual_seed(seed + 1)
    full = {
        "cols": torch.randn(6, 17, dtype=torch.float64),
        "few": torch.arange(6).reshape(2, 3),
        "half": torch.randn(33, 2, 2).to(torch.bfloat16),
        "everywhere": torch.randn(5, 5),
        "fine": torch.arange(64, dtype=torch.uint8).reshape(16, 4).view(torch.float8_e8m0fnu),
    }
    extra = {name: distribute_tensor(t, mesh, [placements[name]]) for name, t in full.items() if name != "fine"}
    extra["fine"] = full["fine"].clone()
    extra["scalar"] = torch.tensor(float(seed))
    extra["grid"] = spread_twice(torch.randn(18, 3))
    extra["old"] = old_style(torch.randn(13, 4, dtype=torch.float32))
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments, "extra": extra, "step": 7 * seed, "note": {"tags": ["a", 1]}}


def spread_twice(full: torch.Tensor) -> DTensor:
    """A tensor that two groups of ranks have, each spread over its ranks, where the number of ranks allows it."""
    world = dist.get_world_size()
    if world % 2:
        return distribute_tensor(full, init_device_mesh("cpu", (world,)), [Shard(0)])
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "parts"))
    return distribute_tensor(full, mesh, [Replicate(), Shard(0)])


def old_style(full: torch.Tensor) -> Any:
    """A ShardedTensor whose rows are dealt out unevenly: the last rank has what is left."""
    rank, world = dist.get_rank(), dist.get_world_size()
    cuts = [*range(world), len(full)]
    start, stop = cuts[rank], cuts[rank + 1]
    at = ShardMetadata([start, 0], [stop - start, full.shape[1]], f"rank:{rank}/cpu")
    return sharded_tensor.init_from_local_shards([Piece(full[start:stop].clone(), at)], *full.shape)


SAVED = {"cols": Shard(1), "few": Shard(0), "half": Shard(0), "everywhere": Replicate()}
LOADED = {"cols": Shard(0), "few": Replicate(), "half": Shard(1), "everywhere": Shard(1)}


def flat(state: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by dotted path."""
    if isinstance(state, dict):
        return {k: v for key, item in state.items() for k, v in flat(item, f"{prefix}.{key}").items()}
    if isinstance(state, list):
        return flat(dict(enumerate(state)), prefix)
    return {prefix: state}


def parts(state: Any) -> dict[str, Any]:
    """This process's parts of each leaf, as bytes or as they are."""
    found = {}
    for name, leaf in flat(state).items():
        local = leaf
        if isinstance(leaf, sharded_tensor.ShardedTensor):
            local = leaf.local_shards()[0].tensor
        elif isinstance(leaf, DTensor):
            local = leaf.to_local()
        if isinstance(local, torch.Tensor):
            raw = local.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            local = (local.dtype, tuple(local.shape), raw)
        found[name] = local
    return found


def wipe(state: Any) -> None:
    """Other values everywhere, in place."""
    for key, item in state.items():
        if isinstance(item, dict):
            wipe(item)
        elif isinstance(item, list):
            wipe(dict(enumerate(item)))
        elif isinstance(item, sharded_tensor.ShardedTensor):
            for shard in item.local_shards():
                shard.tensor.fill_(-1)
        elif isinstance(item, torch.Tensor):
            with torch.no_grad():
                local = item.to_local() if isinstance(item, DTensor) else item
                local.view(torch.uint8).fill_(77) if local.dim() else local.fill_(77)
        elif isinstance(state, dict):
            state[key] = None


def save(rank: int, world: int, repo: str, saves: list[Any]) -> None:
    """Saves states, each made from a seed."""
    for seed, said in saves:
        state = state_of(*build(seed), seed, SAVED)
        metadata = dcp.save(state, storage_writer=MdlWriter(repo, **said))
        Path(repo, f"id-{rank}").write_text(metadata.storage_meta.save_id)


def load(rank: int, world: int, repo: str, loads: list[Any]) -> None:
    """Loads states, spread otherwise than they were saved, and compares them with what they were made from."""
    for rev, seed in loads:
        state = state_of(*build(seed), seed, LOADED)
        want = parts(state)
        wipe(state)
        assert parts(state) != want
        dcp.load(state, storage_reader=MdlReader(repo, rev))
        got = parts(state)
        assert got.keys() == want.keys()
        different = [name for name in want if got[name] != want[name]]
        assert not different, different


class Doomed(MdlWriter):
    """Dies when its files are staged."""

    victim = 0

    def write_data(self, plan: Any, planner: Any) -> Any:
        done = super().write_data(plan, planner)
        if dist.get_rank() == self.victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def die(rank: int, world: int, repo: str, victim: int) -> None:
    """Saves until one rank is killed; the others find out."""
    state = state_of(*build(9), 9, SAVED)
    writer = Doomed(repo, step=9)
    writer.victim = victim
    try:
        dcp.save(state, storage_writer=writer)
    except BaseException:
        os._exit(3)


class Failing(MdlWriter):
    """One rank cannot write."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        if dist.get_rank() == 1:
            raise OSError("no space left")
        return super().write_data(plan, planner)


def fail(rank: int, world: int, repo: str) -> None:
    """Saves where one rank fails; all are told."""
    with pytest.raises(dcp.api.CheckpointException, match="no space left"):
        dcp.save(state_of(*build(9), 9, SAVED), storage_writer=Failing(repo, step=9))


def save_reusing_plans(rank: int, world: int, repo: str, steps: int) -> None:
    """Saves a state that does not change its shape, with a planner that keeps its plans."""
    mesh = init_device_mesh("cpu", (world,))
    for step in range(steps):
        state = {
            "w": distribute_tensor(torch.arange(12.0) + step, mesh, [Shard(0)]),
            "all": torch.full((3,), float(step)),
        }
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state, storage_writer=MdlWriter(repo, step=step), planner=planner)


def save_alike(rank: int, world: int, repo: str) -> None:
    """Saves what every rank has: one writes it, the others nothing."""
    dcp.save({"w": torch.ones(5)}, storage_writer=MdlWriter(repo))


def save_async(rank: int, world: int, repo: str, process: bool) -> None:
    """Saves in the background, of a thread or of a process; training goes on meanwhile."""
    kind = dcp.state_dict_saver.AsyncCheckpointerType
    state = {"w": distribute_tensor(torch.arange(12.0), init_device_mesh("cpu", (world,)), [Shard(0)]), "step": 5}
    saved = dcp.async_save(
        state,
        storage_writer=MdlWriter(repo, step=5),
        async_checkpointer_type=kind.PROCESS if process else kind.THREAD,
    )
    state["w"].to_local().fill_(0)
    assert len(saved.result().storage_meta.save_id) == 64
