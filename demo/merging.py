"""Demo of merges: two fine-tunes of MiniLM, each of half of the subjects, and what merges of them know. Needs torch."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

import torch
from quality.finetune import Finetune, Labelled
from safetensors.torch import load_file, save_file
from support.cli import Mdl
from torch import nn

STEPS, RATE = 80, 5e-5
#: Strategy -> its options.
MERGES = {
    "average": (),
    "slerp": (),
    "task-arithmetic": (),
    "ties": ("--density", "0.5"),
    "dare-ties": ("--density", "0.5", "--seed", "1"),
}


class Subjects(Finetune):
    """The task of the quality bench with batches of some of its classes only."""

    def train_on(self, model: nn.Module, classes: list[int], order: int) -> None:
        optimiser = self.optimiser(model)
        model.train()
        for step in range(STEPS):
            tokens, mask, labels = self.batch(order, step)
            chosen = torch.isin(labels, torch.tensor(classes))
            if not chosen.any():
                continue
            for group in optimiser.param_groups:
                group["lr"] = RATE * group.get("scale", 1.0) * min(1.0, (STEPS - step) / STEPS * 2)
            optimiser.zero_grad()
            # The other half's outputs are left alone: a fine-tune must not unlearn what it never sees.
            scores = model(tokens[chosen], mask[chosen])[:, classes]
            places = torch.tensor([classes.index(int(label)) for label in labels[chosen]])
            nn.functional.cross_entropy(scores, places).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimiser.step()

    def accuracy(self, model: nn.Module, classes: list[int]) -> float:
        """Right answers among the classes, on held-out texts of these."""
        kept = [i for i, label in enumerate(self.final[1]) if label in classes]
        chosen: Labelled = ([self.final[0][i] for i in kept], [self.final[1][i] for i in kept])
        model.eval()
        return self._classified(model, chosen)["accuracy"]


def commit(mdl: Mdl, model: nn.Module, message: str) -> None:
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, mdl.repo / "model.safetensors", metadata={"format": "pt"})
    mdl.commit(None, message)


def main() -> int:
    torch.manual_seed(0)
    task = Subjects()
    everything = list(range(len(task.train)))
    halves = [everything[::2], everything[1::2]]
    with tempfile.TemporaryDirectory(prefix="mdl-merging-") as folder:
        mdl = Mdl.init(Path(folder) / "run")
        model = task.model()
        commit(mdl, model, "pretrained")
        print("\n## Merges: two fine-tunes of MiniLM, each of half of the subjects\n")
        print("| version | all subjects | first half | second half |\n|---|---:|---:|---:|")

        def row(name: str) -> float:
            model.load_state_dict(load_file(mdl.repo / "model.safetensors"))
            found = [task.accuracy(model, classes) for classes in (everything, *halves)]
            print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in found) + " |", flush=True)
            return found[0]

        base = row("pretrained, a new head")
        parents = []
        for branch, classes in zip(("first", "second"), halves, strict=True):
            mdl.run("switch", "-c", branch, "main")
            model.load_state_dict(load_file(mdl.repo / "model.safetensors"))
            task.train_on(model, classes, order=len(parents))
            commit(mdl, model, f"the {branch} half")
            parents.append(row(f"fine-tuned on the {branch} half"))
        best = 0.0
        for strategy, options in MERGES.items():
            mdl.run("switch", "-c", strategy, "first")
            mdl.run("merge", "second", "--strategy", strategy, *options)
            assert mdl.json("merge", "--verify", "HEAD")["result"] == "same"
            best = max(best, row(f"{strategy} {' '.join(options)}".strip()))
        print(f"\nOf all subjects the parents know {max(parents):.3f}, the best merge {best:.3f}, the base {base:.3f}.")
        if best <= max(parents):
            print("FAILED: no merge knows more than the better parent", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
