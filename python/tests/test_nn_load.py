"""Compressed models and repositories: commits of them, and models that run on what is stored."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import mdl
import pytest
from frameworks import need

need("torch")

import torch  # noqa: E402
from nn_models import GPT, ConvNet, same  # noqa: E402
from torch import nn  # noqa: E402


def gpt(**mode: Any) -> tuple[GPT, GPT]:
    torch.manual_seed(1)
    plain = GPT().to(torch.bfloat16)
    return plain, mdl.nn.compress(copy.deepcopy(plain), **mode)


def meta(make: Any) -> Any:
    with torch.device("meta"):
        return make()


def test_a_commit_of_a_compressed_model_is_that_of_its_state_dict(repo: mdl.Repo) -> None:
    plain, packed = gpt()
    versions = [repo.commit({"model": m}, wait=True) for m in (plain.state_dict(), plain, packed, packed.state_dict())]
    for version in versions[1:]:
        assert repo.diff(versions[0].id, version.id) == []
    bare = repo.commit(packed, wait=True)
    assert repo.load(bare.id).keys() == plain.state_dict().keys()
    state = repo.load(versions[2].id)["model"]
    assert all(type(t) is torch.Tensor and torch.equal(t, plain.state_dict()[k]) for k, t in state.items())
    assert state["tokens.weight"].data_ptr() == state["head.weight"].data_ptr()
    parameters = repo.load(repo.commit({"p": list(packed.parameters())}, wait=True).id)["p"]
    assert isinstance(parameters[0], nn.Parameter)
    assert torch.equal(parameters[0], plain.tokens.weight)


def test_what_changes_after_the_call_is_not_in_the_version(repo: mdl.Repo) -> None:
    plain, packed = gpt()
    optimizer = mdl.nn.SGD(packed, lr=0.1)
    pending = []
    for seed in range(4):
        pending.append((repo.commit({"model": packed}, step=seed), copy.deepcopy(packed)))
        optimizer.backward(packed.loss(seed))
        optimizer.step()
    for version, then in pending:
        state = repo.load(version.result().id)["model"]
        assert all(torch.equal(state[k], v) for k, v in then.state_dict().items())
    assert same(plain, pending[0][1]) == []
    assert same(plain, pending[1][1]) != []


def test_a_model_runs_on_segments_as_they_are_stored(repo: mdl.Repo) -> None:
    for make in (GPT, ConvNet):
        plain = make().to(torch.bfloat16).eval()
        version = repo.commit({"model": plain}, wait=True, branch=make.__name__.lower())
        served = mdl.nn.load(repo, version.id, model=meta(make)).eval()
        assert same(plain, served) == []
        with torch.no_grad():
            assert plain.loss(3) == served.loss(3)
        packed = mdl.nn.compress(copy.deepcopy(plain))
        assert mdl.nn.report(served) == mdl.nn.report(packed)
        filled = mdl.nn.load(repo.path, version.id, model=make())
        assert same(plain.float(), filled) == []
        assert next(filled.parameters()).dtype == torch.float32
        served.train().loss(1).backward()
        assert next(served.parameters()).grad is not None


def test_deltas_and_views_are_encoded_by_themselves(repo: mdl.Repo) -> None:
    _plain, packed = gpt()
    optimizer = mdl.nn.SGD(packed, lr=0.01)
    for seed in range(3):
        version = repo.commit({"model": packed}, step=seed, wait=True)
        optimizer.backward(packed.loss(seed))
        optimizer.step()
    last = repo.commit({"model": packed}, wait=True)
    served = mdl.nn.load(repo, last.id, model=meta(GPT))
    assert same(packed, served) == []
    assert mdl.nn.report(served) == mdl.nn.report(packed)
    assert same(served, mdl.nn.load(repo, version.id, model=meta(GPT))) != []


def test_another_place_is_fetched_as_far_as_it_is_read(repo: mdl.Repo, tmp_path: Path) -> None:
    plain, _ = gpt()
    repo.commit({"model": plain, "other": {"x": torch.randn(1 << 18)}}, wait=True)
    url = repo.path.absolute().as_uri()
    served = mdl.nn.load(url, "main", model=meta(GPT), file="model.*")
    assert same(plain, served) == []


def test_lossy_and_prefixed_loads(repo: mdl.Repo) -> None:
    plain, packed = gpt(bits=3, block=64)
    state = {f"net.{k}": v for k, v in plain.state_dict().items()}
    version = repo.commit({"model": state}, wait=True)
    served = mdl.nn.load(repo, version.id, model=meta(GPT), prefix="net.", bits=3, block=64)
    assert same(packed, served) == []
    assert mdl.nn.report(served).ratio < 0.6


def test_what_does_not_fit_is_said(repo: mdl.Repo) -> None:
    plain, packed = gpt()
    state = plain.state_dict()
    twice = repo.commit({"a": state, "b": {k: v.clone() for k, v in state.items()}}, wait=True)
    less = repo.commit({"model": {k: v for k, v in state.items() if k != "norm.bias"}}, wait=True)
    none = repo.commit({"step": 3}, wait=True)
    refused: list[tuple[Any, Any, dict[str, Any], str]] = [
        (twice.id, meta(GPT), {}, "files have a tensor"),
        (less.id, meta(GPT), {}, "no tensor 'norm.bias'"),
        (none.id, meta(GPT), {}, "no tensors"),
        (twice.id, meta(GPT), {"file": "c.*"}, "no tensors"),
        (twice.id, meta(lambda: GPT(width=96)), {"file": "a.*"}, "has the shape"),
        (twice.id, packed, {"file": "a.*"}, "compressed already"),
        (twice.id, nn.ReLU(), {}, "no parameters"),
        ("nothing", meta(GPT), {}, "nothing"),
    ]
    for rev, model, arguments, why in refused:
        with pytest.raises(mdl.MdlError, match=why):
            mdl.nn.load(repo, rev, model=model, **arguments)
    assert same(plain, mdl.nn.load(repo, twice.id, model=meta(GPT), file="b.*")) == []


def test_a_damaged_repository_is_an_error_and_no_other_model(repo: mdl.Repo) -> None:
    plain, _ = gpt()
    version = repo.commit({"model": plain}, wait=True)
    (pack,) = (p for p in (repo.path / "packs").iterdir() if p.stat().st_size > 30_000)
    content = bytearray(pack.read_bytes())
    for at in range(10_000, 30_000, 97):
        content[at] ^= 0x55
    pack.chmod(0o600)
    pack.write_bytes(content)
    with pytest.raises(mdl.MdlError):
        mdl.nn.load(mdl.Repo.open(repo.path), version.id, model=meta(GPT))
