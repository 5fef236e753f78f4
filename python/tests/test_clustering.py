"""DKM layers beside a dense float64 DKM of autograd's own; what they save; marshaling; the first centroids."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from mdl.clustering.initial import METHODS, initial  # noqa: E402
from mdl.clustering.layer import DKM, Settings  # noqa: E402
from mdl.clustering.marshal import Marshaling, counting  # noqa: E402
from support import scale  # noqa: E402

torch.set_num_threads(1)
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


def dense(weight: Any, layer: DKM) -> Any:
    """The definition, in float64, by autograd: nothing is shared with the package but `groups`."""
    out = []
    for i, part in enumerate(layer.settings.groups(weight)):
        x, c = weight.reshape(-1)[part].view(-1, layer.settings.dim), layer.centroids[i].double()
        temperature = layer.temperature * layer.distortion[i].double()
        for _ in range(layer.settings.iterations):
            a = (-(x[:, None] - c[None]).square().sum(2) / temperature).softmax(1)
            c = (a.T @ x) / a.sum(0)[:, None]
        out.append((a @ c).reshape(-1))
    return torch.cat(out).view(weight.shape)


def layer_of(weight: Any, settings: Settings, temperature: float = 1.0, start: str = "kmeans++") -> DKM:
    flat = weight.detach().reshape(-1)
    found = [initial(flat[part].view(-1, settings.dim), 2**settings.bits, start, 0) for part in settings.groups(weight)]
    centroids, distortion = (torch.stack(parts) for parts in zip(*found, strict=True))
    return DKM(settings, centroids, distortion.clamp_min(1e-9), temperature)


def both(weight: Any, layer: DKM, above: Any) -> tuple[float, float]:
    """Relative differences of output and gradient from the dense ones."""
    weight = weight.detach().requires_grad_()
    out = layer(weight)
    (mine,) = torch.autograd.grad(out, weight, above)
    assert mine.dtype == out.dtype == weight.dtype
    assert mine.shape == out.shape == weight.shape
    exact = weight.detach().double().requires_grad_()
    wanted = dense(exact, layer)
    (gradient,) = torch.autograd.grad(wanted, exact, above.double())
    return tuple(
        float((a.detach().double() - b.detach()).norm() / b.detach().norm())
        for a, b in ((out, wanted), (mine, gradient))
    )


def strided(rows: int, columns: int, kind: str, generator: Any) -> Any:
    """A weight ``[rows, columns]`` that lies in memory in some way."""

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) * 0.05

    if kind == "transpose":
        return draw(columns, rows).T
    if kind == "slice":
        return draw(rows + 3, 2 * columns)[2:-1, ::2]
    if kind == "expanded":
        return draw(1, columns).expand(rows, columns)
    if kind == "convolution":
        return draw(rows, columns, 3, 2)
    return draw(rows, columns)


KINDS = ["plain", "transpose", "slice", "expanded", "convolution"]
BOUNDS = {F32: (1e-6, 1e-6), F64: (1e-8, 1e-8), BF16: (4e-3, 4e-3), F16: (5e-4, 5e-4)}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_a_dense_float64_dkm(kind: str) -> None:
    draws = random.Random(kind)
    generator = torch.Generator().manual_seed(KINDS.index(kind))
    for _ in range(120 if scale.FULL else 25):
        bits, dim = draws.choice([1, 2, 3, 4]), draws.choice([1, 1, 2, 4])
        rows, columns = draws.randrange(4, 24), dim * draws.randrange(8, 24)
        weight = strided(rows, columns, kind, generator).to(draws.choice([F32, F32, F64, BF16, F16]))
        settings = Settings(
            bits=bits,
            group=draws.choice([None, None, 1, 3]) if columns >= dim * 2**bits else None,
            dim=dim,
            iterations=draws.choice([1, 2, 3, 5]),
            unique=draws.random() < 0.7,
            index=draws.choice(["self", "list"]),
            recompute=draws.random() < 0.6,
        )
        above = torch.randn(weight.shape, generator=generator).to(weight.dtype)
        layer = layer_of(weight, settings, draws.choice([0.3, 1.0, 8.0]), draws.choice(sorted(METHODS)))
        output, gradient = both(weight, layer, above)
        bounds = BOUNDS[weight.dtype]
        assert output < bounds[0], (settings, weight.dtype, layer.temperature)
        assert gradient < bounds[1], (settings, weight.dtype, layer.temperature)


def test_points_beyond_one_chunk_give_the_same_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(300, 500, generator=generator)
    above = torch.randn(300, 500, generator=generator)
    for settings in (Settings(3), Settings(2, dim=2)):
        assert max(both(weight, layer_of(weight, settings), above)) < 1e-6
    weight = weight.to(BF16)
    assert max(both(weight, layer_of(weight, Settings(3)), above.to(BF16))) < 4e-3


def test_values_and_weights_clustered_one_by_one_give_the_same_bits() -> None:
    weight = (torch.randn(64, 96, generator=torch.Generator().manual_seed(0)) * 0.02).to(BF16).requires_grad_()
    found = []
    for unique, index in itertools.product((True, False), ("self", "list")):
        layer = layer_of(weight, Settings(3, unique=unique, index=index))
        out = layer(weight)
        found.append((out, *torch.autograd.grad(out.float().square().sum(), weight)))
    for out, gradient in found[1:]:
        assert torch.equal(out, found[0][0])
        # Sums in another order: a unit in the last place here and there.
        assert (gradient - found[0][1]).float().norm() < 1e-3 * found[0][1].float().norm()


def test_saved_attention_adds_up_to_one_whatever_its_precision() -> None:
    """Rounded to bfloat16 it does not, and a gradient that took it for it would be off by a tenth."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        weight, above = ((torch.randn(24, 16, generator=generator) * 0.05).to(BF16) for _ in range(2))
        assert max(both(weight, layer_of(weight, Settings(3, group=8, recompute=False)), above)) < 4e-3


