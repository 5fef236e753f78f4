"""Compressed models and repositories: commits of them, and models that run on what is stored."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import mdl
import pytest
from frameworks import need

need("torch")

import torch  # noqa: E402
from nn_models import GPT, ConvNet, same  # noqa: E402
from support import buckets  # noqa: E402
from support.cli import Mdl  # noqa: E402
from support.flaky import Flaky  # noqa: E402
from support.server import Server  # noqa: E402
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


def test_a_commit_stores_segments_as_they_lie(tmp_path: Path) -> None:
    plain, packed = gpt()
    sizes = []
    for number, model in enumerate((plain, packed)):
        repo = mdl.Repo.init(tmp_path / str(number), bare=True)
        first = repo.commit({"model": model}, wait=True)
        stored = Mdl(repo.path).tensors(first.id, "model.safetensors")
        sizes.append({name: (t["scheme"], t["stored_bytes"]) for name, t in stored.items()})
    assert sizes[0] == sizes[1]
    # Of a model that was loaded or committed before, what has not changed is known.
    served = mdl.nn.load(repo, first.id, model=meta(GPT))
    again = repo.commit({"model": served}, wait=True, allow_empty=True)
    assert repo.diff(first.id, again.id) == []
    optimizer = mdl.nn.SGD(served, lr=0.5)
    optimizer.backward(served.loss(1))
    optimizer.step()
    changed = repo.commit({"model": served}, wait=True)
    state = repo.load(changed.id)["model"]
    assert all(torch.equal(state[name], value) for name, value in served.state_dict().items())
    # Another repository has none of it.
    elsewhere = mdl.Repo.init(tmp_path / "elsewhere")
    for model in (served, mdl.nn.load(repo, first.id, model=meta(GPT)), copy.deepcopy(packed)):
        state = elsewhere.load(elsewhere.commit({"model": model}, wait=True).id)["model"]
        assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


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


def resident_bytes(served: GPT, want: GPT) -> int:
    """Bytes that a loaded model takes: about those of a compressed one, whose blocks may be smaller."""
    report, other = mdl.nn.report(served), mdl.nn.report(mdl.nn.compress(copy.deepcopy(want)))
    assert report.other_bytes == other.other_bytes
    assert 0.99 < report.compressed_bytes / other.compressed_bytes < 1.01
    return report.compressed_bytes + report.other_bytes


def test_a_bucket_is_read_as_far_as_it_is_stored(tmp_path: Path, binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = GPT(width=768).to(torch.bfloat16)
    dense = sum(p.numel() * 2 for p in model.parameters())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    with buckets.moto(tmp_path) as bucket, Flaky(bucket.environment["AWS_ENDPOINT_URL"]) as line:
        for name, value in (bucket.environment | {"AWS_ENDPOINT_URL": line.url}).items():
            monkeypatch.setenv(name, value)
        repo = mdl.Repo.init(tmp_path / "work")
        repo.commit({"model": model, "other": {"x": torch.randn(1 << 20)}}, wait=True)
        Mdl(repo.path).run("remote", "add", "origin", f"{bucket.url}/gpt")
        Mdl(repo.path).run("push", "origin", "main")
        line.settle()
        before = line.received
        served = mdl.nn.load(f"{bucket.url}/gpt", "main", model=meta(lambda: GPT(width=768)), file="model.*")
        line.settle()
        assert same(model, served) == []
        resident = resident_bytes(served, model)
        # Packs are read in blocks of 1 MiB, by the clone and by the fetch of the tensors: their footer twice, lists of
        # tensors, and what lies around the tensors in their first and last block.
        assert line.received - before <= resident + 5 * (1 << 20), (line.received - before, resident)
        assert resident < 0.7 * dense
        assert list((tmp_path / "scratch").glob("mdl-*")) == []


def metric(server: Server, name: str) -> int:
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_server_sends_what_is_stored_and_no_more(
    tmp_path: Path, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "ada").mkdir(parents=True)
    repo = mdl.Repo.init(tmp_path / "root" / "ada" / "gpt", bare=True)
    torch.manual_seed(1)
    model = GPT(width=256).to(torch.bfloat16)
    other = {"x": torch.randn(1 << 20)}
    plain = []
    for seed in range(3):
        plain.append(copy.deepcopy(model))
        repo.commit({"model": model, "other": other}, step=seed, wait=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model.loss(seed).backward()
        optimizer.step()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    dense = sum(p.numel() * 2 for p in model.parameters())
    # The newest version is a difference to the one before: that comes along, and both are less than the plain weights.
    cases = (("main@step=0", plain[0], 1.0), ("main", plain[2], 1.25))
    with Server(tmp_path / "root") as server:
        for rev, want, most in cases:
            sent, asked = metric(server, "mdl_sent_bytes"), metric(server, "mdl_requests_total")
            served = mdl.nn.load(f"{server.url}/ada/gpt", rev, model=meta(lambda: GPT(width=256)), file="model.*")
            sent, asked = metric(server, "mdl_sent_bytes") - sent, metric(server, "mdl_requests_total") - asked
            assert same(want, served) == []
            resident = resident_bytes(served, want)
            # Beside tensors: the version, its directory, lists of tensors, plans, and a page of metrics.
            assert sent <= most * resident + 16_000, (sent, resident)
            assert sent < 0.7 * dense
            # One for all tensors.
            assert asked < 15
            assert list((tmp_path / "scratch").glob("mdl-*")) == []
    stored = Mdl(repo.path).tensors("main@step=0", "model.safetensors")
    assert sum(t["stored_bytes"] for t in stored.values()) <= 0.7 * dense


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_palettized_model_runs_on_its_indices(repo: mdl.Repo, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model = GPT(width=128).to(dtype)
    repo.commit({"model": model}, wait=True)
    palettizer = mdl.palettize(model, bits=3)
    palettizer.prepare()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for seed in range(3):
        optimizer.zero_grad()
        model.loss(seed).backward()
        optimizer.step()
        palettizer.step()
    palettizer.finalize()
    version = repo.commit({"model": model}, wait=True)
    served = mdl.nn.load(repo, version.id, model=meta(lambda: GPT(width=128)).to(dtype))
    want = model.state_dict()
    assert all(torch.equal(value, want.pop(name)) for name, value in served.state_dict().items())
    assert not want
    for name in mdl.nn.report(served).weights:
        store = served.get_parameter(name).store
        assert store.handle.schemes.keys() == {"palette"}, name
        # Three bits an element; the table, its frequencies and a head beside.
        assert store.handle.nbytes <= store.numel * 3 / 8 + 400, name
    tokens = torch.arange(72).view(3, 24)
    with torch.no_grad():
        assert torch.equal(model.eval()(tokens), served.eval()(tokens))
    model.zero_grad()
    for each in (model, served):
        each.train().loss(5).backward()
    for name, parameter in served.named_parameters():
        assert torch.equal(parameter.grad, model.get_parameter(name).grad), name


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
