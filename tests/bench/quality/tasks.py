"""Two small training tasks: a byte-level GPT on Python's sources and a residual net on distorted digits.

Nothing here draws from a global generator: the initial weights depend on the task alone, batch t on (order, t) alone,
the evaluation sets on the task alone. So a run that was killed and resumed sees what a run that was not would see.
"""

from __future__ import annotations

import hashlib
import math
import sysconfig
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, Tensor]
Scores = dict[str, float]


class Task(Protocol):
    """A model with its data, optimiser and two disjoint evaluation sets."""

    name: str
    steps: int
    every: int
    start: int
    clip: float | None

    def model(self) -> nn.Module: ...
    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer: ...
    def rate(self, step: int) -> float: ...
    def batch(self, order: int, step: int) -> Batch: ...
    def loss(self, model: nn.Module, batch: Batch) -> Tensor: ...
    def gate_scores(self, model: nn.Module) -> Scores: ...
    def final_scores(self, model: nn.Module) -> Scores: ...


def generator(*key: int | str) -> torch.Generator:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def cosine(step: int, steps: int, peak: float, warmup: int = 50, floor: float = 0.02) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (steps - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))


def library_text(limit: int = 12_000_000) -> np.ndarray:
    """Sources of the standard library without its tests, each file once, in an order that only their names decide."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
    files = [p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts)]
    files.sort(key=lambda p: hashlib.blake2b(p.relative_to(root).as_posix().encode()).digest())
    seen: set[bytes] = set()
    parts: list[bytes] = []
    size = 0
    for path in files:
        text = path.read_bytes()
        digest = hashlib.blake2b(text).digest()
        if len(text) < 500 or digest in seen:
            continue
        seen.add(digest)
        parts.append(text + b"\n\0\n")
        size += len(parts[-1])
        if size > limit:
            break
    return np.frombuffer(b"".join(parts), np.uint8)


class Block(nn.Module):
    """Pre-norm transformer block without biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Byte-level decoder; the output head is the embedding."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(256, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=False)
        random = generator("gpt", "weights")
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * layers) if residual else 0.02, generator=random)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.wte.weight.T


class Text:
    """1.29 M parameters, AdamW, cosine rate; the lossy part of a run begins half-way, at step 800."""

    name, steps, every, start, clip = "gpt", 1600, 50, 800, 1.0
    context, rows, peak = 96, 8, 2e-3

    def __init__(self) -> None:
        text = torch.from_numpy(library_text().copy())
        held_out = 600_000
        self.train, rest = text[:-held_out], text[-held_out:]
        windows = rest[: held_out // (self.context + 1) * (self.context + 1)].view(-1, self.context + 1)
        windows = windows[torch.randperm(len(windows), generator=generator("gpt", "held out"))]
        self.gate, self.final = windows[:64], windows[64 : 64 + 1280]

    def model(self) -> nn.Module:
        return GPT(width=160, layers=4, heads=5, context=self.context)

    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        matrices = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.peak, betas=(0.9, 0.95))

    def rate(self, step: int) -> float:
        return cosine(step, self.steps, self.peak)

    def batch(self, order: int, step: int) -> Batch:
        random = generator("gpt", order, step)
        starts = torch.randint(0, len(self.train) - self.context - 1, (self.rows,), generator=random)
        return split(self.train[starts[:, None] + torch.arange(self.context + 1)])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def gate_scores(self, model: nn.Module) -> Scores:
        return self._scores(model, self.gate)

    def final_scores(self, model: nn.Module) -> Scores:
        return self._scores(model, self.final)

    @torch.no_grad()
    def _scores(self, model: nn.Module, windows: Tensor) -> Scores:
        model.eval()
        parts = windows.split(16)
        total = sum(self.loss(model, split(part)).item() * len(part) for part in parts)
        model.train()
        return {"loss": total / len(windows)}


def split(windows: Tensor) -> Batch:
    return windows[:, :-1].long(), windows[:, 1:].long()


class Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.short = nn.Conv2d(inner, outer, 1, stride, bias=False) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    """Stem, three residual blocks, pooled linear head."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.layers = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, 10)
        random = generator("conv", "weights")
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, 0.0, math.sqrt(2 / p[0].numel()), generator=random)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(functional.relu(self.norm(self.stem(x))))
        return self.head(y.mean((2, 3)))


class Digits:
    """0.31 M parameters, SGD with momentum: digits turned, scaled and moved, half covered by another one, in noise."""

    name, steps, every, start, clip = "conv", 1200, 50, 0, None
    rows, peak, side = 48, 0.1, 16

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        source = load_digits()
        images = torch.tensor(source.images / 16, dtype=torch.float32)[:, None]
        labels = torch.tensor(source.target)
        chosen = torch.randperm(len(labels), generator=generator("conv", "split"))
        images, labels = images[chosen], labels[chosen]
        self.train = (images[:1300], labels[:1300])
        rest = (images[1300:], labels[1300:])
        self.gate = self._draw(rest, 768, generator("conv", "gate"))
        self.final = self._draw(rest, 6144, generator("conv", "final"))

    def _warp(self, images: Tensor, shrink: tuple[float, float], move: float, random: torch.Generator) -> Tensor:
        n = len(images)
        turn = torch.rand(n, generator=random) - 0.5
        scale = shrink[0] + (shrink[1] - shrink[0]) * torch.rand(n, generator=random)
        shift = (torch.rand(n, 2, generator=random) - 0.5) * move
        cos, sin = scale * turn.cos(), scale * turn.sin()
        matrix = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], 1).view(n, 2, 3)
        grid = functional.affine_grid(matrix, [n, 1, self.side, self.side], align_corners=False)
        return functional.grid_sample(images, grid, align_corners=False)

    def _draw(self, data: Batch, n: int, random: torch.Generator) -> Batch:
        images, labels = data
        chosen = torch.randint(0, len(labels), (n,), generator=random)
        other = torch.randint(0, len(labels), (n,), generator=random)
        digit = self._warp(images[chosen], (1.2, 1.9), 0.8, random)
        cover = self._warp(images[other], (2.2, 3.0), 3.0, random)
        noise = torch.randn(n, 1, self.side, self.side, generator=random)
        return torch.maximum(digit, 0.6 * cover) + 0.25 * noise, labels[chosen]

    def model(self) -> nn.Module:
        return ResNet()

    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.peak, momentum=0.9, weight_decay=5e-4)

    def rate(self, step: int) -> float:
        return cosine(step, self.steps, self.peak)

    def batch(self, order: int, step: int) -> Batch:
        return self._draw(self.train, self.rows, generator("conv", order, step))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    def gate_scores(self, model: nn.Module) -> Scores:
        return self._scores(model, self.gate)

    def final_scores(self, model: nn.Module) -> Scores:
        return self._scores(model, self.final)

    @torch.no_grad()
    def _scores(self, model: nn.Module, data: Batch) -> Scores:
        model.eval()
        loss = right = 0.0
        for images, labels in zip(data[0].split(128), data[1].split(128), strict=True):
            out = model(images)
            loss += functional.cross_entropy(out, labels, reduction="sum").item()
            right += (out.argmax(1) == labels).sum().item()
        model.train()
        return {"loss": loss / len(data[1]), "accuracy": right / len(data[1])}


TASKS: dict[str, Any] = {"gpt": Text, "conv": Digits}
