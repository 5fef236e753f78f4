"""Which program and which packages made a result."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import torch


def digest(file: Path) -> str:
    made = hashlib.sha256()
    with open(file, "rb") as stream:
        while part := stream.read(1 << 20):
            made.update(part)
    return made.hexdigest()


def version(binary: str) -> str:
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout.strip()


def made_with(binary: str) -> dict[str, str]:
    """The texts that the tasks train on come with Python, so its version counts as well."""
    return {
        "mdl": version(binary),
        "mdl_sha256": digest(Path(shutil.which(binary) or binary)),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch.__version__,
    }
