"""Tensors and arrays as byte runs: their memory, their dtype names in a file, and how they are rebuilt."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from .devices import current
from .dtypes import is_jax, numpy_stored, torch_loaded, torch_stored
from .errors import StateError


@dataclass
class Run:
    """A tensor's bytes, contiguous, in C order: address, length, what keeps them, and the GPU they are on."""

    stored: str
    shape: tuple[int, ...]
    address: int
    nbytes: int
    owner: Any
    device: int | None = None


def is_tensor(value: Any) -> bool:
    """Whether a value is an array of numbers that is stored as a tensor."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiubc" or numpy_stored(value.dtype) is not None
    torch = torch_loaded()
    return (torch is not None and isinstance(value, torch.Tensor)) or is_jax(value)


def compressed(value: Any) -> Any | None:
    """The store of a weight that `mdl.nn` keeps compressed in the host's memory; None: it is another tensor."""
    store = value.store if getattr(type(value), "is_compressed", False) else None
    return store if store is not None and hasattr(store.handle, "native") else None


def from_jax(array: Any, path: str) -> np.ndarray:
    """A `jax.Array` as numpy's, without a copy where it is on the host.

    Raises:
        StateError: parts of it are on other hosts; it holds keys of a random generator, whose type is jax's own.
    """
    jax = sys.modules["jax"]
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise StateError(f"{path} is a typed key of jax.random", "store jax.random.key_data(key), and wrap that again")
    if not array.is_fully_addressable:
        hint = "gather it (multihost_utils.process_allgather), or put shards (repo.put_shard)"
        raise StateError(f"parts of {path} are on other hosts", hint)
    return np.asarray(array)


def key_of(value: Any) -> tuple[Any, ...] | None:
    """What two names of one tensor have in common: the same key, the same memory seen in the same way. None: nothing to
    share.
    """
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return None
        return ("numpy", value.__array_interface__["data"][0], value.dtype.str, value.shape, value.strides)
    if value.numel() == 0:
        return None
    if (store := compressed(value)) is not None:
        return ("mdl.nn", id(store))
    # A conjugated or negated view has its base's memory, but other values.
    flags = (value.is_conj(), value.is_neg())
    return (str(value.device), value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), flags)


def run_of(value: Any) -> tuple[Run, dict[str, Any]]:
    """The bytes of a tensor, and what its file does not say of it.

    A tensor of a type that safetensors lacks is stored as bytes.
    """
    return _numpy_run(value) if isinstance(value, np.ndarray) else _torch_run(value)


def _numpy_run(array: np.ndarray) -> tuple[Run, dict[str, Any]]:
    said: dict[str, Any] = {"as": "numpy"}
    if array.ndim > 1 and not array.flags.c_contiguous and array.flags.f_contiguous:
        said["order"] = "F"
    plain: np.ndarray = np.ascontiguousarray(array).reshape(array.shape)
    stored = numpy_stored(plain.dtype)
    if stored is None:
        said["dtype"], said["shape"] = array.dtype.str, list(array.shape)
        plain, stored = plain.reshape(-1).view(np.uint8), "U8"
    address = plain.__array_interface__["data"][0]
    return Run(stored, plain.shape, address, plain.nbytes, plain), said


def _torch_run(tensor: Any) -> tuple[Run, dict[str, Any]]:
    torch = sys.modules["torch"]
    said: dict[str, Any] = {}
    if isinstance(tensor, torch.nn.Parameter):
        said["parameter"] = True
    if tensor.requires_grad and tensor.is_leaf:
        said["requires_grad"] = True
    if (store := compressed(tensor)) is not None:
        # It is decoded while it is committed; what the handle becomes later is not in the version.
        name = torch_stored(store.dtype) or "U8"
        return Run(name, store.shape, 0, store.dense_bytes, store.handle.native), _own_words(tensor, said)
    if tensor.device.type != "cpu":
        said["device"] = str(tensor.device)
    plain = tensor.detach()
    if not plain.is_contiguous():
        strides = plain.stride()
        if _dense(plain.shape, strides):
            said["strides"] = list(strides)
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    taken = devices.take(torch, plain) if (devices := current()) else None
    device = None if taken is None else taken.device.index
    if taken is None:
        taken = plain.cpu().contiguous() if plain.device.type != "cpu" else plain.contiguous()
    plain = taken
    stored = torch_stored(plain.dtype)
    if stored is None:
        said["dtype"], said["shape"] = str(plain.dtype).removeprefix("torch."), list(plain.shape)
        plain, stored = plain.reshape(-1).view(torch.uint8), "U8"
    nbytes = plain.numel() * plain.element_size()
    return Run(stored, tuple(plain.shape), plain.data_ptr(), nbytes, plain, device), said


