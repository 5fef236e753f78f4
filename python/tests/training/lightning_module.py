"""A small net under Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import pytorch_lightning as pl
import torch
from mdl.integrations.lightning import MdlCallback


class Module(pl.LightningModule):
    """The common net, noting each step's loss."""

    def __init__(self, account: Any = None, note: str = "x") -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["account"])
        self.net = common.network()
        self.account = account

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        if self.account is not None:
            self.account.step(self.trainer.global_step, outputs["loss"])

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = common.optimizer_and_scheduler(self)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def trainer(root: Path, callback: pl.Callback, **options: Any) -> pl.Trainer:
    """Quiet, on the CPU."""
    return pl.Trainer(
        default_root_dir=root, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], **options,
    )  # fmt: skip


def state_of(run: pl.Trainer) -> dict[str, Any]:
    """Everything that must come out the same."""
    return {
        "model": run.lightning_module.state_dict(),
        "optimizer": run.optimizers[0].state_dict(),
        "scheduler": run.lr_scheduler_configs[0].scheduler.state_dict(),
    }


def main() -> None:
    mode, path, account = common.arguments()
    common.seed(7 if mode != "resumed" else 99)
    # Going straight commits as well, elsewhere: what the callback draws belongs to the run.
    repo = Path(path) if mode != "straight" else Path(path).with_name("straight")
    run = trainer(
        repo.parent / mode, MdlCallback(repo, every_n_train_steps=common.COMMIT_EVERY), max_steps=common.STEPS
    )
    run.fit(Module(account), common.loader(), ckpt_path="HEAD" if mode == "resumed" else None)
    account.write(state_of(run))


if __name__ == "__main__":
    main()
