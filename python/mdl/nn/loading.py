"""`mdl.nn.load`: weights of a version into a model, in memory as they are stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..commits import TensorInfo
from ..dtypes import TO_TORCH
from ..errors import NotFoundError, UsageError
from ..reading import Reader
from ..repo import Repo
from .compression import attach, coding_of
from .segments import Coding, HostHandle, Store
from .selection import select, users
from .weight import Weight

Module = TypeVar("Module", bound=nn.Module)


def load(
    place: Any,
    rev: str = "HEAD",
    *,
    model: Module,
    file: str | None = None,
    prefix: str = "",
    bits: int | None = None,
    block: int = 512,
    layers: str | Iterable[str] | None = None,
    min_weights: int = 2048,
) -> Module:
    """Fills a model with a version's tensors; weights that `compress` would compress come compressed, segment by
    segment as they are stored, and are not decoded on the way. Segments that stand on another version's are decoded
    and encoded by themselves.

    Args:
        place: A `mdl.Repo`, the directory of one, or another place that `mdl.clone` takes (a server's repository, a
            bucket): of that only the model's tensors are fetched, as they are stored, into a directory that is gone
            when this returns.
        rev: The version.
        model: What the tensors go into, in place. It may be on the meta device: then nothing else is allocated.
        file: Files whose tensors are meant, by path or pattern. None: all files that have tensors.
        prefix: What stands before the model's names in the files (``"model."``).
        bits: Lossy, as for `compress`: each weight is decoded and encoded anew.
        block: As for `compress`.
        layers: As for `compress`.
        min_weights: As for `compress`.

    Returns:
        The model.

    Raises:
        NotFoundError: there is no such version, or it lacks tensors of the model; the message names them.
        UsageError: a tensor is in several files, or has another shape than the model's; as for `compress`.
    """
    coding = coding_of(None, bits, block)
    patterns = [layers] if isinstance(layers, str) else None if layers is None else list(layers)
    selection = select(model, patterns, min_weights, meta=True)
    wanted = set(selection.names)
    names: dict[int, list[str]] = {}
    for name, tensor in _named(model):
        names.setdefault(id(tensor), []).append(name)
    # Each tensor once, under its first name.
    tensors = [(name, tensor) for name, tensor in _named(model) if name == names[id(tensor)][0]]
    holders = users(model)
    with _opened(place) as repo:
        source = _Source(repo, repo.resolve(rev), file, prefix)
        source.fetch((names[id(tensor)], tensor) for _, tensor in tensors)
        plain: list[tuple[list[str], Tensor]] = []
        for name, tensor in tensors:
            if name in wanted:
                attach(holders[id(tensor)], tensor, source.weight(names[id(tensor)], tensor, coding))
            else:
                plain.append((names[id(tensor)], tensor))
        source.fill(model, plain)
    model.__dict__["_mdl_nn_skipped"] = selection.skipped
    return model


@contextmanager
def _opened(place: Any) -> Iterator[Repo]:
    if isinstance(place, Repo):
        yield place
    elif "://" not in str(place) and Path(place).is_dir():
        yield Repo(place)
    else:
        with tempfile.TemporaryDirectory(prefix="mdl-nn-") as temporary:
            # Nothing matches the glob: commits, trees and lists of tensors come, and no tensor.
            where = Path(temporary) / "repo"
            yield Repo.clone(place, where, bare=True, checkout=False, depth=1, only="?nothing")


def _named(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Parameters and buffers that a ``state_dict`` has, under every name."""
    stored = model.state_dict(keep_vars=True)
    return ((name, tensor) for name, tensor in stored.items() if isinstance(tensor, Tensor))


class _Source:
    """The tensors of a version by the model's names."""

    def __init__(self, repo: Repo, rev: str, file: str | None, prefix: str) -> None:
        self._reader, self._prefix = Reader(repo._native, rev), prefix
        self._places: dict[str, list[str]] = {}
        for path, _, has_tensors in self._reader.native.files(rev):
            if has_tensors and (file is None or fnmatchcase(path, file)):
                for name in self._reader.listed(path):
                    self._places.setdefault(name, []).append(path)
        if not self._places:
            raise NotFoundError(f"no tensors in {file or 'this version'}", "`mdl ls REV` lists a version's files")

    def _find(self, names: list[str], like: Tensor) -> TensorInfo:
        for name in (self._prefix + name for name in names):
            paths = self._places.get(name, [])
            if len(paths) > 1:
                raise UsageError(f"{len(paths)} files have a tensor {name!r}", f"say which: file={paths[0]!r}")
            if paths:
                _, dtype, shape, _ = self._reader.listed(paths[0])[name]
                if tuple(shape) != tuple(like.shape):
                    raise UsageError(
                        f"{name} has the shape {list(shape)}, the model's has {list(like.shape)}",
                        "the version is of another model",
                    )
                return TensorInfo(paths[0], name, dtype, tuple(shape))
        raise NotFoundError(
            f"the version has no tensor {self._prefix + names[0]!r}",
            "prefix= says what stands before the model's names, file= in which files they are",
        )

    def fetch(self, wanted: Iterable[tuple[list[str], Tensor]]) -> None:
        """Brings what a partial repository lacks of these tensors, all at once."""
        found = [self._find(names, like) for names, like in wanted]
        owners = [(self._reader.listed(t.path)[t.name][3] or (t.name,))[0] for t in found]
        self._reader.native.prefetch(
            self._reader.rev, [(t.path, owner) for t, owner in zip(found, owners, strict=True)]
        )

    def weight(self, names: list[str], like: Tensor, coding: Coding) -> Weight:
        info = self._find(names, like)
        listed = self._reader.listed(info.path)[info.name]
        dtype = getattr(torch, TO_TORCH[info.dtype])
        if coding.name == "lossless" and listed[3] is None and (like.is_meta or dtype == like.dtype):
            native, _ = self._reader.native.compressed(self._reader.rev, info.path, info.name)
            store = Store(HostHandle(native), dtype, info.shape, coding, "cpu")
        else:
            plain = self._reader.tensors(info.path, [info.name], None, "torch")[info.name]
            store = Store.of(plain if like.is_meta else plain.to(like.dtype), coding)
        return Weight(store, like.requires_grad)

    def fill(self, model: nn.Module, wanted: list[tuple[list[str], Tensor]]) -> None:
        """Fills plain parameters and buffers; those on the meta device are made."""
        found = {names[0]: self._find(names, tensor) for names, tensor in wanted}
        by_path: dict[str, list[str]] = {}
        for info in found.values():
            by_path.setdefault(info.path, []).append(info.name)
        read = {path: self._reader.tensors(path, names, None, "torch") for path, names in by_path.items()}
        with torch.no_grad():
            for names, tensor in wanted:
                info = found[names[0]]
                value = read[info.path][info.name]
                if tensor.is_meta:
                    _place(model, names, tensor, value)
                else:
                    tensor.copy_(value)


def _place(model: nn.Module, names: list[str], was: Tensor, value: Tensor) -> None:
    made = nn.Parameter(value, was.requires_grad) if isinstance(was, nn.Parameter) else value
    for name in names:
        at, _, own = name.rpartition(".")
        module = model.get_submodule(at)
        if isinstance(made, nn.Parameter):
            module._parameters[own] = made
        else:
            module._buffers[own] = made
