"""Accelerate: commits what `accelerator.save_state` writes, and loads it back.

Talks to an `Accelerator` and to `Repo`. What Accelerate writes stays Accelerate's business: its files are committed and
brought back byte for byte. Where it pickles (optimizers, registered objects), the files are stored tensor by tensor all
the same, and are as trustworthy as who wrote them.

    save_state(accelerator, "runs", step=step, metrics={"loss": loss})
    step = load_state(accelerator, "runs").step
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from ..repo import Repo
from ._checkpoints import RepoLike, existing_repo, find_repo, scratch_parent, scratch_prefix


def save_state(
    accelerator: Accelerator,
    repo: RepoLike = None,
    message: str | None = None,
    *,
    retention: Any = None,
    wait: bool = False,
    safe_serialization: bool = True,
    **commit: Any,
) -> Any:
    """Commits everything that `accelerator.save_state` writes: models, optimizers, schedulers, random states,
    registered objects. Every process calls it; they must see one file system.

    A `mdl.data.ResumableLoader` that is registered with `accelerator.register_for_checkpointing` brings the data order.
    `retention`: rules of `mdl.retention`, applied once the version is durable. `commit`: keywords of
    `Repo.commit_dir` (step, epoch, metrics, policy, branch, ...).

    Returns the commit (`wait`) or the pending commit on the main process, None on the others.
    """
    target = find_repo(repo) if accelerator.is_main_process else None
    with _shared_folder(accelerator, target) as folder:
        accelerator.save_state(folder, safe_serialization=safe_serialization)
        accelerator.wait_for_everyone()
        if target is None:
            return None
        return target.commit_dir(folder, message, wait=wait, retention=retention, **commit)


def load_state(accelerator: Accelerator, repo: RepoLike = None, rev: str = "HEAD", **load: Any) -> Any:
    """Brings everything that was prepared and registered back to `rev`; returns that commit, whose `step` and `epoch`
    say where to go on. Every process calls it. `load`: keywords of `accelerator.load_state`.

    Raises NotFoundError if there is no such version.
    """
    source = existing_repo(repo)
    with _folder(source) as folder:
        source.checkout(rev, folder, force=True)
        accelerator.load_state(folder, **load)
    return source.show(rev)


@contextmanager
def _folder(repo: Repo) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix=scratch_prefix(), dir=scratch_parent(repo))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _shared_folder(accelerator: Accelerator, repo: Repo | None) -> Iterator[str]:
    """One empty folder for all processes, made and removed by the main one, which alone has the repository open."""
    made = tempfile.mkdtemp(prefix=scratch_prefix(), dir=scratch_parent(repo)) if repo is not None else None
    # Accelerate changes the list in place; with one process it does not.
    names = [made]
    broadcast_object_list(names)
    folder = names[0]
    assert folder is not None
    try:
        yield folder
    finally:
        if made is not None:
            shutil.rmtree(Path(made), ignore_errors=True)
