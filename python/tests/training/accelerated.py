"""A loop with Accelerate."""

from __future__ import annotations

import accelerate
import common
import torch
from mdl.data import ResumableLoader
from mdl.integrations.accelerate import load_state, save_state


def main() -> None:
    mode, path, account = common.arguments()
    common.seed(7 if mode != "resumed" else 99)
    accelerator = accelerate.Accelerator(cpu=True)
    model = common.network()
    optimizer, scheduler = common.optimizer_and_scheduler(model)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, common.loader(), scheduler)
    loader = ResumableLoader(loader)
    accelerator.register_for_checkpointing(loader)
    step = load_state(accelerator, path).step if mode == "resumed" else 0

    while step < common.STEPS:
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if mode != "straight" and step % common.COMMIT_EVERY == 0:
                save_state(accelerator, path, step=step, metrics={"loss": float(loss)}, wait=step % 2 == 0)
            account.step(step, loss)
            if step == common.STEPS:
                break
    account.write({
        "model": accelerator.unwrap_model(model).state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    })  # fmt: skip


if __name__ == "__main__":
    main()
