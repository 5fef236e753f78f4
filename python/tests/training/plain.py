"""A plain PyTorch loop, as a user writes it."""

from __future__ import annotations

import common
import mdl
import torch
from mdl.data import ResumableLoader


def main() -> None:
    mode, path, account = common.arguments()
    common.seed(7 if mode != "resumed" else 99)
    model = common.network()
    optimizer, scheduler = common.optimizer_and_scheduler(model)
    loader = ResumableLoader(common.loader(torch.Generator().manual_seed(3)))
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    repo = None if mode == "straight" else mdl.Repo.init(path)
    step = 0
    if repo is not None and mode == "resumed":
        step = repo.show("HEAD").step
        for name, state in repo.load("HEAD").items():
            parts[name].load_state_dict(state)

    while step < common.STEPS:
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if repo is not None and step % common.COMMIT_EVERY == 0:
                states = {name: part.state_dict() for name, part in parts.items()}
                repo.commit(states, f"step {step}", step=step, metrics={"loss": float(loss)})
            account.step(step, loss)
            if step == common.STEPS:
                break
    if repo is not None:
        repo.close()
    account.write({name: part.state_dict() for name, part in parts.items() if part is not loader})


if __name__ == "__main__":
    main()
