"""Encodes a nested state as typed JSON with references to tensors.

The JSON is specified in docs/python-state.md.
"""

from __future__ import annotations

import base64
import collections
import types
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import is_jax, torch_loaded
from ..errors import StateError
from ..tensors import Run, compressed, from_jax, is_tensor, key_of, refuse, run_of
from .values import BY_TYPE, FACTORIES, PLAIN, TAG, number, scalar, unknown

VERSION = 1
#: A longer run of bytes is stored as a tensor.
INLINE_BYTES = 4096


@dataclass
class Leaf:
    """A tensor of a file: the file's stem and the tensor's name in it."""

    stem: str
    name: str
    run: Run


@dataclass
class Encoded:
    """An encoded state: the JSON document, and the tensors that it refers to."""

    document: dict[str, Any]
    leaves: list[Leaf]
    #: Names of tensors that are stored under another name: (stem, name) -> name, where both are of one file.
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)


def encode(state: Any) -> Encoded:
    """Encodes a state.

    Raises:
        StateError: a value has a type that cannot be stored, or contains itself; the message names its place.
    """
    walk = _Walk()
    state = module_state(state)
    if isinstance(state, Mapping):
        walk.stems(state)
    root = walk.node(state, "state", "", None)
    return Encoded({"mdl_state": VERSION, "root": root}, walk.leaves, walk.aliases)


def module_state(value: Any) -> Any:
    """The ``state_dict`` of a torch module, in which compressed weights stay compressed; anything else as it is."""
    torch = torch_loaded()
    if torch is None or not isinstance(value, torch.nn.Module):
        return value
    state = value.state_dict(keep_vars=True)
    for key, item in state.items():
        if compressed(item) is not None:
            item = item.data
            item.stands_for_plain = True
        state[key] = item.detach() if isinstance(item, torch.Tensor) and compressed(item) is None else item
    return state


def entry_stems(state: Mapping[Any, Any]) -> dict[Any, str]:
    """Stem of the file that each top-level entry's tensors go to; bare tensors, which go to ``model``, are left out."""
    walk = _Walk()
    walk.stems(state)
    return walk.by_entry


def _file_stem(key: Any) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in str(key)).lstrip(".")
    return safe or "entry"


