"""Inference: a linear layer's weight is decoded a tile at a time, so that it is used while it is in cache."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .segments import BUFFER, Store


def linear(x: Tensor, store: Store, bias: Tensor | None, low: torch.dtype | None) -> Tensor:
    """``x @ weight.T + bias``, as torch computes it with the plain weight."""
    weight = BUFFER.decoded(store)
    if low is not None:
        return F.linear(x.to(low), weight.to(low), None if bias is None else bias.to(low))
    return F.linear(x, weight, bias)
