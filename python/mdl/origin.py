"""Who signs a version, and where it says that it comes from: code, command, environment, data sets."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Mapping

from . import _native

#: Packages whose versions are said, where the process has imported them.
PACKAGES = (
    "numpy", "torch", "jax", "tensorflow", "keras", "transformers", "accelerate", "datasets", "lightning", "deepspeed",
    "safetensors", "tokenizers", "peft", "trl", "timm", "composer",
)  # fmt: skip

Provenance = bool | Mapping[str, str | os.PathLike[str]]
Sign = bool | str | os.PathLike[str]


def captured(provenance: Provenance | None) -> str | None:
    """The record of this process, as a commit has it; None: not asked for.

    It is made once for the same data sets: the code is what it was when it was loaded.

    Raises:
        UserError: a data set cannot be read.
    """
    if provenance is None or provenance is False:
        return None
    sets = {} if provenance is True else provenance
    return _captured(tuple(f"{name}={os.fspath(place)}" for name, place in sets.items()))


@functools.lru_cache(maxsize=8)
def _captured(datasets: tuple[str, ...]) -> str:
    packages = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        if name in sys.modules:
            try:
                packages[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return _native.capture_provenance(list(sys.orig_argv), packages, _devices(), list(datasets))


def _devices() -> list[str]:
    torch = sys.modules.get("torch")
    # To ask would set CUDA up.
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]


def signing(sign: Sign | None) -> str | None:
    """What signs, as the native half takes it: None, as the settings say; "", nothing; "configured", or a key."""
    if sign is None:
        return None
    if isinstance(sign, bool):
        return "configured" if sign else ""
    return os.fspath(sign)
