"""Lists of versions and of differences, with what notebooks want of them: tables, data frames, plots."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, SupportsIndex

from . import html
from .commits import Commit, FileDiff
from .errors import NotFoundError, UsageError


class Log(list[Commit]):
    """Versions, newest first."""

    @typing.overload
    def __getitem__(self, at: SupportsIndex) -> Commit: ...
    @typing.overload
    def __getitem__(self, at: slice) -> Log: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Commit | Log:
        found = super().__getitem__(at)
        return Log(found) if isinstance(found, list) else found

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row for each version, newest first, indexed by ``id``.

        Its columns are the fields of `Commit` that are numbers or text, and a ``metrics.NAME`` and a ``meta.NAME`` for
        each name; a version that lacks one has NaN there.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise UsageError("to_pandas wants pandas", "pip install pandas") from None
        rows = [_row(commit) for commit in self]
        return pd.DataFrame(rows, columns=None if rows else ["id", "step", "epoch", "time"]).set_index("id")

    def plot(self, *metrics: str, x: str = "step", ax: Any = None) -> Any:
        """Draws metrics (default: the one that most versions have) over ``x``: ``"step"``, ``"epoch"``, ``"time"``, or
        a metric. Returns the `matplotlib.axes.Axes`; ``ax`` is one to draw on.

        Raises:
            UsageError: matplotlib is not installed.
            NotFoundError: no version has such a metric, or ``x``.
        """
        try:
            from matplotlib import pyplot
            from matplotlib.ticker import MaxNLocator
        except ImportError:
            raise UsageError("plot wants matplotlib", "pip install matplotlib") from None
        names = metrics or tuple(html.metrics_of(self)[:1])
        if not names:
            raise NotFoundError("no version here has metrics", "commit with metrics={name: number}")
        lines = [(name, self._points(name, x)) for name in names]
        if ax is None:
            ax = pyplot.subplots()[1]
        for name, points in lines:
            ax.plot([at for at, _ in points], [value for _, value in points], marker="o", markersize=4, label=name)
        ax.set_xlabel(x)
        if x == "step":
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(lines) == 1:
            ax.set_ylabel(lines[0][0])
        else:
            ax.legend()
        return ax

    def _points(self, metric: str, x: str) -> list[tuple[Any, float]]:
        def at(commit: Commit) -> Any:
            return getattr(commit, x) if x in ("step", "epoch", "time") else commit.metrics.get(x)

        points = [(at(commit), commit.metrics.get(metric)) for commit in self]
        known = [(where, value) for where, value in points if where is not None and value is not None]
        if not known:
            raise NotFoundError(
                f"no version here has both {metric!r} and {x!r}", f"metrics are {html.metrics_of(self)}"
            )
        return sorted(known)

    def _repr_html_(self) -> str:
        return html.log(self)


def _row(commit: Commit) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(commit, name)
        for name in (
            "id", "step", "epoch", "time", "message", "author", "resume", "fidelity", "files", "tensors", "new_tensors",
            "logical_bytes", "stored_bytes", "resumed_from",
        )
    }  # fmt: skip
    row |= {f"metrics.{name}": value for name, value in commit.metrics.items()}
    return row | {f"meta.{name}": value for name, value in commit.meta.items()}


class Diff(list[FileDiff]):
    """How two versions differ, file by file."""

    def __init__(self, files: Iterable[FileDiff] = ()) -> None:
        super().__init__(files)

    def _repr_html_(self) -> str:
        return html.diff(self)
