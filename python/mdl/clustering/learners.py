"""The index list of a weight, shared out over the learners of a job; gathered again in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import UserError

_AT_ONCE = 1 << 20


class LearnersError(UserError):
    """The learners' weights are not the same, so that none can keep a part for the others."""


class Learners:
    """The processes of a synchronous data-parallel job, which have the same weights at each step.

    Args:
        group: A process group (gloo, or nccl for weights on GPUs); True: one of its own over all processes, so that
            nothing comes between the training's collectives. Making that is a collective call.
    """

    def __init__(self, group: Any = True) -> None:
        self._group = dist.new_group() if group is True else group
        self.world, self.rank = dist.get_world_size(self._group), dist.get_rank(self._group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Learners:
        return self

    def part(self, keys: Tensor) -> Tensor:
        """This learner's part of the index list (int16 ``[n]``), a copy of ``ceil(n / world)`` numbers at most; behind
        them four more with a checksum of the whole list."""
        share = -(-len(keys) // self.world)
        part = keys.new_zeros(share + 4)
        mine = keys[self.rank * share : (self.rank + 1) * share]
        part[: len(mine)] = mine
        part[share:] = _checksum(keys).view(torch.int16)
        return part

    def whole(self, part: Tensor, count: int) -> Tensor:
        """The list of ``count`` numbers again; called on all learners.

        Raises:
            LearnersError: the learners had different weights in their forward passes.
        """
        mine = part.view(torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(parts, mine, group=self._group)
        found = [p.view(torch.int16) for p in parts]
        if any(not torch.equal(f[-4:], part[-4:]) for f in found):
            raise LearnersError(
                "the learners have different weights",
                "sharding is for synchronous data parallelism: begin from one state, and average gradients",
            )
        return torch.cat([f[:-4] for f in found])[:count]


def _checksum(keys: Tensor) -> Tensor:
    """A number that depends on values and places, int64 ``[1]``."""
    total = torch.zeros(1, dtype=torch.int64, device=keys.device)
    for at in range(0, len(keys), _AT_ONCE):
        part = keys[at : at + _AT_ONCE].long()
        places = torch.arange(at, at + len(part), device=keys.device)
        total += (part * (places * 0x9E3779B1 % 0xFFFFFFFB)).sum()
    return total