def _own_words(weight: Any, said: dict[str, Any]) -> dict[str, Any]:
    """What is said of a compressed weight: nothing where it stands for an entry of a ``state_dict``."""
    return {} if weight.stands_for_plain else said


def refuse(tensor: Any, path: str) -> None:
    """Raises StateError for a tensor that has no plain run of bytes."""
    if compressed(tensor) is not None:
        return
    if isinstance(tensor, np.ndarray):
        if type(tensor) is not np.ndarray and isinstance(tensor, np.ma.MaskedArray):
            raise StateError(f"{path} is a masked array", "store its data and its mask")
        return
    torch = sys.modules["torch"]
    why = hint = None
    if tensor.layout != torch.strided:
        why, hint = (
            f"is a tensor of layout {tensor.layout}",
            "store its parts (indices and values), or tensor.to_dense()",
        )
    elif tensor.is_quantized:
        why, hint = "is a tensor of torch's quantised types", "store tensor.int_repr(), scale and zero point"
    elif tensor.device.type == "meta":
        why, hint = "is a tensor without values (on the meta device)", "materialise it first"
    elif type(tensor).__name__ == "DTensor":
        why, hint = "is sharded over processes", "save it with torch.distributed.checkpoint and mdl.integrations.dcp"
    elif tensor.numel() and not _has_memory(tensor):
        why = f"is a {type(tensor).__name__}, which has no memory of its own"
        hint = "store the tensors that it is made of"
    if why:
        raise StateError(f"{path} {why}", hint)


def _has_memory(tensor: Any) -> bool:
    """Returns whether a tensor has memory of its own: wrapper tensors have no address."""
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False


def _dense(shape: Any, strides: Any) -> bool:
    """Whether the elements fill memory without gaps or overlaps, in whatever order of the axes."""
    want = 1
    for stride, size in sorted((s, d) for s, d in zip(strides, shape, strict=True) if d != 1):
        if stride != want:
            return False
        want *= size
    return True


def finish(raw: Any, said: dict[str, Any], map_location: Any) -> Any:
    """Rebuilds a tensor as the state had it, from the one that was read."""
    return _finish_numpy(raw, said) if said.get("as") == "numpy" else _finish_torch(raw, said, map_location)


def _finish_numpy(array: np.ndarray, said: dict[str, Any]) -> np.ndarray:
    if "dtype" in said:
        array = array.view(np.dtype(said["dtype"])).reshape(said["shape"])
    return np.asfortranarray(array) if said.get("order") == "F" else array


def _finish_torch(tensor: Any, said: dict[str, Any], map_location: Any) -> Any:
    torch = sys.modules["torch"]
    if "dtype" in said:
        dtype = getattr(torch, said["dtype"], None)
        if dtype is None:
            raise StateError(f"this torch has no type {said['dtype']}", "load with the version of torch that committed")
        tensor = tensor.view(dtype).reshape(said["shape"])
    if "strides" in said:
        if len(said["strides"]) != tensor.dim() or not _dense(tensor.shape, said["strides"]):
            raise StateError("the strides of a tensor do not fit it", "the version was not written by mdl")
        tensor = torch.empty_strided(tensor.shape, said["strides"], dtype=tensor.dtype).copy_(tensor)
    tensor = place(torch, tensor, said.get("device", "cpu"), map_location)
    if said.get("parameter"):
        return torch.nn.Parameter(tensor, requires_grad=said.get("requires_grad", False))
    return tensor.requires_grad_() if said.get("requires_grad") else tensor


def place(torch: Any, tensor: Any, was: str, map_location: Any) -> Any:
    """Puts a tensor where ``map_location`` says, as `torch.load` takes it: None means where it was."""
    if map_location is None:
        target = was
    elif isinstance(map_location, dict):
        target = map_location.get(was, was)
    elif callable(map_location):
        target = map_location(tensor, was)
        if isinstance(target, torch.Tensor):
            return target
    else:
        target = map_location
    device = torch.device(target if target is not None else was)
    if device.type == "cpu":
        return tensor
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError) as error:
        raise StateError(f"{device} is not to be had here: {error}", "pass map_location='cpu'") from error
