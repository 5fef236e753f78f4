"""Verbs of `mdl.Repo` that make one version of several: merges and soups (docs/merge.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._native import Repo as Native
from .bars import Progress, shown

#: A strategy of `Repo.merge`: its name, or a mapping with ``method`` and its parameters.
Strategy = str | Mapping[str, Any]

_ALIASES = {"linear": "weighted", "dare": "dare-linear"}


@dataclass(frozen=True)
class Merged:
    """What a merge or a soup came to.

    ``result`` is ``"merged"``, ``"fast_forward"`` or ``"up_to_date"``; ``before`` and ``commit`` are HEAD's commit
    before and now; ``recipe`` says how the weights were made, if they were; ``computed`` counts tensors.
    """

    result: str
    before: str | None
    commit: str | None
    recipe: dict[str, Any] | None
    computed: int


def _rule(strategy: Strategy) -> str:
    """A strategy as the recipe has it, in JSON."""
    given = {"method": strategy} if isinstance(strategy, str) else dict(strategy)
    method = str(given.get("method", "")).replace("_", "-")
    if method in ("ours", "theirs"):
        return json.dumps(method)
    return json.dumps({**given, "method": _ALIASES.get(method, method)})


def _globs(overrides: Mapping[str, Strategy] | None) -> list[tuple[str, str]]:
    return [(glob, _rule(strategy)) for glob, strategy in (overrides or {}).items()]


def _merged(made: tuple[str, str | None, str | None, str | None, int]) -> Merged:
    result, before, commit, recipe, computed = made
    return Merged(result, before, commit, None if recipe is None else json.loads(recipe), computed)


class Merging:
    """What `Repo` does to make one version of several."""

    @property
    def _read(self) -> Native:
        raise NotImplementedError

    def merge(
        self,
        revs: str | Iterable[str],
        strategy: Strategy,
        *,
        overrides: Mapping[str, Strategy] | None = None,
        with_state: bool = False,
        message: str | None = None,
        fast_forward: bool = True,
        progress: Progress = None,
    ) -> Merged:
        """Merges versions into the present branch, and the work tree with it.

        ``strategy`` is ``"average"``, ``"weighted"``, ``"slerp"``, ``"task-arithmetic"``, ``"ties"``,
        ``"dare-linear"``, ``"dare-ties"``, ``"ours"`` or ``"theirs"``, or a mapping with that as ``method`` and
        parameters: ``{"method": "ties", "density": 0.4, "weight": [1.0, 0.5]}``. ``overrides`` are other strategies
        for files or tensors, by globs; the first that matches counts. State of the optimizer is the present branch's,
        unless ``with_state``. Where the branch can move forward to one other version it does, if ``fast_forward``.

        Raises:
            ConflictError: files or tensors that nothing decides on. Nothing has changed.
            UserError: a strategy that cannot be followed; changes that are in no version.
        """
        names = [revs] if isinstance(revs, str) else list(revs)
        with shown(progress) as show:
            made = self._read.merge(names, _rule(strategy), _globs(overrides), with_state, message, fast_forward, show)
        return _merged(made)

    def soup(
        self,
        revs: Iterable[str],
        *,
        ema: float | None = None,
        greedy: Callable[[Path], float] | None = None,
        maximize: bool = False,
        overrides: Mapping[str, Strategy] | None = None,
        with_state: bool = False,
        message: str | None = None,
        progress: Progress = None,
    ) -> Merged:
        """Averages versions, oldest first, into a new one on top of the present branch.

        ``ema`` counts newer versions more: what was before counts ``ema``, each newer version the rest. ``greedy``
        measures the checkpoint in a directory (smaller is better, unless ``maximize``), and those versions are taken
        that measure well together. Files that are no weights are the newest version's.

        Raises:
            ConflictError: tensors that cannot be averaged. Nothing has changed.
            UserError: fewer than two versions; changes that are in no version.
        """
        names = [revs] if isinstance(revs, str) else list(revs)
        kind: dict[str, Any] = {"kind": "uniform"}
        if greedy is not None:
            kind = {"kind": "greedy"}
        elif ema is not None:
            kind = {"kind": "ema", "decay": ema}
        measure = None if greedy is None else (lambda path: greedy(Path(path)))
        with shown(progress) as show:
            made = self._read.soup(
                names[::-1], json.dumps(kind), measure, maximize, _globs(overrides), with_state, message, show
            )
        return _merged(made)
