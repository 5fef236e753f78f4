"""Layers over compressed weights: forward and backward decode the weight into the shared buffer, and save none.

What they compute is what torch's own functions compute, to the bit: the forward pass is torch's function on the decoded
weight, the backward pass the calls that torch's derivatives make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .segments import BLOCK, BUFFER, TOGETHER
from .weight import Weight


def _version_of(ctx: Any, weight: Weight) -> None:
    ctx.weight, ctx.version = weight, weight.store.version


def _decoded(ctx: Any) -> Tensor:
    store = ctx.weight.store
    if store.version != ctx.version:
        raise RuntimeError(
            "a compressed weight needed for gradient computation has been modified by an inplace operation: it is at "
            f"version {store.version}; expected version {ctx.version} instead"
        )
    return _cast(BUFFER.decoded(store), ctx.low)


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None else tensor.to(dtype)


def _low(x: Tensor, weight: Weight) -> torch.dtype | None:
    """The dtype that autocast computes in; None: no autocast, or nothing to cast."""
    kind = weight.store.device.type
    if not torch.is_autocast_enabled(kind) or torch.float64 in (x.dtype, weight.store.dtype):
        return None
    return torch.get_autocast_dtype(kind)


def _run(func: Callable[..., Tensor], weight: Tensor, inputs: list[Tensor | None], *rest: Any) -> Tensor:
    """Torch's function as it runs where gradients are wanted: it may choose another way where none are."""
    # Nothing is saved, nor shown to hooks of the caller's: the backward pass is written out below.
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, lambda t: t):
        x, bias = ((None if t is None else t.detach().requires_grad_(t.requires_grad)) for t in inputs)
        return func(x, weight.detach().requires_grad_(), bias, *rest).detach()


class _Dense(Function):
    """The weight as a plain tensor, for functions that know nothing of it."""

    @staticmethod
    def forward(ctx: Any, weight: Weight) -> Tensor:
        return weight.store.decode()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Weight, bias: Tensor | None, low: torch.dtype | None) -> Tensor:
        _version_of(ctx, weight)
        ctx.low, ctx.shape = low, x.shape
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None)
        return _run(F.linear, _cast(BUFFER.decoded(weight.store), low), [x, bias])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = rows.mm(_decoded(ctx)).view(ctx.shape)
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        if ctx.needs_input_grad[1]:
            of_weight = rows.t().mm(x.reshape(-1, x.shape[-1])).to(ctx.weight.store.dtype)
        return of_x, of_weight, of_bias, None


