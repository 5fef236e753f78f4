"""Loads states, tensors and slices of a version: allocates memory here, which the native half fills."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ._native import Repo as Native
from .commits import TensorInfo
from .containers import STATE_FILE
from .dtypes import ITEM_SIZE, TO_NUMPY, TO_TORCH, to_numpy, torch_loaded
from .errors import MdlError, NotFoundError, StateError, UsageError
from .handle import Handle
from .names import did_you_mean
from .state import VERSION, decode, paths, references
from .tensors import finish, place

#: No state's JSON document is longer.
MOST_JSON = 1 << 30
#: Name, dtype, shape; of a view: stored tensor, offset in bytes, strides in elements.
_Listed = tuple[str, str, list[int], "tuple[str, int, list[int]] | None"]


def selector(only: str | Iterable[str] | None) -> Callable[[str], bool]:
    """Whether a dotted path in a state is wanted: one of the globs matches it, or something above it."""
    if only is None:
        return lambda _: True
    globs = [only] if isinstance(only, str) else list(only)

    def wanted(path: str) -> bool:
        parts = path.split(".")
        heads = (".".join(parts[: i + 1]) for i in range(len(parts)))
        return any(fnmatch.fnmatchcase(head, glob) for head in heads for glob in globs)

    return wanted


class Memory:
    """Uninitialised memory for a tensor of torch or numpy."""

    def __init__(self, dtype: str, shape: Sequence[int], framework: str) -> None:
        self.array: Any
        if framework == "torch":
            import torch

            kind = getattr(torch, TO_TORCH[dtype], None)
            if kind is None:
                raise StateError(f"this torch has no type for {dtype}", "update torch")
            self.array = torch.empty(tuple(shape), dtype=kind)
            self.address = self.array.data_ptr()
        else:
            self.array = np.empty(tuple(shape), to_numpy(dtype))
            self.address = self.array.__array_interface__["data"][0]
        self.nbytes = ITEM_SIZE[dtype] * int(np.prod(shape, dtype=np.int64))


class Reader:
    """Reads one version."""

    def __init__(self, native: Native, rev: str) -> None:
        self.native, self.rev = native, rev
        self._files: dict[str, dict[str, _Listed]] = {}

    def listed(self, path: str) -> dict[str, _Listed]:
        """Returns the tensors of a file by name; a view hides the storage of the same name."""
        if path not in self._files:
            self._files[path] = {t[0]: t for t in self.native.tensors(self.rev, path)}
        return self._files[path]

    def stored(self, path: str, name: str) -> _Listed:
        """Finds a stored tensor in a file's listing."""
        for listed in self.native.tensors(self.rev, path):
            if listed[0] == name and listed[3] is None:
                return listed
        raise NotFoundError(f"tensor not found: {path}:{name}", "`mdl ls REV PATH` lists the tensors of a file")

    def fill(self, wanted: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], Any]:
        """Tensors by file and name; ``wanted`` says for which framework each is."""
        memory: dict[tuple[str, str], Memory] = {}
        for path, name, framework in wanted:
            listed = self.listed(path).get(name)
            if listed is None or listed[3] is not None:
                listed = self.stored(path, name)
            memory[path, name] = Memory(listed[1], listed[2], framework)
        jobs = [(path, name, m.address, m.nbytes, m.array) for (path, name), m in memory.items()]
        self.native.fill(self.rev, jobs)
        return {key: m.array for key, m in memory.items()}

    def state(self, only: str | Iterable[str] | None, map_location: Any, framework: str | None) -> Any:
        """The state of the version, or the part of it that ``only`` names."""
        wanted = selector(only)
        sizes = {path: size for path, size, _ in self.native.files(self.rev)}
        if STATE_FILE not in sizes:
            return self.plain(only, wanted, map_location, framework)
        try:
            return self._typed(sizes[STATE_FILE], only, wanted, map_location)
        except MdlError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError) as error:
            hint = "use repo.checkout or repo.tensor"
            raise StateError(
                f"{STATE_FILE} of this version is none of mdl's: {type(error).__name__} {error}", hint
            ) from error

    def _typed(self, size: int, only: Any, wanted: Callable[[str], bool], map_location: Any) -> Any:
        if size > MOST_JSON:
            raise StateError(
                f"{STATE_FILE} has {size} bytes, more than any of mdl's", "use repo.checkout or repo.tensor"
            )
        document = json.loads(self.native.read(self.rev, STATE_FILE, 0, size))
        version, root = document["mdl_state"], document["root"]
        if version != VERSION:
            raise StateError(f"{STATE_FILE} has version {version}", "update mdl")
        found = references(root, wanted)
        arrays = self.fill({(r.file, r.name, "numpy" if r.said.get("as") == "numpy" else "torch") for r in found})
        made: dict[tuple[Any, ...], Any] = {}

        def tensor(node: dict[str, Any]) -> Any:
            # One stored tensor is one memory: tied tensors stay tied.
            key = (node["file"], node["name"])
            plain = {k: v for k, v in node.items() if k not in ("parameter", "requires_grad")}
            if key not in made:
                made[key] = finish(arrays[key], plain, map_location)
            if not node.get("parameter") and not node.get("requires_grad"):
                return made[key]
            again = (*key, bool(node.get("parameter")))
            if again not in made:
                marks: dict[str, Any] = {k: node[k] for k in ("parameter", "requires_grad") if k in node}
                made[again] = finish(made[key].detach(), {**marks, "device": str(made[key].device)}, None)
            return made[again]

        state = decode(root, tensor, wanted)
        if only is not None and state is None:
            close = did_you_mean(only, paths(root))
            raise NotFoundError(
                f"nothing of the state matches {only!r}{close}", "globs are for dotted paths such as 'model.*'"
            )
        return state

    def plain(
        self, only: Any, wanted: Callable[[str], bool], map_location: Any, framework: str | None
    ) -> dict[str, Any]:
        """The tensors of a version that was not committed as a state: file without its suffix -> name -> tensor."""
        out: dict[str, Any] = {}
        there: list[str] = []
        for path, _, has_tensors in self.native.files(self.rev):
            if not has_tensors:
                continue
            entry = path.rsplit(".", 1)[0]
            there += [path, *(f"{entry}.{name}" for name in self.listed(path))]
            names = [n for n in self.listed(path) if wanted(f"{entry}.{n}") or wanted(path)]
            if names:
                out[entry] = self.tensors(path, names, map_location, framework)
        if not out and there:
            raise NotFoundError(
                f"no tensor matches {only!r}{did_you_mean(only, there)}",
                "globs are for a file's path, or FILE.TENSOR without the file's suffix",
            )
        if not out:
            raise StateError(
                "this version holds no such tensors and no state", "use repo.files, repo.read or repo.checkout"
            )
        return out

    def tensors(self, path: str, names: Iterable[str], map_location: Any, framework: str | None) -> dict[str, Any]:
        """Tensors of a file by name; views share the memory of what they are views of."""
        framework = framework or ("torch" if torch_loaded() is not None else "numpy")
        listed = self.listed(path)
        names = list(names)
        owners = {name: (listed[name][3] or (name,))[0] for name in names}
        arrays = self.fill({(path, owner, framework) for owner in owners.values()})
        out = {name: _view(arrays[path, owners[name]], listed[name]) for name in names}
        if framework == "torch" and map_location is not None:
            torch = torch_loaded()
            return {name: place(torch, value, "cpu", map_location) for name, value in out.items()}
        return out


