"""Encodes and decodes values that JSON has no type for, and types that programs register."""

from __future__ import annotations

import base64
import collections
import datetime
import enum
import math
import pathlib
import struct
import sys
import types
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import torch_loaded
from ..errors import StateError

#: Marks a value that JSON has no type for.
TAG = "$"
#: Factories that a `defaultdict` may have.
FACTORIES: dict[str, Any] = {"int": int, "float": float, "list": list, "dict": dict, "set": set, "str": str}
PLAIN: dict[str, type] = {"list": list, "set": set, "frozenset": frozenset, "tuple": tuple}
#: Integers outside are spelled out: many readers of JSON would round them.
EXACT = range(-(2**63), 2**64)


@dataclass
class Custom:
    name: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


BY_TYPE: dict[type, Custom] = {}
BY_NAME: dict[str, Custom] = {}


def register(kind: type, name: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
    """Teaches states a type: ``to_plain`` turns a value into what a state can hold, ``from_plain`` turns that back.

    ``name`` is what is stored; the program that loads must register the type under the same one.
    """
    custom = Custom(name, to_plain, from_plain)
    BY_TYPE[kind] = BY_NAME[name] = custom


def number(value: int | float) -> Any:
    """An integer or a float."""
    if isinstance(value, int):
        return value if value in EXACT else {TAG: "int", "value": str(value)}
    return value if math.isfinite(value) else {TAG: "float", "bits": struct.pack(">d", value).hex()}


def scalar(value: Any) -> dict[str, Any] | None:
    """Encodes single values that JSON has no type for."""
    if isinstance(value, enum.Enum):
        kind = type(value)
        return {TAG: "enum", "type": f"{kind.__module__}.{kind.__qualname__}", "name": value.name}
    if isinstance(value, np.generic):
        if value.dtype.hasobject or value.dtype.names is not None:
            return None
        if not value.dtype.itemsize:
            # numpy makes nothing of no bytes: an empty text is an array of one.
            return {TAG: "numpy", "dtype": value.dtype.str, "bytes": ""}
        return {TAG: "numpy", "dtype": value.dtype.str, "bytes": value.tobytes().hex()}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.names is None:
        raw = base64.b64encode(value.tobytes()).decode()
        return {TAG: "ndarray", "dtype": value.dtype.str, "shape": list(value.shape), "base64": raw}
    if isinstance(value, np.dtype):
        return {TAG: "numpy.dtype", "value": value.str}
    if isinstance(value, complex):
        return {TAG: "complex", "bits": struct.pack(">dd", value.real, value.imag).hex()}
    if isinstance(value, datetime.timedelta):
        return {TAG: "timedelta", "items": [value.days, value.seconds, value.microseconds]}
    for moment in (datetime.datetime, datetime.date, datetime.time):
        if isinstance(value, moment):
            return {TAG: moment.__name__, "value": value.isoformat()}
    if isinstance(value, pathlib.PurePath):
        return {TAG: "path", "value": str(value)}
    torch = torch_loaded()
    if torch is not None and isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return {TAG: f"torch.{type(value).__name__}", "value": str(value).removeprefix("torch.")}
    # Subclasses of the plain types keep their value; bool and the exact types were taken before.
    if isinstance(value, str):
        return {TAG: "plain", "value": str.__str__(value), "type": type(value).__qualname__}
    if isinstance(value, (int, float)):
        plain = int(value) if isinstance(value, int) else float(value)
        return {TAG: "plain", "value": number(plain), "type": type(value).__qualname__}
    return None


def unknown(value: Any, path: str) -> StateError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = "convert it to plain data (.state_dict(), .get_state()), leave it out, or mdl.register its type"
    return StateError(f"{path} is a {kind}, which a version cannot hold", hint)


def from_tag(node: Any, tag: str, tensor: Callable[[Any], Any], decode: Callable[[Any], Any], path: str) -> Any:
    """The value of a node that is no mapping and no tensor; ``decode`` gives the values of nodes inside."""

    def items() -> list[Any]:
        return [decode(item) for item in node["items"]]

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
            return PLAIN[tag](items())
        case "deque":
            return collections.deque(items(), node["maxlen"])
        case "namedtuple":
            return collections.namedtuple(node["name"], node["fields"])(*items())
        case "numpy":
            kind = np.dtype(node["dtype"])
            return np.frombuffer(bytes.fromhex(node["bytes"]), kind)[0] if kind.itemsize else np.zeros((), kind)[()]
        case "ndarray":
            return np.frombuffer(raw(), np.dtype(node["dtype"])).reshape(node["shape"]).copy()
        case "numpy.dtype":
            return np.dtype(node["value"])
        case "timedelta":
            return datetime.timedelta(*node["items"])
        case "datetime" | "date" | "time":
            return getattr(datetime, tag).fromisoformat(node["value"])
        case "path":
            return pathlib.Path(node["value"])
        case "plain":
            return decode(node["value"])
        case "enum":
            return _member(node)
        case "Namespace":
            return Namespace(**decode(node["value"]))
        case "SimpleNamespace":
            return types.SimpleNamespace(**decode(node["value"]))
        case "custom":
            return _custom(node, decode, path)
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


def _custom(node: Any, decode: Callable[[Any], Any], path: str) -> Any:
    custom = BY_NAME.get(node["type"])
    if custom is None:
        raise StateError(
            f"{path} is of the type {node['type']!r}, which is not registered", "mdl.register it before loading"
        )
    return custom.from_plain(decode(node["value"]))


def _torch_value(node: Any, tag: str, items: Callable[[], list[Any]]) -> Any:
    import torch

    if tag == "torch.Size":
        return torch.Size(items())
    if tag == "torch.device":
        return torch.device(node["value"])
    kind = getattr(torch, tag.removeprefix("torch."), None)
    value = vars(torch).get(node["value"])
    if not isinstance(kind, type) or not isinstance(value, kind):
        raise StateError(f"this torch has no {node['value']}", "load with the version of torch that committed")
    return value
