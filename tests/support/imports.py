"""What tests of `mdl import` share: git, ids by which other tools know contents, and what was imported."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from . import makers
from .cli import OK, Mdl

GIT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *args: str, date: str = "1700000000 +0130") -> str:
    env = os.environ | GIT | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imported(mdl: Mdl, *args: str | Path, code: int = OK) -> Any:
    return mdl.json("import", *args, code=code)


def history(mdl: Mdl, branch: str = "main") -> list[dict[str, Any]]:
    """Oldest first."""
    return list(reversed(mdl.log(branch)))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def weights(seed: int, tmp_path: Path) -> bytes:
    folder = makers.write_small_checkpoint(tmp_path / f"weights-{seed}", seed)
    return (folder / "model.safetensors").read_bytes()
