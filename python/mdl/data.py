"""Resumable data loader: its position within an epoch can be committed and resumed, to the batch and to the bit.

Talks to a loader (PyTorch's `DataLoader`, or whatever is iterated once per epoch) and to `rng`. It knows nothing of
repositories; the integration of Lightning wraps its trainer's loaders in this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from .rng import rng_state, set_rng_state

_END = object()


class ResumableLoader:
    """Wraps `loader`; `state_dict()` is the place in the current epoch, `load_state_dict()` goes on from there.

    The order of an epoch comes from the random state at its start: the process's generators (a shuffling `DataLoader`
    draws its seed from torch's) and the loader's own `generator`. Both are remembered when an epoch starts. To go on,
    they are set back, the batches that were already seen are drawn again and dropped, so that workers and samplers
    stand where they stood, and the process's generators are set to what they were when the state was taken. That
    happens when the next batch is asked for, so nothing drawn between loading and training matters.

    Batches are drawn as they were the first time: what the skipped ones cost to read is paid once more.

        loader = ResumableLoader(DataLoader(data, batch_size=32, shuffle=True))
        repo.commit({"model": model.state_dict(), "loader": loader.state_dict()}, step=step)
        loader.load_state_dict(repo.load()["loader"])
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.epoch = 0
        """Epochs that were finished. The loop to write is `while loader.epoch < epochs: for batch in loader: ...`: the
        first epoch after loading may have no batch left."""
        self._batches = 0
        self._start: dict[str, Any] | None = None
        self._resume: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        # Trainers read `dataset`, `sampler`, `batch_size` and the like from a loader.
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        now = rng_state()
        if resume is None:
            self._begin(now)
            batches = iter(self.loader)
        else:
            now = resume["rng"] or now
            batches = self._go_on(resume, now)
        while (batch := next(batches, _END)) is not _END:
            self._batches += 1
            if self._at_end():
                # A sampler may draw once more when it ends, and loops that count batches never let it: it ends here.
                ahead = next(batches, _END)
                if ahead is _END:
                    self._finish()
                else:
                    batches = itertools.chain((ahead,), batches)
            yield batch
        if self._start is not None:
            self._finish()

    def state_dict(self, *, ended: bool = False, with_rng: bool = True) -> dict[str, Any]:
        """Returns the position between two batches, as arrays and numbers.

        `ended`: the caller knows that no further batch of this epoch will be asked for (a limit that this loader cannot
        see). `with_rng`: also the process's generators as they are now, to be set when the next batch is asked for.
        """
        if self._resume is not None:
            return self._resume
        inside = self._start is not None and not ended
        return {
            "epoch": self.epoch + (self._start is not None and ended),
            "batches": self._batches if inside else 0,
            "start": self._start if inside else None,
            "generators": self._generator_states(),
            "rng": rng_state() if with_rng else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at `state` with the next `iter()`. The loader must be built as it was: same data, batch size,
        workers."""
        self._resume = dict(state)
        self.epoch = state["epoch"]

    def _begin(self, now: dict[str, Any]) -> None:
        self._batches = 0
        self._start = {"rng": now, "generators": self._generator_states()}

    def _go_on(self, resume: dict[str, Any], now: dict[str, Any]) -> Iterator[Any]:
        """An iterator that stands where `resume` was taken, with the process's generators at `now`."""
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(self.epoch)
        start = resume["start"]
        if start is None:
            set_rng_state(now)
            self._set_generators(resume["generators"])
            self._begin(now)
            return iter(self.loader)
        set_rng_state(start["rng"])
        self._set_generators(start["generators"])
        self._start, self._batches = start, resume["batches"]
        batches = iter(self.loader)
        for _ in range(self._batches):
            next(batches, None)
        set_rng_state(now)
        return batches

    def _at_end(self) -> bool:
        """Whether this was the epoch's last batch, where one may look. Accelerate's loaders, for one, tell the program
        that a batch is the last while it is being used; for those an epoch ends when one more batch is asked for."""
        if not type(self.loader).__module__.startswith("torch.utils.data"):
            return False
        try:
            return self._batches >= len(self.loader)
        except TypeError:
            return False

    def _finish(self) -> None:
        self.epoch += 1
        self._batches, self._start = 0, None

    def _generators(self) -> list[Any]:
        """Returns the loader's own generators, each once: its own, its sampler's, its batch sampler's sampler's."""
        sampler = getattr(self.loader, "sampler", None)
        inner = getattr(getattr(self.loader, "batch_sampler", None), "sampler", None)
        found = [getattr(owner, "generator", None) for owner in (self.loader, sampler, inner)]
        return list({id(generator): generator for generator in found if hasattr(generator, "get_state")}.values())

    def _generator_states(self) -> list[Any]:
        return [generator.get_state() for generator in self._generators()]

    def _set_generators(self, states: list[Any]) -> None:
        for generator, state in zip(self._generators(), states, strict=True):
            generator.set_state(state.cpu())
