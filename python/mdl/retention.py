"""Retention policies: which versions keep their contents, and what is left of the others; rules are named as in Orbax.

A version stays if any rule of those given keeps it; branch tips and tags always stay. Of a version that no rule keeps
nothing is left but its commit, unless the rule says otherwise: ``LatestN(5).to("weights")``. Several rules, each with
its level, make a ladder, which versions only go down::

    [LatestN(2).to("approximate"), LatestN(10).to("weights"), LatestN(100)]
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterable

R = typing.TypeVar("R", bound="Rule")
LEVELS = ("gone", "weights", "approximate")


class Rule:
    """Keeps some versions of a branch. ``level`` is what is left of the others."""

    level = "gone"

    def to(self: R, level: str) -> R:
        """The same rule, with what is left of versions that it does not keep.

        ``"approximate"``: their approximation; versions without one (lossless commits) stay as they are.
        ``"weights"``: all but their optimizer state, of the approximation if there is one. Files that hold nothing but
        that go, and a file that holds weights too stays whole. ``"gone"``: nothing.
        """
        if level not in LEVELS:
            raise ValueError(f"no level {level!r}: one of {', '.join(LEVELS)}")
        rule = copy.copy(self)
        rule.level = level
        return rule

    def to_json(self) -> dict[str, typing.Any]:
        """As the native half takes it."""
        raise NotImplementedError

    def __or__(self, other: Rule) -> AnyOf:
        return AnyOf(self, other)

    def __repr__(self) -> str:
        said = {k: v for k, v in self.to_json().items() if k != "rule"}
        level = "" if self.level == "gone" else f".to({self.level!r})"
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in said.items())}){level}"


class LatestN(Rule):
    """The ``n`` newest versions."""

    def __init__(self, n: int) -> None:
        self.n = n

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "LatestN", "n": self.n}


class EveryNSteps(Rule):
    """Versions whose step is a multiple of ``n``."""

    def __init__(self, n: int) -> None:
        self.n = n

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "EveryNSteps", "n": self.n}


class EveryNSeconds(Rule):
    """One version for every ``seconds`` that passed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "EveryNSeconds", "seconds": int(self.seconds)}


class BestN(Rule):
    """The ``n`` best versions by a metric; ``mode`` is ``"min"``, ``"max"``, or None: as the metric's name says."""

    def __init__(self, n: int, metric: str, mode: str | None = None) -> None:
        self.n, self.metric, self.mode = n, metric, mode

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "BestN", "n": self.n, "metric": self.metric} | ({"mode": self.mode} if self.mode else {})


class CustomSteps(Rule):
    """Versions of these steps."""

    def __init__(self, steps: Iterable[int]) -> None:
        self.steps = sorted(set(steps))

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "CustomSteps", "steps": self.steps}


class LatestDuration(Rule):
    """Versions made no more than ``seconds`` before the newest one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "LatestDuration", "seconds": int(self.seconds)}


class AnyOf(Rule):
    """What any of the rules keeps. `a | b` is the same. All have one level."""

    def __init__(self, *rules: Rule) -> None:
        levels = {rule.level for rule in rules}
        if len(levels) > 1:
            raise ValueError("rules of different levels are no one rule: give a list of them")
        self.rules, self.level = rules, levels.pop() if levels else "gone"

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "Any", "rules": [r.to_json() for r in self.rules]}


def steps(retention: Rule | Iterable[Rule]) -> list[Rule]:
    """The rules one after the other, those that leave most first."""
    rules = [retention] if isinstance(retention, Rule) else list(retention)
    return sorted(rules, key=lambda rule: -LEVELS.index(rule.level))


#: Its earlier name, which typing has as well.
Any = AnyOf

__all__ = ["AnyOf", "BestN", "CustomSteps", "EveryNSeconds", "EveryNSteps", "LatestDuration", "LatestN", "Rule"]
