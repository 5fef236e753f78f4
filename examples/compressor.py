"""A small convolutional net on scikit-learn's digits, trained in Listing 1's loop, its checkpoints committed lossily.

python examples/compressor.py [DIRECTORY]
"""

import sys
import tempfile

import mdl
import torch
from sklearn.datasets import load_digits
from torch import nn

EVERY, STEPS = 50, 200


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images of 8 x 8, values 0 to 1, and what they show."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # The net is too small to be shared out.
    images, labels = digits()
    train, held_out = slice(0, 1400), slice(1400, None)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    def accuracy() -> float:
        return (model(images[held_out]).argmax(1) == labels[held_out]).double().mean().item()

    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="mdl-digits-")
    compressor = mdl.Compressor(
        model, accuracy, repo=where, threshold=0.05, higher_is_better=True, search="guided",
        optimizer=optimizer, scheduler=scheduler, interval=EVERY,
    )  # fmt: skip
    for step in range(1, STEPS + 1):
        batch = torch.randint(0, 1400, (64,))
        compressor.before_gradient_flush()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[train][batch]), labels[train][batch])
        loss.backward()
        compressor.on_backward_pass_end()
        optimizer.step()
        scheduler.step()
        if step % EVERY == 0:
            compressor.compress(step, metrics={"loss": loss.item()})

    print(f"{where}: {'step':>6} {'loss':>7} {'exact':>7} {'stored':>7}  configuration")
    for commit in reversed(compressor.repo.log()):
        found = commit.quality
        print(
            f"{commit.short_id} {commit.step:6} {commit.metrics['loss']:7.4f} {found['exact']:7.4f} "
            f"{found['measured']:7.4f}  {found['configuration']} ({found['evaluations']} evaluations, "
            f"{commit.logical_bytes / 1e6:.2f} -> {commit.stored_bytes / 1e6:.2f} MB)"
        )


if __name__ == "__main__":
    main()
