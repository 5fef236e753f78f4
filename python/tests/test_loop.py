"""The parts of `mdl.Compressor`: averages, windows, groups of layers, rules.

Nothing here commits.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tomllib = pytest.importorskip("tomllib")
nn = torch.nn

from mdl.dtypes import STORED, torch_stored  # noqa: E402
from mdl.loop.ema import CudaLane, GradientAverage  # noqa: E402
from mdl.loop.groups import Stored, roles, rules  # noqa: E402
from mdl.loop.swap import Swap, in_place  # noqa: E402
from mdl.loop.window import Window  # noqa: E402


def test_importing_mdl_imports_no_torch() -> None:
    text = "import sys, mdl; assert 'torch' not in sys.modules; mdl.Compressor; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


# The average.


def reference(batches: list[Any], beta: float) -> Any:
    """The paper's formula as it stands; the first gradient is the first average."""
    mean = batches[0].double()
    for grad in batches[1:]:
        mean = beta * grad.double() + (1 - beta) * mean
    return mean.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("beta", [0.9, 0.3, 1.0])
def test_the_average_is_the_papers(dtype: Any, beta: float) -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(7, 5, dtype=dtype))
    average = GradientAverage({"w": weight}, beta)
    batches = [torch.randn(7, 5).to(dtype) for _ in range(9)]
    for grad in batches:
        weight.grad = grad.clone()
        average.take()
    assert average.samples == 9
    found = average.tensors()["w"]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, reference(batches, beta), rtol=1e-5, atol=1e-7)
    average.reset()
    assert average.tensors() == {}
    average.take()
    assert torch.equal(average.tensors()["w"], batches[-1].float())


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_missing_sparse_and_infinite_gradients() -> None:
    a, b, c = (nn.Parameter(torch.ones(3)) for _ in range(3))
    average = GradientAverage({"a": a, "b": b, "c": c, "count": torch.zeros(2, dtype=torch.int64)}, 0.9)
    a.grad = torch.tensor([1.0, 2, 3])
    average.take()
    a.grad, b.grad = None, torch.sparse_coo_tensor([[1]], [4.0], (3,), check_invariants=True)
    average.take()
    a.grad, b.grad = torch.tensor([1.0, float("inf"), 0]), torch.ones(3)
    average.take()
    assert average.samples == 2
    found = average.tensors()
    assert list(found) == ["a", "b"]
    torch.testing.assert_close(found["a"], torch.tensor([0.1, 0.2, 0.3]))
    torch.testing.assert_close(found["b"], torch.tensor([0, 3.6, 0]))


