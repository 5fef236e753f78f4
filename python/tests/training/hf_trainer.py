"""A tiny GPT-2 under Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import torch
from mdl.integrations.transformers import MdlCallback, resume_from_mdl
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    """256 sequences of 12 tokens."""

    def __init__(self) -> None:
        self._tokens = torch.randint(0, 32, (common.SAMPLES, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return common.SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


class Losses(TrainerCallback):
    """Notes the loss of every step."""

    def __init__(self, account: common.Account) -> None:
        self._account = account

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "loss" in logs:
            self._account.step(state.global_step, logs["loss"])


def build(
    output: Path, steps: int, save_steps: int, callbacks: list[TrainerCallback], evaluated: Any = None, **options: Any
) -> Trainer:
    """The trainer: dropout 0.1, AdamW, warm-up and decay."""
    args = TrainingArguments(
        output_dir=str(output), max_steps=steps, per_device_train_batch_size=common.BATCH, learning_rate=1e-3, seed=7,
        warmup_steps=10, logging_steps=1, save_strategy="steps" if save_steps else "no", save_steps=save_steps or 500,
        save_total_limit=2, use_cpu=True, report_to=[], disable_tqdm=True, **options,
    )  # fmt: skip
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 16, "vocab_size": 32}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    return Trainer(model, args, train_dataset=Tokens(), eval_dataset=evaluated, callbacks=callbacks)


def main() -> None:
    mode, path, account = common.arguments()
    common.seed(7 if mode != "resumed" else 99)
    saving = [] if mode == "straight" else [MdlCallback(path)]
    output = Path(path).with_name(f"output-{mode}")
    trainer = build(output, common.STEPS, common.COMMIT_EVERY if saving else 0, [*saving, Losses(account)])
    if mode == "resumed":
        resume_from_mdl(trainer, path)
    else:
        trainer.train()
    account.write({
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
    })  # fmt: skip


if __name__ == "__main__":
    main()
