"""A nested state as typed JSON with references to tensors, and back: no pickle, nothing is imported or executed on the
way back.

Neighbours: `tensors` describes leaves, `containers` has the files, `reading` gives tensors back. docs/python-state.md
specifies the JSON.

What comes back is what went in: dictionaries with their order and any keys, `OrderedDict` with torch's version notes,
lists, tuples, sets, bytes, all numbers to the last bit, torch and numpy types, and tensors that were one object or
shared their memory.
"""

from __future__ import annotations

import base64
import collections
import enum
import math
import pathlib
import struct
import sys
import types
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dtypes import torch_loaded
from .errors import StateError
from .tensors import Run, is_tensor, key_of, refuse, run_of

#: Marks a value that JSON has no type for.
TAG = "$"
VERSION = 1
#: A longer run of bytes is stored as a tensor.
INLINE_BYTES = 4096
_EXACT = range(-(2**63), 2**64)


@dataclass
class Leaf:
    """A tensor on its way into a file: the file's stem and the tensor's name in it."""

    stem: str
    name: str
    run: Run


@dataclass
class Encoded:
    """A state in its parts: the JSON document, and the tensors that it speaks of."""

    document: dict[str, Any]
    leaves: list[Leaf]
    #: Names of tensors that are stored under another name: (stem, name) -> name, where both are of one file.
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass
class _Custom:
    name: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


_BY_TYPE: dict[type, _Custom] = {}
_BY_NAME: dict[str, _Custom] = {}