def _view(base: Any, listed: _Listed) -> Any:
    _, dtype, shape, view = listed
    if view is None:
        return base
    _, offset, strides = view
    size = ITEM_SIZE[dtype]
    if isinstance(base, np.ndarray):
        last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True)) if 0 not in shape else -1
        if offset + (last + 1) * size > base.nbytes:
            raise StateError("a view leaves its tensor", "the version was not written by mdl")
        raw = base.reshape(-1).view(np.uint8)[offset:]
        flat = raw[: len(raw) // size * size].view(TO_NUMPY[dtype])
        return np.lib.stride_tricks.as_strided(flat, shape, [s * size for s in strides])
    import torch

    flat = base.reshape(-1).view(torch.uint8).view(getattr(torch, TO_TORCH[dtype]))
    return flat.as_strided(shape, strides, offset // size)


class LazyTensor:
    """A tensor of a version, read when it is asked for: ``t[10:20]`` decodes only the blocks that hold these rows.

    Slices are torch tensors where torch is loaded, else arrays; `numpy` and `torch` say which.
    """

    def __init__(self, handle: Handle, rev: str, info: TensorInfo, place: tuple[str, int, list[int]] | None) -> None:
        # Not the native object: in a forked child (a data loader's worker) that is the parent's.
        self._handle, self._rev, self.info, self._place = handle, rev, info, place

    @property
    def _native(self) -> Native:
        return self._handle.native

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        return self.info.shape

    @property
    def dtype(self) -> str:
        """Element type as `mdl ls` prints it."""
        return self.info.dtype

    @property
    def nbytes(self) -> int:
        """Decoded bytes."""
        return self.info.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self._read(key, "torch" if torch_loaded() is not None else "numpy")

    def numpy(self) -> np.ndarray:
        """All of it as an array."""
        return self._read(..., "numpy")

    def torch(self) -> Any:
        """All of it as a torch tensor."""
        return self._read(..., "torch")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        return f"<LazyTensor {self.info.path}:{self.info.name} {self.dtype} {list(self.shape)}>"

    def _read(self, key: Any, framework: str) -> Any:
        if self._place is not None:
            listed = Reader(self._native, self._rev).tensors(self.info.path, [self.info.name], None, framework)
            return listed[self.info.name][key]
        rows, rest = self._rows(key)
        if rows is None:
            array = Reader(self._native, self._rev).fill([(self.info.path, self.info.name, framework)])
            return array[self.info.path, self.info.name][rest]
        start, stop = rows
        shape = (stop - start, *self.shape[1:])
        row = self.nbytes // self.shape[0]
        raw = self._native.tensor_range(self._rev, self.info.path, self.info.name, (start * row, (stop - start) * row))
        return _from_bytes(raw, self.dtype, shape, framework)[rest]

    def _rows(self, key: Any) -> tuple[tuple[int, int] | None, Any]:
        """Rows of the first axis that a key needs, and the key for what is then there."""
        keys = key if isinstance(key, tuple) else (key,)
        if not self.shape or not self.shape[0] or not keys:
            return None, key
        first, others = keys[0], keys[1:]
        n = self.shape[0]
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            index = int(first) + n if first < 0 else int(first)
            if not 0 <= index < n:
                raise IndexError(f"index {first} is out of range for an axis of {n}")
            return (index, index + 1), (0, *others)
        if isinstance(first, slice):
            start, stop, step = first.indices(n)
            if step > 0:
                return (start, max(start, stop)), (slice(None, None, step), *others)
        return None, key


def _from_bytes(raw: bytes, dtype: str, shape: tuple[int, ...], framework: str) -> Any:
    if framework == "numpy":
        return np.frombuffer(bytearray(raw), to_numpy(dtype)).reshape(shape)
    import torch

    if not raw:
        return torch.empty(shape, dtype=getattr(torch, TO_TORCH[dtype]))
    return torch.frombuffer(bytearray(raw), dtype=getattr(torch, TO_TORCH[dtype])).reshape(shape)


def find(handle: Handle, rev: str, name: str) -> LazyTensor:
    """The tensor ``FILE:NAME``, or ``NAME`` where only one file has it."""
    native = handle.native
    path, _, rest = name.partition(":")
    reader = Reader(native, rev)
    paths = [p for p, _, has in native.files(rev) if has]
    if rest and path in paths:
        found = [(path, reader.listed(path)[rest])] if rest in reader.listed(path) else []
    else:
        found = [(p, reader.listed(p)[name]) for p in paths if name in reader.listed(p)]
    if not found:
        close = did_you_mean(rest or name, [n for p in paths for n in reader.listed(p)])
        raise NotFoundError(f"tensor not found: {name}{close}", "`mdl ls REV PATH` lists the tensors of a file")
    if len(found) > 1:
        raise UsageError(f"{len(found)} files have a tensor {name!r}", f"say which: {found[0][0]}:{name}")
    (path, (label, dtype, shape, view)) = found[0]
    return LazyTensor(handle, rev, TensorInfo(path, label, dtype, tuple(shape)), view)
