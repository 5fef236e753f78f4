"""`mdl.Compressor`: lossy checkpoints from inside a torch training loop, as Inshrinkerator's Listing 1 has them.

compressor = mdl.Compressor(model, evaluate=validation_loss, repo="runs/gpt", optimizer=optimizer, interval=1000)
for step, batch in enumerate(batches, start=1):
    compressor.before_gradient_flush()
    optimizer.zero_grad()
    loss(model, batch).backward()
    compressor.on_backward_pass_end()
    optimizer.step()
    if step % 1000 == 0:
        compressor.compress(step)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save_file
from torch import nn

from .commits import Commit
from .errors import UsageError
from .loop.contents import contents, stored
from .loop.ema import GradientAverage
from .loop.groups import rules
from .loop.probing import committed, limits
from .loop.ranks import Ranks
from .loop.swap import bare, whole
from .loop.trials import Trials, led
from .loop.window import Schedule, Window
from .probe import Probe, Probed
from .repo import Repo
from .rng import rng_state

#: The paper's two searches, by policy.
SEARCHES = {"guided": "paper", "neighbourhood": "lossy"}
#: Directory inside the repository, which sweeps what a killed process leaves there.
_SCRATCH = "candidates"


class Compressor:
    """Commits a model, its optimizer and what else is told, under a contract on what ``evaluate()`` gives.

    Args:
        model: What is trained; wrapped for several processes or compiled as it may be. Not sharded.
        evaluate: Gives one number for the model as it stands, in evaluation mode, without a graph. None: every bit is
            kept, or a policy's ``[fixed]`` configuration used.
        repo: A `Repo`, or the directory of one, made if it is not there.
        threshold: The part of the number that may be lost (the paper's epsilon). None: the policy's own gate.
        progress: In its place, the part of the gain per commit that may be lost.
        policy: Name or file of a policy (docs/policies.md). The default is ``"lossy"``.
        search: In its place: ``"neighbourhood"`` (``lossy``: lattice and bins, one knob each, from where the last
            search ended), ``"guided"`` (``paper``: the configuration cube, guided exhaustive search, then delta
            neighbourhoods; its bounds on errors are loosened), or a policy as above.
        optimizer, scheduler: Anything with ``state_dict()``; entries of the state under these names.
        interval: Steps between checkpoints that are scheduled (at multiples of it), so that gradients are averaged only
            before them; or
        schedule: a function that gives the step of the first checkpoint at or after a step, or None. With neither,
            every batch is averaged.
        window: Batches before a checkpoint whose gradients are averaged.
        beta: What the newest gradient counts for in the average.
        higher_is_better: Whether the number is an accuracy and no loss.
        probe: Looks also at the model's outputs for random inputs, where the data of ``evaluate`` may not reach: a
            candidate beyond its limits does not pass. True: a `Probe` as it comes.
        branch: The branch that is committed to; None: HEAD's.
        state: Gives further entries of the state.
        rng: Whether random states are in the state (of all ranks, a list by rank, where there are several); a mapping
            has further generators by name, which evaluations then leave alone too.
        retention: Rule (`mdl.retention`) for which versions stay.
        resumed_from: Revision that training was restored from; said of the first commit.
        start: Steps that were done before.
        spread: Whether ranks measure different candidates at the same time. False where ``evaluate`` itself works on
            all ranks together.

    In a `torch.distributed` job each rank makes one and calls all of its methods. The first rank searches and commits;
    its model is what is committed.
    """

    def __init__(
        self,
        model: nn.Module,
        evaluate: Callable[[], Any] | None = None,
        *,
        repo: Repo | str | os.PathLike[str],
        threshold: float | None = None,
        progress: float | None = None,
        policy: str | os.PathLike[str] | None = None,
        search: str | None = None,
        optimizer: Any = None,
        scheduler: Any = None,
        interval: int | None = None,
        schedule: Schedule | None = None,
        window: int = 50,
        beta: float = 0.9,
        higher_is_better: bool = False,
        probe: Probe | bool | None = None,
        branch: str | None = None,
        state: Callable[[], Mapping[str, Any]] | None = None,
        rng: bool | Mapping[str, Any] = True,
        retention: Any = None,
        resumed_from: str | None = None,
        start: int = 0,
        spread: bool = True,
    ) -> None:
        if threshold is not None and progress is not None:
            raise UsageError("threshold or progress, not both", "each of them is the gate")
        if policy is not None and search is not None:
            raise UsageError("policy or search, not both", f"a search stands for a policy: {SEARCHES}")
        if not 0 < beta <= 1:
            raise UsageError("beta must be above 0 and at most 1", "it is what the newest gradient counts for")
        self._model, self._evaluate, self._repo = model, evaluate, repo
        search = search or "neighbourhood"
        self._policy = os.fspath(policy if policy is not None else SEARCHES.get(search, search))
        self._gate: dict[str, Any] = {"quality": threshold, "progress": progress, "higher_is_better": higher_is_better}
        self._parts = {"optimizer": optimizer, "scheduler": scheduler}
        self._state, self._rng, self._retention = state, rng, retention
        self._branch, self._resumed_from, self._spread = branch, resumed_from, spread
        self._probe = (Probe() if probe else None) if isinstance(probe, bool) else probe
        if self._probe is not None:
            self._probe.check(model)
        #: What the probe found of the last commit's approximation, on every rank; the worst of candidates with one
        #: number. None: every bit was kept, or nothing was probed.
        self.last_probe: Probed | None = None
        self._window = Window(interval, schedule, window, start)
        self._gradients = GradientAverage(whole(bare(model)), beta)
        self._fresh = False
        self._ranks: Ranks | None = None

    @property
    def repo(self) -> Repo:
        """The repository; in a job of several processes only the first one needs it."""
        if not isinstance(self._repo, Repo):
            self._repo = Repo.init(self._repo)
        return self._repo

    def on_backward_pass_end(self) -> None:
        """Says that gradients are there. With accumulation it may be called after each part of a batch."""
        self._fresh = True

    def before_gradient_flush(self) -> None:
        """Averages the gradients in before they are thrown away, if they are of one of the batches that count.

        They are taken as they are then: accumulated, unscaled and clipped as the optimizer saw them.
        """
        if self._fresh:
            self._batch_is_over(wanted=False)

    def compress(
        self, step: int, metrics: Mapping[str, Any] | None = None, message: str | None = None, **said: Any
    ) -> Commit:
        """Commits a version of the training state under the contract; on every rank, with the same result.

        ``said`` goes to `Repo.commit`: ``epoch``, ``meta``, ``files``. Afterwards the model, its buffers, gradients and
        all random generators are as before, bit for bit, also where this raises.

        Raises:
            Exception: what ``evaluate`` raised; nothing is then committed.
            RankError: another rank failed.
            MdlError: the commit failed, as of `Repo.commit`.
        """
        try:
            commit = self._compress(step, {"metrics": metrics, "message": message, **said})
        finally:
            self._window.step = step
        # Kept if that failed: it may be retried.
        self._gradients.reset()
        return commit

    def _compress(self, step: int, said: dict[str, Any]) -> Commit:
        ranks = self._ranks = self._ranks or Ranks()
        ranks.meet()
        generators = self._rng if isinstance(self._rng, Mapping) else {}
        random: Any = None
        problem = None
        try:
            if self._fresh:
                # Where the flush follows the checkpoint, the newest gradient, nine tenths of the average, is there.
                self._batch_is_over(wanted=self._gradients.samples == 0)
            random = None if self._rng is False else rng_state(**generators)
        except Exception as error:
            problem = error
        ranks.agree({"steps": step, "evaluations": self._evaluate is not None}, problem)
        gradients = self._gradients.tensors()
        if not isinstance(self._model, nn.parallel.DistributedDataParallel):
            gradients = ranks.average(self._gradients.names(), gradients)
        if random is not None and ranks.world > 1:
            random = ranks.gather(random)
        trials, self.last_probe = None, None
        if self._evaluate is not None:
            options: dict[str, Any] = {"spread": self._spread, "probe": self._probe, "step": step}
            trials = Trials(self._model, self._evaluate, generators, ranks, **options)
        commit: Commit
        commit, self.last_probe = led(ranks, trials, lambda: self._commit(step, said, gradients, random, trials))
        return commit

    def _batch_is_over(self, *, wanted: bool) -> None:
        if wanted or self._window.next_is_in():
            self._gradients.take()
        self._window.step += 1
        self._fresh = False

    def _commit(
        self, step: int, said: dict[str, Any], gradients: Any, random: Any, trials: Trials | None
    ) -> tuple[Commit, Probed | None]:
        if self._probe is not None and trials is not None:
            said["meta"] = {**limits(self._probe), **(said.get("meta") or {})}
        entries = dict(self._state()) if self._state is not None else {}
        state = contents(bare(self._model), self._parts, random, entries)
        with self._scratch() as scratch:
            grads = scratch / "grads.safetensors"
            if gradients:
                save_file(gradients, grads)
            commit: Commit = self.repo.commit(
                state,
                step=step,
                branch=self._branch,
                policy=self._written_policy(state, scratch),
                evaluate=cast(Any, trials),
                grads=grads if gradients else None,
                resumed_from=self._resumed_from,
                retention=self._retention,
                wait=True,
                **self._gate,
                **said,
            )
        self._resumed_from = None
        return commit, committed(commit, self._probe, trials.probed if trials is not None else [])

    def _written_policy(self, state: Mapping[str, Any], scratch: Path) -> str:
        """The policy with what the module tree says behind its own rules: the first rule that matches decides, so what
        a user wrote stands."""
        name, text = self.repo._native.policy(self._policy)
        file = scratch / f"{name}.toml"
        file.write_text(f"{text.rstrip()}\n{rules(bare(self._model), stored(state))}", encoding="utf-8")
        return os.fspath(file)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        root = self.repo.path / _SCRATCH
        root.mkdir(exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="loop-", dir=root))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
