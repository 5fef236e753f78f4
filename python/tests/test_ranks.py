"""`mdl.Compressor` on several processes: rounds of a search, one commit for all, failures that leave no rank waiting.

All scenes share one start of the processes: importing torch is what takes the time.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from mdl.loop.ranks import RankError, Ranks  # noqa: E402
from mdl.loop.trials import Trials  # noqa: E402

WORLD = 3


def make() -> tuple[Any, Callable[[], float]]:
    """The same on every rank: a model, and a number for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 40))
    x = torch.randn(64, 40)
    return model, lambda: model(x).square().mean().item()


def bits(model: Any) -> list[bytes]:
    return [t.detach().numpy().tobytes() for t in (*model.parameters(), *model.buffers())]


def averages(rank: int, folder: Path) -> None:
    ranks = Ranks()
    mine = {"a": torch.full((3,), float(rank))} | ({"b": torch.full((2, 2), 6.0)} if rank == 1 else {})
    found = ranks.average(["b", "a", "none"], mine)
    assert {n: t.tolist() for n, t in found.items()} == {"a": [1.0] * 3, "b": [[2.0, 2.0]] * 2}
    assert ranks.gather(rank) == [0, 1, 2]


def a_round(rank: int, *, spread: bool) -> None:
    """Five candidates, as a search would ask for them."""
    model, evaluate = make()
    before, calls, ranks = bits(model), [], Ranks()
    model[1].running_mean.add_(rank)  # replicas have statistics of their own
    mine = bits(model)

    def counted() -> float:
        calls.append(rank)
        return evaluate()

    trials = Trials(model, counted, {}, ranks, spread=spread)
    assert trials.width == (WORLD if spread else 1)
    if rank == 0:
        (exact,) = trials.evaluate_tensors([[]])
        numbers = trials.evaluate_tensors([candidate(model, 1 + i / 8) for i in range(5)])
        ranks.tell("done")
        assert exact == numbers[0] == evaluate_at(evaluate, model)
        assert numbers == [evaluate_at(evaluate, model, 1 + i / 8) for i in range(5)]
    else:
        assert trials.serve() == "done"
    assert bits(model) == mine
    assert before[0] == mine[0]
    assert ranks.gather(len(calls)) == ([3, 2, 1] if spread else [6] * WORLD)


def candidate(model: Any, factor: float) -> list[Any]:
    """As the native half gives it: a weight in memory, and one of a file that is not the model's."""
    weight = model[0].weight.detach() * factor
    said = {"dtype": "f32", "shape": [40, 40], "address": weight.data_ptr(), "nbytes": 6400, "owner": weight}
    replaced = SimpleNamespace(file="model.safetensors", name="0.weight", **said)
    return [replaced, SimpleNamespace(file="average.safetensors", name="3.weight", **said)]


def evaluate_at(evaluate: Callable[[], float], model: Any, factor: float = 1.0) -> float:
    model.eval()
    weight = model[0].weight.data
    kept = weight.clone()
    with torch.no_grad():
        weight.mul_(factor)
        number = evaluate()
        weight.copy_(kept)
    model.train()
    return number


def a_checkpoint(rank: int, folder: Path, *, parallel: bool, spread: bool = True) -> str:
    model, evaluate = make()
    wrapped = nn.parallel.DistributedDataParallel(model) if parallel else model
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.01, momentum=0.9)
    where = folder / f"repo-{parallel}-{spread}"
    calls = []
    compressor = mdl.Compressor(
        wrapped, lambda: calls.append(0) or evaluate(), repo=where, threshold=0.5, policy=folder / "open.toml",
        optimizer=optimizer, interval=3, window=2, spread=spread,
        probe=mdl.Probe(drawn_inputs, max_relative_error=math.inf, max_kl=math.inf),
    )  # fmt: skip
    commits, probed = [], []
    for step in range(1, 7):
        compressor.before_gradient_flush()
        optimizer.zero_grad()
        torch.manual_seed(step * (rank + 1))
        wrapped(torch.randn(16, 40)).square().mean().backward()
        if not parallel:
            for p in model.parameters():
                dist.all_reduce(p.grad)
        compressor.on_backward_pass_end()
        optimizer.step()
        if step % 3 == 0:
            before, drawn = bits(model), torch.get_rng_state()
            commits.append(compressor.compress(step))
            probed.append(compressor.last_probe)
            assert bits(model) == before
            assert torch.equal(torch.get_rng_state(), drawn)
    told: list[Any] = [None] * WORLD
    dist.all_gather_object(told, (commits, probed))
    assert told == [(commits, probed)] * WORLD
    assert probed[1].relative_error > 0
    assert [c.step for c in commits] == [3, 6]
    assert commits[1].quality["family"] != "lossless"
    assert commits[1].quality["sensitivity"] == "gradients"
    dist.barrier()
    state = mdl.Repo.open(where).load()
    assert torch.equal(state["rng"][rank]["torch"], drawn)
    assert not any(name.startswith("module.") for name in state["model"])
    asked: list[Any] = [None] * WORLD
    dist.all_gather_object(asked, len(calls))
    # Side by side each rank measures its share; together all measure everything.
    assert all(asked)
    assert (len(set(asked)) == 1) != spread
    return commits[1].quality["configuration"]


def drawn_inputs(generator: Any) -> Any:
    return torch.randn(16, 40, generator=generator)


def failures(rank: int, folder: Path, *, spread: bool) -> None:
    """Each raises on every rank, in time, and commits nothing; afterwards a checkpoint is made."""
    model, evaluate = make()
    broken: list[str] = ["evaluate"]

    def fragile() -> float:
        if broken == ["evaluate"] and rank == 1:
            raise ZeroDivisionError("no data")
        return evaluate()

    def state() -> dict[str, Any]:
        if broken == ["state"]:
            raise KeyError("no loader")
        return {}

    before = bits(model)
    compressor = mdl.Compressor(model, fragile, repo=folder / f"failures-{spread}", state=state, spread=spread)
    expect(RankError if rank != 1 else ZeroDivisionError, lambda: compressor.compress(1))
    broken[:] = ["state"]
    expect(RankError if rank != 0 else KeyError, lambda: compressor.compress(1))
    broken[:] = []
    expect(mdl.UsageError, lambda: compressor.compress(rank))
    other = mdl.Compressor(model, evaluate if rank else None, repo=folder / f"failures-{spread}")
    expect(mdl.UsageError, lambda: other.compress(1))
    assert bits(model) == before
    if rank == 0:
        assert compressor.repo.branches() == {}
    commit = compressor.compress(1)
    assert commit.step == 1
    assert bits(model) == before


def expect(kind: type[BaseException], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def scenes(rank: int, folder: Path) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        averages(rank, folder)
        for spread in (False, True):
            a_round(rank, spread=spread)
        a_checkpoint(rank, folder, parallel=True)
        apart = a_checkpoint(rank, folder, parallel=False)
        assert a_checkpoint(rank, folder, parallel=False, spread=False) == apart
        for spread in (False, True):
            failures(rank, folder, spread=spread)
    except BaseException:
        print(f"rank {rank}", file=sys.stderr)
        traceback.print_exc()
        raise
    dist.barrier()
    dist.destroy_process_group()


def test_ranks_agree(tmp_path: Path) -> None:
    # Without bounds, which end a search before every rank has measured something.
    (tmp_path / "open.toml").write_text(
        'try = ["lattice", "bins"]\n[bounds]\nweight = inf\nupdate = inf\nfirst = inf\n'
    )
    torch.multiprocessing.spawn(scenes, (tmp_path,), WORLD)
