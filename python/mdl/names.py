"""Names like one that is not there, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Names that are compared: the time it takes grows with their number.
_COMPARED = 10_000
#: Characters of a name that is compared.
_LONGEST = 200


def did_you_mean(wanted: str | Iterable[str], names: Iterable[str]) -> str:
    """`` (did you mean model.wte.weight?)`` for globs or names that nothing matches; empty where nothing is like it."""
    globs = [wanted] if isinstance(wanted, str) else list(wanted)
    there = list(dict.fromkeys(name for name in names if len(name) <= _LONGEST))[:_COMPARED]
    for glob in globs:
        plain = str(glob).strip("*?.")[:_LONGEST]
        if not plain:
            continue
        holding = [name for name in there if plain.lower() in name.lower()]
        close = difflib.get_close_matches(plain, there, n=3, cutoff=0.6) or holding[:3]
        if close:
            *first, last = close
            return f" (did you mean {', '.join(first)} or {last}?)" if first else f" (did you mean {last}?)"
    return ""
