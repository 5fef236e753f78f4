"""The parameter that stands for a compressed weight: shape, dtype and gradient of a plain one, no dense memory."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from .segments import Coding, Store

#: Methods that look at no element.
_PLAIN = {
    "size", "dim", "numel", "nelement", "ndimension", "element_size", "is_floating_point", "is_complex", "is_signed",
    "requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "get_device", "has_names",
    "is_same_size", "is_inference", "__len__", "__hash__", "is_conj", "is_neg", "is_distributed",
}  # fmt: skip
#: Functions that make a new tensor of the same shape or dtype.
_LIKE = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "result_type", "can_cast", "promote_types",
}  # fmt: skip
#: Properties that are tensors of the same elements.
_VIEWS = {"T", "mT", "H", "mH", "real", "imag"}
#: What asks for dense memory in place.
_MEMORY = {"data_ptr", "untyped_storage", "storage", "_typed_storage", "set_", "share_memory_", "storage_offset"}
#: What torch.compile asks a tensor for.
_LAYOUT = _MEMORY | {"stride", "is_contiguous"}


def _stub(store: Store) -> Tensor:
    return torch.zeros((), dtype=store.dtype, device=store.device).expand(store.shape)


class Weight(nn.Parameter):
    """A compressed weight. Linear, embedding and convolution layers decode it while they compute; anything else that is
    done with it works on a plain copy, and what is done in place is encoded again."""

    store: Store
    is_compressed = True
    #: Whether it stands for the plain tensor of a ``state_dict`` in a commit, which is no parameter.
    stands_for_plain = False

    def __new__(cls, store: Store, requires_grad: bool = True) -> Weight:
        made = torch.Tensor._make_subclass(cls, _stub(store), requires_grad)
        made.store = store
        return made

    def __init__(self, store: Store, requires_grad: bool = True) -> None:
        """`__new__` does it."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _dispatch(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Weight:
        if id(self) not in memo:
            made = Weight(self.store.copy(), self.requires_grad)
            if self.grad is not None:
                made.grad = self.grad.clone()
            memo[id(self)] = made
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.store.decode(), self.store.coding, self.requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        store = self.store
        return (
            f"<mdl.nn.Weight {list(store.shape)} {str(store.dtype).removeprefix('torch.')} {store.coding.name}, "
            f"{store.handle.nbytes} of {store.dense_bytes} bytes>"
        )


def _rebuilt(tensor: Tensor, coding: Coding, requires_grad: bool) -> Weight:
    return Weight(Store.of(tensor, coding), requires_grad)


