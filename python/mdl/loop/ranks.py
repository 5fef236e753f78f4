"""Communication between the ranks of a distributed run around a checkpoint.

The first rank leads.

Everything goes over a gloo group of its own, in host memory: it cannot come between the training's own collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import UsageError, UserError

#: A rank may evaluate for long while the others wait for it. A process that died is noticed at once: gloo sees its
#: connections close.
_PATIENCE = timedelta(days=1)
#: All ranks must reach a checkpoint within this; else the error names those that did not.
_MEETING = timedelta(minutes=30)
#: Bytes of a tensor that are sent at a time.
_PIECE = 64 << 20


class RankError(UserError):
    """A checkpoint failed on another rank than this one."""


class Ranks:
    """One process, or all of a `torch.distributed` job. Every method but the properties is called on all ranks."""

    def __init__(self) -> None:
        self._group: Any = None
        self.world, self.rank = 1, 0
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
            self.world, self.rank = dist.get_world_size(), dist.get_rank()

    @property
    def leader(self) -> bool:
        """Whether this rank searches and commits."""
        return self.rank == 0

    def meet(self) -> None:
        """Waits for all ranks.

        Raises:
            RankError: some do not come.
        """
        if self._group is None:
            return
        try:
            dist.monitored_barrier(self._group, timeout=_MEETING, wait_all_ranks=True)
        except RuntimeError as error:
            hint = "every rank calls compress(step), also those that write nothing"
            raise RankError(f"not all ranks came to the checkpoint: {error}", hint) from error

    def agree(self, said: Mapping[str, Any], problem: Exception | None) -> None:
        """Checks that all ranks pass the same value, and that none has a problem.

        Raises:
            Exception: this rank's problem.
            RankError: another rank has one.
            UsageError: they are called with different arguments.
        """
        told = self.gather((dict(said), None if problem is None else f"{type(problem).__name__}: {problem}"))
        if problem is not None:
            raise problem
        for rank, (_, other) in enumerate(told):
            if other is not None:
                raise RankError(f"the checkpoint failed on rank {rank}: {other}")
        for what in said:
            values = [mine[what] for mine, _ in told]
            if len(set(values)) > 1:
                raise UsageError(f"the ranks have different {what}: {values}", "call compress on all of them alike")

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank. They are pickled: nothing large."""
        if self._group is None:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value, group=self._group)
        return found

    def tell(self, value: Any = None) -> Any:
        """Broadcasts the leader's value to all ranks."""
        if self._group is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def average(self, names: Iterable[str], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean over the ranks of each tensor (f32, host), in place; where some ranks lack one, it is zero there.

        ``names`` are all that may exist, alike on every rank.
        """
        names = list(names)
        if self._group is None:
            return dict(tensors)
        shapes: dict[str, tuple[int, ...]] = {}
        for known in self.gather({name: tuple(t.shape) for name, t in tensors.items()}):
            shapes |= known
        mean = {}
        for name in (name for name in names if name in shapes):
            mean[name] = tensors[name] if name in tensors else torch.zeros(shapes[name])
            dist.all_reduce(mean[name], group=self._group)
            mean[name].div_(self.world)
        return mean

    def hand(self, tensors: Mapping[str, Tensor] | None, to: int) -> None:
        """On the leader: sends tensors (host) to another rank, which calls `take`; None says that there are none."""
        said = None if tensors is None else [(name, t.dtype, tuple(t.shape)) for name, t in tensors.items()]
        dist.send_object_list([said], dst=to, group=self._group)
        for tensor in (tensors or {}).values():
            for piece in _pieces(tensor.contiguous()):
                dist.send(piece, dst=to, group=self._group)

    def take(self) -> dict[str, Tensor] | None:
        """On another rank: receives what the leader hands it."""
        box: list[Any] = [None]
        dist.recv_object_list(box, src=0, group=self._group)
        if box[0] is None:
            return None
        tensors = {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in box[0]}
        for tensor in tensors.values():
            for piece in _pieces(tensor):
                dist.recv(piece, src=0, group=self._group)
        return tensors


def _pieces(tensor: Tensor) -> Iterable[Tensor]:
    """The bytes of a contiguous tensor, in its memory."""
    if tensor.numel() == 0:
        return ()
    return tensor.reshape(-1).view(torch.uint8).split(_PIECE)
