"""Which weights of a model live compressed, and what stands in the way of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import UsageError
from .segments import MAKERS
from .weight import Weight

KINDS = (nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvNd)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass
class Selection:
    """Names of weights to be compressed (each tensor once, under its first name), and why others are not."""

    names: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def weights(model: nn.Module) -> Iterator[tuple[str, Weight]]:
    """The compressed weights of a model, each once."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, Weight):
            yield name, parameter


def users(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """For each parameter, by its identity, the modules that have it, and under which names: several if it is tied."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((module, name))
    return found


def select(model: nn.Module, layers: list[str] | None, least: int, meta: bool = False) -> Selection:
    """The weights that are to be compressed. ``meta``: those without values too, which are to get some.

    Raises:
        UsageError: there are none, one that was named cannot be, or the model is none that can be compressed.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"a {type(model).__name__} is no torch module", "hand over the model itself")
    if next(model.parameters(), None) is None:
        raise UsageError(f"{type(model).__name__} has no parameters", "there is nothing to compress")
    if next(weights(model), None) is not None:
        raise UsageError("the model is compressed already", "mdl.nn.decompress(model) gives plain parameters again")
    selection, matched, seen = Selection(), set(), set()
    for name, module in model.named_modules():
        if "FullyShardedDataParallel" in type(module).__name__ or hasattr(module, "_get_fsdp_state"):
            raise UsageError("the model is sharded (FSDP)", "a rank has no whole weight, and sharding needs dense ones")
        hits = [p for p in layers or [] if fnmatchcase(name, p)]
        matched.update(hits)
        if (layers is not None and not hits) or (not isinstance(module, KINDS) and name not in (layers or [])):
            continue
        label = f"{name}.weight" if name else "weight"
        why = _unfit(module, meta)
        if why and (layers is not None or "sharded" in why):
            raise UsageError(f"{label} cannot be compressed: {why}", "leave it out by layers=, or change it first")
        weight = module._parameters.get("weight") if why is None else None
        if weight is not None and id(weight) in seen:
            continue
        if weight is not None and layers is None and weight.numel() < least:
            why = f"it has {weight.numel()} elements, fewer than min_weights={least}"
        if why:
            selection.skipped[label] = why
        elif weight is not None:
            seen.add(id(weight))
            selection.names.append(label)
    unmatched = [p for p in layers or [] if p not in matched]
    if unmatched:
        raise UsageError(f"layers={unmatched} match no module", "names are those of model.named_modules()")
    if not selection.names:
        few = "; ".join(f"{name}: {why}" for name, why in list(selection.skipped.items())[:3])
        raise UsageError(
            "the model has no weights to compress" + (f" ({few})" if few else ""),
            "linear, embedding and convolution layers have them",
        )
    return selection


def _unfit(module: nn.Module, meta: bool) -> str | None:
    """What stands in the way of compressing a module's weight."""
    if parametrize.is_parametrized(module, "weight"):
        return "it has a parametrization: finalize or remove that first"
    weight = module._parameters.get("weight")
    if weight is None:
        return "it has no parameter of this name"
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "attention of torch.nn reads it by itself"
    if isinstance(module, nn.EmbeddingBag):
        return "bags of embeddings are summed by a function that needs the plain weight"
    if getattr(module, "max_norm", None) is not None or getattr(module, "sparse", False):
        return "max_norm changes it in every forward pass" if not module.sparse else "its gradients are sparse"
    return _unfit_tensor(weight, meta)


def _unfit_tensor(weight: Tensor, meta: bool) -> str | None:
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return "it has no values yet: run the model once"
    if hasattr(weight, "placements"):
        return "it is sharded (DTensor), and sharding needs dense weights"
    if weight.layout != torch.strided:
        return "it is sparse"
    if weight.is_meta and not meta:
        return "it has no values in memory: mdl.nn.load gives it some"
    if weight.dtype not in DTYPES:
        return f"it is {str(weight.dtype).removeprefix('torch.')}, not floating point of 16, 32 or 64 bits"
    if weight.device.type not in MAKERS and not weight.is_meta:
        return f"it is on {weight.device}; there are {', '.join(MAKERS)}"
    return None
