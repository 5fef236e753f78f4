"""Evaluates candidates in the live model: copies their weights into its parameters, measures, restores the exact ones.

Afterwards every bit is where it was: parameters, buffers, gradients, training mode, random generators. An autograd
graph that waits for its backward pass is not affected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..errors import UsageError
from ..rng import rng_state, set_rng_state

#: The file of a version that has the state's entry "model".
MODEL_FILE = "model.safetensors"
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bare(model: nn.Module) -> nn.Module:
    """The model without what wraps it for compilation or several processes: its names are those that are stored."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod
        else:
            return model


def whole(model: nn.Module) -> dict[str, Any]:
    """Returns the parameters, tied ones by their first name.

    Raises:
        UsageError: they are sharded over processes.
    """
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if type(parameter).__name__ == "FlatParameter" or hasattr(parameter, "placements"):
            hint = "save it with torch.distributed.checkpoint and mdl.integrations.dcp"
            raise UsageError(f"{name} is sharded over processes: no rank has a model to measure", hint)
    return parameters


class Swap:
    """Puts a candidate's tensors in the place of the model's. Made for one search, in which nothing trains.

    Costs host memory for the exact values of the tensors that candidates change.
    """

    def __init__(self, model: nn.Module) -> None:
        # Not `state_dict()`: hooks may return copies. Tied tensors share one memory under each of their names.
        own = list(model.named_buffers(remove_duplicate=False))
        named = [*model.named_parameters(remove_duplicate=False), *own]
        # `.data` leaves the version counter alone: a pending graph would take the change for an error.
        self._live = {name: tensor.data for name, tensor in named}
        #: Names of the buffers.
        self.own = [name for name, _ in own]
        self._exact: dict[str, Tensor] = {}

    def different(self, file: Path) -> dict[str, Tensor]:
        """The tensors of a candidate's file that differ from the model's in any bit, by name, on the host."""
        with safe_open(file, "pt") as stored:
            names = [name for name in stored.keys() if name in self._live]  # noqa: SIM118 - no mapping
            read = ((name, stored.get_tensor(name)) for name in names)
            return {name: tensor for name, tensor in read if self._differs(name, tensor)}

    def buffers(self) -> dict[str, Tensor]:
        """The buffers by name, on the host: those of replicas (statistics of their batches) may differ."""
        return {name: self._live[name].cpu() for name in self.own}

    def _differs(self, name: str, tensor: Tensor) -> bool:
        live = self._live[name]
        if tensor.shape != live.shape or tensor.dtype != live.dtype:
            # A dtype that the file format lacks; no candidate changes such a tensor.
            return False
        return not same_bits(tensor, self._exact.get(name, live).cpu())

    @contextlib.contextmanager
    def put_in(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Context manager: inside, the model has these tensors."""
        # All are saved before one is changed: some may share memory.
        for name in tensors:
            if name not in self._exact:
                self._exact[name] = self._live[name].to("cpu", copy=True)
        try:
            for name, tensor in tensors.items():
                self._live[name].copy_(tensor)
            yield
        finally:
            for name in tensors:
                self._live[name].copy_(self._exact[name])


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one type on the host are the same, NaNs and the sign of zero included."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    kind = _BITS[a.element_size()]
    return torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


@contextlib.contextmanager
def undisturbed(model: nn.Module, generators: Mapping[str, Any]) -> Iterator[None]:
    """Inside, the model is in evaluation mode and builds no graph; afterwards the training goes on as if nothing was.

    Random generators, also the user's own, are put back, so that every candidate sees the same draws.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, tensor, tensor.clone())
        for module in model.modules()
        for name, tensor in module._buffers.items()
        if tensor is not None
    ]
    random = rng_state(**generators)
    try:
        model.eval()
        with torch.no_grad(), _alone(model):
            yield
    finally:
        for module, training in modes:
            module.training = training
        for module, name, tensor, value in buffers:
            module._buffers[name] = tensor
            tensor.data.copy_(value)
        set_rng_state(random, **generators)


@contextlib.contextmanager
def _alone(model: nn.Module) -> Iterator[None]:
    """Inside, a replica's forward pass does not wait for the other processes to send their buffers."""
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        yield
        return
    synced, model.require_forward_param_sync = model.require_forward_param_sync, False
    try:
        yield
    finally:
        model.require_forward_param_sync = synced
