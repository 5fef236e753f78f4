"""PyTorch Distributed Checkpoint (DCP): the storage writer `MdlWriter` and reader `MdlReader`.

    dcp.save({"model": model, "optim": optim}, storage_writer=MdlWriter("runs/gpt", step=step, metrics={"loss": loss}))
    dcp.load({"model": model, "optim": optim}, storage_reader=MdlReader("runs/gpt", "main~2"))

Every rank puts a shard of its own files, durably and in no version (`Repo.put_shard`); the coordinator joins them into
one commit when all ranks are done, and only that moves the branch. If a rank dies there is no commit, and `mdl gc`
collects what was put. All ranks must see the repository's directory. What rank 3 holds of the entry ``model`` is in
``model/rank-00003.safetensors``: whole tensors under their own names, parts as ``weight@256,0`` with their offset.
Names do not change from step to step, so each part is stored as what changed since the version before. What is no
tensor is in ``rank-00003.bytes``, as the planner pickled it.

A ``checkpoint_id`` (of `dcp.save`, `dcp.load`) is ``mdl://REPOSITORY@BRANCH``, or a branch's name alone; for loading it
is any revision. Always pass the writer or reader too: without it torch writes files of its own through fsspec.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ..commits import Commit, Staged
from ..errors import ConflictError, NotFoundError, UsageError
from ..reading import Reader
from ..repo import Repo
from . import _dcp_read, _dcp_write
from ._dcp_metadata import FILE, Blob, Chunk, from_json, to_json
from ._url import SCHEME, locate

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Written:
    """What a rank says of a part to the coordinator; ``staged`` is the part's file, said once, if it is in no shard."""

    place: Chunk | Blob
    staged: Staged | None


@dataclass(frozen=True)
class Turn:
    """What the coordinator tells a rank: under which name, and as which rank, it puts its shard."""

    session: str
    rank: int


#: Sessions that this process has put shards into. Planners that reuse plans bring old ones back.
_PUT: set[str] = set()