@functools.cache
def _handlers() -> dict[Any, Callable[..., Any]]:
    from . import functions

    return functions.handlers()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _dispatch(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    handler = _handlers().get(func)
    if handler is not None:
        return handler(func, *args, **kwargs)
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        return _property(func, name, args, kwargs)
    if name in _PLAIN:
        return _as_it_is(func, args, kwargs)
    if name in _LAYOUT and torch._guards.TracingContext.try_get() is not None:
        # torch.compile looks at the stub, then leaves the layer's call as it is.
        return _as_it_is(func, args, kwargs)
    if name in _MEMORY:
        raise UsageError(
            f"{name}: a compressed weight has no dense memory of its own",
            "mdl.nn.decompress(model) gives plain parameters: sharding (FSDP) and shared memory need them",
        )
    if name in _LIKE:
        return _as_it_is(func, args, kwargs)
    _refuse_sharding()
    special = _SPECIAL.get(name)
    if special is not None and args and isinstance(args[0], Weight):
        return special(func, *args, **kwargs)
    return _on_plain(func, args, kwargs, _in_place(name, kwargs))


def _refuse_sharding() -> None:
    """Raises UsageError where FSDP is asking: it would take a plain copy of the weight, and go on with that."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return
        if frame.f_globals.get("__name__", "").startswith("torch.distributed.fsdp"):
            raise UsageError(
                "a compressed model cannot be sharded (FSDP): its weights have no dense memory",
                "mdl.nn.decompress(model) gives plain parameters",
            )
        frame = frame.f_back


def _as_it_is(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _property(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    of = getattr(func.__self__, "__name__", "")
    weight = args[0]
    if not isinstance(weight, Weight) or not hasattr(weight, "store"):
        return _as_it_is(func, args, kwargs)
    if of == "data" and name == "__get__":
        return Weight(weight.store, False)
    if of == "data" and name == "__set__":
        return _replace(weight, args[1])
    if of in _VIEWS and name == "__get__":
        return _on_plain(func, args, kwargs, False)
    return _as_it_is(func, args, kwargs)


def _replace(weight: Weight, value: Tensor) -> None:
    """``weight.data = value``: other contents, perhaps of another dtype, shape or device."""
    if isinstance(value, Weight):
        if value.store is weight.store:
            return
        value = value.store.decode()
    store = weight.store
    if (value.dtype, tuple(value.shape), value.device) == (store.dtype, store.shape, store.device):
        store.encode(value)
        return
    weight.store = Store.of(value.detach(), store.coding)
    with torch._C.DisableTorchFunctionSubclass():
        weight.data = _stub(weight.store)


def _in_place(name: str, kwargs: dict[str, Any]) -> bool:
    if (
        name.startswith("__i")
        and name.endswith("__")
        and name not in ("__invert__", "__iter__", "__int__", "__index__")
    ):
        return True
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or kwargs.get("out") is not None


def _on_plain(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool) -> Any:
    """Calls a function with plain tensors for weights; weights that it changed are encoded again."""
    from .functions import dense

    made: dict[int, tuple[Weight, Tensor, int]] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Weight):
            if id(value) not in made:
                tensor = value.store.decode().requires_grad_(value.requires_grad) if in_place else dense(value)
                made[id(value)] = (value, tensor, tensor._version)
            return made[id(value)][1]
        if type(value) in (list, tuple):
            return type(value)(plain(item) for item in value)
        if type(value) is dict:
            return {key: plain(item) for key, item in value.items()}
        return value

    args, kwargs = plain(args), plain(kwargs)
    result = _as_it_is(func, args, kwargs)
    if not in_place:
        return result
    for weight, tensor, version in made.values():
        if tensor._version != version:
            weight.store.encode(tensor)
    back = {id(tensor): weight for weight, tensor, _ in made.values()}
    return back.get(id(result), result)


def _detach(func: Any, weight: Weight) -> Tensor:
    """A plain tensor: the same one as long as the last one lives and neither changed, so that tied weights stay tied in
    a ``state_dict``."""
    store = weight.store
    held, version, changes = store.detached
    last = None if held is None else held()
    if last is None or version != store.version or last._version != changes:
        last = store.decode()
        store.detached = weakref.ref(last), store.version, last._version
    return last


def _copy(func: Any, weight: Weight, source: Tensor, non_blocking: bool = False) -> Weight:
    if torch.is_grad_enabled() and weight.requires_grad:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    store = weight.store
    if isinstance(source, Weight):
        source = source.store.decode()
    plain = source.detach().to(store.device, store.dtype)
    store.encode(plain.expand(store.shape))
    return weight


def _to(func: Any, weight: Weight, *args: Any, **kwargs: Any) -> Any:
    store = weight.store
    # What is decoded is contiguous, whatever layout was asked for.
    kwargs.pop("memory_format", None)
    if not kwargs.get("copy"):
        probe = torch.empty(0, dtype=store.dtype, device=store.device).to(*args, **kwargs)
        if (probe.dtype, probe.device) == (store.dtype, store.device):
            return weight
    return _on_plain(func, (weight, *args), kwargs, False)


def _same_or(func: Any, weight: Weight, *args: Any, **kwargs: Any) -> Any:
    """`float`, `cpu` and the like: the weight itself where nothing changes."""
    return _to(torch.Tensor.to, weight, _TARGETS[func.__name__])


def _contiguous(func: Any, weight: Weight, *args: Any, **kwargs: Any) -> bool:
    return True


def _stride(func: Any, weight: Weight, *args: Any, **kwargs: Any) -> Any:
    return torch.empty(weight.store.shape, device="meta").stride(*args, **kwargs)


_TARGETS: dict[str, Any] = {
    "cpu": "cpu",
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
}
_SPECIAL: dict[str, Callable[..., Any]] = {
    "detach": _detach,
    "copy_": _copy,
    "to": _to,
    "is_contiguous": _contiguous,
    "stride": _stride,
    **dict.fromkeys(_TARGETS, _same_or),
}
