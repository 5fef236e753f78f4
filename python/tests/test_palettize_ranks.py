"""Index lists that several processes share: the same gradients as one process has, and what each of them saves."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from mdl.clustering.layer import DKM, Settings  # noqa: E402
from mdl.clustering.learners import Learners, LearnersError  # noqa: E402
from mdl.clustering.marshal import counting  # noqa: E402

#: Numbers of weights that the ranks divide, and do not divide.
SHAPES = [(64, 64), (33, 31), (5, 7)]


def weight_of(shape: tuple[int, int], dtype: Any = torch.bfloat16) -> Any:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 0.05).to(dtype).requires_grad_()


def layer_of(learners: Any, index: str = "list", **more: Any) -> DKM:
    centroids = torch.linspace(-0.1, 0.1, 4, dtype=torch.float64)[None, :, None]
    distortion = torch.tensor([4e-4], dtype=torch.float64)
    return DKM(Settings(2, index=index, learners=learners, **more), centroids, distortion, 1.0)


def gradient(layer: DKM, weight: Any) -> Any:
    above = torch.randn(weight.shape, generator=torch.Generator().manual_seed(9)).to(weight.dtype)
    return torch.autograd.grad(layer(weight), weight, above)[0]


def the_same_bits(rank: int, world: int) -> None:
    learners = Learners()
    for shape in SHAPES:
        for dtype, more in ((torch.bfloat16, {}), (torch.float32, {"key16": True}), (torch.float16, {})):
            weight = weight_of(shape, dtype)
            for recompute in (True, False):
                mine = gradient(layer_of(learners, recompute=recompute, **more), weight)
                assert torch.equal(mine, gradient(layer_of(None, recompute=recompute, **more), weight))
                assert torch.equal(mine, gradient(layer_of(None, "self", recompute=recompute, **more), weight))


def a_part_each(rank: int, world: int) -> None:
    weight = weight_of((64, 64))
    found = []
    for learners in (Learners(), None):
        with counting([weight]) as saved:
            layer_of(learners)(weight)
        found.append(saved.distinct)
    # The list is 2 bytes for each weight; a checksum of 8 bytes goes with a part of it.
    assert found[1] - found[0] == 2 * 4096 - (2 * 4096 // world + 8)


def other_weights_are_noticed(rank: int, world: int) -> None:
    weight = weight_of((64, 64))
    if rank == world - 1:
        # Two weights change places: sums alone would not tell.
        with torch.no_grad():
            weight[0, :2] = weight[0, :2].flip(0).clone()
    layer = layer_of(Learners())
    if world == 1:
        gradient(layer, weight)
        return
    with pytest.raises(LearnersError, match="different weights"):
        gradient(layer, weight)


def trained(model: Any, batches: list[Any], **arguments: Any) -> list[Any]:
    """Parameters after a few steps."""
    palettizer = mdl.palettize(model, bits=2, min_weights=1, **arguments)
    palettizer.prepare()
    replicated = nn.parallel.DistributedDataParallel(model) if arguments else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x in batches:
        optimizer.zero_grad()
        replicated(x.to(torch.bfloat16)).float().square().mean().backward()
        optimizer.step()
        palettizer.step()
    return [p.detach() for p in palettizer.finalize().parameters()]


def a_job_trains_as_one_process(rank: int, world: int) -> None:
    """Each rank has a part of the batch, and averages gradients (DistributedDataParallel)."""

    def make() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)).to(torch.bfloat16)

    batches = list(torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(1)))
    mine = trained(make(), [b.chunk(world)[rank] for b in batches], shard=True, index="list")
    together = [torch.empty_like(p).expand(world, *p.shape).contiguous() for p in mine]
    for parts, p in zip(together, mine, strict=True):
        dist.all_gather(list(parts.unbind()), p)
        assert all(torch.equal(part, p) for part in parts)
    for p, q in zip(mine, trained(make(), batches), strict=True):
        assert (p - q).float().norm() < 0.03 * q.float().norm()


SCENES = [the_same_bits, a_part_each, other_weights_are_noticed, a_job_trains_as_one_process]


def scenes(rank: int, folder: Path, world: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    for scene in SCENES:
        try:
            scene(rank, world)
        except BaseException:
            print(f"rank {rank} of {world}, {scene.__name__}:", file=sys.stderr, flush=True)
            traceback.print_exc()
            raise
        dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [1, 2, 8])
def test_ranks_have_the_gradients_of_one_process(world: int, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(scenes, (tmp_path, world), world)
