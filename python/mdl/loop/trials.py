"""Rounds of a search: each rank measures one candidate on its own replica; the first rank asks and decides.

Source: Inshrinkerator, section 5 ("trials are evaluated in groups of m, the degree of data parallelism").

A round: the leader tells the candidates' directories; ranks that do not see theirs (another machine, no shared file
system) are sent the tensors that differ; all measure; all tell. A failure anywhere is told like a number, so that no
rank waits for one that is gone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..probe import Outputs, Probe, Probed
from .ranks import RankError, Ranks
from .swap import MODEL_FILE, Swap, bare, undisturbed


@dataclass
class _Round:
    """Candidates by rank; `exact`: the weights stay as they are."""

    places: list[_Place]
    exact: bool


@dataclass
class _Place:
    """Where a candidate's weights lie, and how the file is told from another one of that name."""

    file: str
    size: int
    changed: int


@dataclass
class _Answer:
    number: float | None
    error: str | None
    probed: Probed | None = None


class Trials:
    """Measures candidates for a repository: a callable for one directory, `evaluate_all` for up to `width` at a time.

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
        self._asked = 0
        self._failure: BaseException | None = None

    @property
    def width(self) -> int:
        """How many candidates are measured in parallel."""
        return self._ranks.world if self._spread else 1

    def __call__(self, directory: os.PathLike[str]) -> float | None:
        """Measures one candidate."""
        return self.evaluate_all([directory])[0]

    def evaluate_all(self, directories: Sequence[os.PathLike[str]]) -> list[float | None]:
        """The numbers of candidates. The first of all is the exact checkpoint (docs/policies.md): nothing is swapped.

        Raises:
            Exception: what ``evaluate`` raised here.
            RankError: what it raised on another rank.
        """
        numbers: list[float | None] = []
        for at in range(0, len(directories), self.width):
            places = [_place(Path(d) / MODEL_FILE) for d in directories[at : at + self.width]]
            round_ = self._ranks.tell(_Round(places, self._asked == 0))
            self._asked += len(places)
            answers = self._round(round_)
            if self._failure is not None:
                raise self._failure
            for rank, answer in enumerate(answers):
                if answer.error is not None:
                    raise RankError(f"evaluate failed on rank {rank}: {answer.error}")
            numbers += [self._judged(answer) for answer in answers[: len(places)]]
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

    def _round(self, round_: _Round) -> list[_Answer]:
        rank = self._ranks.rank
        mine = rank if self._spread else 0
        place = round_.places[mine] if mine < len(round_.places) else None
        blind = place is not None and not round_.exact and not _visible(place)
        tensors = self._sent(round_, self._ranks.gather(blind))
        answer = _Answer(None, None)
        if place is not None:
            try:
                self._measure(round_.exact, place, tensors if blind else None, answer)
            except BaseException as error:
                # An interrupt too: the other ranks wait for this answer. It is raised when they have it.
                self._failure = error
                answer.error = f"{type(error).__name__}: {error}"
        return self._ranks.gather(answer)

    def _sent(self, round_: _Round, blind: list[bool]) -> dict[str, Tensor] | None:
        """Sends ranks what they cannot see; on one of them, what it was sent."""
        if not self._ranks.leader:
            return self._ranks.take() if blind[self._ranks.rank] else None
        for rank in (rank for rank, is_blind in enumerate(blind) if is_blind):
            place = round_.places[rank if self._spread else 0]
            try:
                tensors = {**self._swap.buffers(), **self._swap.different(Path(place.file))}
            except Exception as error:
                self._failure, tensors = error, None
            self._ranks.hand(tensors, rank)
        return None

    def _measure(self, exact: bool, place: _Place, tensors: Mapping[str, Tensor] | None, answer: _Answer) -> None:
        if exact:
            tensors = {}
        elif tensors is None:
            tensors = self._swap.different(Path(place.file))
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


def _place(file: Path) -> _Place:
    status = file.stat()
    return _Place(os.path.realpath(file), status.st_size, status.st_mtime_ns)


def _visible(place: _Place) -> bool:
    """Whether this process sees the very file: its directory's name is drawn for each search."""
    try:
        status = os.stat(place.file)
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (place.size, place.changed)
