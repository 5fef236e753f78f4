"""Rounds of a search: each rank measures one candidate on its own replica; the first rank asks and decides.

Source: Inshrinkerator, section 5 ("trials are evaluated in groups of m, the degree of data parallelism").

A round: the leader, which has the candidates in memory, tells how many there are and sends each rank the tensors of its
own; all measure; all tell. A failure anywhere is told like a number, so that no rank waits for one that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..probe import Outputs, Probe, Probed
from .ranks import RankError, Ranks
from .swap import Swap, bare, undisturbed

if TYPE_CHECKING:
    from .._native import Replaced


@dataclass
class _Round:
    """Of each candidate, by rank, whether it is the exact checkpoint: the weights then stay as they are."""

    exact: list[bool]


@dataclass
class _Answer:
    number: float | None
    error: str | None
    probed: Probed | None = None


class Trials:
    """Measures candidates for a repository, which finds `evaluate_tensors` and makes no directories for them.

    ``evaluate()`` is the user's, on the live model; None says that it could not measure. ``spread`` False has all ranks
    measure each candidate together, for an ``evaluate`` that has collectives in it. What has a number is also put to
    the ``probe``, if there is one; beyond its limits it counts as not measured.
    """

    def __init__(
        self,
        model: nn.Module,
        evaluate: Callable[[], Any],
        generators: Mapping[str, Any],
        ranks: Ranks,
        *,
        spread: bool = True,
        probe: Probe | None = None,
        step: int = 0,
    ) -> None:
        self._model, self._evaluate, self._generators = model, evaluate, generators
        self._ranks, self._spread = ranks, spread
        self._probe, self._step = probe, step
        self._outputs: Outputs | None = None
        #: Numbers of the candidates that were probed, and what the probe found of them.
        self.probed: list[tuple[float, Probed]] = []
        self._swap = Swap(bare(model))
        self._failure: BaseException | None = None

    @property
    def width(self) -> int:
        """How many candidates are measured in parallel."""
        return self._ranks.world if self._spread else 1

    def evaluate_tensors(self, candidates: Sequence[Sequence[Replaced]]) -> list[float | None]:
        """The numbers of candidates, each given by the tensors that it replaces: none in the exact checkpoint, which
        comes first (docs/policies.md).

        Raises:
            Exception: what ``evaluate`` raised here.
            RankError: what it raised on another rank.
        """
        numbers: list[float | None] = []
        for at in range(0, len(candidates), self.width):
            chunk = candidates[at : at + self.width]
            answers = self._round(self._ranks.tell(_Round([not candidate for candidate in chunk])), chunk)
            if self._failure is not None:
                raise self._failure
            for rank, answer in enumerate(answers):
                if answer.error is not None:
                    raise RankError(f"evaluate failed on rank {rank}: {answer.error}")
            numbers += [self._judged(answer) for answer in answers[: len(chunk)]]
        return numbers

    def _judged(self, answer: _Answer) -> float | None:
        if self._probe is None or answer.probed is None or answer.number is None:
            return answer.number
        self.probed.append((answer.number, answer.probed))
        return answer.number if self._probe.passes(answer.probed) else None

    def serve(self) -> Any:
        """On the other ranks: measures until the leader tells something else than a round, and returns that.

        Raises:
            Exception: what ``evaluate`` raised here.
        """
        while isinstance(told := self._ranks.tell(), _Round):
            self._round(told)
        if self._failure is not None:
            raise self._failure
        return told

    def _round(self, round_: _Round, candidates: Sequence[Sequence[Replaced]] = ()) -> list[_Answer]:
        answer = _Answer(None, None)
        exact = self._of(round_.exact, self._ranks.rank)
        handed = self._handed(round_, candidates)
        if exact is not None:
            try:
                # The leader's own candidate is the first.
                tensors = self._swap.weights(candidates[0]) if self._ranks.leader else handed
                if tensors is not None:
                    self._measure(exact, tensors, answer)
            except BaseException as error:
                # An interrupt too: the other ranks wait for this answer. It is raised when they have it.
                self._failure = error
                answer.error = f"{type(error).__name__}: {error}"
        return self._ranks.gather(answer)

    def _of(self, by_rank: Sequence[Any], rank: int) -> Any:
        """What is meant for a rank; None where it has no candidate."""
        mine = rank if self._spread else 0
        return by_rank[mine] if mine < len(by_rank) else None

    def _handed(self, round_: _Round, candidates: Sequence[Sequence[Replaced]]) -> dict[str, Tensor] | None:
        """Sends the other ranks their candidates; on one of them, what it was sent: None, if the leader failed."""
        if not self._ranks.leader:
            return self._ranks.take() if self._of(round_.exact, self._ranks.rank) is False else {}
        for rank in range(1, self._ranks.world):
            if self._of(round_.exact, rank) is not False:
                continue
            try:
                tensors = {**self._swap.buffers(), **self._swap.weights(self._of(candidates, rank))}
            except Exception as error:
                self._failure, tensors = error, None
            self._ranks.hand(tensors, rank)
        return None

    def _measure(self, exact: bool, tensors: Mapping[str, Tensor], answer: _Answer) -> None:
        with undisturbed(self._model, self._generators), self._swap.put_in(tensors):
            number = self._evaluate()
            number = None if number is None else float(number)
        if self._probe is not None and number is not None and math.isfinite(number):
            with undisturbed(self._model, self._generators):
                answer.probed = self._put_to(self._probe, exact, tensors)
        answer.number = number

    def _put_to(self, probe: Probe, exact: bool, tensors: Mapping[str, Tensor]) -> Probed | None:
        model = bare(self._model)
        if self._outputs is None:
            # No candidate changes buffers; a replica's may be others than the leader's.
            with self._swap.put_in({name: tensors[name] for name in self._swap.own if name in tensors}):
                self._outputs = probe.outputs(model, self._step)
        if not self._outputs.usable:
            # As where the exact checkpoint cannot be measured: nothing passes.
            return Probed(math.nan, None)
        if exact:
            return None
        with self._swap.put_in(tensors):
            return probe.compare(self._outputs, model)


def led(ranks: Ranks, trials: Trials | None, work: Callable[[], Any]) -> Any:
    """Has the first rank do its work (search and commit) while the others measure for it; all return what it returns.

    Raises:
        Exception: on the first rank what the work raised; elsewhere what ``evaluate`` raised there.
        RankError: it failed elsewhere.
    """
    if not ranks.leader:
        made, error = ranks.tell() if trials is None else trials.serve()
        if error is not None:
            raise RankError(f"the checkpoint failed on rank 0: {error}")
        return made
    try:
        made = work()
    except BaseException as error:
        ranks.tell((None, f"{type(error).__name__}: {error}"))
        raise
    ranks.tell((made, None))
    return made
