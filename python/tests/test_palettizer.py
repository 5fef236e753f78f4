"""`mdl.palettize`: its verbs around a training, what is committed, accumulation, clipping, scaling, and wrong use."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
from torch.utils.checkpoint import checkpoint  # noqa: E402

torch.set_num_threads(1)
F32, BF16 = torch.float32, torch.bfloat16


class Net(nn.Module):
    """An embedding tied to the head, a layer, a norm, and a layer that is too small to be clustered."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 48)
        self.hidden = nn.Linear(48, 96)
        self.norm = nn.LayerNorm(96)
        self.out = nn.Linear(96, 48)
        self.tiny = nn.Linear(48, 4)
        self.head = nn.Linear(48, 64, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        x = self.norm(self.hidden(self.table(tokens)).relu())
        x = self.out(x)
        return self.head(x + self.tiny(x).repeat(1, 12))


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Net()


TOKENS = torch.arange(64)


def loss_of(model: Any, tokens: Any = TOKENS) -> Any:
    return nn.functional.cross_entropy(model(tokens).float(), (tokens * 7 + 3) % 64)


def train(model: Any, optimizer: Any, palettizer: Any, steps: int) -> float:
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        palettizer.step()
    return loss.item()


def test_a_training_from_prepare_to_the_commit(repo: mdl.Repo, binary: Path) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    parameters = list(model.parameters())
    palettizer = mdl.palettize(model, bits=3)
    assert palettizer.prepare(optimizer) is model
    assert {id(p) for p in model.parameters()} == {id(p) for p in parameters}
    before = loss_of(model.eval()).item()
    train(model, optimizer, palettizer, 80)

    report = palettizer.report()
    assert [w.name for w in report.weights] == ["table.weight", "hidden.weight", "out.weight"]
    assert list(report.skipped) == ["tiny.weight"]
    assert report.steps == 80
    assert report.saved_bytes * 100 < report.dense_bytes
    assert str(report).count("\n") == 4
    scored, logits = loss_of(model.eval()).item(), model(TOKENS).detach()
    assert scored < before / 2

    palettizer.finalize()
    assert sorted(model.state_dict()) == sorted(net().state_dict())
    assert {id(p) for p in model.parameters()} == {id(p) for p in parameters}
    assert model.head.weight is model.table.weight
    assert torch.equal(model(TOKENS), logits)
    for layer in (model.table, model.hidden, model.out):
        assert len(layer.weight.unique()) <= 8
    assert len(model.tiny.weight.unique()) > 8

    repo.commit({"model": model.state_dict()}, wait=True)
    found = net(1)
    found.load_state_dict(repo.load()["model"])
    assert torch.equal(found.eval()(TOKENS), logits)
    shown = subprocess.run([binary, "--repo", repo.path, "show", "-t", "--json"], capture_output=True, check=True)
    stored = {t["name"]: t for t in json.loads(shown.stdout)["report"]}
    for name in ("table.weight", "hidden.weight", "out.weight"):
        tensor = next(t for key, t in stored.items() if key.endswith(name))
        assert tensor["scheme"].startswith("palette"), tensor
        # Three bits of 32, and less where values are not equally frequent; besides that the table.
        assert tensor["stored_bytes"] < tensor["logical_bytes"] * 3 / 32 + 200


@pytest.mark.parametrize(("group", "dim", "dtype"), [(None, 2, F32), (16, 1, F32), (12, 4, F32), (8, 1, BF16)])
def test_a_group_has_at_most_two_to_the_bits_vectors(group: int | None, dim: int, dtype: Any) -> None:
    model = net().to(dtype)
    palettizer = mdl.palettize(model, bits=2, group=group, dim=dim, start="quantiles")
    palettizer.prepare()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), palettizer, 3)
    palettizer.finalize()
    for layer in (model.table, model.hidden, model.out):
        weight = layer.weight.detach()
        assert weight.dtype == dtype
        for part in weight.split(group or len(weight)):
            assert len(part.reshape(-1, dim).unique(dim=0)) <= 4


def test_evaluation_mode_is_what_finalize_gives_and_has_gradients() -> None:
    model = net()
    palettizer = mdl.palettize(model, bits=2)
    palettizer.prepare()
    model.eval()
    loss = loss_of(model)
    loss.backward()
    original = model.hidden.parametrizations.weight.original
    assert original.grad.abs().max() > 0
    assert len(model.hidden.weight.unique()) == 4
    done = palettizer.finalize(inplace=False)
    assert loss_of(done).item() == loss.item()
    # The model itself goes on.
    assert palettizer.report().steps == 0
    palettizer.finalize()
    assert loss_of(model).item() == loss.item()