class MdlWriter(StorageWriter):
    """Saves into a repository; one writer for each save, or one for all with `step` and `metrics` set in between.

    ``repo`` is a `Repo`, a path, or ``mdl://REPOSITORY[@BRANCH]``. ``branch`` is made from HEAD's version if it is new;
    None is HEAD's. ``files`` are further files of the version, ``retention`` prunes the branch after it; all
    else is said of the version as in `Repo.commit`. The coordinator's arguments count.

    After a save, ``metadata.storage_meta.save_id`` of what `dcp.save` returns is the version's id, on every rank, and
    the coordinator's `commit` is the version. A rank needs host memory for one of its files at a time if its tensors
    are on a device. The writer can be pickled and goes to other processes, as `dcp.async_save` wants.
    """

    def __init__(
        self,
        repo: Repo | Path,
        *,
        message: str | None = None,
        step: int | None = None,
        epoch: float | None = None,
        metrics: Mapping[str, Any] | None = None,
        meta: Mapping[str, str] | None = None,
        branch: str | None = None,
        resumed_from: str | None = None,
        files: Mapping[str, Any] | None = None,
        retention: Any = None,
    ) -> None:
        self.repo, named = _open(repo)
        self.branch = branch or named
        self.message, self.step, self.epoch, self.metrics, self.meta = message, step, epoch, metrics, meta
        self.resumed_from, self.files, self.retention = resumed_from, files, retention
        self.checkpoint_id: str | None = None
        self.commit: Commit | None = None
        self._rank = 0
        self._session: str | None = None

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Starts a new save, to where ``checkpoint_id`` says (see the module) or to where the last one went."""
        self.commit, self._session = None, None
        if checkpoint_id is not None:
            self.repo, self.branch = _at(self.repo, checkpoint_id)
            self.checkpoint_id = str(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Learns this process's rank.

        Raises:
            UsageError: without collectives between the ranks, no rank can join what they write.
        """
        if not kwargs.get("use_collectives", True) and dist.is_initialized() and dist.get_world_size() > 1:
            raise UsageError("use_collectives=False makes no common version", "save with use_collectives=True")
        rank = kwargs.get("rank")
        self._rank = rank if rank is not None else dist.get_rank() if dist.is_initialized() else 0

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans, each with the name of this save's session; runs on the coordinator."""
        if len(plans) == 1:
            # There is no other rank to wait for: one commit of what was staged does.
            return plans
        self._session = _new_session()
        return [replace(plan, storage_data=Turn(self._session, rank)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Puts this rank's files. When it returns, they are durable, and in no version."""
        turn = plan.storage_data
        if not isinstance(turn, Turn) or turn.session in _PUT:
            turn = None
        results: list[WriteResult] = []
        shard: list[Staged] = []
        for path, items in _dcp_write.layout(plan, self._rank).items():
            content, parts = _dcp_write.content(path, items, planner)
            staged: Staged | None = self.repo.stage({path: content}, branch=self.branch)[0]
            # Frees this file's tensors before the next one's are loaded.
            del content
            if turn is not None:
                shard.append(staged)
                staged = None
            for item, (place, size) in zip(items, parts, strict=True):
                # A file in no shard is sent to the coordinator with its first part.
                results.append(WriteResult(item.index, size, Written(place, staged)))
                staged = None
        if turn is not None:
            _PUT.add(turn.session)
            self.repo.put_shard(turn.session, turn.rank, staged=shard, branch=self.branch)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Joins what all ranks put into one version and moves the branch; runs on the coordinator."""
        written = [r for of_rank in results for r in of_rank]
        metadata.storage_meta = StorageMeta(self.checkpoint_id)
        document = to_json(metadata, {r.index: r.storage_data.place for r in written})
        said: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch,
            "metrics": self.metrics,
            "meta": self.meta,
            "branch": self.branch,
            "resumed_from": self.resumed_from,
            "files": {**(self.files or {}), FILE: document},
            "retention": self.retention,
        }
        if len(results) == 1 and self._session is None:
            self.commit = self.repo.commit_staged(_staged(written), self.message, **said)
        else:
            session = self._session or _new_session()
            self._put_for_others(session, results)
            self.commit = self.repo.join_shards(session, len(results), self.message, **said)
        metadata.storage_meta.save_id = self.commit.id

    def _put_for_others(self, session: str, results: list[list[WriteResult]]) -> None:
        """Puts for ranks that were not told this session's name, since their planner reused a plan of an older one."""
        for rank, of_rank in enumerate(results):
            staged = _staged(of_rank)
            if staged or not of_rank:
                self.repo.put_shard(session, rank, staged=staged, branch=self.branch)

    def storage_meta(self) -> StorageMeta | None:
        """Returns the storage metadata for planners."""
        return StorageMeta(self.checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Whether it is a place in a repository, ``mdl://...``. Bare names of branches are taken but not claimed."""
        return _is_url(checkpoint_id)


class MdlReader(StorageReader):
    """Loads one version that `MdlWriter` made, for any number of ranks and any sharding.

    The version is looked up when the reader is made, so all parts come from one. Of each stored part only the rows that
    a rank needs are read, each once, with at most some hundred MB of memory beside the state. What is no tensor is
    unpickled by torch's planner: load only checkpoints that you trust.

    Raises:
        NotFoundError: no such revision, or no distributed checkpoint in it.
    """

    def __init__(self, repo: Repo | Path, rev: str | None = None) -> None:
        self.checkpoint_id: str | None = None
        self.repo, named = _open(repo)
        self._look_up(rev or named or "HEAD")

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Starts a new load, of the revision that ``checkpoint_id`` names, or of the same version again."""
        if checkpoint_id is not None:
            self.repo, rev = _at(self.repo, checkpoint_id)
            self.checkpoint_id = str(checkpoint_id)
            self._look_up(rev or "HEAD")

    def _look_up(self, rev: str) -> None:
        # Here, not in `read_metadata`, whose errors torch hides.
        self.id = self.repo._restored(rev)
        if FILE not in self.repo.files(self.id):
            raise NotFoundError(f"{rev} holds no distributed checkpoint", "load it with repo.load")
        self._document = self.repo.read(self.id, FILE)
        from_json(self._document)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Reads the checkpoint's metadata from the version."""
        metadata = from_json(self._document)
        metadata.storage_meta = replace(metadata.storage_meta or StorageMeta(), load_id=self.id)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Stores where the shards are."""
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan, with the version that this rank reads."""
        return replace(plan, storage_data=self.id)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans, if all ranks read one version.

        Raises:
            ConflictError: the branch moved while they looked.
        """
        if len({plan.storage_data for plan in plans}) > 1:
            raise ConflictError("the ranks found different versions", "pass the id of a version, or a tag")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fills this rank's tensors."""
        _dcp_read.read(Reader(self.repo._read, self.id), plan.items, self._places, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """As for the writer."""
        return _is_url(checkpoint_id)


def _staged(results: list[WriteResult]) -> list[Staged]:
    """The files that are in no shard."""
    return [r.storage_data.staged for r in results if r.storage_data.staged is not None]


def _new_session() -> str:
    return f"dcp/{uuid.uuid4().hex}"


# Locations.


def _is_url(checkpoint_id: Any) -> bool:
    return isinstance(checkpoint_id, str) and checkpoint_id.startswith(SCHEME)


def _open(repo: Repo | Path) -> tuple[Repo, str | None]:
    if isinstance(repo, Repo):
        return repo, None
    if not _is_url(repo):
        return Repo.open(repo), None
    place = locate(repo)
    if place.inner:
        raise UsageError(f"{repo} is a place inside a version", "write mdl://REPOSITORY@BRANCH")
    return Repo.open(place.root), place.rev


def _at(repo: Repo, checkpoint_id: Path) -> tuple[Repo, str | None]:
    """The repository and the branch or revision of a checkpoint id."""
    if _is_url(checkpoint_id):
        return _open(checkpoint_id)
    if not isinstance(checkpoint_id, str):
        raise UsageError(f"{checkpoint_id} is no checkpoint of mdl's", "give a branch, a revision, or mdl://...")
    return repo, checkpoint_id
