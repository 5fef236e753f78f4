"""`mdl.Compressor` in one process: what a search leaves behind it, what is committed, gates and failures.

Nothing here knows the native half.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mdl
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
from mdl.loop.swap import undisturbed  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

torch.set_num_threads(1)
Collect = Callable[[mdl.Repo], mdl.Repo]


class Net(nn.Module):
    """An embedding tied to the head, a linear layer, statistics of batches, and a buffer that is no version's."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(48, 32)
        self.hidden = nn.Linear(32, 64)
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(64, 32)
        self.head = nn.Linear(32, 48, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("calls", torch.zeros(40, 32), persistent=False)

    def forward(self, tokens: Any) -> Any:
        x = self.drop(self.norm(self.hidden(self.table(tokens))).relu())
        return self.head(self.out(x))


class Loop:
    """A training that is determined by its seed."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.held_out = torch.arange(48)
        self.step = 0

    def loss(self) -> Any:
        tokens = torch.from_numpy(np.random.randint(0, 48, 32))
        return nn.functional.cross_entropy(self.model(tokens), (tokens * 7 + random.randrange(2)) % 48)

    def validation(self) -> float:
        return nn.functional.cross_entropy(self.model(self.held_out), self.held_out * 7 % 48).item()

    def run(self, steps: int, compressor: mdl.Compressor | None = None, every: int = 10) -> None:
        for _ in range(steps):
            self.step += 1
            if compressor:
                compressor.before_gradient_flush()
            self.optimizer.zero_grad()
            self.loss().backward()
            if compressor:
                compressor.on_backward_pass_end()
            self.optimizer.step()
            if compressor and self.step % every == 0:
                compressor.compress(self.step)

    def everything(self) -> dict[str, Any]:
        """All that a search could disturb, copied."""
        model = self.model
        return {
            "parameters": {n: (p.detach().clone(), p.requires_grad) for n, p in model.named_parameters()},
            "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
            "memory": {n: p.data_ptr() for n, p in model.named_parameters(remove_duplicate=False)},
            "buffers": {n: b.clone() for n, b in model.named_buffers()},
            "training": {n: m.training for n, m in model.named_modules()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "rng": mdl.rng_state(),
        }


def same(a: Any, b: Any) -> bool:
    """Whether two structures are the same, tensors and arrays bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bytes(a.numpy()) == bytes(b.numpy())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def rude(loop: Loop, seen: list[Any]) -> Callable[[], float]:
    """An evaluation that disturbs whatever it can."""

    def evaluate() -> float:
        model = loop.model
        assert not model.training
        assert not torch.is_grad_enabled()
        seen.append({n: p.detach().clone() for n, p in model.named_parameters()})
        number = loop.validation()
        model.train()
        model(loop.held_out)
        model.calls = model.calls + 1
        model.norm.running_mean.add_(1)
        torch.rand(3), np.random.rand(3), random.random()
        return number

    return evaluate


@pytest.mark.parametrize("search", ["guided", "neighbourhood"])
def test_a_search_leaves_every_bit_where_it_was(tmp_path: Path, search: str, collect: Collect) -> None:
    loop = Loop()
    loop.run(30)
    loop.model.norm.eval()
    loop.model.hidden.weight.requires_grad_(False)
    # Numbers that a comparison by value would take for others.
    loop.model.out.weight.data[0, :2] = torch.tensor([-0.0, 1e-42])
    before, seen = loop.everything(), []
    compressor = mdl.Compressor(
        loop.model, rude(loop, seen), repo=tmp_path, threshold=0.5, search=search, optimizer=loop.optimizer
    )
    commit = compressor.compress(30)
    assert same(loop.everything(), before)
    assert loop.model.head.weight is loop.model.table.weight
    # The first measurement is of the exact checkpoint, the others of candidates.
    exact = {n: value for n, (value, _) in before["parameters"].items()}
    assert same(seen[0], exact)
    assert all(not same(one["table.weight"], exact["table.weight"]) for one in seen[1:])
    assert commit.quality["family"] != "lossless"
    assert commit.quality["policy"] == {"guided": "paper", "neighbourhood": "lossy"}[search]
    # A new version is exact; what stands for it later is one of the candidates, as it was measured.
    stored = compressor.repo.load(commit.id)
    assert same(stored["model"], dict(loop.model.state_dict()))
    candidates = seen[1:]
    loop.run(1)
    compressor.compress(31)
    with pytest.warns(RuntimeWarning, match="an approximation stands"):
        stored = collect(compressor.repo).load(commit.id)
    assert any(same(one["table.weight"], stored["model"]["table.weight"]) for one in candidates)
    # Nothing but weights is quantised, whatever its size.
    assert same(stored["optimizer"], before["optimizer"])
    assert same(stored["model"]["norm.running_mean"], before["buffers"]["norm.running_mean"])
    assert same(stored["rng"]["torch"], before["rng"]["torch"])


@pytest.mark.parametrize("search", ["guided", "neighbourhood"])
def test_candidates_need_no_files_and_are_what_files_would_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    found = two_commits(tmp_path / "tensors", search)
    with monkeypatch.context() as patch:
        patch.setattr("mdl.compressor.Trials", ByFiles)
        expected = two_commits(tmp_path / "files", search)
    assert same(found, expected)
    qualities, seen, _ = found
    assert any(quality["family"] != "lossless" for quality in qualities)
    assert len(seen) > 4


def two_commits(where: Path, search: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Records, the weights of all that was measured, and how much there was to store."""
    loop, seen = Loop(), []

    def evaluate() -> float:
        seen.append({name: tensor.clone() for name, tensor in loop.model.state_dict().items()})
        models = (compressor.repo.path / "candidates").rglob("model.safetensors")
        # The state itself, which is read from disk, and of candidates nothing.
        assert where.name == "files" or [file.parent.name for file in models] == ["given"]
        return loop.validation()

    compressor = mdl.Compressor(
        loop.model, evaluate, repo=where, search=search, threshold=0.05, optimizer=loop.optimizer
    )  # fmt: skip
    commits = []
    for step in (20, 40):
        loop.run(20)
        commits.append(compressor.compress(step))
    assert list((compressor.repo.path / "candidates").iterdir()) == []
    return [c.quality for c in commits], seen, [(c.new_tensors, c.logical_bytes) for c in commits]


class ByFiles:
    """Measures candidates by the files of their directories, as any function that `Repo.commit` takes."""

    probed = ()

    def __init__(self, model: Any, evaluate: Callable[[], float], *_: Any, **__: Any) -> None:
        self._model, self._evaluate = model, evaluate

    def __call__(self, directory: Path) -> float:
        exact = {name: tensor.clone() for name, tensor in self._model.state_dict().items()}
        self._model.load_state_dict(load_file(directory / "model.safetensors"), strict=False)
        try:
            with undisturbed(self._model, {}):
                return self._evaluate()
        finally:
            self._model.load_state_dict(exact)


def test_training_goes_on_as_if_nothing_was(tmp_path: Path) -> None:
    alone = Loop()
    alone.run(40)
    expected, watched = alone.everything(), Loop()
    compressor = mdl.Compressor(
        watched.model,
        rude(watched, []),
        repo=tmp_path,
        search="neighbourhood",
        optimizer=watched.optimizer,
        interval=10,
    )
    watched.run(40, compressor)
    found = watched.everything()
    assert all(same(found[key], expected[key]) for key in expected if key != "memory")
    assert [c.step for c in compressor.repo.log()] == [40, 30, 20, 10]
    assert {c.quality["sensitivity"] for c in compressor.repo.log()} == {"gradients"}


def test_a_graph_that_waits_for_its_backward_pass_does_not_notice(tmp_path: Path) -> None:
    loop = Loop()
    loop.run(20)
    loss = loop.loss()
    (expected,) = torch.autograd.grad(loss, [loop.model.hidden.weight], retain_graph=True)
    mdl.Compressor(loop.model, loop.validation, repo=tmp_path, threshold=0.5).compress(20)
    (found,) = torch.autograd.grad(loss, [loop.model.hidden.weight])
    assert same(found, expected)


@pytest.mark.parametrize("at", [1, 2])
def test_an_evaluation_that_fails_leaves_no_commit_and_the_model_exact(tmp_path: Path, at: int) -> None:
    loop, calls = Loop(), []

    def evaluate() -> float:
        calls.append(0)
        loop.model.train()
        if len(calls) == at:
            raise ZeroDivisionError("no data")
        return loop.validation()

    loop.run(20)
    compressor = mdl.Compressor(loop.model, evaluate, repo=tmp_path, threshold=0.5)
    before = loop.everything()
    with pytest.raises(ZeroDivisionError):
        compressor.compress(20)
    assert same(loop.everything(), before)
    assert compressor.repo.branches() == {}
    assert list((compressor.repo.path / "candidates").iterdir()) == []
    assert compressor.compress(20).step == 20
    assert same(loop.everything(), before)


def test_what_cannot_be_measured_is_kept_exact(tmp_path: Path) -> None:
    loop = Loop()
    commit = mdl.Compressor(loop.model, lambda: float("nan"), repo=tmp_path).compress(1)
    assert commit.quality["family"] == "lossless"
    assert same(mdl.Repo.open(tmp_path).load()["model"], dict(loop.model.state_dict()))


def test_entries_that_no_measurement_sees_are_kept_exact(repo: mdl.Repo) -> None:
    loop = Loop()
    loop.run(20)
    average = {n: p.detach() * 0.99 for n, p in loop.model.named_parameters()}
    grown = torch.randn(64, 64)
    loop.model.norm.register_buffer("grown", grown)
    loop.optimizer.state[loop.model.out.weight]["prev_grad"] = grown + 1
    compressor = mdl.Compressor(
        loop.model, loop.validation, repo=repo, threshold=0.5, optimizer=loop.optimizer,
        state=lambda: {"average": average, "loader": {"at": 3}},
    )  # fmt: skip
    assert compressor.compress(20, {"loss": 1.5}, "said", epoch=0.5).quality["family"] == "lattice"
    stored = repo.load()
    assert same(stored["average"], average)
    assert same(stored["model"]["norm.grown"], grown)
    assert same(stored["optimizer"], loop.optimizer.state_dict())
    assert stored["loader"] == {"at": 3}
    commit = repo.show()
    assert (commit.message, commit.epoch, commit.metrics) == ("said", 0.5, {"loss": 1.5})


def test_without_an_evaluation_bits_are_kept_or_the_fixed_configuration_used(repo: mdl.Repo, tmp_path: Path) -> None:
    loop = Loop()
    loop.run(10)
    weights = dict(loop.model.state_dict())
    compressor = mdl.Compressor(loop.model, repo=repo, rng=False, branch="exact")
    assert compressor.compress(10).branch == "exact"
    assert same(repo.load("exact"), {"model": weights})
    # What the repository has already would stay as it is.
    loop.run(5)
    weights = {n: t.clone() for n, t in loop.model.state_dict().items()}
    policy = tmp_path / "fixed.toml"
    fixed = '[fixed]\nfamily = "bins"\nbins = 4\nembedding_bins = 16'
    bounds = "[bounds]\nweight = inf\nupdate = inf\nfirst = inf"
    keep = "[keep]\nexact_latest = 0"
    policy.write_text(f'try = ["bins"]\n{bounds}\n{keep}\n{fixed}\n[[tensor]]\nmatch = "out.*"\nexact = true\n')
    commit = mdl.Compressor(loop.model, repo=repo, policy=policy).compress(15)
    stored = repo.load(commit.id)["model"]
    assert commit.quality["policy"] == "fixed"
    assert len(stored["hidden.weight"].unique()) <= 4
    # Its name does not say that it is an embedding; the module does.
    assert 4 < len(stored["table.weight"].unique()) <= 16
    # The policy's own rules stand before the module tree's.
    assert same(stored["out.weight"], weights["out.weight"])


def test_retention_is_applied_after_each_commit(repo: mdl.Repo) -> None:
    model = nn.Linear(40, 40)
    compressor = mdl.Compressor(model, repo=repo, retention=mdl.retention.LatestN(2), branch="side")
    for step in range(1, 5):
        model.weight.data.add_(1)
        compressor.compress(step)
    assert [(c.step, c.pruned is None) for c in repo.log("side")] == [(4, True), (3, True), (2, False), (1, False)]


def test_generators_of_ones_own_are_stored_and_left_alone(tmp_path: Path) -> None:
    loop, loader = Loop(), torch.Generator().manual_seed(5)
    was = loader.get_state()

    def evaluate() -> float:
        torch.rand(2, generator=loader)
        return loop.validation()

    compressor = mdl.Compressor(loop.model, evaluate, repo=tmp_path, rng={"loader": loader})
    compressor.compress(1)
    assert same(loader.get_state(), was)
    assert same(compressor.repo.load()["rng"]["generators"]["loader"], was)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    for wrong in (
        {"threshold": 0.1, "progress": 0.1},
        {"policy": "lossy", "search": "guided"},
        {"interval": 10, "schedule": lambda step: step},
        {"interval": 0},
        {"window": 0},
        {"beta": 0.0},
    ):
        with pytest.raises(mdl.UsageError):
            mdl.Compressor(model, repo=tmp_path, **wrong)
    with pytest.raises(mdl.NotFoundError):
        mdl.Compressor(model, repo=tmp_path, search="nowhere").compress(1)
    with pytest.raises(mdl.UsageError, match="model"):
        mdl.Compressor(model, repo=tmp_path, state=lambda: {"model": 1}).compress(1)