class _Embedding(Function):
    @staticmethod
    def forward(ctx: Any, index: Tensor, weight: Weight, padding: int, by_frequency: bool) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows, ctx.padding, ctx.by_frequency = weight.store.shape[0], padding, by_frequency
        return _rows(weight, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors
        backward = torch.ops.aten.embedding_backward
        return None, backward(grad, index, ctx.rows, ctx.padding, ctx.by_frequency, False), None, None


def _rows(weight: Weight, index: Tensor) -> Tensor:
    """Rows of an embedding: of the table those blocks are decoded that hold them, a few at a time."""
    store = weight.store
    rows, width = store.shape
    wanted, order = index.reshape(-1).long().sort()
    if wanted.numel() and not 0 <= wanted[0] <= wanted[-1] < rows:
        raise IndexError("index out of range in self")
    found = torch.empty((wanted.numel(), width), dtype=store.dtype, device=store.device)
    at = 0
    while found.numel() and at < wanted.numel():
        row = int(wanted[at])
        start = row * width // BLOCK * BLOCK
        # From here on as many rows as end within a few blocks; one that is longer, alone.
        most = max((start + TOGETHER * BLOCK) // width, row + 1)
        to = int(torch.searchsorted(wanted, most))
        end = min(-(-(int(wanted[to - 1]) + 1) * width // BLOCK) * BLOCK, store.numel)
        tile = BUFFER.memory((end - start) * store.dtype.itemsize, store.device).view(store.dtype)
        store.handle.decode_range(start, tile)
        # Blocks cut rows: the first whole one, and those behind it.
        first = -(-start // width)
        table = tile[first * width - start :]
        table = table[: table.numel() // width * width].view(-1, width)
        found[order[at:to]] = table[wanted[at:to] - first]
        at = to
    return found.view(*index.shape, width)


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Weight,
        bias: Tensor | None,
        low: torch.dtype | None,
        func: Callable[..., Tensor],
        rest: tuple[Any, ...],
        settings: tuple[Any, ...],
    ) -> Tensor:
        _version_of(ctx, weight)
        ctx.low, ctx.settings = low, settings
        ctx.of_bias = None if bias is None else list(bias.shape)
        ctx.save_for_backward(x)
        return _run(func, _cast(BUFFER.decoded(weight.store), low), [x, bias], *rest)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
            grad, x, _decoded(ctx), ctx.of_bias, *ctx.settings, wanted
        )
        if wanted[1]:
            of_weight = of_weight.to(ctx.weight.store.dtype)
        return of_x, of_weight, of_bias, None, None, None, None


def dense(weight: Weight) -> Tensor:
    """A plain tensor of the weight's elements; gradients go to the weight."""
    if torch.is_grad_enabled() and weight.requires_grad:
        return _Dense.apply(weight)
    return weight.store.decode()


def _plain(value: Any) -> Any:
    return dense(value) if isinstance(value, Weight) else value


def _wants_grad(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _linear(func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    input, bias = _plain(input), _plain(bias)
    with torch._C.DisableTorchFunctionSubclass():
        if not isinstance(weight, Weight) or input.dim() < 2:
            return func(input, _plain(weight), bias)
        low = _low(input, weight)
        if not _wants_grad(input, weight, bias):
            from .tiles import linear

            return linear(input, weight.store, bias, low)
        return _Linear.apply(_cast(input, low), weight, None if bias is None else _cast(bias, low), low)


def _embedding(
    func: Any,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if not isinstance(weight, Weight) or max_norm is not None or sparse or weight.dim() != 2:
        with torch._C.DisableTorchFunctionSubclass():
            return func(_plain(input), _plain(weight), padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    padding = -1 if padding_idx is None else padding_idx % weight.store.shape[0]
    with torch._C.DisableTorchFunctionSubclass():
        if not _wants_grad(weight):
            return _rows(weight, input)
        return _Embedding.apply(input, weight, padding, scale_grad_by_freq)


def _conv(dims: int, transposed: bool) -> Callable[..., Tensor]:
    # In the order in which the function takes them.
    names: tuple[str, ...] = ("stride", "padding", "output_padding", "groups", "dilation")
    if not transposed:
        names = ("stride", "padding", "dilation", "groups")
    defaults: dict[str, Any] = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}

    def each(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * dims if len(values) == 1 else values

    def settings(values: dict[str, Any]) -> tuple[Any, ...]:
        """What the backward pass needs to know; nothing where the padding is a word."""
        if isinstance(values["padding"], str):
            return ()
        sizes = [each(values[name]) for name in ("stride", "padding", "dilation")]
        return (*sizes, transposed, each(values["output_padding"]), values["groups"])

    def forward(
        func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **named: Any
    ) -> Tensor:
        input, bias = _plain(input), _plain(bias)
        with torch._C.DisableTorchFunctionSubclass():
            if len(args) > len(names) or not named.keys() <= set(names[len(args) :]):
                # Torch says what is wrong.
                return func(input, _plain(weight), bias, *args, **named)
            values = defaults | dict(zip(names, args, strict=False)) | named
            rest, known = tuple(values[name] for name in names), settings(values)
            if not isinstance(weight, Weight) or input.dim() != dims + 2 or not known:
                return func(input, _plain(weight), bias, *rest)
            low = _low(input, weight)
            if not _wants_grad(input, weight, bias):
                return func(_cast(input, low), _cast(BUFFER.decoded(weight.store), low), bias, *rest)
            bias = None if bias is None else _cast(bias, low)
            return _Convolution.apply(_cast(input, low), weight, bias, low, func, rest, known)

    return forward


def handlers() -> dict[Any, Callable[..., Any]]:
    """Torch's functions that know compressed weights, and what runs for them."""
    found: dict[Any, Callable[..., Any]] = {F.linear: _linear, F.embedding: _embedding}
    for dims in (1, 2, 3):
        found[getattr(torch, f"conv{dims}d")] = _conv(dims, False)
        found[getattr(torch, f"conv_transpose{dims}d")] = _conv(dims, True)
    return found
