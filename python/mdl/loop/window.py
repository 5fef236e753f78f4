"""Gradient window: only the last batches before a scheduled checkpoint count for the average.

Source: Inshrinkerator, section 4.5 ("a limited preconfigured number of batches before checkpointing is scheduled";
fifty are sufficient). With 0.9 on the newest gradient what lies eight batches back counts for 1e-8 of the average.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import UsageError

#: Step -> the step of the first checkpoint at or after it; None where none is scheduled.
Schedule = Callable[[int], "int | None"]


class Window:
    """Counts batches (steps of the optimizer, from 1) and says which of them are in the window."""

    def __init__(self, interval: int | None, schedule: Schedule | None, window: int, start: int = 0) -> None:
        if interval is not None and schedule is not None:
            raise UsageError("interval or schedule, not both", "both say when the next checkpoint is")
        if interval is not None and interval < 1:
            raise UsageError("interval must be 1 or more", "it is the number of steps between checkpoints")
        if window < 1:
            raise UsageError("window must be 1 or more", "it is a number of batches before a checkpoint")
        if interval is not None:
            schedule = _every(interval)
        self._schedule, self._window = schedule, window
        #: Finished batches.
        self.step = start

    def next_is_in(self) -> bool:
        """Whether the batch that is under way is one of the last before a checkpoint. Without a schedule all are."""
        if self._schedule is None:
            return True
        batch = self.step + 1
        at = self._schedule(batch)
        return at is not None and 0 <= at - batch < self._window


def _every(interval: int) -> Schedule:
    return lambda step: -(-step // interval) * interval