def test_parameters_come_back_in_their_order() -> None:
    model = net()
    names = [name for name, _ in model.named_parameters()]
    palettizer = mdl.palettize(model, bits=2)
    palettizer.prepare()
    done = palettizer.finalize(inplace=False)
    palettizer.finalize()
    for finished in (done, model):
        assert [name for name, _ in finished.named_parameters()] == names
        assert not any(name.startswith("_mdl") for module in finished.modules() for name in vars(module))


def test_copies_made_while_prepared_survive_finalize() -> None:
    model = net()
    palettizer = mdl.palettize(model)
    palettizer.prepare()
    average = copy.deepcopy(model).eval()
    wanted = average(TOKENS)
    palettizer.finalize()
    assert torch.equal(average(TOKENS), wanted)


def test_a_run_that_resumes_has_the_same_bits() -> None:
    def build() -> tuple[Any, Any, Any]:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        palettizer = mdl.palettize(model, bits=2, temperature=lambda step: 4.0 / (1 + step))
        palettizer.prepare(optimizer)
        return model, optimizer, palettizer

    whole, parts = build(), build()
    train(*whole, 6)
    train(*parts, 3)
    saved = copy.deepcopy([part.state_dict() for part in parts])
    resumed = build()
    for part, state in zip(resumed, saved, strict=True):
        part.load_state_dict(state)
    train(*resumed, 3)
    for mine, theirs in zip(resumed[0].state_dict().values(), whole[0].state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    assert resumed[2].report() == whole[2].report()
    assert resumed[2].report().weights[0].temperature == 4.0 / 7


def gradients(model: Any) -> list[Any]:
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return found


def close(mine: list[Any], theirs: list[Any], bound: float = 1e-5) -> bool:
    return all((a - b).norm() <= bound * b.norm() for a, b in zip(mine, theirs, strict=True))


def test_accumulated_gradients_are_those_of_one_batch_and_clip_alike() -> None:
    model = net()
    mdl.palettize(model, bits=2).prepare()
    loss_of(model).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    wanted = gradients(model)
    for part in TOKENS.split(16):
        (loss_of(model, part) / 4).backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.05) == pytest.approx(float(norm), rel=1e-5)
    mine = gradients(model)
    assert close(mine, wanted)
    total = torch.stack([g.norm() for g in mine]).norm()
    assert float(total) == pytest.approx(0.05, rel=1e-4)


