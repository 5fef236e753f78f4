"""Times a decoder whose weights stay compressed on the GPU beside the same one in bf16, a line of JSON each.

`python weights.py [--layers N] [--width W] [--tokens T]`. Inference: tokens a second of a stack of decoder layers
(attention over a cache of 512 positions, a gated MLP) at batch 1 and 32, from CUDA graphs, weights multiplied as they
lie or decoded for each layer into memory that all layers share. Training: steps that update each weight in its backward
pass (as LOMO does), the weight decoded, updated and encoded again; times and the device's peak, and whether the weights
end up the same bit by bit. The weights are normal numbers of spread 0.02.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from mdl._native import DeviceWeights
from torch import Tensor
from torch.nn import functional

# Vectors that are multiplied in registers; more are multiplied with a decoded matrix.
FUSED = 4
CACHED = 512
HEAD = 128
STEPS = 12

Multiply = Callable[[Tensor], Tensor]


class Scratch:
    """Memory that all layers share: a decoded matrix and sums. It grows, so it is used once before a graph is made."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, n: int, dtype: torch.dtype) -> Tensor:
        key = (name, dtype)
        if key not in self.kept or self.kept[key].numel() < n:
            self.kept[key] = torch.empty(n, dtype=dtype, device="cuda")
        return self.kept[key][:n]


