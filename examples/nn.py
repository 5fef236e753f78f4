"""A small net that guesses the next byte of Python's own sources, trained and run with compressed weights.

    python examples/nn.py [DIRECTORY]

It trains twice, on plain weights and on compressed ones, and compares every bit; commits the compressed model, and runs
it from the repository as it is stored.
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

CONTEXT, ROWS, STEPS = 16, 256, 60


def make() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(256, 32), nn.Flatten(), nn.Linear(32 * CONTEXT, 512), nn.ReLU(), nn.Linear(512, 256)
    )


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # The net is too small to be shared out.
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"\0".join(f.read_bytes() for f in files)[:1_000_000]
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, CONTEXT + 1, 7)

    def loss_of(net: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(rows[:, :-1]).float(), rows[:, -1])

    plain = make().to(torch.bfloat16)
    packed = mdl.nn.compress(copy.deepcopy(plain))
    theirs, ours = torch.optim.AdamW(plain.parameters(), lr=2e-3), mdl.nn.AdamW(packed, lr=2e-3)
    for _ in range(STEPS):
        rows = data[torch.randint(0, len(data), (ROWS,))]
        theirs.zero_grad()
        loss_of(plain, rows).backward()
        theirs.step()
        ours.backward(loss_of(packed, rows))
        ours.step()
    same = all(torch.equal(tensor, packed.state_dict()[name]) for name, tensor in plain.state_dict().items())
    print(f"the same bits after {STEPS} steps: {same}")

    where = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="mdl-nn-"))
    repo = mdl.Repo.init(where / "nn")
    version = repo.commit({"model": packed}, step=STEPS, wait=True)
    with torch.no_grad():
        expected = loss_of(plain, data[-2000:]).item()
        for bits in (None, 3, 1, 0):
            with torch.device("meta"):
                empty = make()
            served = mdl.nn.load(repo, version.id, model=empty, bits=bits)
            found = mdl.nn.report(served)
            kind = "lossless" if bits is None else f"{bits} bits"
            print(f"{kind}: loss {loss_of(served, data[-2000:]).item():.4f} ({expected:.4f} plain), {found.ratio:.3f}")


if __name__ == "__main__":
    main()
