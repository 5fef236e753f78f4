"""`ResumableLoader`: resumed at any batch of any epoch, it yields the batches of an uninterrupted run."""

from __future__ import annotations

import random
from typing import Any

import pytest
from frameworks import need

need("torch")

import mdl  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from mdl.data import ResumableLoader  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402


class Noisy(Dataset):
    """40 items; each is drawn from every generator when it is read, as an augmentation would."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), np.random.rand(), float(torch.rand(()))], dtype=torch.float64)


class Stream(IterableDataset):
    """Without a length."""

    def __iter__(self) -> Any:
        for index in range(20):
            yield torch.tensor([float(index), float(torch.rand(()))])


def loader(kind: str) -> ResumableLoader:
    if kind == "stream":
        return ResumableLoader(DataLoader(Stream(), batch_size=8))
    generator = torch.Generator().manual_seed(4) if kind == "own generator" else None
    workers = 2 if kind == "workers" else 0
    return ResumableLoader(DataLoader(Noisy(), batch_size=8, shuffle=True, generator=generator, num_workers=workers))


def train(loader: ResumableLoader, count: int) -> list[torch.Tensor]:
    """`count` batches over as many epochs as it takes, drawing between them as dropout would."""
    seen = []
    while len(seen) < count:
        for batch in loader:
            seen.append(batch)
            torch.rand(3)
            if len(seen) == count:
                break
    return seen


def seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


@pytest.mark.parametrize(
    ("kind", "at"),
    # Two places are enough where processes are started.
    [(kind, at) for kind in ("plain", "own generator", "stream") for at in (1, 4, 5, 7)]
    + [("workers", 4), ("workers", 7)],
)
def test_goes_on_with_the_batches_that_would_have_come(kind: str, at: int) -> None:
    seed(1)
    first = loader(kind)
    train(first, at)
    state = first.state_dict()
    seed(1)
    straight = train(loader(kind), 12)

    seed(2)
    second = loader(kind)
    second.load_state_dict(state)
    rest = train(second, 12 - at)
    assert all(torch.equal(one, other) for one, other in zip(straight[at:], rest, strict=True))


def test_what_is_drawn_between_loading_and_training_does_not_matter() -> None:
    seed(1)
    first = loader("plain")
    train(first, 3)
    state = first.state_dict()
    rest = train(first, 1)
    second = loader("plain")
    second.load_state_dict(state)
    batches = iter(second)
    seed(77)
    assert second.state_dict() is not None
    seed(1)
    again = loader("plain")
    train(again, 3)
    assert torch.equal(next(batches)[:, 0], next(iter_on(again, state))[:, 0])
    assert len(rest) == 1


def iter_on(loader: ResumableLoader, state: dict[str, Any]) -> Any:
    loader.load_state_dict(state)
    return iter(loader)


def test_the_place_survives_a_repository(tmp_path: Any) -> None:
    seed(1)
    first = loader("own generator")
    train(first, 7)
    repo = mdl.Repo.init(tmp_path)
    repo.commit({"loader": first.state_dict()}, wait=True)
    straight = train_on(first)
    second = loader("own generator")
    second.load_state_dict(repo.load()["loader"])
    assert second.epoch == 1
    assert torch.equal(straight, train_on(second))


def train_on(loader: ResumableLoader) -> torch.Tensor:
    """The rest of the epoch in one."""
    loader.load_state_dict(loader.state_dict())
    return torch.cat(list(loader))


def test_counts_epochs_and_has_what_a_loader_has() -> None:
    wrapped = loader("plain")
    assert (len(wrapped), wrapped.batch_size, wrapped.epoch) == (5, 8, 0)
    for _ in wrapped:
        pass
    assert wrapped.epoch == 1
    with pytest.raises(AttributeError):
        _ = wrapped.nothing_of_that_name
