"""Repositories for power cut tests: one with a work tree, one to push to, a server's, a partial one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import makers
from .cli import Mdl
from .server import Server, create_token
from .tensors import Tensor, write_safetensors

SERVED = "ada/gpt"
MINE = "written by a user, in no version\n"
WIDTH = 256
RUNS = (8, 9, 10)


def write_version(folder: Path, n: int) -> Path:
    """A checkpoint whose weights drift with n; one file never changes, one is like no other, one has a new name."""
    values = makers.random_f32((WIDTH, WIDTH), 1)
    for seed in range(n):
        values = (values + np.float32(1e-4) * makers.random_f32((WIDTH, WIDTH), 100 + seed)).astype(np.float32)
    bias = makers.random_f32((WIDTH,), n)
    write_safetensors(folder / "model.safetensors", [Tensor.of("weight", values), Tensor.of("bias", bias)])
    write_safetensors(folder / "embed.safetensors", [Tensor.of("embed", makers.random_f32((64, 64), 7))])
    noise = np.random.default_rng(n).integers(0, 256, 90_000 + 4096 * n, dtype=np.uint8)
    write_safetensors(folder / "sub" / "noise.safetensors", [Tensor.of("noise", noise)])
    (folder / "config.json").write_text(f'{{"version": {n}}}\n')
    (folder / f"only-{n}.txt").write_text(f"only version {n} has this\n" * (n + 1))
    return folder


@dataclass(frozen=True)
class Site:
    """The disk, and what is elsewhere and needs no power."""

    root: Path
    elsewhere: Path
    acknowledged: Callable[[str], None] = lambda _: None
    """Called with each commit that a step says it has made before it is over."""

    def at(self, name: str) -> Mdl:
        return Mdl(self.root / name)

    @property
    def repo(self) -> Mdl:
        return self.at("repo")

    @property
    def origin(self) -> Mdl:
        return Mdl(self.elsewhere / "origin")

    def version(self, n: int) -> Path:
        """The folder of a checkpoint's bytes."""
        folder = self.elsewhere / "versions" / str(n)
        return folder if folder.is_dir() else write_version(folder, n)

    def run(self, *args: str | Path, **options: Any) -> None:
        self.repo.run(*args, **options)

    def server(self) -> Server:
        log = self.elsewhere / "server.log"
        return Server(self.root / "served", log=log, token=(self.elsewhere / "token").read_text())


def build(site: Site) -> None:
    """What is on the disk before any verb: three versions on main, another branch, garbage, a file of the user's."""
    site.elsewhere.mkdir(exist_ok=True)
    origin = Mdl.init(site.elsewhere / "origin", "--bare")
    for n in (1, 2):
        origin.commit(site.version(n), f"v{n}", "--step", str(n), "--metric", f"loss={1 / n}")
    for name in ("repo", "bare", f"served/{SERVED}"):
        (site.root / name).parent.mkdir(parents=True, exist_ok=True)
        plain = [] if name == "repo" else ["--bare"]
        origin.run("clone", *plain, origin.repo, site.root / name, repo_flag=False)
    origin.run("branch", "dev")
    origin.commit(site.version(3), "v3", "--step", "3")
    origin.commit(site.version(4), "v4", "--branch", "dev", "--step", "4")
    origin.run("clone", "--only", "config.json", origin.repo, site.root / "some", repo_flag=False)
    site.run("pull")
    site.run("fetch")
    site.run("branch", "dev", "origin/dev")
    site.run("tag", "first", "main~2")
    site.repo.commit(site.version(5), "v5", "--branch", "gone")
    site.repo.commit(site.version(6), "v6", "--branch", "gone")
    site.run("branch", "-D", "gone")
    site.run("config", "gc.reflog_days", "0")
    origin.commit(site.version(7), "v7", "--step", "7")
    origin.run("tag", "seventh", "-m", "a tag's own object")
    (site.repo.repo / "mine.txt").write_text(MINE)
    (site.elsewhere / "token").write_text(create_token(site.root / "served"))
    source = site.root / "runs"
    for n in RUNS:
        shutil.copytree(site.version(n), source / f"checkpoint-{n}")
    shutil.copytree(source, site.elsewhere / "runs")
