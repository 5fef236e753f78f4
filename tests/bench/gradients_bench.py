"""What the moving average of gradients (`mdl.Compressor`) costs on a CPU, against the training step and a plain copy.

    PYTHONPATH=python python tests/bench/gradients_bench.py

Prints the table of docs/loop.md; medians over the batches of one run, on one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from mdl.loop.ema import GradientAverage
from torch import Tensor, nn

WIDTH, TOKENS = 256, 4096


class Gpt(nn.Module):
    """Six layers of width 256, head tied."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0)
        self.layers = nn.TransformerEncoder(layer, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.table(tokens)) @ self.table.weight.T


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(name: str, model: nn.Module, batch: Tensor, batches: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    average = GradientAverage(dict(model.named_parameters()))
    parameters = list(model.parameters())
    buffers = [torch.empty_like(p) for p in parameters]

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def copy() -> None:
        for buffer, parameter in zip(buffers, parameters, strict=True):
            buffer.copy_(parameter.grad)

    rows = [(timed(step), timed(average.take), timed(copy)) for _ in range(batches)]
    whole, taken, copied = (1e3 * statistics.median(column) for column in zip(*rows, strict=True))
    count = sum(p.numel() for p in parameters) / 1e6
    print(f"| {name} | {count:.2f} M | {whole:.1f} ms | {taken:.2f} ms | {taken / whole:.1%} | {copied:.2f} ms |")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    measure("GPT, 4 x 128 tokens", Gpt(), torch.randint(0, TOKENS, (4, 128)), 20)
    measure("conv net, 64 images of 8 x 8", conv(), torch.randn(64, 1, 8, 8), 200)


if __name__ == "__main__":
    main()
