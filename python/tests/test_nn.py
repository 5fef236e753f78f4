"""Compressed models: what they compute, and everything else that is done with a model."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mdl
import pytest
from frameworks import need

need("torch")

import torch  # noqa: E402
from nn_models import GPT, VOCABULARY, ConvNet, same  # noqa: E402
from torch import nn  # noqa: E402


def tokens(rows: int = 2, length: int = 9) -> Any:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(7))


def gpt(dtype: Any = torch.bfloat16, **mode: Any) -> tuple[GPT, GPT]:
    torch.manual_seed(1)
    plain = GPT().to(dtype)
    return plain, mdl.nn.compress(copy.deepcopy(plain), **mode)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_plain_weights(dtype: Any) -> None:
    for plain in (GPT().to(dtype), ConvNet().to(dtype)):
        packed = mdl.nn.compress(copy.deepcopy(plain))
        assert isinstance(packed.get_parameter(next(iter(mdl.nn.report(packed).weights))), mdl.nn.Weight)
        for seed in range(3):
            losses = plain.loss(seed), packed.loss(seed)
            assert losses[0] == losses[1]
            for loss in losses:
                loss.backward()
        for (name, a), b in zip(plain.named_parameters(), packed.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad), name
        with torch.no_grad():
            assert plain.eval().loss(5) == packed.eval().loss(5)


def test_a_state_dict_has_plain_tensors_and_loads() -> None:
    plain, packed = gpt()
    state = packed.state_dict()
    assert all(type(t) is torch.Tensor for t in state.values())
    assert same(plain, packed) == []
    other = mdl.nn.compress(GPT().to(torch.bfloat16))
    assert same(plain, other) != []
    other.load_state_dict(state)
    assert same(plain, other) == []
    assert other.head.weight is other.tokens.weight
    with pytest.raises(mdl.UsageError, match="assign"):
        other.load_state_dict(state, assign=True)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict({**state, "norm.weight": torch.ones(3), "blocks.0.up.weight": torch.ones(2, 2)})


def test_copies_pickles_and_moves() -> None:
    plain, packed = gpt()
    twin = copy.deepcopy(packed)
    assert twin.head.weight is twin.tokens.weight
    assert twin.head.weight.store is not packed.head.weight.store
    with torch.no_grad():
        twin.head.weight.zero_()
    assert same(plain, packed) == []
    assert same(plain, twin) == ["tokens.weight", "head.weight"]
    assert same(plain, pickle.loads(pickle.dumps(packed))) == []
    assert same(copy.deepcopy(plain).float(), packed.float()) == []
    assert isinstance(packed.head.weight, mdl.nn.Weight)
    assert packed.head.weight.dtype == torch.float32
    assert packed.to("cpu") is packed
    assert same(plain.float(), packed) == []
    assert same(plain, mdl.nn.decompress(packed)) == []
    assert not any(isinstance(p, mdl.nn.Weight) for p in packed.parameters())
    assert packed.head.weight is packed.tokens.weight


def test_what_is_done_with_a_weight_is_done_to_what_it_holds() -> None:
    plain, packed = gpt(torch.float32)
    a, b = plain.blocks[0].up.weight, packed.blocks[0].up.weight
    assert (b.shape, b.dtype, b.device, b.numel(), b.dim()) == (a.shape, a.dtype, a.device, a.numel(), a.dim())
    assert b.stride() == a.stride()
    assert b.is_contiguous()
    assert b.requires_grad
    assert b.is_leaf
    assert len(b) == len(a)
    assert torch.equal(a.t() @ a, b.t() @ b)
    assert torch.equal(a[3:5], b[3:5])
    assert torch.equal(a.sum(0), b.sum(0))
    assert torch.zeros_like(b).is_contiguous()
    assert type(torch.zeros_like(b)) is torch.Tensor
    with pytest.raises(RuntimeError, match="leaf"):
        b.add_(1)
    for weight in (a, b):
        (weight**2).sum().backward()
        weight.data.mul_(2)
        with torch.no_grad():
            weight[0] = 1.0
            weight -= 0.25
            nn.init.normal_(weight[1:2]) if weight is a else None
            weight.copy_(torch.linspace(0, 1, weight.numel()).view(weight.shape))
            torch.nn.init.constant_(weight[0], 3.0) if weight is a else weight.__setitem__(0, 3.0)
    assert torch.equal(a, b.detach())
    assert torch.equal(a.grad, b.grad)
    assert "lossless" in repr(b)
    assert "Weight" in repr(b)
    b.data = torch.ones(5, 3, dtype=torch.float16)
    assert b.shape == (5, 3)
    assert b.dtype == torch.float16
    assert bool((b == 1).all())


def test_lossy_weights_are_near_and_small() -> None:
    plain, _ = gpt()
    sizes = {}
    for bits, error in ((3, 0.065), (1, 0.25), (0, 0.5)):
        for block in (32, 512):
            packed = mdl.nn.compress(copy.deepcopy(plain), bits=bits, block=block)
            found = mdl.nn.report(packed)
            sizes[bits, block] = found.compressed_bytes / found.dense_bytes
            for name in found.weights:
                a, b = plain.get_parameter(name).float(), packed.get_parameter(name).detach().float()
                assert bool(((a - b).abs() <= error * a.abs() + 1e-30).all()), name
    assert sizes[3, 512] < 0.5
    assert sizes[0, 512] < sizes[1, 512] < sizes[3, 512] < sizes[3, 32]


def test_numbers_that_are_not_finite_are_kept() -> None:
    layer = nn.Linear(64, 64)
    with torch.no_grad():
        layer.weight[3, 5], layer.weight[4, 4] = float("nan"), float("-inf")
    for mode in ({}, {"bits": 3}):
        kept = mdl.nn.compress(copy.deepcopy(layer), **mode).weight.detach()
        assert torch.equal(kept.view(torch.int32), layer.weight.detach().view(torch.int32))


def test_modules_that_read_a_weight_by_themselves_get_it() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(48, 64)
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
            self.conv = nn.Conv1d(64, 64, 3)

        def forward(self, x: Any) -> Any:
            y = x @ self.one.weight.t() + self.one.bias
            y = self.attention(y, y, y)[0]
            return nn.functional.conv1d(y.transpose(1, 2), self.conv.weight.flip(0), self.conv.bias).relu()

    torch.manual_seed(0)
    plain = Odd()
    packed = mdl.nn.compress(copy.deepcopy(plain))
    assert "attention.out_proj.weight" in mdl.nn.report(packed).skipped
    x = torch.randn(2, 10, 48)
    outs = plain(x), packed(x)
    assert torch.equal(*outs)
    for out in outs:
        out.square().sum().backward()
    for a, b in zip(plain.parameters(), packed.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    one, other = plain.one, packed.one
    assert torch.equal(one(x[0, 0]), other(x[0, 0]))
    assert torch.equal(plain.conv(x[0].new_ones(64, 9)), packed.conv(x[0].new_ones(64, 9)))


@pytest.mark.parametrize("width", [64, 50, 300_000])
def test_rows_of_a_large_embedding_are_decoded_by_themselves(width: int) -> None:
    torch.manual_seed(0)
    count = 40_000 if width < 100 else 20
    plain = nn.Embedding(count, width, padding_idx=-1).to(torch.bfloat16)
    packed = mdl.nn.compress(copy.deepcopy(plain))
    for index in ([[0, count - 1, 7], [7, 7, count // 2]], [[5]], [list(range(min(3000, count)))], []):
        rows = torch.tensor(index, dtype=torch.long)
        outs = plain(rows), packed(rows)
        assert torch.equal(*outs)
        for out in outs:
            out.float().square().sum().backward()
    assert torch.equal(plain.weight.grad, packed.weight.grad)
    for wrong in (-1, count):
        with pytest.raises(IndexError):
            packed(torch.tensor([wrong]))


@pytest.fixture
def torch_threads() -> Iterator[Any]:
    """Sets how many threads torch has; a test's end sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_whoever_codes_a_weight_the_bits_are_the_same(torch_threads: Any) -> None:
    torch.manual_seed(0)
    # Less than a block, blocks of one segment, several segments.
    shapes, gradient = [(300, 300), (900, 700), (3000, 3000)], torch.randn(9_000_000).to(torch.bfloat16)
    plain = nn.ParameterList(torch.randn(shape).to(torch.bfloat16) for shape in shapes)
    found: dict[int, list[Any]] = {}
    for threads in (1, 2, 3):
        torch_threads(threads)
        out = found[threads] = []
        for mode in ({}, {"bits": 3}):
            layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in shapes)
            for layer, weight in zip(layers, plain, strict=True):
                layer.weight = nn.Parameter(weight.detach().clone())
            packed = mdl.nn.compress(layers, **mode)
            optimizer = mdl.nn.AdamW(packed, moments=4)
            for parameter in packed.parameters():
                parameter.grad = gradient[: parameter.numel()].view(parameter.shape).clone()
            optimizer.step()
            out += [p.store.decode() for p in packed.parameters()]
            out += [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    assert len(found[1]) == 2 * len(shapes) * 4
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(found[1], found[threads], strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="the runtime is GNU's, on Linux")
def test_torchs_own_threads_are_found() -> None:
    from mdl._native import use_openmp

    found = list((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    assert found, "this torch has another runtime"
    assert use_openmp(found[0])


def test_a_forked_process_that_imports_first_decodes_too(run: Any) -> None:
    run("""
import os, signal, torch

torch.set_num_threads(2)
torch.ones(1 << 20).add_(1)
child = os.fork()
if child == 0:
    signal.alarm(60)
    import mdl.nn, numpy
    from mdl.nn.segments import Coding, Store
    # Torch's own loops would wait for the parent's threads.
    plain = torch.from_numpy(numpy.arange(1 << 21).astype(numpy.uint8))
    same = numpy.array_equal(Store.of(plain, Coding()).decode().numpy(), plain.numpy())
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
""")


def test_a_forked_process_decodes_without_its_parents_threads(run: Any) -> None:
    run("""
import os, signal, mdl, numpy, torch

torch.set_num_threads(2)
model = torch.nn.Linear(2048, 2048).to(torch.bfloat16)
want = model.weight.detach().clone()
store = mdl.nn.compress(model).weight.store
assert torch.equal(store.decode(), want)
child = os.fork()
if child == 0:
    signal.alarm(60)
    same = numpy.array_equal(store.decode().view(torch.int16).numpy(), want.view(torch.int16).numpy())
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
""")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_large_layers_are_decoded_in_tiles_to_the_same_bits(
    dtype: Any, threads: int, torch_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdl.nn import tiles

    torch_threads(threads)
    monkeypatch.setattr(tiles, "SHARE", 1 << 18)
    torch.manual_seed(0)
    for rows, width, bias in ((2800, 1024, True), (12001, 257, False), (2049, 1024, False)):
        plain = nn.Linear(width, rows, bias=bias).to(dtype)
        for mode in ({}, {"bits": 3}):
            packed = mdl.nn.compress(copy.deepcopy(plain), **mode)
            again = nn.Linear(width, rows, bias=bias).to(dtype)
            again.load_state_dict(packed.state_dict())
            for shape in ((1, width), (1, 1, width), (3, 5, width), (16, width), (17, width)):
                for x in (torch.zeros(shape, dtype=dtype), torch.randn(shape).to(dtype)):
                    with torch.no_grad():
                        assert torch.equal(packed(x), again(x)), (rows, shape)
    assert {same for key, same in tiles._same.items() if key[0] == dtype} >= {True}
    assert len(tiles._same) < tiles.MOST_KEYS


def test_threads_have_buffers_of_their_own() -> None:
    plain, packed = gpt()
    expected = plain(tokens())
    found: list[bool] = []

    def run() -> None:
        with torch.no_grad():
            found.extend(torch.equal(packed(tokens()), expected) for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_compiled_models_compute_the_same_and_see_updates() -> None:
    plain, packed = gpt()
    compiled = torch.compile(packed, backend="eager")
    assert torch.equal(compiled(tokens()), plain(tokens()))
    optimizer = mdl.nn.SGD(packed, lr=0.1)
    before = compiled(tokens())
    optimizer.backward(compiled(tokens()).float().square().mean())
    optimizer.step()
    after = compiled(tokens())
    assert torch.equal(after, packed(tokens()))
    assert not torch.equal(after, before)


def test_wrong_use_is_said() -> None:
    plain, packed = gpt()
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (nn.ReLU(), {}, "no parameters"),
        (nn.LayerNorm(8), {}, "no weights to compress"),
        (packed, {}, "compressed already"),
        (nn.Sequential(nn.ReLU(), packed), {}, "compressed already"),
        ({"weight": torch.ones(3)}, {}, "no torch module"),
        (plain, {"bits": 2}, "bits is 2"),
        (plain, {"bits": 3, "block": 48}, "block is 48"),
        (plain, {"mode": "lossless", "bits": 3}, "lossless"),
        (plain, {"mode": "zip"}, "mode is 'zip'"),
        (plain, {"layers": "nothing.*"}, "match no module"),
        (plain, {"layers": ["norm", "nothing"]}, "match no module"),
        (nn.Embedding(100, 64, max_norm=1.0), {"layers": ""}, "max_norm"),
        (nn.Embedding(100, 64, sparse=True), {"layers": ""}, "sparse"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), {"layers": ""}, "parametrization"),
    ]
    with torch.device("meta"):
        refused.append((nn.Linear(64, 64), {"layers": ""}, "no values"))
    whole = nn.Linear(64, 64)
    whole.weight = nn.Parameter(torch.ones(64, 64, dtype=torch.int8), requires_grad=False)
    refused.append((whole, {"layers": ""}, "int8"))
    for model, arguments, why in refused:
        with pytest.raises(mdl.UsageError, match=why):
            mdl.nn.compress(model, **arguments)
    for ask in (mdl.nn.report, mdl.nn.decompress):
        with pytest.raises(mdl.UsageError, match="not compressed"):
            ask(plain)
    for reach in ("data_ptr", "untyped_storage"):
        with pytest.raises(mdl.UsageError, match="no dense memory"):
            getattr(packed.head.weight, reach)()


def test_weights_that_are_left_out_are_named() -> None:
    model = nn.ModuleDict({"small": nn.Linear(8, 8), "large": nn.Linear(64, 64), "other": nn.Linear(64, 65)})
    found = mdl.nn.report(mdl.nn.compress(copy.deepcopy(model)))
    assert list(found.weights) == ["large.weight", "other.weight"]
    assert "fewer than" in found.skipped["small.weight"]
    assert 0 < found.ratio < 1
    assert found.other_bytes == 4 * (64 + 8 + 64 + 65)
    named = mdl.nn.report(mdl.nn.compress(model, layers=["small", "lar*"]))
    assert list(named.weights) == ["small.weight", "large.weight"]


def test_sharding_is_refused(tmp_path: Any) -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        sharded = nn.Sequential(nn.Linear(64, 64))
        fully_shard(sharded, mesh=mesh)
        with pytest.raises(mdl.UsageError, match="sharded"):
            mdl.nn.compress(sharded)
        with pytest.raises(mdl.UsageError, match="cannot be sharded"):
            fully_shard(mdl.nn.compress(nn.Sequential(nn.Linear(64, 64))), mesh=mesh)
    finally:
        distributed.destroy_process_group()