class Compressed:
    """A matrix of bf16, compressed on the GPU."""

    def __init__(self, weight: Tensor, scratch: Scratch) -> None:
        torch.cuda.synchronize()
        self.shape, self.scratch = weight.shape, scratch
        self.native = DeviceWeights.compress(0, "bf16", weight.numel(), weight.contiguous().data_ptr())

    def decoded(self) -> Tensor:
        out = self.scratch.take("matrix", self.shape.numel(), torch.bfloat16)
        self.native.decode(torch.cuda.current_stream().cuda_stream, out.data_ptr())
        return out.view(self.shape)

    def encode(self, weight: Tensor) -> None:
        torch.cuda.current_stream().synchronize()
        self.native.encode(weight.data_ptr())

    def __call__(self, x: Tensor) -> Tensor:
        batch, (rows, cols) = x.shape[0], self.shape
        if batch > FUSED:
            return functional.linear(x, self.decoded())
        y = torch.empty(batch, rows, dtype=x.dtype, device=x.device)
        sums = self.scratch.take("sums", self.native.scratch(cols, batch) // 4, torch.float32)
        addresses = (x.contiguous().data_ptr(), y.data_ptr(), sums.data_ptr())
        self.native.multiply(torch.cuda.current_stream().cuda_stream, cols, batch, addresses)
        return y


def shapes(width: int) -> list[tuple[int, int]]:
    """Queries, keys, values and output; gate, up and down."""
    wide = width * 11 // 4 // 256 * 256
    return [(width, width)] * 4 + [(wide, width)] * 2 + [(width, wide)]


def matrices(width: int, layer: int) -> list[Tensor]:
    made = torch.Generator(device="cuda").manual_seed(layer)
    return [(0.02 * torch.randn(s, device="cuda", generator=made)).bfloat16() for s in shapes(width)]


def layer(x: Tensor, weights: Sequence[Multiply], cache: tuple[Tensor, Tensor]) -> Tensor:
    batch, width = x.shape
    query, key, value, output, gate, up, down = weights
    normal = functional.rms_norm(x, (width,))
    split = (batch, width // HEAD, 1, HEAD)
    keys = torch.cat([cache[0], key(normal).view(split)], 2)
    values = torch.cat([cache[1], value(normal).view(split)], 2)
    seen = functional.scaled_dot_product_attention(query(normal).view(split), keys, values)
    x = x + output(seen.reshape(batch, width))
    normal = functional.rms_norm(x, (width,))
    return x + down(functional.silu(gate(normal)) * up(normal))


class Token:
    """A token of each sequence, and what attention remembers of those before it."""

    def __init__(self, batch: int, width: int) -> None:
        self.x = torch.randn(batch, width, device="cuda").bfloat16()
        room = (batch, width // HEAD, CACHED, HEAD)
        self.cache = (torch.randn(room, device="cuda").bfloat16(), torch.randn(room, device="cuda").bfloat16())

    def through(self, layers: Sequence[Sequence[Multiply]]) -> Tensor:
        x = self.x
        for weights in layers:
            x = layer(x, weights, self.cache)
        return x


def milliseconds(work: Callable[[], Any], runs: int) -> float:
    """The median of a graph's replays."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        work()
    times = []
    for _ in range(runs):
        began = torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)
        began.record()
        graph.replay()
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended))
    return statistics.median(times)


def inference(options: argparse.Namespace) -> None:
    scratch = Scratch()
    plain: list[list[Tensor]] = [matrices(options.width, i) for i in range(options.layers)]
    small = [[Compressed(w, scratch) for w in weights] for weights in plain]
    size = sum(w.numel() * 2 for weights in plain for w in weights)
    resident = sum(c.native.sizes()[1] for weights in small for c in weights)
    for batch in (1, 32):
        with torch.inference_mode():
            token = Token(batch, options.width)
            dense = [[functools.partial(functional.linear, weight=w) for w in weights] for weights in plain]
            a, b = token.through(dense), token.through(small)
            apart = ((a.float() - b.float()).norm() / a.float().norm()).item()
            times = [milliseconds(functools.partial(token.through, layers), 50) for layers in (dense, small)]
        tell(
            name=f"tokens, batch {batch}",
            plain=1e3 * batch / times[0],
            compressed=1e3 * batch / times[1],
            of_plain=times[0] / times[1],
            memory=resident / size,
            apart=apart,
        )


class Step(torch.autograd.Function):
    """A product whose backward pass updates its weight at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, rate: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.rate = weight, rate
        return functional.linear(x, weight.decoded())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (x,), (gradient,) = ctx.saved_tensors, gradients
        weight = ctx.weight.decoded()
        back = gradient @ weight
        weight.add_(gradient.flatten(0, -2).t() @ x.flatten(0, -2), alpha=-ctx.rate)
        ctx.weight.encode(weight)
        return back, None, None


class Plain:
    """A matrix as it is."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def decoded(self) -> Tensor:
        return self.weight

    def encode(self, weight: Tensor) -> None:
        assert weight is self.weight


def steps(layers: list[list[Any]], options: argparse.Namespace) -> tuple[float, int]:
    """Median milliseconds of a step, and bytes of the device's memory at the peak."""
    made = torch.Generator(device="cuda").manual_seed(1)
    times, least = [], 1 << 62
    for _ in range(STEPS):
        x = torch.randn(options.tokens, options.width, device="cuda", generator=made).bfloat16().requires_grad_()
        torch.cuda.synchronize()
        began = time.perf_counter()
        y = x
        for gate, up, down in layers:
            normal = functional.rms_norm(y, (options.width,))
            hidden = functional.silu(Step.apply(normal, gate, 1e-3)) * Step.apply(normal, up, 1e-3)
            y = y + Step.apply(hidden, down, 1e-3)
        y.float().square().mean().backward()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
        least = min(least, torch.cuda.mem_get_info()[0])
    return statistics.median(times[2:]), torch.cuda.mem_get_info()[1] - least


def training(options: argparse.Namespace) -> None:
    ends, found = [], []
    for compressed in (False, True):
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]
        scratch, layers = Scratch(), []
        for i in range(options.layers):
            weights = matrices(options.width, i)[4:]
            layers.append([Compressed(w, scratch) if compressed else Plain(w) for w in weights])
            del weights
        torch.cuda.empty_cache()
        ms, peak = steps(layers, options)
        found.append((ms, peak - before))
        ends.append([w.decoded().cpu().clone() for weights in layers for w in weights])
        del layers, scratch
    same = all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    tell(
        name="training",
        plain=1e3 / found[0][0],
        compressed=1e3 / found[1][0],
        of_plain=found[0][0] / found[1][0],
        memory=found[1][1] / found[0][1],
        same=same,
    )


def tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=4096, help="of a training step")
    options = parser.parse_args()
    for measure in (inference, training):
        try:
            measure(options)
        except Exception as why:
            tell(name=measure.__name__, missing=f"{type(why).__name__}: {why}")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
