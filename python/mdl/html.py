"""Notebook views (`_repr_html_`) of repositories, histories, versions and differences: plain tables in the page's own
colours, so that they fit light and dark themes."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .bars import size
from .errors import CorruptError, NotFoundError, StorageError

if TYPE_CHECKING:
    from .commits import Commit, FileDiff
    from .repo import Repo

#: Rows of a table; what is left out is said.
SHOWN = 50
#: A longer text may go over several lines.
WRAPPED = 40
#: Columns of metrics in a history.
METRICS = 4
_LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;font-variant-numeric:tabular-nums"
_CAPTION = "text-align:left;padding:0.25em 0;font-weight:600;color:inherit"
_CELL = f"padding:0.2em 0.8em 0.2em 0;text-align:{{align}};border-bottom:{_LINE};vertical-align:top;color:inherit"
#: Metrics that come before others.
FIRST = ("loss", "train_loss", "eval_loss", "val_loss")


def escape(value: object) -> str:
    """Text for HTML."""
    return html.escape(str(value), quote=True)


def number(value: float | None) -> str:
    """Six digits at most; nothing for None."""
    return "" if value is None else f"{value:.6g}"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Cells are text; numbers stand right but for the columns in ``left``. The first cell of a row is its header."""

    def cell(tag: str, column: int, text: str, scope: str = "") -> str:
        style = _CELL.format(align="left" if column in left else "right")
        weight = ";font-weight:400" if tag == "th" and scope == "row" else ""
        # Texts may be long; numbers, dates and names of types are read in one line.
        weight += "" if len(text) > WRAPPED else ";white-space:nowrap"
        scoped = f' scope="{scope}"' if scope else ""
        return f'<{tag}{scoped} style="{style}{weight}">{escape(text)}</{tag}>'

    head = "".join(cell("th", i, text, "col") for i, text in enumerate(heads))
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    body = "".join(
        "<tr>" + "".join(cell("td" if i else "th", i, text, "" if i else "row") for i, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    # What scrolls must be reached by the keyboard, and have a name.
    scrolled = f'style="overflow-x:auto" tabindex="0" role="group" aria-label="{escape(caption)}"'
    name = f'<caption style="{_CAPTION}">{escape(caption)}</caption>'
    return f'<div {scrolled}><table style="{_TABLE}">{name}{head}<tbody>{body}</tbody></table></div>'


def _more(shown: int, total: int, what: str) -> str:
    return "" if total <= shown else f'<p style="color:inherit">{total - shown:,} more {escape(what)}</p>'


def metrics_of(commits: Iterable[Commit]) -> list[str]:
    """Names of metrics, those that most versions have first."""
    counts: dict[str, int] = {}
    for commit in commits:
        for name in commit.metrics:
            counts[name] = counts.get(name, 0) + 1
    first = {name: place for place, name in enumerate(FIRST)}
    return sorted(counts, key=lambda name: (-counts[name], first.get(name, len(FIRST)), name))


def log(commits: Sequence[Commit], caption: str = "Versions") -> str:
    """A history, newest first."""
    metrics = metrics_of(commits)[:METRICS]
    heads = ["version", "step", *metrics, "when", "resume", "stored", "smaller", "message"]
    rows = (
        [
            c.short_id,
            "" if c.step is None else f"{c.step:,}",
            *(number(c.metrics.get(name)) for name in metrics),
            f"{c.time:%Y-%m-%d %H:%M}",
            c.resume or "",
            size(c.stored_bytes),
            f"{c.ratio:.1f}x" if c.stored_bytes else "",
            c.title,
        ]
        for c in commits[:SHOWN]
    )
    left = (0, len(heads) - 4, len(heads) - 1)
    return table(f"{caption}: {len(commits):,}", heads, rows, left) + _more(SHOWN, len(commits), "versions")


def commit(c: Commit) -> str:
    """What is known of a version."""
    rows = [
        ["message", c.message],
        ["step", "" if c.step is None else f"{c.step:,}"],
        ["epoch", number(c.epoch)],
        ["when", f"{c.time:%Y-%m-%d %H:%M:%S %z}"],
        ["author", c.author],
        ["resume", c.resume or "no tensors"],
        ["contents today", c.fidelity or "cannot be told"],
        ["size", f"{size(c.logical_bytes)} in {c.files:,} files, {c.tensors:,} tensors ({c.new_tensors:,} new)"],
        ["stored", size(c.stored_bytes) + (f", {c.ratio:.1f}x smaller" if c.stored_bytes else "")],
        *([f"metric {name}", number(value)] for name, value in sorted(c.metrics.items())),
        *([name, value] for name, value in sorted(c.meta.items())),
    ]
    return table(f"Version {c.short_id}", [], [row for row in rows if row[1]], (0, 1))


def diff(files: Sequence[FileDiff]) -> str:
    """A difference: the tensors that moved most first."""
    moved = [(f.path, t) for f in files for t in f.tensors]
    moved.sort(key=lambda pair: -(pair[1].rel_l2 if pair[1].rel_l2 is not None else float("inf")))
    rows = [
        [
            f"{path}: {t.name}",
            t.change,
            f"{t.dtype}{list(t.shape)}",
            "" if t.changed is None else f"{t.changed:.1%}",
            number(t.rel_l2),
            number(t.max_abs),
            number(t.cosine),
        ]
        for path, t in moved[:SHOWN]
    ]
    heads = ["tensor", "change", "type", "elements", "rel. L2", "max |b - a|", "cosine"]
    sizes = [["" if n is None else size(n) for n in (f.size_before, f.size_after)] for f in files]
    others = [[f.path, f.change, *s, f"{f.same_tensors:,}"] for f, s in zip(files, sizes, strict=True)]
    file_heads = ["file", "change", "size before", "size after", "equal tensors"]
    parts = [table(f"Files that differ: {len(files):,}", file_heads, others[:SHOWN], (0, 1))]
    parts.append(_more(SHOWN, len(others), "files"))
    if rows:
        parts += [table(f"Tensors that differ: {len(moved):,}", heads, rows, (0, 1, 2))]
        parts.append(_more(SHOWN, len(moved), "tensors"))
    return "".join(parts)


def repo(source: Repo) -> str:
    """A repository: its branches, tags and newest versions; or why they cannot be shown: it is damaged, or partial and
    its remote away."""
    place = source.work or source.path
    try:
        return _repo(source, f"Repository {place}")
    except (CorruptError, NotFoundError, StorageError) as error:
        why = [["cannot be shown", error.message], ["hint", error.hint or "mdl fsck"]]
        return table(f"Repository {place}", [], why, (0, 1))


def _repo(source: Repo, caption: str) -> str:
    head, branches, tags = source.head, source.branches(), source.tags()
    names = [(name, "branch", id) for name, id in branches.items()] + [(name, "tag", id) for name, id in tags.items()]
    rows = []
    for name, kind, id in names[:SHOWN]:
        c = source.show(id)
        present = f"{kind}, HEAD" if kind == "branch" and name == head else kind
        rows.append([name, present, c.short_id, "" if c.step is None else f"{c.step:,}", c.title])
    out = table(caption, ["name", "is a", "version", "step", "message"], rows, (0, 1, 2, 4))
    out += _more(SHOWN, len(names), "names")
    return out + (log(source.log(limit=10), "Newest versions") if branches else "")
