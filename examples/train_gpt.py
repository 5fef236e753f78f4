"""A small GPT on real text, in plain PyTorch: commits in the background, resumes bit for bit, branches.

    python examples/train_gpt.py runs/gpt                              train; run it again after a kill to go on
    python examples/train_gpt.py runs/gpt --from main@step=200 --branch slow --lr 1e-4

Then `mdl --repo runs/gpt log --graph`. The text is Python's own standard library, byte by byte.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
import time
from pathlib import Path

import mdl
import torch
from torch import nn
from torch.nn import functional

CONTEXT, ROWS = 64, 16


class GPT(nn.Module):
    """A decoder over bytes; the output head is the embedding."""

    def __init__(self, width: int = 128, layers: int = 3, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.body(self.tokens(x) + self.places.weight[: x.shape[1]], mask, is_causal=True))


def text(limit: int = 4_000_000) -> torch.Tensor:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return torch.frombuffer(bytearray(b"\0".join(f.read_bytes() for f in files)[:limit]), dtype=torch.uint8)


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    windows = windows.long()
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def validate(model: nn.Module, data: torch.Tensor) -> float:
    model.eval()
    loss = loss_of(model, data[: 64 * (CONTEXT + 1)].view(64, -1)).item()
    model.train()
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repo", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=50, help="steps between commits")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--branch", default="main")
    parser.add_argument("--from", dest="start", help="revision at which the branch begins")
    args = parser.parse_args()

    torch.manual_seed(0)
    data = text()
    train, held_out = data[:-100_000], data[-100_000:]
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 50) * math.exp(-n / 1000))
    step = 0

    repo = mdl.Repo.init(args.repo)
    if args.start and args.branch not in repo.branches():
        repo.branch(args.branch, args.start)
    if args.branch in repo.branches():
        state = repo.load(args.branch)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        mdl.set_rng_state(state["rng"])
        step = state["step"]
        print(f"goes on from step {step} of {args.branch}", flush=True)
        if args.start:
            scheduler.base_lrs = [args.lr] * len(optimizer.param_groups)

    began, stall = time.perf_counter(), 0.0
    while step < args.steps:
        starts = torch.randint(0, len(train) - CONTEXT - 1, (ROWS, 1))
        loss = loss_of(model, train[starts + torch.arange(CONTEXT + 1)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % args.every == 0:
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            state = {name: part.state_dict() for name, part in parts.items()} | {"rng": mdl.rng_state(), "step": step}
            metrics = {"loss": validate(model, held_out), "lr": scheduler.get_last_lr()[0]}
            asked = time.perf_counter()
            repo.commit(state, step=step, metrics=metrics, branch=args.branch)
            stall += time.perf_counter() - asked
            print(f"step {step}  loss {metrics['loss']:.4f}", flush=True)
    repo.flush()
    print(f"{time.perf_counter() - began:.1f} s, {1000 * stall:.0f} ms of them in commits")


if __name__ == "__main__":
    main()
