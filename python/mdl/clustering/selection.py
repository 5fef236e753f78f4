"""Which weights of a model are clustered, and what stands in the way of others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import UsageError
from .layer import DKM, Settings

KINDS = (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


#: A module's attribute that has the order of its parameters.
_ORDER = "_mdl_parameter_order"


@dataclass
class Place:
    """A weight under its first name, and the modules that have it: several where it is tied."""

    name: str
    weight: Tensor
    users: list[tuple[nn.Module, str]]


def prepared(model: nn.Module) -> bool:
    """Whether a model has DKM layers."""
    return any(isinstance(module, DKM) for module in model.modules())


def places(model: nn.Module) -> list[Place]:
    """The weights of a model that have DKM layers."""
    found: dict[int, Place] = {}
    for name, module in model.named_modules():
        if not parametrize.is_parametrized(module):
            continue
        for tensor, chain in module.parametrizations.items():
            if isinstance(chain[0], DKM):
                place = found.setdefault(id(chain.original), Place(_join(name, tensor), chain.original, []))
                place.users.append((module, tensor))
    return list(found.values())


def own_class(module: nn.Module) -> None:
    """Gives a module its own copy of the class that torch made for its parametrizations. Copies of a module share that
    class, and removing the parametrizations of one would take the weight away from all."""
    shared = type(module)
    members = {name: value for name, value in vars(shared).items() if name not in ("__dict__", "__weakref__")}
    module.__class__ = type(shared.__name__, shared.__bases__, members)


def keep_order(module: nn.Module) -> None:
    """Notes the order of a module's parameters, for `restore_order`."""
    module.__dict__.setdefault(_ORDER, tuple(module._parameters))


def restore_order(module: nn.Module) -> None:
    """Puts parameters back into the order that was noted: torch adds one whose parametrization it removes behind all
    others, and an optimizer's state goes by position."""
    order = [name for name in module.__dict__.pop(_ORDER, ()) if name in module._parameters]
    if order:
        found = {name: module._parameters.pop(name) for name in order}
        rest = dict(module._parameters)
        module._parameters.clear()
        module._parameters.update(found | rest)


def select(
    model: nn.Module, settings: Settings, layers: Iterable[str] | None, least: int
) -> tuple[list[Place], dict[str, str]]:
    """The weights that are to be clustered, and why others of the same kinds are not.

    Raises:
        UsageError: there are none, or one that was named cannot be.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"a {type(model).__name__} is no torch module", "hand over the model itself")
    if prepared(model):
        raise UsageError("the model is palettized already", "finalize() ends that; then it may be done again")
    patterns = [layers] if isinstance(layers, str) else None if layers is None else list(layers)
    found: dict[int, Place] = {}
    skipped: dict[str, str] = {}
    matched: set[str] = set()
    for name, module in model.named_modules(remove_duplicate=True):
        if "FullyShardedDataParallel" in type(module).__name__:
            raise UsageError("the model is sharded (FSDP)", "a rank has no whole weight: palettize before sharding")
        if patterns is not None:
            hits = [p for p in patterns if fnmatchcase(name, p)]
            matched.update(hits)
            if not hits or (not isinstance(module, KINDS) and name not in patterns):
                continue
        elif not isinstance(module, KINDS):
            continue
        label = _join(name, "weight")
        why = _unfit(module, settings)
        if why and (patterns is not None or "sharded" in why):
            raise UsageError(f"{label} cannot be palettized: {why}", "leave it out by layers=, or change it first")
        weight = getattr(module, "weight", None) if why is None else None
        if why is None and patterns is None and weight is not None and weight.numel() < least:
            why = f"it has {weight.numel()} weights, fewer than min_weights={least}"
        if why:
            skipped[label] = why
        elif weight is not None:
            found.setdefault(id(weight), Place(label, weight, [])).users.append((module, "weight"))
    unmatched = [p for p in patterns or [] if p not in matched]
    if unmatched:
        raise UsageError(f"layers={unmatched} match no module", "names are those of model.named_modules()")
    if not found:
        few = "; ".join(f"{name}: {why}" for name, why in list(skipped.items())[:3])
        raise UsageError(
            "the model has no weights to palettize" + (f" ({few})" if few else ""),
            "linear, embedding and convolution layers have them",
        )
    return list(found.values()), skipped


def _unfit(module: nn.Module, settings: Settings) -> str | None:
    """What stands in the way of clustering a module's weight."""
    if parametrize.is_parametrized(module, "weight"):
        return "it has another parametrization"
    weight = module._parameters.get("weight")
    if weight is None:
        return "it has no parameter of this name"
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return "it has no values yet: run the model once"
    if hasattr(weight, "placements"):
        return "it is sharded (DTensor): palettize before sharding"
    if weight.is_meta or weight.layout != torch.strided:
        return "it has no values in memory" if weight.is_meta else "it is sparse"
    if weight.dtype not in DTYPES:
        return f"it is {str(weight.dtype).removeprefix('torch.')}, not floating point of 16, 32 or 64 bits"
    for part in settings.groups(weight):
        count = part.stop - part.start
        if count % settings.dim:
            return f"a group of {count} weights does not divide into vectors of dim={settings.dim}"
        if count // settings.dim < 2**settings.bits:
            return f"a group has {count // settings.dim} vectors, fewer than {2**settings.bits} clusters"
    return None


def _join(name: str, tensor: str) -> str:
    return f"{name}.{tensor}" if name else tensor
