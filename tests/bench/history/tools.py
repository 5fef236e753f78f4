"""Repositories of the tools that are measured: mdl, git-lfs, DVC."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from report import GIT_LFS, peer_python
from support.cli import binary, tree_size


def run(argv: Sequence[str | Path], cwd: Path, **env: str) -> str:
    every = {**os.environ, **env}
    done = subprocess.run([str(a) for a in argv], cwd=cwd, capture_output=True, text=True, env=every, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed: {done.stderr}")
    return done.stdout


def timed(step: Callable[[], object]) -> float:
    """Seconds of a step, after everything before it is on disk."""
    os.sync()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


class Tool:
    """A repository that commits `files` in its directory; `checkout(BACK)` brings back what was BACK commits ago."""

    def __init__(self, root: Path, files: Sequence[str], *, new: bool = True) -> None:
        self.root, self.files = root, files
        if new:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            self.init()

    def init(self) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def checkout(self, back: int) -> None:
        raise NotImplementedError


class Mdl(Tool):
    program = binary()
    arguments: tuple[str, ...] = ()
    """What `mdl commit` is given."""

    def init(self) -> None:
        run([self.program, "init"], self.root)

    def commit(self) -> None:
        run([self.program, "commit", "-q", "-m", "x", *self.arguments], self.root)

    def checkout(self, back: int) -> None:
        run([self.program, "checkout", "-q", f"main~{back}", "--force"], self.root)

    def stored(self) -> int:
        return tree_size(self.root / ".mdl" / "packs")

    def cache(self) -> int:
        cache = self.root / ".mdl" / "cache"
        return tree_size(cache) if cache.exists() else 0

    def drop_cache(self) -> None:
        shutil.rmtree(self.root / ".mdl" / "cache", ignore_errors=True)


class GitLfs(Tool):
    """Leaves the bytes to the page cache, so that its file system is synced after it."""

    def init(self) -> None:
        for argv in GIT_LFS:
            run(argv, self.root)

    def commit(self) -> None:
        run(["sh", "-c", f"git add {' '.join(self.files)} && git commit -q -m x && sync -f ."], self.root)

    def checkout(self, back: int) -> None:
        run(["sh", "-c", f"git checkout -q HEAD~{back} -- {' '.join(self.files)} && sync -f ."], self.root)

    def stored(self) -> int:
        return tree_size(self.root / ".git" / "lfs")


class Dvc(Tool):
    """As git-lfs; its files of pointers are kept here."""

    def init(self) -> None:
        self.program = peer_python("dvc", ["dvc==3.67.1"]).parent / "dvc"
        self.pointers: list[dict[str, bytes]] = []
        for argv in (["init", "--no-scm", "-q"], ["config", "core.analytics", "false"]):
            self.dvc(*argv)

    def dvc(self, *argv: str) -> None:
        run([self.program, *argv], self.root, DVC_NO_ANALYTICS="1", DVC_SITE_CACHE_DIR=str(self.root / "site"))

    def commit(self) -> None:
        self.dvc("add", "-q", *self.files)
        run(["sync", "-f", "."], self.root)
        self.pointers.append({file: (self.root / f"{file}.dvc").read_bytes() for file in self.files})

    def checkout(self, back: int) -> None:
        for file, pointer in self.pointers[-1 - back].items():
            (self.root / f"{file}.dvc").write_bytes(pointer)
        self.dvc("checkout", "-q", "--force")
        run(["sync", "-f", "."], self.root)
