"""Patches the data loaders and progress of Lightning's loops, so that a resumed run goes on bit for bit.

Talks to the fit loop of a trainer, partly by names that Lightning does not promise (2.4 to 2.6 have them), and to
`mdl.data`. It knows no repository.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from ..data import ResumableLoader
from ..rng import set_rng_state


def wrapped(trainer: Any) -> list[ResumableLoader]:
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else [loader for loader in combined.flattened if isinstance(loader, ResumableLoader)]


def wrap(trainer: Any) -> list[ResumableLoader]:
    """All train loaders in `ResumableLoader`s; none if one of them cannot be: then the program keeps the order."""
    combined = trainer.fit_loop._combined_loader
    if combined is None or not all(_can_go_on(loader) for loader in combined.flattened):
        return []
    combined.flattened = [
        loader if isinstance(loader, ResumableLoader) else ResumableLoader(loader) for loader in combined.flattened
    ]
    return combined.flattened


def _can_go_on(loader: Any) -> bool:
    """Returns whether iterating `loader` again repeats the epoch: a map-style DataLoader does, a stream need not."""
    if isinstance(loader, ResumableLoader):
        return True
    own = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
    return isinstance(loader, DataLoader) and not own and not isinstance(loader.dataset, IterableDataset)


def put_back(loaders: list[ResumableLoader], resume: dict[str, Any]) -> None:
    """Each loader to its place. The first to be asked for a batch sets the random states, after every other hook
    ran."""
    if len(loaders) != len(resume["loaders"]):
        set_rng_state(resume["rng"])
        return
    for index, (loader, place) in enumerate(zip(loaders, resume["loaders"], strict=True)):
        loader.load_state_dict({**place, "rng": resume["rng"] if index == 0 else None})


def leave_finished_epoch(loop: Any) -> None:
    """A version from `on_train_epoch_end`: with `max_steps` Lightning would enter the epoch again, and without
    validation train a batch more than it has. The next epoch starts as it would have."""
    if not getattr(loop, "restarted_on_epoch_end", False):
        return
    progress = loop.epoch_progress
    progress.current.completed = progress.current.processed
    progress.total.completed = progress.total.processed
    # The fit loop's own setter always treats a run with `max_steps` as interrupted.
    loop._restarting = loop.epoch_loop.restarting = False
    loop.reset_restart_stage()