def test_scaled_losses_give_scaled_gradients_and_overflow_is_seen() -> None:
    model = net()
    palettizer = mdl.palettize(model, bits=2)
    palettizer.prepare()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model).backward()
    wanted = gradients(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(optimizer)
    assert close([p.grad for p in model.parameters()], wanted)
    scaler.step(optimizer)
    scaler.update()
    palettizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    model.zero_grad()
    scaler.scale(loss_of(model) * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    # The step was left out.
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert scaler.get_scale() == 2.0**11


def test_checkpointing_autocast_and_the_cache_of_parametrizations() -> None:
    model = net()
    mdl.palettize(model, bits=2).prepare()
    loss_of(model).backward()
    wanted = gradients(model)
    nn.functional.cross_entropy(checkpoint(model, TOKENS, use_reentrant=False), (TOKENS * 7 + 3) % 64).backward()
    assert close(gradients(model), wanted)
    with nn.utils.parametrize.cached():
        loss_of(model).backward()
    assert close(gradients(model), wanted)
    with torch.autocast("cpu", BF16):
        loss_of(model).backward()
    # Of layers in bfloat16; clustering is as precise as before.
    assert close(gradients(model), wanted, 0.05)


def test_marshaling_leaves_the_gradients_as_they_are() -> None:
    model = net()
    palettizer = mdl.palettize(model, bits=2)
    palettizer.prepare()
    loss_of(model).backward()
    wanted = gradients(model)
    with palettizer.marshaling():
        loss = loss_of(model)
    loss.backward()
    assert close(gradients(model), wanted, 0)
    with palettizer.counting() as counted:
        loss_of(model)
    assert 0 < counted.distinct <= counted.saved


def test_centroids_keep_their_precision_in_a_model_of_16_bits() -> None:
    model = net()
    palettizer = mdl.palettize(model, bits=3)
    palettizer.prepare()
    before = model.hidden.parametrizations.weight[0].centroids.clone()
    model.to(BF16)
    layer = model.hidden.parametrizations.weight[0]
    assert layer.centroids.dtype == F32
    assert torch.equal(layer.centroids, before)
    assert palettizer.report().weights[0].unique is not None


def test_a_frozen_weight_is_clustered_without_gradients() -> None:
    model = net()
    model.hidden.weight.requires_grad_(False)
    palettizer = mdl.palettize(model, bits=2)
    palettizer.prepare(torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    loss_of(model).backward()
    palettizer.step()
    palettizer.finalize()
    assert len(model.hidden.weight.unique()) <= 4


def test_layers_are_named_by_patterns() -> None:
    model = net()
    assert [w.name for w in prepared(model, layers=["hid*", "tiny"], bits=2).report().weights] == [
        "hidden.weight",
        "tiny.weight",
    ]
    # A module of any kind by its whole name: here one whose weight has 96 numbers.
    assert [w.name for w in prepared(net(), layers="norm", bits=2).report().weights] == ["norm.weight"]


def prepared(model: Any, **arguments: Any) -> Any:
    palettizer = mdl.palettize(model, **arguments)
    palettizer.prepare()
    return palettizer


# Wrong use.


def refused(*words: str) -> Any:
    return pytest.raises(mdl.UsageError, match="(?s)" + ".*".join(words))


def test_models_without_weights_are_refused() -> None:
    for model in (nn.Sequential(), nn.ReLU(), nn.LayerNorm(4000)):
        with refused("no weights to palettize"):
            mdl.palettize(model)
    with refused("no weights", "fewer than min_weights"):
        mdl.palettize(nn.Linear(4, 4))
    with refused("no torch module"):
        mdl.palettize(net().state_dict())


def test_weights_that_are_no_floats_are_refused_by_name() -> None:
    model = net()
    model.hidden.weight = nn.Parameter(torch.ones(96, 48, dtype=torch.int8), requires_grad=False)
    assert "int8" in prepared(model).report().skipped["hidden.weight"]
    other = net()
    other.hidden.weight = nn.Parameter(torch.ones(96, 48, dtype=torch.int8), requires_grad=False)
    with refused("hidden.weight", "int8"):
        mdl.palettize(other, layers=["hidden"])
    with refused("has no parameter"):
        mdl.palettize(nn.Sequential(nn.ReLU()), layers=["0"])
    with refused("no values"):
        mdl.palettize(nn.Linear(64, 64, device="meta"), layers=[""])
    with refused("no values"):
        mdl.palettize(nn.Sequential(nn.LazyLinear(64)), layers=["0"])
    with refused("match no module"):
        mdl.palettize(net(), layers=["nobody.*"])


def test_twice_and_out_of_turn_is_refused() -> None:
    model = net()
    palettizer = mdl.palettize(model)
    other = mdl.palettize(model)
    for verb in (palettizer.step, palettizer.report, palettizer.finalize):
        with refused("not prepared", "prepare"):
            verb()
    palettizer.prepare()
    with refused("palettized already"):
        palettizer.prepare()
    with refused("palettized already"):
        other.prepare()
    with refused("palettized already"):
        mdl.palettize(model)
    palettizer.finalize()
    with refused("any more"):
        palettizer.step()
    # The next one begins anew.
    prepared(model, bits=2).finalize()
    with refused("another parametrization"):
        mdl.palettize(nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), layers=[""])


def test_an_optimizer_of_other_tensors_is_refused() -> None:
    model = net()
    palettizer = mdl.palettize(model)
    with refused("optimizer does not hold", "table.weight"):
        palettizer.prepare(torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.1))
    part = torch.optim.SGD([p for name, p in model.named_parameters() if not name.startswith("out")], lr=0.1)
    with refused("does not hold out.weight"):
        palettizer.prepare(part)
    assert not hasattr(model.hidden, "parametrizations")


def test_values_that_are_not_finite_are_refused_by_name() -> None:
    model = net()
    with torch.no_grad():
        model.out.weight[3, 3] = torch.nan
    with refused("out.weight", "not finite"):
        mdl.palettize(model).prepare()
    assert not hasattr(model.table, "parametrizations")
    with torch.no_grad():
        model.out.weight[3, 3] = 0
    palettizer = prepared(model)
    with torch.no_grad():
        model.out.parametrizations.weight.original[3, 3] = torch.inf
    with refused("out.weight", "not finite"):
        palettizer.finalize()
    assert palettizer.report()


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 0}, {"bits": 9}, {"bits": 2.5}, {"bits": True}, {"dim": 0}, {"group": 0}, {"iterations": 0},
        {"tolerance": -1.0}, {"tolerance": float("nan")}, {"start": "random"}, {"index": "both"}, {"shard": True},
        {"shard": True, "index": "list"},
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(mdl.UsageError) as error:
        mdl.palettize(net(), **wrong)
    assert error.value.hint


def test_groups_that_do_not_divide_or_are_too_small_are_refused() -> None:
    with refused("hidden.weight", "dim=5"):
        mdl.palettize(net(), dim=5, layers=["hidden"])
    with refused("hidden.weight", "fewer than 256 clusters"):
        mdl.palettize(net(), bits=8, group=1, layers=["hidden"])
    with refused("temperature is 0"):
        mdl.palettize(net(), temperature=0.0).prepare()


def test_a_sharded_model_is_refused() -> None:
    class FullyShardedDataParallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = net()

    with refused("FSDP"):
        mdl.palettize(FullyShardedDataParallel())
