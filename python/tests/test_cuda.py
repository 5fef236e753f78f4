"""CUDA tensors: committed from GPU memory, as they were, with only encodings on the bus. Skips without a GPU, and says
so; fails under MDL_REQUIRE_CUDA=1. What of it needs no GPU is tested with stand-ins.
"""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import mdl
import pytest
from mdl import devices
from mdl.tensors import run_of

torch = pytest.importorskip("torch")


@pytest.fixture
def gpu() -> Any:
    if not (torch.cuda.is_available() and devices.reaches(0)):
        why = "no GPU that the engine reaches (`mdl doctor` says why)"
        assert os.environ.get("MDL_REQUIRE_CUDA") != "1", why
        pytest.skip(why)
    return torch.device("cuda:0")


def state_on(device: Any, n: int = 1 << 22) -> dict[str, Any]:
    made = torch.Generator(device="cpu").manual_seed(3)
    weights = torch.randn(n, generator=made) * 0.02
    return {
        "weights": weights.to(device),
        "half": weights.bfloat16().to(device),
        "strided": weights[: 1 << 12].reshape(64, 64).t().to(device),
        "small": torch.arange(7, device=device),
        "none": torch.empty(0, device=device),
    }


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(torch.equal(a[k].cpu(), b[k].cpu()) for k in a)


def test_a_cuda_state_comes_back_and_is_what_the_host_would_store(gpu: Any, tmp_path: Path) -> None:
    there, here = mdl.Repo.init(tmp_path / "there"), mdl.Repo.init(tmp_path / "here")
    state = state_on(gpu)
    for step in range(3):
        a = there.commit(state, step=step, wait=True)
        b = here.commit({k: v.cpu() for k, v in state.items()}, step=step, wait=True)
        files = [{f.path: f.size for f in repo.files(c.id)} for repo, c in ((there, a), (here, b))]
        assert files[0]["model.safetensors"] == files[1]["model.safetensors"]
        assert same(there.load("HEAD", map_location="cpu"), state)
        state["weights"].mul_(1.001)


def test_a_commit_in_the_background_sees_no_later_value(gpu: Any, tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "repo")
    state = state_on(gpu)
    before = {k: v.clone() for k, v in state.items()}
    pending = repo.commit(state, step=1)
    for v in state.values():
        v.zero_()
    pending.result()
    assert same(repo.load("HEAD", map_location="cpu"), before)


def test_only_encodings_cross_the_bus(gpu: Any, tmp_path: Path) -> None:
    repo = mdl.Repo.init(tmp_path / "repo")
    state = {k: v for k, v in state_on(gpu, 1 << 24).items() if k in ("weights", "half")}
    raw = sum(v.numel() * v.element_size() for v in state.values())
    for step in range(2):
        _, before = mdl._native.engine_facts(0)
        commit = repo.commit(state, step=step, wait=True)
        _, after = mdl._native.engine_facts(0)
        down = after[1] - before[1]
        print(f"step {step}: {raw} bytes of tensors, {commit.stored_bytes} stored, {down} came to the host")
        assert down <= commit.stored_bytes + raw // 16 + (1 << 20)
        state["weights"][: 1 << 12] += 1e-3


class _Stream:
    def __init__(self) -> None:
        self.marked = 0

    def record_event(self) -> Any:
        self.marked += 1
        return types.SimpleNamespace(synchronize=lambda: None)


def test_what_does_not_fit_beside_training_goes_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GiB, of which training needed 12 at its peak: 3 are spare, one of them is left free."""
    gib = 1 << 30
    cuda = types.SimpleNamespace(
        mem_get_info=lambda _: (2 * gib, 16 * gib),
        memory_reserved=lambda _: 13 * gib,
        max_memory_allocated=lambda _: 12 * gib,
    )
    torch_like = types.SimpleNamespace(cuda=cuda)
    assert devices.fits(torch_like, None, 2 * gib)
    assert not devices.fits(torch_like, None, 2 * gib + 1)


def test_outside_of_a_commit_and_out_of_reach_tensors_go_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "reaches", lambda _: False)
    tensor = torch.arange(5)
    assert run_of(tensor)[0].device is None
    with devices.taking(aside=True) as taken:
        assert run_of(tensor)[0].device is None
    taken.wait()


@pytest.mark.parametrize("aside", [False, True])
def test_a_tensor_within_reach_stays_and_is_copied_only_where_it_may_change(
    monkeypatch: pytest.MonkeyPatch, aside: bool
) -> None:
    """A stand-in that says it is on a GPU: the tensor behind it is the host's."""
    stream = _Stream()
    monkeypatch.setattr(devices, "reaches", lambda ordinal: ordinal == 3)
    monkeypatch.setattr(devices, "fits", lambda *_: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    real = torch.arange(6, dtype=torch.float32)

    class There:
        device = torch.device("cuda:3")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    there = There()
    with devices.taking(aside=aside) as taken:
        plain = taken.take(torch, there)
    assert stream.marked == 1
    assert torch.equal(plain, real)
    assert (plain.data_ptr() == real.data_ptr()) is not aside
    taken.wait()


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(mdl.UsageError, match="auto, cpu, cuda or cuda:N"):
        mdl.set_device("gpu")
    mdl.set_device("cpu")
    assert mdl._native.engine_facts(0) == ("cpu", None)
    mdl.set_device("auto")
