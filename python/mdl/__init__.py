"""mdl: git for model checkpoints, inside the training loop.

    repo = mdl.Repo.init("runs/gpt")
    state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "rng": mdl.rng_state()}
    repo.commit(state, step=step, metrics={"loss": loss})
state = repo.load("main@best(loss)")

Importing this imports no framework.
"""

from typing import TYPE_CHECKING, Any

from . import retention
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
from .reading import LazyTensor
from .repo import Repo
from .rng import rng_state, set_rng_state
from .state import register

if TYPE_CHECKING:
    from .compressor import Compressor as Compressor
    from .probe import Probe as Probe

__all__ = [
    "BackgroundError",
    "CheckedOut",
    "Commit",
    "ConflictError",
    "CorruptError",
    "FileDiff",
    "FileInfo",
    "FullError",
    "LazyTensor",
    "MdlError",
    "NotFoundError",
    "PendingCommit",
    "PruneReport",
    "Repo",
    "Session",
    "Shard",
    "Staged",
    "StateError",
    "StorageError",
    "TensorDiff",
    "TensorInfo",
    "UsageError",
    "UserError",
    "__version__",
    "register",
    "retention",
    "rng_state",
    "set_device",
    "set_rng_state",
]


def __getattr__(name: str) -> Any:
    # They work on torch's modules; who does not name them need not have torch.
    if name == "Compressor":
        from .compressor import Compressor

        return Compressor
    if name == "Probe":
        from .probe import Probe

        return Probe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
