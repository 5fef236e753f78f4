"""Evaluates candidates in the live model: copies their weights into its parameters, measures, restores the exact ones.

Afterwards every bit is where it was: parameters, buffers, gradients, training mode, random generators. An autograd
graph that waits for its backward pass is not affected.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..dtypes import TO_TORCH
from ..errors import UsageError
from ..rng import rng_state, set_rng_state

if TYPE_CHECKING:
    from .._native import Replaced

#: The file of a version that has the state's entry "model".
MODEL_FILE = "model.safetensors"


def bare(model: nn.Module) -> nn.Module:
    """The model without what wraps it for compilation or several processes: its names are those that are stored."""
    while True:
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(compiled, nn.Module):
            model = compiled
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

    def weights(self, candidate: Iterable[Replaced]) -> dict[str, Tensor]:
        """The tensors of a candidate that take the place of the model's, by name, in the memory where they are."""
        mine = (r for r in candidate if r.file == MODEL_FILE and r.name in self._live)
        return {r.name: tensor for r in mine if self._fits(r.name, tensor := in_place(r))}

    def buffers(self) -> dict[str, Tensor]:
        """The buffers by name, on the host: those of replicas (statistics of their batches) may differ."""
        return {name: self._live[name].cpu() for name in self.own}

    def _fits(self, name: str, tensor: Tensor) -> bool:
        # Else a hook of `state_dict` gave something of this name that is not the model's.
        live = self._live[name]
        return (tensor.shape, tensor.dtype) == (live.shape, live.dtype)

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


def in_place(replaced: Replaced) -> Tensor:
    """The tensor on the host without a copy: it keeps what holds its memory, and is not to be written to."""
    dtype = getattr(torch, TO_TORCH[replaced.dtype])
    if replaced.nbytes == 0:
        return torch.empty(replaced.shape, dtype=dtype)
    memory = (ctypes.c_uint8 * replaced.nbytes).from_address(replaced.address)
    memory.owner = replaced  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=dtype).reshape(replaced.shape)


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