def register(kind: type, name: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
    """Teaches states a type: ``to_plain`` turns a value into what a state can hold, ``from_plain`` turns that back.

    ``name`` is what is stored; the program that loads must register the type under the same one.
    """
    custom = _Custom(name, to_plain, from_plain)
    _BY_TYPE[kind] = _BY_NAME[name] = custom


def encode(state: Any) -> Encoded:
    """Takes a state apart.

    Raises:
        StateError: a value has a type that cannot be stored, or contains itself; the message names its place.
    """
    walk = _Walk()
    if isinstance(state, Mapping):
        walk.stems(state)
    root = walk.node(state, "state", "", None)
    return Encoded({"mdl_state": VERSION, "root": root}, walk.leaves, walk.aliases)


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
        self._shared: dict[Any, tuple[Leaf, dict[str, Any]]] = {}
        self._above: set[int] = set()

    def stems(self, state: Mapping[Any, Any]) -> None:
        taken: set[str] = set()
        for key in (k for k, v in state.items() if not is_tensor(v)):
            stem = base = _file_stem(key)
            n = 2
            # Some file systems take `Model` and `model` for one.
            while stem.lower() in taken:
                stem, n = f"{base}-{n}", n + 1
            taken.add(stem.lower())
            self.by_entry[key] = stem

    def node(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if value in _EXACT else {TAG: "int", "value": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "bits": struct.pack(">d", value).hex()}
        if is_tensor(value):
            return self.tensor(value, path, name, stem)
        if kind in _BY_TYPE:
            custom = _BY_TYPE[kind]
            return {
                TAG: "custom",
                "type": custom.name,
                "value": self.inside(custom.to_plain(value), path, name, stem, value),
            }
        scalar = _scalar(value)
        if scalar is not None:
            return scalar
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
            raise _unknown(value, path)
        finally:
            self._above.discard(id(value))

    def mapping(self, value: Mapping[Any, Any], path: str, name: str, stem: str | None) -> Any:
        items = []
        for key, item in value.items():
            below = stem or self.by_entry.get(key) or "model"
            # Below the entry that gave the file its name, names begin anew.
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
        elif isinstance(value, collections.defaultdict) and value.default_factory in _FACTORIES.values():
            out |= {TAG: "defaultdict", "factory": value.default_factory.__name__}  # type: ignore[union-attr]
        else:
            out["type"] = f"{type(value).__module__}.{type(value).__qualname__}"
        return out

    def pairs(self, items: list[tuple[Any, Any]], path: str) -> list[list[Any]]:
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
        kind = next((k for k in ("list", "frozenset", "set") if isinstance(value, _PLAIN[k])), "list")
        return {TAG: kind, "items": items}

    def bytes(self, value: bytes | bytearray, path: str, name: str, stem: str | None) -> Any:
        if len(value) <= INLINE_BYTES:
            return {TAG: type(value).__name__, "base64": base64.b64encode(value).decode()}
        node = self.tensor(np.frombuffer(value, np.uint8), path, name, stem)
        return {TAG: type(value).__name__, "tensor": node}

    def tensor(self, value: Any, path: str, name: str, stem: str | None) -> Any:
        refuse(value, path)
        key = key_of(value)
        if key is not None and key in self._shared:
            leaf, said = self._shared[key]
            stem, name = stem or "model", name or "value"
            if leaf.stem == stem and (stem, name) not in self._names:
                self.aliases[stem, name] = leaf.name
            return _reference(leaf, _own(value, said))
        run, said = run_of(value)
        leaf = Leaf(stem or "model", self.unique(stem or "model", name or "value"), run)
        self.leaves.append(leaf)
        if key is not None:
            self._shared[key] = (leaf, said)
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
    if isinstance(value, torch.nn.Parameter):
        said["parameter"] = True
    if value.requires_grad and value.is_leaf:
        said["requires_grad"] = True
    return said


_FACTORIES: dict[str, Any] = {"int": int, "float": float, "list": list, "dict": dict, "set": set, "str": str}
_PLAIN: dict[str, type] = {"list": list, "set": set, "frozenset": frozenset, "tuple": tuple}


def _scalar(value: Any) -> dict[str, Any] | None:
    """Single values that JSON has no type for."""
    if isinstance(value, enum.Enum):
        kind = type(value)
        return {TAG: "enum", "type": f"{kind.__module__}.{kind.__qualname__}", "name": value.name}
    if isinstance(value, np.generic):
        if value.dtype.hasobject:
            return None
        return {TAG: "numpy", "dtype": value.dtype.str, "bytes": value.tobytes().hex()}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.names is None:
        raw = base64.b64encode(value.tobytes()).decode()
        return {TAG: "ndarray", "dtype": value.dtype.str, "shape": list(value.shape), "base64": raw}
    if isinstance(value, np.dtype):
        return {TAG: "numpy.dtype", "value": value.str}
    if isinstance(value, complex):
        return {TAG: "complex", "bits": struct.pack(">dd", value.real, value.imag).hex()}
    if isinstance(value, pathlib.PurePath):
        return {TAG: "path", "value": str(value)}
    torch = torch_loaded()
    if torch is not None and isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return {TAG: f"torch.{type(value).__name__}", "value": str(value).removeprefix("torch.")}
    # Subclasses of the plain types keep their value; bool and the exact types were taken before.
    for kind in (str, int, float):
        if isinstance(value, kind):
            plain = kind.__str__(value) if kind is str else kind(value)
            return {TAG: "plain", "value": _Walk().node(plain, "", "", None), "type": type(value).__qualname__}
    return None


def _unknown(value: Any, path: str) -> StateError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = "convert it to plain data (.state_dict(), .get_state()), leave it out, or mdl.register its type"
    return StateError(f"{path} is a {kind}, which a version cannot hold", hint)


@dataclass(frozen=True)
class Reference:
    """A tensor of a version that a state speaks of, and what its file does not say of it."""

    file: str
    name: str
    said: Any = field(hash=False, compare=False)


def references(node: Any, wanted: Callable[[str], bool], path: str = "") -> list[Reference]:
    """The tensors below a node, those at paths that are wanted."""
    found: list[Reference] = []
    for below, item in _below(node, path):
        if isinstance(item, dict) and item.get(TAG) == "tensor":
            if wanted(below):
                found.append(Reference(item["file"], item["name"], item))
        else:
            found.extend(references(item, wanted, below))
    if isinstance(node, dict) and node.get(TAG) == "tensor" and wanted(path):
        found.append(Reference(node["file"], node["name"], node))
    return found


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _below(node: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(node, list):
        return [(_join(path, i), item) for i, item in enumerate(node)]
    if not isinstance(node, dict):
        return []
    tag = node.get(TAG)
    if tag is None:
        return [(_join(path, key), item) for key, item in node.items()]
    if tag in _MAPPINGS:
        keyed = [(_join(path, _shown(k)), item) for k, item in node["items"]]
        return keyed + ([(path, node["metadata"])] if "metadata" in node else [])
    if "items" in node:
        return [(_join(path, i), item) for i, item in enumerate(node["items"])]
    return [(path, node[k]) for k in ("value", "tensor") if isinstance(node.get(k), (dict, list))]


def _shown(key: Any) -> Any:
    return key if not isinstance(key, (dict, list)) else str(decode(key, lambda _: None))


_MAPPINGS = ("dict", "OrderedDict", "Counter", "defaultdict")
_MISSING = object()


def decode(
    node: Any, tensor: Callable[[Any], Any], wanted: Callable[[str], bool] = lambda _: True, path: str = ""
) -> Any:
    """Puts a state together again; ``tensor`` gives the tensor for a reference. Of dictionaries only what is wanted
    comes back.

    Raises:
        StateError: the document was written by a newer version.
    """
    value = _decode(node, tensor, wanted, path)
    return None if value is _MISSING else value


def _decode(node: Any, tensor: Callable[[Any], Any], wanted: Callable[[str], bool], path: str) -> Any:
    if isinstance(node, list):
        return [_all(item, tensor, wanted, path) for item in node] if _any(node, wanted, path) else _MISSING
    if not isinstance(node, dict):
        return node if wanted(path) else _MISSING
    tag = node.get(TAG)
    if tag is None or tag in _MAPPINGS:
        return _decode_mapping(node, tag, tensor, wanted, path)
    if not _any(node, wanted, path):
        return _MISSING
    if tag == "tensor":
        return tensor(node)
    return _decode_tagged(node, tag, tensor, path)


def _any(node: Any, wanted: Callable[[str], bool], path: str) -> bool:
    """Whether anything at or below a node is wanted: lists are not thinned out."""
    return wanted(path) or any(_any(item, wanted, below) for below, item in _below(node, path))


def _all(item: Any, tensor: Callable[[Any], Any], wanted: Callable[[str], bool], path: str) -> Any:
    return _decode(item, tensor, lambda _: True, path)


def _decode_mapping(
    node: Any, tag: str | None, tensor: Callable[[Any], Any], wanted: Callable[[str], bool], path: str
) -> Any:
    keys = ((decode(k, tensor), item) for k, item in node["items"]) if tag else node.items()
    found = [(key, _decode(item, tensor, wanted, _join(path, key))) for key, item in keys]
    items = [(key, item) for key, item in found if item is not _MISSING]
    if len(items) < len(found) and not items:
        return _MISSING
    if not found and not wanted(path):
        return _MISSING
    if tag == "OrderedDict":
        out = collections.OrderedDict(items)
        if "metadata" in node:
            out._metadata = decode(node["metadata"], tensor)  # type: ignore[attr-defined]
        return out
    if tag == "Counter":
        return collections.Counter(dict(items))
    if tag == "defaultdict":
        return collections.defaultdict(_FACTORIES[node["factory"]], items)
    return dict(items)


def _decode_tagged(node: Any, tag: str, tensor: Callable[[Any], Any], path: str) -> Any:
    def items() -> list[Any]:
        return [decode(item, tensor) for item in node["items"]]

    def raw() -> Any:
        return base64.b64decode(node["base64"]) if "base64" in node else tensor(node["tensor"]).tobytes()

    match tag:
        case "int":
            return int(node["value"])
        case "float":
            return struct.unpack(">d", bytes.fromhex(node["bits"]))[0]
        case "complex":
            return complex(*struct.unpack(">dd", bytes.fromhex(node["bits"])))
        case "bytes":
            return raw()
        case "bytearray":
            return bytearray(raw())
        case "list" | "tuple" | "set" | "frozenset":
            return _PLAIN[tag](items())
        case "deque":
            return collections.deque(items(), node["maxlen"])
        case "namedtuple":
            return collections.namedtuple(node["name"], node["fields"])(*items())
        case "numpy":
            return np.frombuffer(bytes.fromhex(node["bytes"]), np.dtype(node["dtype"]))[0]
        case "ndarray":
            return np.frombuffer(raw(), np.dtype(node["dtype"])).reshape(node["shape"]).copy()
        case "numpy.dtype":
            return np.dtype(node["value"])
        case "path":
            return pathlib.Path(node["value"])
        case "plain":
            return decode(node["value"], tensor)
        case "enum":
            return _member(node)
        case "Namespace":
            return Namespace(**decode(node["value"], tensor))
        case "SimpleNamespace":
            return types.SimpleNamespace(**decode(node["value"], tensor))
        case "custom":
            return _custom(node, tensor, path)
    if tag.startswith("torch."):
        return _torch_value(node, tag, items)
    raise StateError(f"{path or 'the state'} holds a {tag!r}, which this version does not know", "update mdl")


def _member(node: Any) -> Any:
    """The member of an enumeration that the program has imported by itself; else its name."""
    module, _, kind = node["type"].rpartition(".")
    found = getattr(sys.modules.get(module), kind, None)
    if isinstance(found, type) and issubclass(found, enum.Enum) and node["name"] in found.__members__:
        return found[node["name"]]
    return node["name"]


def _custom(node: Any, tensor: Callable[[Any], Any], path: str) -> Any:
    custom = _BY_NAME.get(node["type"])
    if custom is None:
        raise StateError(
            f"{path} is of the type {node['type']!r}, which is not registered", "mdl.register it before loading"
        )
    return custom.from_plain(decode(node["value"], tensor))


def _torch_value(node: Any, tag: str, items: Callable[[], list[Any]]) -> Any:
    import torch

    if tag == "torch.Size":
        return torch.Size(items())
    if tag == "torch.device":
        return torch.device(node["value"])
    value = getattr(torch, node["value"], None)
    if value is None:
        raise StateError(f"this torch has no {node['value']}", "load with the version of torch that committed")
    return value
