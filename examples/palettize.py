"""A small net that guesses the next byte of Python's own sources, trained into weights of 8 values each.

    python examples/palettize.py [DIRECTORY]

It trains as it is, then goes on from there twice: as it is, with k-means of its weights at the end, and palettized.
Then `mdl --repo DIRECTORY/palettized show -t` shows how the weights are stored.
"""

from __future__ import annotations

import copy
import sys
import sysconfig
import tempfile
from pathlib import Path

import mdl
import torch
from torch import nn

CONTEXT, ROWS, STEPS, BITS = 16, 256, 200, 3


def windows() -> torch.Tensor:
    """Pieces of text of 17 bytes, int64."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"\0".join(f.read_bytes() for f in files)[:2_000_000]
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, CONTEXT + 1, 7)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # The net is too small to be shared out.
    data = windows()
    train, held_out = data[:-4000], data[-4000:]

    def loss_of(net: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(rows[:, :-1]), rows[:, -1])

    def go_on(net: nn.Module, optimizer: torch.optim.Optimizer, palettizer: mdl.Palettizer | None = None) -> None:
        net.train()
        random = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(net, train[torch.randint(0, len(train), (ROWS,), generator=random)]).backward()
            optimizer.step()
            if palettizer is not None:
                palettizer.step()

    def measured(net: nn.Module) -> float:
        with torch.no_grad():
            return loss_of(net.eval(), held_out).item()

    model = nn.Sequential(
        nn.Embedding(256, 24), nn.Flatten(), nn.Linear(24 * CONTEXT, 256), nn.ReLU(), nn.Linear(256, 256)
    )
    go_on(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    twin = copy.deepcopy(model)

    where = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="mdl-palettize-"))

    def commit(name: str, words: str, net: nn.Module) -> None:
        # Each has a repository of its own: in one, the second would be stored as a difference to the first.
        repo = mdl.Repo(where / name, create=True)
        done = repo.commit({"model": net.state_dict()}, message=words, metrics={"loss": measured(net)}, wait=True)
        print(
            f"{words:30} loss {measured(net):.4f}  {done.logical_bytes / 1e3:6.0f} -> {done.stored_bytes / 1e3:4.0f} kB"
        )

    go_on(model, torch.optim.AdamW(model.parameters(), lr=5e-4))
    commit("float32", "float32", model)
    afterwards = mdl.palettize(model, bits=BITS)
    afterwards.prepare()
    commit("kmeans", f"{BITS} bits, k-means afterwards", afterwards.finalize())

    optimizer = torch.optim.AdamW(twin.parameters(), lr=5e-4)
    palettizer = mdl.palettize(twin, bits=BITS, key16=True)
    palettizer.prepare(optimizer)
    go_on(twin, optimizer, palettizer)
    print(palettizer.report())
    commit("palettized", f"{BITS} bits, palettized", palettizer.finalize())


if __name__ == "__main__":
    main()
