"""Fixtures: repositories for servers to serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .cli import Mdl
from .tensors import Tensor, write_safetensors


def fill(root: Path, name: str, mark: str) -> Mdl:
    """A repository of two versions, the mark in everything."""
    mdl = Mdl.init(root / name, "--bare")
    folder = root.parent / "folder" / name
    for step in (1, 2):
        values = np.arange(512, dtype=np.float32) + step
        write_safetensors(folder / "model.safetensors", [Tensor.of(f"{mark}.weight", values)], {"format": "pt"})
        (folder / "README.md").write_text(f"# {mark}\n")
        (folder / f"{mark}.txt").write_text(mark * 3)
        mdl.commit(folder, f"{mark} {step}", "--step", str(step), "--metric", f"{mark}={step}")
    return mdl
