"""`mdl.palettize`: fine-tunes a torch model into weights of few values (DKM, eDKM), which a commit stores as such.

palettizer = mdl.palettize(model, bits=3)
palettizer.prepare(optimizer)
for batch in batches:
    optimizer.zero_grad()
    loss(model, batch).backward()
    optimizer.step()
    palettizer.step()
palettizer.finalize()
repo.commit({"model": model.state_dict()})
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from .clustering.initial import METHODS, initial
from .clustering.layer import DKM, Settings
from .clustering.learners import Learners
from .clustering.marshal import Marshaling, SavedBytes, counting
from .clustering.report import PaletteReport, report_of
from .clustering.selection import Place, keep_order, own_class, places, prepared, restore_order, select
from .errors import UsageError

Temperature = float | Callable[[int], float]


class Palettizer:
    """Clusters a model's weights while it is trained. `mdl.palettize` makes one and has the arguments."""

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        *,
        layers: Iterable[str] | None,
        min_weights: int,
        temperature: Temperature,
        start: str,
        seed: int,
        shard: Any,
    ) -> None:
        self._model, self._settings, self._temperature = model, settings, temperature
        self._start, self._seed, self._shard = start, seed, shard
        self._places, self._skipped = select(model, settings, layers, min_weights)
        self._state = "new"
        #: Calls of `step` so far.
        self.steps = 0

    def prepare(self, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
        """Puts a `DKM` layer before each weight, in place, and gives the model.

        From here on ``module.weight`` is what stands for the weight; the weight itself is trained as before, by the
        same optimizer: ``model.parameters()`` has the same tensors. With ``shard`` a collective call.

        Args:
            optimizer: Looked at only: whether it holds these weights.

        Raises:
            UsageError: the model is prepared already, the optimizer holds other tensors, or weights are not finite.
        """
        if self._state != "new" or prepared(self._model):
            raise UsageError("the model is palettized already", "finalize() ends that; then it may be done again")
        if optimizer is not None:
            self._check(optimizer)
        settings = self._settings
        if self._shard:
            settings = Settings(**{**vars(settings), "learners": Learners(self._shard)})
        made = [(place, self._layer(place, settings, self._seed + i)) for i, place in enumerate(self._places)]
        for place, layer in made:
            for module, name in place.users:
                keep_order(module)
                # It takes no look at the layer's output: shape and precision are the weight's.
                parametrize.register_parametrization(module, name, layer, unsafe=True)
        self._state = "prepared"
        self._set_temperature()
        return self._model

    def _layer(self, place: Place, settings: Settings, seed: int) -> DKM:
        weight = place.weight.detach()
        if not bool(weight.isfinite().all()):
            raise UsageError(f"{place.name} has values that are not finite", "they have no nearest centroid")
        flat = weight.reshape(-1)
        found = [
            initial(flat[part].view(-1, settings.dim), 2**settings.bits, self._start, seed)
            for part in settings.groups(weight)
        ]
        centroids, distortion = (torch.stack(parts).to(weight.device) for parts in zip(*found, strict=True))
        # Weights of few values are on their centroids; the temperature has to be above 0 all the same.
        least = flat.double().square().mean() * 1e-8 + torch.finfo(torch.float32).tiny
        return DKM(settings, centroids, distortion.clamp_min(least), 1.0)

    def _check(self, optimizer: torch.optim.Optimizer) -> None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        absent = [p.name for p in self._places if p.weight.requires_grad and id(p.weight) not in held]
        if absent:
            raise UsageError(
                f"the optimizer does not hold {_few(absent)}",
                "it was made for other tensors (before the model was copied or loaded anew) or for a part of them: "
                "make it of model.parameters(), or name layers=",
            )

    def step(self) -> None:
        """Ends a training step, after ``optimizer.step()``: centroids move to where the last forward pass had them, and
        the temperature to its next value. Forward passes between two calls begin with the same centroids, so gradients
        accumulated over them are those of one large batch.

        Raises:
            UsageError: not between `prepare` and `finalize`.
        """
        self._ready("step")
        for place in self._places:
            self._dkm(place).advance()
        self.steps += 1
        self._set_temperature()

    def report(self) -> PaletteReport:
        """What there is: for each weight its clusters, its distance from them, and what a forward pass saves.

        It runs the layers, not the model; centroids stay where they are.

        Raises:
            UsageError: not between `prepare` and `finalize`.
        """
        self._ready("report")
        return report_of([(p, self._dkm(p)) for p in self._places], self._skipped, self.steps)

    def finalize(self, inplace: bool = True) -> nn.Module:
        """Gives the model with plain parameters again, each vector of weights at its nearest centroid: a group has
        2^bits at most. They are what the model computes with in evaluation mode. Parameters stay the same tensors.

        Args:
            inplace: False: a copy is given, and the model stays prepared.

        Raises:
            UsageError: not between `prepare` and `finalize`, or weights are not finite.
        """
        self._ready("finalize")
        model = self._model if inplace else copy.deepcopy(self._model)
        done = []
        for place in places(model):
            dkm = getattr(place.users[0][0].parametrizations, place.users[0][1])[0]
            if not bool(place.weight.isfinite().all()):
                raise UsageError(f"{place.name} has values that are not finite", "the training diverged")
            done.append((place, dkm.hard(place.weight)[0]))
        for place, hard in done:
            for module, name in place.users:
                own_class(module)
                parametrize.remove_parametrizations(module, name, leave_parametrized=False)
            with torch.no_grad():
                place.weight.copy_(hard)
        for module in model.modules():
            restore_order(module)
        if inplace:
            self._state = "finalized"
        return model

    def marshaling(self) -> contextlib.AbstractContextManager[SavedBytes]:
        """Within it, what forward passes save for the backward pass goes to the host, each storage once, and comes back
        when it is needed; the model's own parameters and buffers stay. Gives the bytes moved."""
        return Marshaling([*self._model.parameters(), *self._model.buffers()]).saving()

    def counting(self) -> contextlib.AbstractContextManager[SavedBytes]:
        """Within it, bytes that autograd saves are counted, parameters and buffers of the model apart."""
        return counting([*self._model.parameters(), *self._model.buffers()])

    def state_dict(self) -> dict[str, Any]:
        """The number of steps; weights and centroids are in the model's ``state_dict()``."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state; the model's is loaded by itself, after `prepare`."""
        self._ready("load_state_dict")
        self.steps = int(state["steps"])
        self._set_temperature()

    def _dkm(self, place: Place) -> DKM:
        module, name = place.users[0]
        return getattr(module.parametrizations, name)[0]

    def _ready(self, verb: str) -> None:
        if self._state != "prepared":
            hint = "prepare() comes first" if self._state == "new" else "make a new palettizer to go on"
            raise UsageError(f"{verb}: the model is not prepared" + (" any more" * (self._state != "new")), hint)

    def _set_temperature(self) -> None:
        value = self._temperature(self.steps) if callable(self._temperature) else self._temperature
        if not value > 0:
            raise UsageError(f"the temperature is {value} at step {self.steps}", "it must be above 0")
        for place in self._places:
            self._dkm(place).temperature = float(value)


def palettize(
    model: nn.Module,
    bits: int = 3,
    *,
    group: int | None = None,
    dim: int = 1,
    layers: Iterable[str] | None = None,
    min_weights: int = 2048,
    temperature: Temperature = 3.0,
    iterations: int = 3,
    tolerance: float = 0.0,
    start: str = "kmeans++",
    seed: int = 0,
    unique: bool = True,
    key16: bool = False,
    index: str = "self",
    recompute: bool = True,
    shard: Any = False,
) -> Palettizer:
    """Makes a `Palettizer` of a model; `Palettizer.prepare` begins.

    Args:
        model: Any module; its weights of linear, embedding and convolution layers are clustered. For several processes
            prepare it before it is wrapped. Sharded models (FSDP, DTensor) are refused.
        bits: Bits for a vector of weights, 1 to 8: 2^bits centroids.
        group: Rows of the first axis (output channels) that share centroids. None: the whole tensor.
        dim: Consecutive weights that make a vector.
        layers: Modules whose ``weight`` is clustered, by name or pattern (``"encoder.*"``). None: all of the kinds
            above; of these weights that are not floating point or have fewer than ``min_weights`` are left out.
        min_weights: Smallest weight that is clustered where ``layers`` is None.
        temperature: Softness of the assignment, above 0, in units of the mean squared distance of weights from their
            centroids when `prepare` was called; or a function of the number of steps, to cool down.
        iterations: Iterations of k-means in each forward pass, at most.
        tolerance: They end where no centroid moved further than this times the root of that distance; 0: never.
        start: First centroids, ``"kmeans++"`` or ``"quantiles"``, both refined by Lloyd's iterations.
        seed: For kmeans++. The same seed and weights give the same centroids.
        unique: Whether weights of 16 bits are clustered by value: a table of at most 65,536 values x centroids.
        key16: Whether float32 weights are rounded to bfloat16 for clustering, so that this is so for them too: an
            approximation, of 2^-9 of a weight at most.
        index: ``"self"``: a weight's bits are its index into the table, no list is saved. ``"list"``: the list is
            saved, 2 bytes for each weight, which is for weights that change before the backward pass.
        recompute: Whether attention is computed again in the backward pass. False: it is saved, in the weights'
            precision.
        shard: Shares the list out over the learners of a `torch.distributed` job: True, or a process group. It wants
            ``index="list"``.

    Raises:
        UsageError: arguments that make no sense, or no weights that can be clustered; the message names them.
    """
    _within("bits", bits, 1, 8)
    _within("dim", dim, 1, 64)
    _within("iterations", iterations, 1, 1000)
    if group is not None:
        _within("group", group, 1, None)
    if not tolerance >= 0:
        raise UsageError(f"tolerance is {tolerance}", "it must be 0 or more")
    if start not in METHODS:
        raise UsageError(f"start is {start!r}", f"there are {', '.join(METHODS)}")
    if index not in ("self", "list"):
        raise UsageError(f"index is {index!r}", 'there are "self" and "list"')
    if shard and index != "list":
        raise UsageError("there is no list to shard", 'index="list" makes one; with "self" the weights are the list')
    if shard and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise UsageError("there are no learners", "call torch.distributed.init_process_group first")
    settings = Settings(bits, group, dim, iterations, tolerance, unique, key16, index, recompute)
    return Palettizer(
        model,
        settings,
        layers=layers,
        min_weights=min_weights,
        temperature=temperature,
        start=start,
        seed=seed,
        shard=shard,
    )


def _within(name: str, value: int, least: int, most: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        raise UsageError(f"{name} is {value!r}", f"a whole number from {least}" + (f" to {most}" if most else ""))


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