class _Walk:
    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.aliases: dict[tuple[str, str], str] = {}
        #: Top-level key -> stem of its file; bare tensors at the top go to `model`.
        self.by_entry: dict[Any, str] = {}
        self._names: set[tuple[str, str]] = set()
        #: Holds the tensor itself, so that no other object can get its address meanwhile.
        self._shared: dict[Any, tuple[Leaf, dict[str, Any], Any]] = {}
        self._above: set[int] = set()

    def stems(self, state: Mapping[Any, Any]) -> None:
        taken: set[str] = set()
        for key in (k for k, v in state.items() if not is_tensor(v)):
            stem = base = _file_stem(key)
            n = 2
            # Some file systems ignore case.
            while stem.lower() in taken:
                stem, n = f"{base}-{n}", n + 1
            taken.add(stem.lower())
            self.by_entry[key] = stem

    def node(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int or kind is float:
            return number(value)
        if is_tensor(value):
            return self.tensor(value, path, name, stem)
        if kind in BY_TYPE:
            custom = BY_TYPE[kind]
            return {
                TAG: "custom",
                "type": custom.name,
                "value": self.inside(custom.to_plain(value), path, name, stem, value),
            }
        made = module_state(value)
        if made is not value:
            return self.inside(made, path, name, stem, value)
        plain = scalar(value)
        if plain is not None:
            return plain
        if isinstance(value, (bytes, bytearray)):
            return self.bytes(value, path, name, stem)
        return self.container(value, path, name, stem)

    def inside(self, plain: Any, path: str, name: str, stem: str | None, holder: Any) -> Any:
        if id(holder) in self._above:
            raise StateError(f"{path} contains itself", "store each part once")
        self._above.add(id(holder))
        try:
            return self.node(plain, path, name, stem)
        finally:
            self._above.discard(id(holder))

    def container(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        if id(value) in self._above:
            raise StateError(f"{path} contains itself", "store each part once")
        self._above.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self.mapping(value, path, name, stem)
            if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
                return self.sequence(value, path, name, stem)
            if isinstance(value, (Namespace, types.SimpleNamespace)):
                kind = "Namespace" if isinstance(value, Namespace) else "SimpleNamespace"
                return {TAG: kind, "value": self.mapping(vars(value), path, name, stem)}
            raise unknown(value, path)
        finally:
            self._above.discard(id(value))

    def mapping(self, value: Mapping[Any, Any], path: str, name: str, stem: str | None) -> Any:
        items = []
        for key, item in value.items():
            below = stem or self.by_entry.get(key) or "model"
            # Names are relative to the entry that the file is named after.
            under = f"{name}.{key}" if name else ("" if stem is None and key in self.by_entry else str(key))
            items.append((key, self.node(item, f"{path}[{key!r}]", under, below)))
        plain = all(type(key) is str and key != TAG for key, _ in items)
        if type(value) is dict or type(value) is types.MappingProxyType:
            return dict(items) if plain else {TAG: "dict", "items": self.pairs(items, path)}
        out = {TAG: "dict", "items": self.pairs(items, path)}
        if isinstance(value, collections.OrderedDict):
            out[TAG] = "OrderedDict"
            # torch notes the version of each module's layout beside a state_dict.
            notes = getattr(value, "_metadata", None)
            if notes is not None:
                out["metadata"] = self.node(notes, f"{path}._metadata", "", stem)
        elif isinstance(value, collections.Counter):
            out[TAG] = "Counter"
        elif isinstance(value, collections.defaultdict) and value.default_factory in FACTORIES.values():
            out |= {TAG: "defaultdict", "factory": value.default_factory.__name__}  # type: ignore[union-attr]
        else:
            out["type"] = f"{type(value).__module__}.{type(value).__qualname__}"
        return out

    def pairs(self, items: list[tuple[Any, Any]], path: str) -> list[list[Any]]:
        for key, _ in items:
            if is_tensor(key) or (isinstance(key, (bytes, str)) and len(key) > INLINE_BYTES):
                hint = "a state_dict has plain keys: optimizer.state_dict() instead of optimizer.state"
                raise StateError(f"a key of {path} is a {type(key).__name__} that is no plain value", hint)
        return [[self.node(key, f"a key of {path}", "", "keys"), item] for key, item in items]

    def sequence(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        def below(i: int, item: Any) -> Any:
            return self.node(item, f"{path}[{i}]", f"{name}.{i}" if name else str(i), stem or "model")

        items = [below(i, item) for i, item in enumerate(value)]
        if type(value) is list:
            return items
        torch = torch_loaded()
        if torch is not None and isinstance(value, torch.Size):
            return {TAG: "torch.Size", "items": items}
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            if fields is not None:
                return {TAG: "namedtuple", "name": type(value).__name__, "fields": list(fields), "items": items}
            return {TAG: "tuple", "items": items}
        if isinstance(value, collections.deque):
            return {TAG: "deque", "items": items, "maxlen": value.maxlen}
        kind = next((k for k in ("list", "frozenset", "set") if isinstance(value, PLAIN[k])), "list")
        return {TAG: kind, "items": items}

    def bytes(self, value: bytes | bytearray, path: str, name: str, stem: str | None) -> Any:
        kind = "bytearray" if isinstance(value, bytearray) else "bytes"
        if len(value) <= INLINE_BYTES:
            return {TAG: kind, "base64": base64.b64encode(value).decode()}
        node = self.tensor(np.frombuffer(value, np.uint8), path, name, stem)
        return {TAG: kind, "tensor": node}

    def tensor(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        value = from_jax(value, path) if is_jax(value) else value
        try:
            refuse(value, path)
            key = key_of(value)
        except (RuntimeError, ValueError) as error:
            raise StateError(f"{path} is a {type(value).__name__} that cannot be stored: {error}") from error
        if key is not None and key in self._shared:
            leaf, said, _ = self._shared[key]
            stem, name = stem or "model", name or "value"
            if leaf.stem == stem and (stem, name) not in self._names:
                self.aliases[stem, name] = leaf.name
            return _reference(leaf, _own(value, said))
        run, said = run_of(value)
        leaf = Leaf(stem or "model", self.unique(stem or "model", name or "value"), run)
        self.leaves.append(leaf)
        if key is not None:
            self._shared[key] = (leaf, said, value)
        return _reference(leaf, said)

    def unique(self, stem: str, name: str) -> str:
        # `{"a.b": x, "a": {"b": y}}` has two tensors of one name.
        found, n = name, 2
        while (stem, found) in self._names or found == "__metadata__":
            found, n = f"{name}#{n}", n + 1
        self._names.add((stem, found))
        return found


def _reference(leaf: Leaf, said: dict[str, Any]) -> dict[str, Any]:
    return {TAG: "tensor", "file": f"{leaf.stem}.safetensors", "name": leaf.name, **said}


def _own(value: Any, said: dict[str, Any]) -> dict[str, Any]:
    """What is said of a tensor, for another object on the same memory: one may be a parameter and the other not."""
    torch = torch_loaded()
    if isinstance(value, np.ndarray) or torch is None:
        return said
    said = {k: v for k, v in said.items() if k not in ("parameter", "requires_grad")}
    if compressed(value) is not None and value.stands_for_plain:
        return said
    if isinstance(value, torch.nn.Parameter):
        said["parameter"] = True
    if value.requires_grad and value.is_leaf:
        said["requires_grad"] = True
    return said
