"""Fixtures: repositories for servers to serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .cli import Mdl
from .server import Server
from .tensors import Tensor, safetensors_bytes, write_safetensors

REPO = "/api/v1/repos/ada/gpt"
COMMITS = f"{REPO}/commits"
HUB = "/api/models/ada/gpt"
LFS = "/ada/gpt.git/info/lfs"


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


def checkpoint(seed: int, elements: int = 4096) -> bytes:
    """A safetensors file with one tensor of noise."""
    values = np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
    return safetensors_bytes([Tensor.of("weight", values)], {"format": "pt"})


def new_root(top: Path) -> Mdl:
    """The repository ada/gpt with one version, below top/root."""
    mdl = Mdl.init(top / "root" / "ada/gpt", "--bare")
    write_safetensors(
        top / "first" / "model.safetensors", [Tensor.of("weight", np.zeros(4096, np.float32))], {"format": "pt"}
    )
    mdl.commit(top / "first", "first", "--step", "0")
    return mdl


def state_dir(root: Path) -> Path:
    """The server's own directory."""
    return root / ".mdl-serve"


def left_behind(root: Path) -> list[str]:
    """Files of unfinished transfers: parts of requests, and uploads under way."""
    places = [state_dir(root) / place for place in ("spool", "repos")]
    return sorted(str(p.relative_to(root)) for place in places for p in place.rglob("*") if p.is_file())


def ids(server: Server, rev: str = "main") -> list[str]:
    """The versions that ada/gpt's log lists."""
    listed = server.get(f"{REPO}/log?rev={rev}&limit=1000").json()
    return [c["commit"] for c in listed["commits"]]
