"""`mdl.nn.compress` and `mdl.nn.decompress`: from plain parameters to compressed ones, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor, nn

from ..errors import UsageError
from .optimizers import watch
from .segments import Coding, Store
from .selection import select, users, weights
from .weight import Weight

Module = TypeVar("Module", bound=nn.Module)
KEPT = (0, 1, 3)
BLOCKS = (32, 64, 128, 256, 512)
_SKIPPED = "_mdl_nn_skipped"


@dataclass(frozen=True)
class CompressionReport:
    """Bytes of a model's parameters, each tensor once."""

    #: Plain bytes of the weights that live compressed.
    dense_bytes: int
    #: What they take.
    compressed_bytes: int
    #: Bytes of all other parameters and of buffers.
    other_bytes: int
    #: Name -> plain bytes, compressed bytes.
    weights: dict[str, tuple[int, int]] = field(repr=False)
    #: Weights of the same kinds of layers that are plain, and why.
    skipped: dict[str, str] = field(repr=False)

    @property
    def ratio(self) -> float:
        """What all parameters and buffers take, as a part of what they would take plain."""
        return (self.compressed_bytes + self.other_bytes) / max(1, self.dense_bytes + self.other_bytes)


def coding_of(mode: str | None, bits: int | None, block: int) -> Coding:
    """The coding that these arguments ask for.

    Raises:
        UsageError: there is none.
    """
    if bits is None and mode in (None, "lossless"):
        return Coding()
    if mode not in (None, "lossy", "lossless") or (mode == "lossy" and bits is None):
        raise UsageError(f"mode is {mode!r}", 'there are "lossless" and, by bits=3, 1 or 0, lossy')
    if mode == "lossless":
        raise UsageError("mode is 'lossless' and bits are given", "bits= of mantissa are kept in lossy form")
    if isinstance(bits, bool) or bits not in KEPT:
        raise UsageError(f"bits is {bits!r}", f"mantissas have {', '.join(map(str, KEPT))} bits (and a sign)")
    if block not in BLOCKS:
        raise UsageError(f"block is {block!r}", f"there are {', '.join(map(str, BLOCKS))}")
    return Coding("lossy", bits, block)


def compress(
    model: Module,
    mode: str | None = None,
    *,
    bits: int | None = None,
    block: int = 512,
    layers: str | Iterable[str] | None = None,
    min_weights: int = 2048,
) -> Module:
    """Turns weights of linear, embedding and convolution layers into compressed ones, in place, and gives the model
    (NeuZip, arXiv 2410.20650). A layer decodes its weight where it computes, forward and backward, into a buffer that
    all layers share. ``model.parameters()`` then has `mdl.nn.Weight` in their places: make optimizers after this.

    Args:
        model: Any module. Norms, biases, and parameters of other modules stay as they are.
        mode: ``"lossless"`` (the default): exponents are coded, every bit comes back.
        bits: Lossy instead: sign and 0, 1 or 3 bits of mantissa.
        block: Elements that share a coefficient in lossy form: 32, 64, 128, 256 or 512.
        layers: Modules whose ``weight`` is compressed, by name or pattern (``"encoder.*"``). None: all of the kinds
            above; of these weights that cannot be compressed, or are small, stay as they are: `report` says why.
        min_weights: Smallest weight, in elements, that is compressed where ``layers`` is None.

    Raises:
        UsageError: arguments that make no sense; no parameters, or none that can be compressed; a model that is
            compressed already, or sharded.
    """
    coding = coding_of(mode, bits, block)
    patterns = [layers] if isinstance(layers, str) else None if layers is None else list(layers)
    selection = select(model, patterns, min_weights)
    holders = users(model)
    for name in selection.names:
        plain = model.get_parameter(name)
        attach(holders[id(plain)], plain, Weight(Store.of(plain.detach(), coding), plain.requires_grad))
        del plain
    model.__dict__[_SKIPPED] = selection.skipped
    model.register_load_state_dict_pre_hook(_no_assign)
    return model


def attach(holders: list[tuple[nn.Module, str]], plain: Tensor, made: Weight) -> None:
    """Puts a compressed weight in the places of a plain parameter."""
    watch()
    made.grad = plain.grad
    for module, attribute in holders:
        module._parameters[attribute] = made
    # An optimizer may still hold it.
    plain._mdl_compressed = True  # type: ignore[attr-defined]
    plain.grad = None


def decompress(model: Module) -> Module:
    """Gives the model plain parameters again, in place: what the compressed ones decode to.

    Raises:
        UsageError: it has no compressed weights.
    """
    found = [name for name, _ in weights(model)]
    if not found:
        raise UsageError("the model is not compressed", "mdl.nn.compress(model) does that")
    holders = users(model)
    for name in found:
        weight = model.get_parameter(name)
        plain = nn.Parameter(weight.detach(), weight.requires_grad)
        plain.grad = weight.grad
        for module, attribute in holders[id(weight)]:
            module._parameters[attribute] = plain
    model.__dict__.pop(_SKIPPED, None)
    return model


def report(model: nn.Module) -> CompressionReport:
    """What a model's parameters take.

    Raises:
        UsageError: it has no compressed weights.
    """
    found = {n: (w.store.dense_bytes, w.store.handle.nbytes) for n, w in weights(model)}
    if not found:
        raise UsageError("the model is not compressed", "mdl.nn.compress(model) does that")
    others = [p for p in model.parameters() if not isinstance(p, Weight)] + list(model.buffers())
    return CompressionReport(
        dense_bytes=sum(dense for dense, _ in found.values()),
        compressed_bytes=sum(encoded for _, encoded in found.values()),
        other_bytes=sum(t.numel() * t.element_size() for t in others),
        weights=found,
        skipped=dict(model.__dict__.get(_SKIPPED, {})),
    )


def _no_assign(module: nn.Module, state: Any, prefix: str, metadata: dict[str, Any], *_: Any) -> None:
    if metadata.get("assign_to_params_buffers") and next(weights(module), None) is not None:
        raise UsageError(
            "load_state_dict(assign=True) would put plain tensors in the places of compressed weights",
            "without assign their values are loaded into the compressed weights",
        )
