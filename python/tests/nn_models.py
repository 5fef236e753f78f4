"""Small models for the tests of `mdl.nn`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

#: The models are too small to be shared out.
torch.set_num_threads(1)
VOCABULARY, LENGTH = 97, 24


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attention(self.before(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class GPT(nn.Module):
    """A transformer whose head is tied to its embedding."""

    def __init__(self, width: int = 48, layers: int = 2, checkpoints: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.checkpoints = checkpoints

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(self.norm(x))

    def loss(self, seed: int) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=random)
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class ConvNet(nn.Module):
    """Convolutions plain, grouped, dilated, strided and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, padding=1, groups=4, bias=False),
            nn.ReLU(),
            nn.Conv2d(48, 32, 3, padding=2, dilation=2, padding_mode="circular"),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding="same"),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)

    def loss(self, seed: int) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        images = torch.randn(4, 3, 20, 20, generator=random).to(next(self.parameters()).dtype)
        return F.cross_entropy(self(images).float(), torch.randint(0, 10, (4,), generator=random))


def same(a: nn.Module, b: nn.Module) -> list[str]:
    """Names of entries of their ``state_dict`` that differ in a bit."""
    left, right = a.state_dict(), b.state_dict()
    assert list(left) == list(right)
    return [name for name in left if not torch.equal(left[name], right[name])]