def test_a_cluster_that_no_weight_is_near_stays_and_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(16, 16, generator=generator) * 0.05).requires_grad_()
    above = torch.randn(16, 16, generator=generator)
    near = torch.tensor([-0.05, 0.05], dtype=torch.float64)
    found = []
    for bits, more in ((1, []), (2, [100.0, 200.0])):
        centroids = torch.cat([near, torch.tensor(more, dtype=torch.float64)])[None, :, None]
        layer = DKM(Settings(bits), centroids, torch.tensor([1e-4]), 1.0)
        out = layer(weight)
        found.append((out, *torch.autograd.grad(out, weight, above)))
        layer.advance()
        assert layer.centroids.flatten()[2:].tolist() == more
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-6)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-8)


def test_key16_is_the_clustering_of_rounded_weights() -> None:
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    layer = layer_of(weight, Settings(3, key16=True))
    rounded = weight.detach().to(BF16).float().requires_grad_()
    exact = DKM(Settings(3), layer.centroids, layer.distortion, 1.0)
    above = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
    mine, theirs = (torch.autograd.grad(f(w), w, above)[0] for f, w in ((layer, weight), (exact, rounded)))
    assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(layer(weight), exact(weight), atol=1e-7)


def test_iterations_end_where_centroids_rest() -> None:
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    settings = Settings(2, iterations=400, tolerance=1e-3)
    layer = layer_of(weight, settings, 0.2)
    with counting([weight]) as saved:
        layer(weight)
    # Centroids and sums of each iteration, and the temperature with the tolerance.
    steps = (saved.saved - 4 * 8 - 16) / (2 * 4 * 8)
    assert 2 <= steps < 100
    assert steps == int(steps)
    layer.advance()
    again = layer(weight)
    assert torch.allclose(again, layer(weight))


# What is saved.


def test_each_saving_is_what_the_paper_counts() -> None:
    """Dense: weights x clusters x iterations. By value: occurring values x clusters x iterations, and the list."""
    weight = (torch.randn(512, 256, generator=torch.Generator().manual_seed(0)) * 0.02).to(BF16).requires_grad_()
    n, k, rounds = weight.numel(), 8, 3
    values = len(weight.detach().view(torch.int16).unique())
    small = 8 * k * (rounds + 1) + 8 * k * rounds + 16
    for unique, index, recompute, wanted in (
        (False, "self", False, 2 * n * k * rounds),
        (True, "list", False, 2 * values * k * rounds + 2 * n),
        (True, "self", False, 2 * values * k * rounds),
        (True, "list", True, 2 * n),
        (True, "self", True, 0),
        (False, "self", True, 0),
    ):
        layer = layer_of(weight, Settings(3, unique=unique, index=index, recompute=recompute))
        with counting([weight]) as saved:
            layer(weight)
        assert saved.saved == saved.distinct == wanted + small, (unique, index, recompute)


def test_a_weight_that_changes_before_its_gradient_is_an_error_with_self_and_none_with_a_list() -> None:
    weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).to(BF16).requires_grad_()
    wanted = torch.autograd.grad(layer_of(weight, Settings(2))(weight).sum(), weight)[0]
    for index in ("self", "list"):
        copy = weight.detach().clone().requires_grad_()
        out = layer_of(copy, Settings(2, index=index))(copy)
        with torch.no_grad():
            copy.mul_(2)
        if index == "self":
            with pytest.raises(RuntimeError, match="inplace"):
                out.sum().backward()
        else:
            out.sum().backward()
            assert torch.equal(copy.grad, wanted)


