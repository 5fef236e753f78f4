"""Decodes a state from its JSON; imports and executes nothing.

What comes back is what went in: dictionaries with their order and any keys, lists, tuples, sets, bytes, all numbers to
the last bit, torch's and numpy's types, and ties.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .values import FACTORIES, TAG, from_tag


@dataclass(frozen=True)
class Reference:
    """A tensor that a state refers to, with what its file does not hold (such as requires_grad)."""

    file: str
    name: str
    said: Any = field(hash=False, compare=False)


def references(node: Any, wanted: Callable[[str], bool], path: str = "") -> list[Reference]:
    """The tensors below a node, those at paths that are wanted."""
    if isinstance(node, dict) and node.get(TAG) == "tensor":
        return [Reference(node["file"], node["name"], node)] if wanted(path) else []
    if not _is_mapping(node) and isinstance(node, (dict, list)) and _any(node, wanted, path):
        # Lists and the like are not filtered.
        wanted = _everything
    return [found for below, item in _below(node, path) for found in references(item, wanted, below)]


def paths(node: Any, path: str = "") -> list[str]:
    """The dotted paths below a node, as patterns see them."""
    found = [path] if path else []
    if isinstance(node, (dict, list)) and not (isinstance(node, dict) and node.get(TAG) == "tensor"):
        found += [deeper for below, item in _below(node, path) for deeper in paths(item, below)]
    return found


def _is_mapping(node: Any) -> bool:
    return isinstance(node, dict) and (node.get(TAG) is None or node[TAG] in _MAPPINGS)


def _everything(_: str) -> bool:
    return True


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
    return from_tag(node, tag, tensor, lambda inner: decode(inner, tensor), path)


def _any(node: Any, wanted: Callable[[str], bool], path: str) -> bool:
    """Whether anything at or below a node is wanted: lists are not thinned out."""
    return wanted(path) or any(_any(item, wanted, below) for below, item in _below(node, path))


def _all(item: Any, tensor: Callable[[Any], Any], wanted: Callable[[str], bool], path: str) -> Any:
    return _decode(item, tensor, _everything, path)


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
        return collections.defaultdict(FACTORIES[node["factory"]], items)
    return dict(items)
