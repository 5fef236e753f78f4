"""Training of compressed weights: bit for bit what torch's optimizers make of plain ones, gradients gone at once."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import mdl
import pytest
from frameworks import need

need("torch")

import torch  # noqa: E402
from nn_models import GPT, ConvNet, same  # noqa: E402

STEPS = 200
DTYPES = [torch.float32, torch.bfloat16]
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, mdl.nn.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}),
    "nesterov": (torch.optim.SGD, mdl.nn.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": False}),
    "plain": (torch.optim.SGD, mdl.nn.SGD, {"lr": 0.1}),
    "adamw": (torch.optim.AdamW, mdl.nn.AdamW, {"lr": 3e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}),
}


def twins(make: Callable[[], Any], dtype: Any = torch.float32, **mode: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    plain = make().to(dtype)
    return plain, mdl.nn.compress(copy.deepcopy(plain), **mode)


def step(model: Any, optimizer: Any, seed: int) -> float:
    optimizer.zero_grad()
    loss = model.loss(seed)
    loss.backward()
    optimizer.step()
    return loss.item()


def fused(model: Any, optimizer: Any, seed: int, **how: Any) -> float:
    loss = model.loss(seed)
    optimizer.backward(loss, **how)
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("make", [GPT, ConvNet])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_two_hundred_steps_give_the_bits_of_plain_weights(make: Any, kind: str, dtype: Any) -> None:
    theirs, ours, settings = PAIRS[kind]
    plain, packed = twins(make, dtype)
    first, second = theirs(plain.parameters(), **settings), ours(packed, **settings)
    for seed in range(STEPS):
        assert step(plain, first, seed) == fused(packed, second, seed)
    assert same(plain, packed) == []
    assert mdl.nn.report(packed).ratio < (0.9 if dtype == torch.float32 else 0.75)


@pytest.mark.parametrize("kind", PAIRS)
def test_gradients_that_were_accumulated_are_used_in_either_way(kind: str) -> None:
    theirs, ours, settings = PAIRS[kind]
    plain, packed = twins(GPT)
    third = copy.deepcopy(packed)
    optimizers = theirs(plain.parameters(), **settings), ours(packed, **settings), ours(third, **settings)
    for seed in range(0, 30, 3):
        for model, optimizer in zip((plain, packed, third), optimizers, strict=True):
            optimizer.zero_grad()
            for batch in range(seed, seed + 2):
                model.loss(batch).backward()
            if model is third:
                optimizer.backward(model.loss(seed + 2))
            else:
                model.loss(seed + 2).backward()
            optimizer.step()
    assert same(plain, packed) == []
    assert same(plain, third) == []


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clipping_is_torchs_in_two_passes_and_afterwards(norm_type: float) -> None:
    plain, packed = twins(lambda: GPT(checkpoints=True))
    third = copy.deepcopy(packed)
    first = torch.optim.AdamW(plain.parameters(), lr=3e-3)
    second, last = mdl.nn.AdamW(packed, lr=3e-3), mdl.nn.AdamW(third, lr=3e-3)
    for seed in range(20):
        norms = []
        for model, optimizer in ((plain, first), (third, last)):
            optimizer.zero_grad()
            model.loss(seed).backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type))
            optimizer.step()
        norms.append(second.backward(packed.loss(seed), max_norm=0.5, norm_type=norm_type))
        second.step()
        assert norms[0] == norms[1] == norms[2]
    assert same(plain, packed) == []
    assert same(plain, third) == []


def test_a_grad_scaler_unscales_and_skips_as_on_plain_weights() -> None:
    plain, packed = twins(GPT)
    third = copy.deepcopy(packed)
    settings = {"lr": 3e-3}
    optimizers = [torch.optim.AdamW(plain.parameters(), **settings), mdl.nn.AdamW(packed, **settings)]
    optimizers.append(mdl.nn.AdamW(third, **settings))
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3) for _ in range(3)]
    for seed in range(12):
        factor = float("inf") if seed == 5 else 1.0
        for model, optimizer, scaler in zip((plain, packed, third), optimizers, scalers, strict=True):
            optimizer.zero_grad()
            loss = model.loss(seed) * factor
            if model is packed:
                optimizer.backward(loss, scaler=scaler, max_norm=1.0)
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
            scaler.update()
        assert scalers[0].get_scale() == scalers[1].get_scale() == scalers[2].get_scale()
    assert same(plain, packed) == []
    assert same(plain, third) == []


def test_gradients_are_gone_before_the_next_ones_come() -> None:
    _, packed = twins(GPT)
    optimizer = mdl.nn.SGD(packed, lr=0.1)
    most = 0

    def count(_: Any) -> None:
        nonlocal most
        most = max(most, sum(p.grad is not None for p in packed.parameters()))

    hooks = [p.register_post_accumulate_grad_hook(count) for p in packed.parameters()]
    fused(packed, optimizer, 0)
    assert most == 0, "the optimizer's hook was there first"
    assert all(p.grad is None for p in packed.parameters())
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_coarse_moments_train_nearly_as_well_in_less_memory(kind: str, bits: int) -> None:
    _, ours, settings = PAIRS[kind]
    _, packed = twins(lambda: GPT(width=96), torch.bfloat16)
    exact = copy.deepcopy(packed)
    coarse, fine = ours(packed, **settings, moments=bits), ours(exact, **settings)
    for seed in range(60):
        losses = fused(packed, coarse, seed % 4), fused(exact, fine, seed % 4)
    assert losses[1] < 3.0
    assert abs(losses[0] - losses[1]) < 0.35 * losses[1] + 0.1
    moments = 1 if kind == "sgd" else 2
    elements = sum(p.numel() for p in packed.parameters())
    assert fine.state_bytes() == 2 * moments * elements
    assert coarse.state_bytes() < 1.15 * moments * elements * bits / 8


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("bits", ["exact", 8])
def test_an_optimizers_state_is_torchs_and_training_goes_on_from_it(kind: str, bits: Any) -> None:
    theirs, ours, settings = PAIRS[kind]
    plain, packed = twins(GPT)
    first, second = theirs(plain.parameters(), **settings), ours(packed, **settings, moments=bits)
    for seed in range(5):
        step(plain, first, seed)
        fused(packed, second, seed)
    again = copy.deepcopy(packed)
    third = ours(again, **settings, moments=bits)
    # Torch's optimizers go on with the tensors that they are given.
    state = copy.deepcopy(second.state_dict())
    third.load_state_dict(state)
    other = copy.deepcopy(plain)
    fourth = theirs(other.parameters(), **settings)
    if bits == "exact":
        fourth.load_state_dict(state)
    for seed in range(5, 10):
        assert fused(packed, second, seed) == fused(again, third, seed)
        if bits == "exact":
            step(other, fourth, seed)
    assert same(packed, again) == []
    if bits == "exact":
        assert same(packed, other) == []


def test_schedulers_and_groups_work_as_on_torchs_optimizers() -> None:
    plain, packed = twins(GPT)

    def groups(model: Any) -> list[dict[str, Any]]:
        wide = [p for p in model.parameters() if p.dim() > 1]
        return [{"params": wide, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2]}]

    first = torch.optim.AdamW(groups(plain), lr=3e-3, weight_decay=0.0)
    second = mdl.nn.AdamW(groups(packed), lr=3e-3, weight_decay=0.0)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 10) for o in (first, second)]
    for seed in range(10):
        step(plain, first, seed)
        fused(packed, second, seed)
        for schedule in schedules:
            schedule.step()
    assert same(plain, packed) == []


def test_optimizers_of_torch_work_on_compressed_weights_too() -> None:
    for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad):
        for settings in ({}, {"foreach": True}):
            plain, packed = twins(GPT)
            first, second = (make(m.parameters(), lr=0.01, **settings) for m in (plain, packed))
            for seed in range(3):
                assert step(plain, first, seed) == step(packed, second, seed)
            assert same(plain, packed) == []


def test_autocast_and_frozen_weights() -> None:
    plain, packed = twins(ConvNet)
    for model in (plain, packed):
        model.layers[3].weight.requires_grad_(False)
        model.layers[0].bias.requires_grad_(False)
    first, second = torch.optim.SGD(plain.parameters(), lr=0.1), mdl.nn.SGD(packed, lr=0.1)
    for seed in range(10):
        with torch.autocast("cpu", torch.bfloat16):
            losses = plain.loss(seed), packed.loss(seed)
        assert losses[0] == losses[1]
        losses[0].backward()
        first.step()
        first.zero_grad()
        second.backward(losses[1])
        second.step()
    assert same(plain, packed) == []


def test_lossy_weights_train() -> None:
    for bits, most in ((3, 2.9), (1, 3.6), (0, 4.5)):
        _, packed = twins(lambda: GPT(width=96), torch.bfloat16, bits=bits, block=64)
        optimizer = mdl.nn.AdamW(packed, lr=3e-3, weight_decay=0.0)
        for seed in range(80):
            loss = fused(packed, optimizer, seed % 2)
        assert loss < most, (bits, loss, most)


def test_wrong_use_of_an_optimizer_is_said() -> None:
    plain, packed = twins(GPT)
    optimizer = mdl.nn.AdamW(packed, lr=1e-3)
    optimizer.backward(packed.loss(0))
    with pytest.raises(mdl.UsageError, match="second time"):
        optimizer.backward(packed.loss(0))
    optimizer.step()
    packed.loss(0).backward()
    with pytest.raises(mdl.UsageError, match="two passes"):
        optimizer.backward(packed.loss(0), max_norm=1.0)
    old = torch.optim.SGD(plain.parameters(), lr=0.1)
    own = mdl.nn.SGD(plain, lr=0.1)
    mdl.nn.compress(plain)
    plain.loss(0).backward()
    with pytest.raises(mdl.UsageError, match="before the model was compressed"):
        old.step()
    with pytest.raises(mdl.UsageError, match="before the model was compressed"):
        own.backward(plain.loss(0))
    for wrong in ({"lr": -1.0}, {"moments": 5}, {"betas": (1.0, 0.9)}):
        with pytest.raises(mdl.UsageError):
            mdl.nn.AdamW(packed, **wrong)
    with pytest.raises(mdl.UsageError):
        mdl.nn.SGD(packed, nesterov=True)


def test_a_scalers_step_after_a_scaled_loss_was_used_is_an_error() -> None:
    _, packed = twins(GPT)
    optimizer, scaler = mdl.nn.SGD(packed, lr=0.1), torch.amp.GradScaler("cpu")
    optimizer.backward(scaler.scale(packed.loss(0)))
    with pytest.raises(mdl.UsageError, match="scaler="):
        scaler.step(optimizer)


def test_a_weight_that_changes_between_the_passes_is_an_error_as_in_torch() -> None:
    _, packed = twins(GPT)
    loss = packed.loss(0)
    with torch.no_grad():
        packed.blocks[0].up.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_nothing_dense_is_saved_for_the_backward_pass() -> None:
    plain, packed = twins(GPT)
    large = {tuple(packed.get_parameter(name).shape) for name in mdl.nn.report(packed).weights}
    saved: list[tuple[int, ...]] = []

    def pack(tensor: Any) -> Any:
        saved.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        plain.loss(0)
        assert any(s in large or s[::-1] in large for s in saved)
        saved.clear()
        loss = packed.loss(0)
    assert saved
    assert [s for s in saved if s in large or s[::-1] in large] == []
    loss.backward()
    del loss
    gc.collect()