def test_there_is_no_second_derivative() -> None:
    weight = torch.randn(8, 16).requires_grad_()
    (first,) = torch.autograd.grad(layer_of(weight, Settings(1))(weight).square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


# Marshaling.


def test_views_transposes_and_slices_of_one_storage_go_once() -> None:
    base = torch.randn(64, 32)
    with Marshaling(copy=True).saving() as moved:
        parts = [base, base.T, base[3:7], base.view(-1)[::5], base.reshape(32, 64), base.view(torch.int32)]
        graphs = [saver(part) for part in parts]
    assert moved.tensors == len(parts)
    assert moved.moved == base.numel() * 4
    assert moved.saved == sum(p.numel() * p.itemsize for p in parts)
    for graph, part in zip(graphs, parts, strict=True):
        back = graph.grad_fn.saved_tensors[0]
        assert back.data_ptr() != part.data_ptr()
        assert torch.equal(back, part)
        assert back.shape == part.shape
        assert back.stride() == part.stride()


class _Save(torch.autograd.Function):
    """Saves a tensor, and shows what comes back."""

    @staticmethod
    def forward(ctx: Any, x: Any, saved: Any) -> Any:
        ctx.save_for_backward(saved)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, above: Any) -> Any:
        return above, None


def saver(tensor: Any) -> Any:
    return _Save.apply(torch.zeros(1, requires_grad=True), tensor)


def back(graph: Any) -> Any:
    return graph.grad_fn.saved_tensors[0]


def test_a_write_in_place_makes_a_new_copy() -> None:
    base = torch.zeros(100)
    with Marshaling(copy=True).saving() as moved:
        before = saver(base.view(10, 10))
        base[3:5].fill_(7)
        after = saver(base)
        again = saver(base[::2])
    assert moved.moved == 2 * 400
    assert back(before).eq(0).all()
    assert torch.equal(back(after), base)
    assert torch.equal(back(again), base[::2])


def test_memory_that_is_used_again_is_another_storage() -> None:
    """The address of a tensor that is gone may be the next one's, at the same version."""
    with Marshaling(copy=True).saving() as moved:
        graphs, addresses = [], set()
        for value in range(30):
            tensor = torch.full((5000,), float(value))
            addresses.add(tensor.data_ptr())
            graphs.append(saver(tensor))
            del tensor
    assert len(addresses) < 30, "no address came twice: this tests nothing"
    assert moved.moved == 30 * 20_000
    assert [float(back(graph)[0]) for graph in graphs] == list(range(30))


def test_only_what_a_slice_touches_moves() -> None:
    base = torch.arange(1000.0)
    with Marshaling(copy=True).saving() as moved:
        first = saver(base[100:110])
        inner = saver(base[102:108:2])
        outer = saver(base[50:150])
    assert moved.moved == 40 + 400
    for graph, part in ((first, base[100:110]), (inner, base[102:108:2]), (outer, base[50:150])):
        assert torch.equal(back(graph), part)


def test_halves_in_bytes_that_are_not_a_multiple_come_back() -> None:
    raw = torch.arange(64, dtype=torch.uint8)
    with Marshaling(copy=True).saving():
        whole, part = saver(raw[1:]), saver(raw[4:20].view(torch.float32))
    assert torch.equal(back(whole), raw[1:])
    assert torch.equal(back(part), raw[4:20].view(torch.float32))


def test_tensors_of_the_host_stay_and_writes_to_them_are_seen() -> None:
    tensor = torch.randn(10)
    with Marshaling().saving() as moved:
        fine, spoilt = saver(tensor.clone()), saver(tensor)
    assert moved.moved == 0
    back(fine)
    tensor.add_(1)
    with pytest.raises(RuntimeError, match="written to in place"):
        back(spoilt)


def test_training_by_way_of_the_host_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    )
    x = torch.randn(8, 16)
    wanted = torch.autograd.grad(model(x).square().sum(), model.parameters())
    with Marshaling(model.parameters(), copy=True).saving() as moved:
        loss = model(x).square().sum()
    assert moved.moved > 0
    for mine, theirs in zip(torch.autograd.grad(loss, model.parameters()), wanted, strict=True):
        assert torch.equal(mine, theirs)


# The first centroids.


@pytest.mark.parametrize("how", sorted(METHODS))
def test_first_centroids_are_the_same_each_time_and_good(how: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(100_000, 1, generator=generator)
    centroids, distortion = initial(weight, 8, how, 3)
    again, _ = initial(weight, 8, how, 3)
    assert torch.equal(centroids, again)
    assert (centroids[1:] > centroids[:-1]).all()
    # The best eight levels for a normal distribution leave 0.03454 (Max, 1960).
    assert 0.033 < float(distortion) < 0.0375


def test_fewer_values_than_centroids() -> None:
    for how in METHODS:
        weight = torch.tensor([0.5, -1.0]).repeat(50)[:, None]
        centroids, distortion = initial(weight, 8, how, 0)
        assert float(distortion) == 0
        assert set(centroids.flatten().tolist()) == {0.5, -1.0}
