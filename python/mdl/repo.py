"""`mdl.Repo`: commits states from the training loop, and loads any version."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import html
from ._native import Arena, File, clone_url
from ._native import Repo as Native
from .aside import copied, linked
from .background import PendingCommit, Worker
from .bars import Progress, shown
from .commits import Commit, Session, Shard, Staged
from .containers import extra_files, files_of, one_file
from .devices import taking
from .errors import ConflictError, MdlError, NotFoundError
from .fields import lossy_options
from .handle import Handle, made, opened
from .labels import label_of
from .merging import Merging
from .origin import Provenance, Sign
from .retention import Rule, steps
from .room import with_room
from .state import encode
from .tracking import Tracked
from .upkeep import Upkeep
from .versions import Versions

Path = str | os.PathLike[str]
#: In a forked child: objects of the parent, kept alive.
_PARENTS: list[Any] = []
#: How often a commit is retried on top of a concurrent writer's.
_TRIES = 20


class Repo(Versions, Merging, Upkeep, Tracked):
    """A repository, for use inside a training loop.

    `commit` takes a snapshot of the state before it returns, and stores it in the background; `flush` waits. Reading
    verbs first wait for this object's own commits. It may be used from several threads, and is opened anew in a forked
    child, which does not make the commits that its parent had under way.
    """

    def __init__(self, path: Path = ".", *, create: bool = False, pending: int = 2) -> None:
        """Opens the repository at ``path`` or around it, or at a bucket's URL, such as ``s3://BUCKET/PREFIX``;
        ``create`` makes the one that is not there, in ``path/.mdl``.

        ``pending`` is how many snapshots may wait in memory, each as large as the state; one more makes `commit` wait.

        Raises:
            NotFoundError: there is none.
        """
        self._begin(_handle(path, create), pending)

    def _begin(self, handle: Handle, pending: int) -> None:
        self._handle, self._pending = handle, pending
        self._arena = Arena()
        self._worker = Worker(pending)
        self._begin_tracking()
        handle.owner(self)

    @classmethod
    def _of(cls, handle: Handle, pending: int = 2) -> Repo:
        repo = cls.__new__(cls)
        repo._begin(handle, pending)
        return repo

    @classmethod
    def init(cls, path: Path = ".", *, bare: bool = False, branch: str = "main", pending: int = 2) -> Repo:
        """Makes a repository in ``path/.mdl`` (``bare``: in ``path`` itself), or opens the one that is there.
        `mdl.init` is the same."""
        return cls._of(Handle(made(os.fspath(path), bare, branch)), pending)

    @classmethod
    def open(cls, path: Path = ".", *, pending: int = 2) -> Repo:
        """As ``Repo(path)``."""
        return cls(path, pending=pending)

    @classmethod
    def clone(
        cls,
        source: Path,
        path: Path | None = None,
        *,
        branch: str | None = None,
        bare: bool = False,
        checkout: bool = True,
        depth: int | None = None,
        only: str | Iterable[str] | None = None,
        progress: Progress = None,
    ) -> Repo:
        """Makes a repository from another place (a directory, a bucket, a server's repository) and opens it;
        `mdl.clone` is the same.

        ``path`` is the directory to make (default: the last part of ``source``). The files of ``branch`` (default: the
        one that is present there) are written unless ``checkout`` is False; the place is noted as ``origin``. With
        ``depth`` (contents of so many generations) or ``only`` (globs for files, or ``FILE:TENSOR``) the rest is
        fetched when it is read. A clone that was cut off goes on when it is made again.
        """
        globs = [only] if isinstance(only, str) else list(only or ())
        to = None if path is None else os.fspath(path)
        with shown(progress) as show:
            done = clone_url(os.fspath(source), to, branch, bare, checkout, depth, globs, show)
        return cls(done["dir"])

    @property
    def path(self) -> pathlib.Path:
        """The repository's own directory."""
        return pathlib.Path(self._native.dir)

    @property
    def work(self) -> pathlib.Path | None:
        """The work tree; None for a bare repository."""
        work = self._native.work
        return None if work is None else pathlib.Path(work)

    # Commits.

    def commit(
        self,
        state: Any,
        message: str | None = None,
        *,
        step: int | None = None,
        epoch: float | None = None,
        metrics: Mapping[str, Any] | None = None,
        meta: Mapping[str, str] | None = None,
        branch: str | None = None,
        policy: str | None = None,
        quality: float | None = None,
        progress: float | None = None,
        evaluate: Callable[[pathlib.Path], float] | None = None,
        higher_is_better: bool = False,
        grads: Path | None = None,
        since: Path | None = None,
        resumed_from: str | None = None,
        resume: str | None = None,
        files: Mapping[str, Any] | None = None,
        retention: Rule | Iterable[Rule] | None = None,
        provenance: Provenance | None = None,
        sign: Sign | None = None,
        allow_empty: bool = True,
        wait: bool = False,
    ) -> Any:
        """Makes a version of a state; with ``wait`` returns it as a `Commit`, else a `PendingCommit` after the snapshot
        was taken.

        ``state`` is a nested dict (or list, tuple, ...) of tensors, arrays, numbers, strings and bytes. Each top-level
        entry's tensors become ``<entry>.safetensors``, tensors at the top ``model.safetensors``, everything else
        ``state.json``.

        ``step``, ``epoch`` (possibly a fraction), ``metrics`` (name -> number) and ``meta`` (name -> text) are said of
        the version; ``branch`` is made from HEAD's version if it is new; ``files`` are further files of the version
        (path -> bytes, text, a `pathlib.Path`, or a flat dict of tensors).

        ``policy`` (docs/policies.md) lets weights be stored lossily: exactly while the version is new, as the
        approximation that was judged when it has aged. ``evaluate(directory)`` measures a candidate,
        whose files lie in ``directory``; it runs on the calling thread, so such a commit is made before this returns.
        The exact checkpoint comes first. An object with ``evaluate_all(directories)`` and a ``width`` gets up to that
        many at a time and gives a list of numbers.
        ``quality`` or ``progress`` replace the policy's gate. ``grads`` is a safetensors file with the gradients'
        moving average. ``since`` is an earlier checkpoint of the run on disk (a directory of files of the same names,
        or the only file), whose distance says how close a first version has to be. ``resumed_from`` is the revision
        that training was restored from. ``resume`` is the version's label in `mdl log`: ``"exact-resume"``,
        ``"approximate"`` or ``"weights-only"``; without it the state's entries decide.

        ``provenance`` says with the version which code, command and environment it comes from: ``True``, or its data
        sets (name -> file, directory or address; docs/provenance.md). ``sign`` signs it with the SSH key of this file,
        or (``True``) of the settings; without it the settings decide.

        Raises:
            StateError: a value cannot be stored.
            BackgroundError: an earlier commit in the background failed.
            ConflictError, StorageError, ...: this one did; raised here with ``wait``, else by the `PendingCommit` or
            the next call.
        """
        self._worker.check()
        said = (message, step, epoch, metrics, meta, branch, allow_empty, resumed_from)
        fields = self._fields(*said, provenance, sign)
        fields["resume"] = resume or label_of(state)
        lossy = lossy_options(policy, quality, progress, higher_is_better, grads, since, evaluate)
        if evaluate is not None or wait:
            with taking(aside=False) as devices:
                made = files_of(encode(state)) + extra_files(files)
            devices.wait()
            commit = self._make(fields, lossy, evaluate, made, None, retention)
            return commit if wait else PendingCommit.made(commit)
        return self._later(fields, lossy, state, files, retention)

    def commit_dir(
        self,
        path: Path,
        message: str | None = None,
        *,
        step: int | None = None,
        epoch: float | None = None,
        metrics: Mapping[str, Any] | None = None,
        meta: Mapping[str, str] | None = None,
        branch: str | None = None,
        policy: str | None = None,
        quality: float | None = None,
        progress: float | None = None,
        evaluate: Callable[[pathlib.Path], float] | None = None,
        higher_is_better: bool = False,
        grads: Path | None = None,
        since: Path | None = None,
        resumed_from: str | None = None,
        retention: Rule | Iterable[Rule] | None = None,
        provenance: Provenance | None = None,
        sign: Sign | None = None,
        allow_empty: bool = True,
        wait: bool = True,
    ) -> Any:
        """Makes a version of the files in a directory, as a framework wrote them; everything else as `commit`.

        Without ``wait`` the files are first hard-linked aside, so that a framework's checkpoint rotation cannot delete
        them too early; they must not be written to in place.
        """
        self._worker.check()
        said = (message, step, epoch, metrics, meta, branch, allow_empty, resumed_from)
        fields = self._fields(*said, provenance, sign)
        lossy = lossy_options(policy, quality, progress, higher_is_better, grads, since, evaluate)
        if wait or evaluate is not None:
            commit = self._make(fields, lossy, evaluate, None, os.fspath(path), retention)
            return commit if wait else PendingCommit.made(commit)
        with self._worker.room() as handed:
            links = linked(self.path, path)
            if links is None:
                return PendingCommit.made(self._make(fields, lossy, None, None, os.fspath(path), retention))
            pending = PendingCommit(step, branch)
            fields["background"] = True

            def work() -> Commit:
                try:
                    return self._make(fields, lossy, None, None, links, retention, flushed=True)
                finally:
                    shutil.rmtree(links, ignore_errors=True)

            self._worker.hand_over(handed, pending, work)
        return pending

    def _later(
        self,
        fields: dict[str, Any],
        lossy: dict[str, Any] | None,
        state: Any,
        files: Mapping[str, Any] | None,
        retention: Rule | Iterable[Rule] | None,
    ) -> PendingCommit:
        pending = PendingCommit(fields["step"], fields["branch"])
        fields["background"] = True
        # The slot first: copies to the host count too.
        with self._worker.room() as handed, contextlib.ExitStack() as aside:
            with taking(aside=True) as devices:
                made = files_of(encode(state)) + extra_files(copied(self.path, files, aside))
            box = [self._arena.snapshot(made)]
            del made
            kept = aside.pop_all()

            def work() -> Commit:
                with kept:
                    devices.wait()
                    return self._make(fields, lossy, None, box.pop(), None, retention, flushed=True)

            self._worker.hand_over(handed, pending, work)
        return pending

    def _make(
        self,
        fields: dict[str, Any],
        lossy: dict[str, Any] | None,
        evaluate: Callable[[pathlib.Path], float] | None,
        files: list[File] | None,
        source: str | None,
        retention: Rule | Iterable[Rule] | None = None,
        *,
        flushed: bool = False,
    ) -> Commit:
        if not flushed:
            # Commits to a branch are made in the order of the calls.
            self.flush()
        if lossy is None:
            commit = self._make_exactly(fields, files, source)
        else:
            made = with_room(self._native, lambda: self._native.commit_lossy(fields, lossy, files, source, evaluate))
            commit = Commit.told(made)
            for problem in (commit.quality or {}).get("warnings", []):
                warnings.warn(f"{commit.short_id}: {problem}", RuntimeWarning, stacklevel=3)
        self._note(commit, fields)
        if not flushed:
            self._tell()
        if retention is not None:
            self._prune_after(commit, retention)
        return commit

    def _prune_after(self, commit: Commit, retention: Rule | Iterable[Rule]) -> None:
        try:
            for rule in steps(retention):
                self._native.prune(json.dumps(rule.to_json()), commit.branch, False, rule.level)
        except MdlError as error:
            # The version is durable and nothing was pruned: no error for the caller.
            warnings.warn(f"{commit.short_id} is stored, but pruning failed: {error}", RuntimeWarning, stacklevel=2)

    def _make_exactly(self, fields: dict[str, Any], files: list[File] | None, source: str | None) -> Commit:
        return _on_top(lambda: Commit.told(with_room(self._native, lambda: self._native.commit(fields, files, source))))

    def stage(self, files: Mapping[str, Any], *, branch: str | None = None) -> list[Staged]:
        """Stores files durably without making a version of them: path -> bytes, text, a `pathlib.Path`, or a flat dict
        of tensors.

        Each rank of a sharded save stages its own; the results can be pickled and sent to the one that calls
        `commit_staged`. What is never joined is collected by `mdl gc`.
        """
        with taking(aside=False) as devices:
            made = [one_file(rel, content) for rel, content in files.items()]
        devices.wait()
        words = with_room(self._native, lambda: self._native.stage(made, branch))
        return [Staged(f.rel, text) for f, text in zip(made, words, strict=True)]

    def staged(self, rev: str = "HEAD") -> list[Staged]:
        """The files of a version, to be joined into another one without being read: `commit_staged` takes them."""
        return [Staged(path, words) for path, words in self._read.stored(rev)]

    def commit_staged(
        self,
        staged: Iterable[Staged],
        message: str | None = None,
        *,
        step: int | None = None,
        epoch: float | None = None,
        metrics: Mapping[str, Any] | None = None,
        meta: Mapping[str, str] | None = None,
        branch: str | None = None,
        resumed_from: str | None = None,
        files: Mapping[str, Any] | None = None,
        retention: Rule | Iterable[Rule] | None = None,
    ) -> Commit:
        """Joins staged files, and further ``files``, into one version; ``retention`` prunes the branch after it.

        Raises:
            NotFoundError: something was staged too long ago and has been collected.
        """
        fields = self._fields(message, step, epoch, metrics, meta, branch, True, resumed_from)
        joined = [File.stored(s.path, s.words) for s in staged]
        return self._make(fields, None, None, joined + extra_files(files), None, retention)

    def put_shard(
        self,
        session: str,
        rank: int,
        files: Mapping[str, Any] | None = None,
        *,
        staged: Iterable[Staged] = (),
        branch: str | None = None,
        parent: str | None = None,
    ) -> Shard:
        """Stores a rank's part of a version, durably and in no version yet: ``files`` as `stage` takes them, and what
        `stage` has stored before. When all ranks have put, one process calls `join_shards`.

        ``session`` is a name like a branch's that all ranks of one version agree on, ``rank`` counts from 0; a rank
        that puts again replaces what it has put. Differences are taken to ``parent``, or to where ``branch`` stands.

        Raises:
            UserError: the session is finished, and this rank too late.
        """
        with taking(aside=False) as devices:
            made = [one_file(rel, content) for rel, content in (files or {}).items()]
        devices.wait()
        made += [File.stored(s.path, s.words) for s in staged]
        put = with_room(self._native, lambda: self._native.put_shard(session, rank, made, branch, parent))
        return Shard(**put)

    def join_shards(
        self,
        session: str,
        ranks: int,
        message: str | None = None,
        *,
        step: int | None = None,
        epoch: float | None = None,
        metrics: Mapping[str, Any] | None = None,
        meta: Mapping[str, str] | None = None,
        branch: str | None = None,
        resumed_from: str | None = None,
        files: Mapping[str, Any] | None = None,
        retention: Rule | Iterable[Rule] | None = None,
    ) -> Commit:
        """Makes one version of what ``ranks`` ranks have put, and of further ``files``, and moves the branch.

        It may be called again after a failure, and from several processes: there is one version, and each gets it.

        Raises:
            UserError: ranks that have not put, by number; or two have put different files of one name.
            NotFoundError: no such session; or something was put too long ago and has been collected.
        """
        fields = self._fields(message, step, epoch, metrics, meta, branch, True, resumed_from)
        extra = extra_files(files)
        self.flush()
        commit = _on_top(lambda: Commit.told(self._native.join_shards(fields, session, ranks, extra)))
        self._note(commit, fields)
        self._tell()
        if retention is not None:
            self._prune_after(commit, retention)
        return commit

    def sessions(self) -> list[Session]:
        """Sharded commits under way, and finished ones that `mdl gc` has not swept yet."""
        return [Session(*raw) for raw in self._read.sessions()]

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every commit in the background is durable.

        Raises:
            BackgroundError: one of them failed.
            TimeoutError: they are not done after ``timeout`` seconds.
        """
        self._worker.drain(timeout)
        if not self._worker.is_own_thread():
            self._tell()

    def close(self) -> None:
        """Flushes, and gives the memory for snapshots and the index back. The object stays of use."""
        try:
            self.flush()
        finally:
            self._worker.stop()
            self._arena.clear()
            self._native.release_index()

    def __enter__(self) -> Repo:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        # A pending exception must not be hidden by one of a background commit.
        with contextlib.suppress(Exception) if kind is not None else contextlib.nullcontext():
            self.close()

    @property
    def _native(self) -> Native:
        return self._handle.native

    @property
    def _read(self) -> Native:
        """Waits for pending commits, so that readers see them."""
        self.flush()
        return self._handle.native

    def _forked(self) -> None:
        """In a forked child: threads and pending commits are the parent's."""
        # Kept, since freeing them would take locks that threads of the parent may have held.
        _PARENTS.append((self._worker, self._arena))
        self._worker, self._arena = Worker(self._pending), Arena()

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling reopens it; background commits stay with the process that makes them.
        return _opened, (os.fspath(self.work or self.path), self._pending)

    def __repr__(self) -> str:
        return f"<mdl.Repo {self._handle.place}>"

    def _repr_html_(self) -> str:
        return html.repo(self)


def _opened(path: str, pending: int) -> Repo:
    return Repo(path, pending=pending)


def _handle(path: Path, create: bool) -> Handle:
    place = os.fspath(path)
    if create and "://" not in place:
        return Handle(made(place, False, "main"))
    hint = f"make one: mdl.init({place!r}), or mdl.Repo({place!r}, create=True)"
    if "://" not in place and not os.path.exists(place):
        raise NotFoundError(f"there is no repository at {place}", hint)
    try:
        return Handle(opened(place, search="://" not in place))
    except NotFoundError as error:
        raise NotFoundError(error.message, hint if "://" not in place else error.hint) from None


def _on_top(make: Callable[[], Commit]) -> Commit:
    for left in range(_TRIES, -1, -1):
        try:
            return make()
        except ConflictError:
            # Another writer committed to the branch. The caller asked for "this state, on top of the branch": so on
            # top of that commit. What was stored for the first try is found again.
            if not left:
                raise
    raise AssertionError("the last try returns or raises")
