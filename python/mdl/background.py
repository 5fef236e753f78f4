"""Background commits: a thread that stores snapshots one after the other, and the `PendingCommit` callers wait on.

A Python thread is enough, since the work itself runs without the GIL.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from .commits import Commit
from .errors import BackgroundError, UsageError


class PendingCommit:
    """A commit under way. When `result` returns, it is durable: on the branch, on disk, synced."""

    def __init__(self, step: int | None, branch: str | None) -> None:
        self.step, self.branch = step, branch
        self._future: Future[Commit] = Future()
        self._seen = False

    @classmethod
    def made(cls, commit: Commit) -> PendingCommit:
        """A finished one."""
        pending = cls(commit.step, commit.branch)
        pending._future.set_result(commit)
        return pending

    def done(self) -> bool:
        """Returns whether it is durable, or has failed."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Commit:
        """Waits until it is durable.

        Raises:
            TimeoutError: it is not, after ``timeout`` seconds.
            MdlError: why it was not made. It is then not raised again elsewhere.
        """
        try:
            return self._future.result(timeout)
        except (FutureTimeout, TimeoutError):
            if self._future.done():
                self._seen = True
                raise
            raise TimeoutError(f"it is not durable after {timeout} s") from None
        except CancelledError:
            raise
        except BaseException:
            self._seen = True
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns why it failed, or None; waits as `result` does."""
        error = self._future.exception(timeout)
        self._seen = self._seen or error is not None
        return error

    def add_done_callback(self, function: Callable[[PendingCommit], Any]) -> None:
        """Calls ``function(self)`` when it is durable or has failed, on the thread that made it; at once if that was
        before.
        """
        self._future.add_done_callback(lambda _: function(self))

    def __repr__(self) -> str:
        return f"<PendingCommit step={self.step} branch={self.branch} {'done' if self.done() else 'under way'}>"


#: The work is boxed in a list: the thread that pops it holds the only reference to it and to its snapshot.
_Job = tuple[PendingCommit, list[Callable[[], Commit]]]


class Worker:
    """Makes commits one after the other.

    At most ``pending`` snapshots exist at a time; a caller that wants one more waits (back-pressure instead of growth).
    Failures are kept until `check` or `drain` raises them.
    """

    def __init__(self, pending: int) -> None:
        if pending < 1:
            raise UsageError("pending must be 1 or more", "it is the number of snapshots that may be in memory")
        self._room = threading.BoundedSemaphore(pending)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._failed: collections.deque[PendingCommit] = collections.deque()
        self._open = 0
        self._idle = threading.Condition()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def is_own_thread(self) -> bool:
        """Whether the caller is a callback of a commit."""
        return threading.current_thread() is self._thread

    @contextlib.contextmanager
    def room(self) -> Iterator[list[bool]]:
        """Waits for a free slot for one more snapshot; releases it if nothing is handed over inside.

        Raises:
            UsageError: on the worker's own thread (a callback of a commit), which would wait for itself.
        """
        if self.is_own_thread():
            raise UsageError("a callback of a commit cannot commit in the background", "pass wait=True there")
        self._room.acquire()
        handed = [False]
        try:
            yield handed
        finally:
            if not handed[0]:
                self._room.release()

    def hand_over(self, handed: list[bool], pending: PendingCommit, work: Callable[[], Commit]) -> None:
        """Queues a commit whose slot was taken."""
        with self._idle:
            if self._thread is None or not self._thread.is_alive():
                args = (weakref.ref(self), self._jobs)
                thread = threading.Thread(target=_serve, args=args, name="mdl-commits", daemon=True)
                thread.start()
                self._thread = thread
            # Under the lock, so that nothing is queued behind the stop marker.
            self._open += 1
            handed[0] = True
            self._jobs.put((pending, [work]))

    def serve(self, pending: PendingCommit, box: list[Callable[[], Commit]]) -> None:
        """Makes one commit, on the worker's thread."""
        commit, error = _run(box)
        # The snapshot is freed by now: there is room for another.
        self._room.release()
        try:
            if error is not None:
                self._failed.append(pending)
                pending._future.set_exception(error)
            else:
                pending._future.set_result(commit)
        finally:
            with self._idle:
                self._open -= 1
                self._idle.notify_all()

    def check(self) -> None:
        """Raises the first failure that was not raised yet."""
        while True:
            try:
                pending = self._failed.popleft()
            except IndexError:
                return
            if pending._seen:
                continue
            error = pending.exception()
            what = "a commit in the background" if pending.step is None else f"the commit of step {pending.step}"
            hint = getattr(error, "hint", None)
            raise BackgroundError(
                f"{what} failed: {getattr(error, 'message', error)}", hint, pending.step, pending.branch
            ) from error

    def drain(self, timeout: float | None = None) -> None:
        """Waits until everything handed over is durable or has failed, then raises the first failure.

        On the worker's own thread (a callback of a commit that is done) there is nothing to wait for.
        """
        if self.is_own_thread():
            return
        with self._idle:
            if not self._idle.wait_for(lambda: self._open == 0, timeout):
                raise TimeoutError(f"{self._open} commits are still being made after {timeout} s")
        self.check()

    def stop(self) -> None:
        """Ends the thread when its work is done; the next commit starts another."""
        with self._idle:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread = None


def _run(box: list[Callable[[], Commit]]) -> tuple[Any, BaseException | None]:
    try:
        return box.pop()(), None
    except BaseException as error:
        # The frames of its traceback would keep the snapshot alive as long as the error.
        traceback.clear_frames(error.__traceback__)
        return None, error


def _serve(worker: weakref.ref[Worker], jobs: queue.SimpleQueue[_Job | None]) -> None:
    # Holds the worker only while there is work, so that an unused one can be freed. Work holds its repository.
    while (job := jobs.get()) is not None:
        alive = worker()
        if alive is None:
            return
        alive.serve(*job)
        del alive, job