class Slow(CudaLane):
    """Copies that are made when they are let go, as a busy bus would."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.waited = 0

    def buffer(self, grad: Any) -> Any:
        return torch.empty_like(grad)

    def queue(self, device: Any, copies: list[Any]) -> Any:
        if self._careful:
            self.waited += 1
            for to, grad in copies:
                to.copy_(grad)
            return self.go
        lane = self

        class Event:
            def synchronize(self) -> None:
                lane.go.wait(10)
                for to, grad in copies:
                    to.copy_(grad)

        return Event()


def test_copies_that_are_under_way_hold_gradients_that_were_freed() -> None:
    weight = nn.Parameter(torch.zeros(4))
    lane = Slow()
    average = GradientAverage({"w": weight}, 0.9, lane)
    batches = [torch.full((4,), float(i)) for i in range(1, 4)]
    for grad in batches:
        lane.go.set()
        average.samples  # noqa: B018 - settles
        lane.go.clear()
        weight.grad = grad.clone()
        average.take()
        weight.grad = None
    lane.go.set()
    torch.testing.assert_close(average.tensors()["w"], reference(batches, 0.9))
    assert lane.waited == 0


def test_gradients_that_are_zeroed_in_place_are_noticed_once_and_waited_for_from_then_on() -> None:
    weight = nn.Parameter(torch.zeros(4))
    lane = Slow()
    average = GradientAverage({"w": weight}, 0.9, lane)
    weight.grad = torch.ones(4)
    average.take()
    weight.grad.zero_()
    lane.go.set()
    assert average.samples == 0
    lane.go.synchronize = lambda: None
    weight.grad.add_(2)
    average.take()
    weight.grad.zero_()
    assert torch.equal(average.tensors()["w"], torch.full((4,), 2.0))
    assert lane.waited == 1


# The swap.


def replaced(name: str, value: Any, file: str = "model.safetensors") -> Any:
    """A tensor as the native half gives it."""
    said = {"dtype": STORED[torch_stored(value.dtype)], "shape": list(value.shape), "nbytes": value.nbytes}
    return SimpleNamespace(file=file, name=name, address=value.data_ptr(), owner=value, **said)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_candidates_tensors_are_taken_where_they_are(dtype: Any) -> None:
    model = nn.Linear(3, 2).to(dtype)
    exact = model.weight.detach().clone()
    value = torch.tensor([[0.5, -0.0, 2.0], [1.0, 3.0, float("inf")]], dtype=dtype)
    candidate = [
        replaced("weight", value),
        replaced("bias", torch.ones(2, dtype=dtype), "average.safetensors"),
        replaced("bias", torch.ones(3, dtype=dtype)),
        replaced("nowhere", value),
    ]
    swap = Swap(model)
    tensors = swap.weights(candidate)
    assert list(tensors) == ["weight"]
    assert tensors["weight"].data_ptr() == value.data_ptr()
    with swap.put_in(tensors):
        assert torch.equal(model.weight, value)
        assert torch.equal(model.weight.signbit(), value.signbit())
    assert torch.equal(model.weight, exact)


def test_a_tensor_keeps_the_memory_that_it_lies_in() -> None:
    value = torch.arange(6.0).reshape(2, 3)
    gone = weakref.ref(value)
    tensor = in_place(replaced("weight", value))
    del value
    assert gone() is not None
    assert tensor.sum() == 15
    del tensor
    assert gone() is None
    assert in_place(replaced("weight", torch.empty(0, 3))).shape == (0, 3)


# The window.


@pytest.mark.parametrize(("interval", "size"), [(10, 3), (5, 50), (7, 1)])
def test_the_window_is_the_last_batches_before_a_multiple(interval: int, size: int) -> None:
    window = Window(interval, None, size)
    taken = []
    for batch in range(1, 41):
        if window.next_is_in():
            taken.append(batch)
        window.step += 1
    assert taken == [b for b in range(1, 41) if -b % interval < size]


def test_a_schedule_says_when() -> None:
    at = [8, 20]
    window = Window(None, lambda step: next((s for s in at if s >= step), None), 2, start=4)
    taken = []
    for batch in range(5, 30):
        if window.next_is_in():
            taken.append(batch)
        window.step += 1
    assert taken == [7, 8, 19, 20]
    assert Window(None, None, 2).next_is_in()


# Groups.


class CausalSelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.out = nn.Linear(64, 64), nn.Linear(64, 64)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = CausalSelfAttention(), nn.MultiheadAttention(64, 4)
        self.c = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
        self.n = nn.LayerNorm([40, 64])


class Model(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(64, 64)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.patches = nn.Conv1d(64, 64, 3)
        self.memory = nn.LSTM(64, 64)
        self.turned = nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 3))
        self.free = nn.Parameter(torch.zeros(64, 64))
        self.logits = nn.Linear(64, 100, bias=False)
        self.tied = nn.Linear(64, 100, bias=False)
        self.tied.weight = self.words.weight
        self.register_buffer("mask", torch.zeros(1, 64, 64))


def stored(model: Any) -> list[Stored]:
    names = {id(t): n for n, t in reversed(list(model.state_dict(keep_vars=True).items()))}
    return [Stored("model", names[id(t)], tuple(t.shape)) for t in model.state_dict(keep_vars=True).values()]


def test_groups_are_the_module_trees() -> None:
    found = roles(Model())
    expected = {
        "words.weight": "embedding",
        "places.weight": "embedding",
        "logits.weight": "embedding",
        "layers.0.a.q.weight": "attention",
        "layers.0.a.q.bias": "bias",
        "layers.0.b.in_proj_weight": "attention",
        "layers.0.b.out_proj.weight": "attention",
        "layers.1.c.2.weight": "linear",
        "layers.2.n.weight": "norm",
        "patches.weight": "conv",
        "memory.weight_hh_l0": "linear",
        "memory.bias_hh_l0": "bias",
        "turned.parametrizations.weight.original1": "conv",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not {"free", "tied.weight", "mask"} & found.keys()


def test_rules_say_what_the_tree_knows_of_what_is_quantised() -> None:
    model = Model()
    beside = [
        Stored("optimizer", "state.0.exp_avg", (64, 64)),
        Stored("optimizer", "state.0.other", (64, 64)),
        Stored("optimizer", "state.1.other", (64, 64)),
        Stored("ema", "free", (64, 64)),
    ]
    text = rules(model, [*stored(model), *beside])
    said = {r["match"]: r.get("role", "exact") for r in tomllib.loads(text)["tensor"]}
    assert said["model.safetensors:words.weight"] == "embedding"
    assert said["model.safetensors:layers.*.a.q.weight"] == "attention"
    assert said["model.safetensors:layers.*.n.weight"] == "exact"
    assert said["model.safetensors:mask"] == "exact"
    assert said["optimizer.safetensors:state.*.other"] == "exact"
    assert said["ema.safetensors:*"] == "exact"
    # Small tensors would be weights if a rule named them.
    assert not [match for match in said if "q.bias" in match or "free" in match or "exp_avg" in match]


def test_layers_of_a_stack_share_a_rule_only_where_they_are_alike() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2), nn.Conv1d(64, 64, 1), nn.Linear(64, 64))
    text = rules(model, stored(model))
    said = {r["match"]: r["role"] for r in tomllib.loads(text)["tensor"]}
    names = ("model.safetensors:0.weight", "model.safetensors:2.weight", "model.safetensors:3.weight")
    assert said == dict(zip(names, ("linear", "conv", "linear"), strict=True))
