"""Retention policies: which versions keep their contents; rules are named as in Orbax.

A version stays if any rule of those given keeps it; branch tips and tags always stay.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable


class Rule:
    """Keeps some versions of a branch."""

    def to_json(self) -> dict[str, typing.Any]:
        """As the native half takes it."""
        raise NotImplementedError

    def __or__(self, other: Rule) -> Any:
        return Any(self, other)

    def __repr__(self) -> str:
        said = {k: v for k, v in self.to_json().items() if k != "rule"}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in said.items())})"


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


class Any(Rule):
    """What any of the rules keeps. `a | b` is the same."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def to_json(self) -> dict[str, typing.Any]:
        return {"rule": "Any", "rules": [r.to_json() for r in self.rules]}


__all__ = ["Any", "BestN", "CustomSteps", "EveryNSeconds", "EveryNSteps", "LatestDuration", "LatestN", "Rule"]
