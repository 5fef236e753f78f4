"""mdl: git for model checkpoints, inside the training loop.

    repo = mdl.Repo("runs/gpt", create=True)
    state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "rng": mdl.rng_state()}
    repo.commit(state, step=step, metrics={"loss": loss})
    state = repo.load("main@best(loss)")

Importing this imports no framework.
"""

from typing import TYPE_CHECKING

from . import retention as retention
from ._native import __version__, set_device
from .background import PendingCommit
from .commits import (
    CheckedOut,
    Commit,
    FileDiff,
    FileInfo,
    PruneReport,
    Session,
    Shard,
    Staged,
    TensorDiff,
    TensorInfo,
)
from .errors import (
    BackgroundError,
    ConflictError,
    CorruptError,
    FullError,
    MdlError,
    NotFoundError,
    StateError,
    StorageError,
    UsageError,
    UserError,
)
from .history import Diff, Log
from .merging import Merged
from .reading import LazyTensor
from .repo import Repo
from .reports import (
    Affected,
    CompactReport,
    Fetched,
    FsckReport,
    GcReport,
    Problem,
    Pulled,
    Pushed,
    RefMove,
    Replayed,
    Reset,
    Stats,
    Verified,
)
from .rng import rng_state, set_rng_state
from .state import register

if TYPE_CHECKING:
    from . import nn as nn
    from .compressor import Compressor as Compressor
    from .palettizer import Palettizer as Palettizer
    from .palettizer import palettize as palettize
    from .probe import Probe as Probe

__all__ = [
    "Affected",
    "BackgroundError",
    "CheckedOut",
    "Commit",
    "CompactReport",
    "ConflictError",
    "CorruptError",
    "Diff",
    "Fetched",
    "FileDiff",
    "FileInfo",
    "FsckReport",
    "FullError",
    "GcReport",
    "LazyTensor",
    "Log",
    "MdlError",
    "Merged",
    "NotFoundError",
    "PendingCommit",
    "Problem",
    "PruneReport",
    "Pulled",
    "Pushed",
    "RefMove",
    "Replayed",
    "Repo",
    "Reset",
    "Session",
    "Shard",
    "Staged",
    "StateError",
    "Stats",
    "StorageError",
    "TensorDiff",
    "TensorInfo",
    "UsageError",
    "UserError",
    "Verified",
    "__version__",
    "clone",
    "init",
    "register",
    "rng_state",
    "set_device",
    "set_rng_state",
]


#: `mdl.init(path)` makes a repository, `mdl.clone(url, path)` copies one from another place.
init = Repo.init
clone = Repo.clone

#: They work on torch's modules; who does not name them need not have torch.
_LAZY = {"Compressor": "compressor", "Palettizer": "palettizer", "Probe": "probe", "palettize": "palettizer"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "nn":
        return import_module(".nn", __name__)
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY, "integrations", "nn", "retention"])
