"""`dcp.json`: the metadata of a PyTorch distributed checkpoint (DCP) as typed JSON, and back.

Nothing is unpickled here.

    {"mdl_dcp": 1, "version": null, "storage_meta": {"checkpoint_id": null, "modules": []},
     "entries": {"model.weight": {"dtype": "float32", "size": [8, 4], "chunks": [
                     {"offsets": [0, 0], "sizes": [4, 4], "file": "model/rank-00000.safetensors", "name": "weight@0,0"},
                     ...]},
                 "step": {"file": "rank-00000.bytes", "start": 0, "length": 1174}},
     "planner_data": {"paths": {"model.weight": ["model", "weight"], "step": ["step"]}}}

Of a tensor's properties those are written that are not the usual ones. `raw` in a chunk names the type of elements that
safetensors has no name for; such a chunk is stored as bytes. `planner_data` of another planner than torch's own stands
in `state`, encoded as `state.json` is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from ..errors import StateError
from ..state import decode, encode

#: Its path in a version.
FILE = "dcp.json"
VERSION = 1


@dataclass(frozen=True)
class Chunk:
    """Where a part of a tensor is stored; ``raw`` is torch's name of its type, and its shape, if the file has bytes."""

    file: str
    name: str
    raw: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Blob:
    """Where the bytes of something else are stored."""

    file: str
    start: int
    length: int


def to_json(metadata: Metadata, places: dict[MetadataIndex, Chunk | Blob]) -> bytes:
    """The file of a checkpoint.

    Raises:
        StateError: a part is nowhere, or the planner's data are of a type that has no JSON.
    """
    meta = metadata.storage_meta or StorageMeta()
    checkpoint_id = None if meta.checkpoint_id is None else str(meta.checkpoint_id)
    document = {
        "mdl_dcp": VERSION,
        # Older torch versions lack it.
        "version": getattr(metadata, "version", None),
        "storage_meta": {"checkpoint_id": checkpoint_id, "modules": list(meta.modules)},
        "entries": {fqn: _entry(fqn, said, places) for fqn, said in metadata.state_dict_metadata.items()},
        "planner_data": _planner(metadata.planner_data),
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _entry(fqn: str, said: Any, places: dict[MetadataIndex, Chunk | Blob]) -> dict[str, Any]:
    if isinstance(said, BytesStorageMetadata):
        blob = _place(places, MetadataIndex(fqn), Blob)
        return {"file": blob.file, "start": blob.start, "length": blob.length}
    chunks = []
    for chunk in said.chunks:
        place = _place(places, MetadataIndex(fqn, chunk.offsets), Chunk)
        where = {"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "file": place.file, "name": place.name}
        chunks.append(where if place.raw is None else {**where, "raw": place.raw[0]})
    return {**_properties(said.properties), "size": list(said.size), "chunks": chunks}


def _place(places: dict[MetadataIndex, Chunk | Blob], index: MetadataIndex, kind: type) -> Any:
    place = places.get(index)
    if not isinstance(place, kind):
        raise StateError(f"no rank wrote {index.fqn} at {index.offset}", "this is a fault of the planner in use")
    return place


def _properties(said: TensorProperties) -> dict[str, Any]:
    out: dict[str, Any] = {"dtype": _bare(said.dtype)}
    if said.layout != torch.strided:
        out["layout"] = _bare(said.layout)
    if said.memory_format != torch.contiguous_format:
        out["memory_format"] = _bare(said.memory_format)
    return out | {k: True for k in ("requires_grad", "pin_memory") if getattr(said, k)}


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _planner(data: Any) -> dict[str, Any] | None:
    if data is None:
        return None
    plain = type(data) is dict and all(
        type(k) is str and type(v) is tuple and all(type(p) in (str, int) for p in v) for k, v in data.items()
    )
    if plain:
        return {"paths": {fqn: list(path) for fqn, path in data.items()}}
    encoded = encode({"planner_data": data})
    if encoded.leaves:
        raise StateError("the planner's data hold tensors", "use a planner whose planner_data are plain values")
    return {"state": encoded.document["root"]}


def from_json(text: bytes) -> Metadata:
    """The metadata of a checkpoint; ``storage_data`` says where each part is: `MetadataIndex` -> `Chunk` or `Blob`.

    Raises:
        StateError: the file is none of mdl's, or was written by a newer version.
    """
    try:
        document = json.loads(text)
        if document["mdl_dcp"] != VERSION:
            raise StateError(f"{FILE} has version {document['mdl_dcp']}", "update mdl")
        return _metadata(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{FILE} of this version is none of mdl's: {error}", "use repo.load or repo.tensor") from error


def _metadata(document: dict[str, Any]) -> Metadata:
    said: dict[str, Any] = {}
    places: dict[MetadataIndex, Chunk | Blob] = {}
    for fqn, entry in document["entries"].items():
        if "chunks" not in entry:
            said[fqn] = BytesStorageMetadata()
            places[MetadataIndex(fqn)] = Blob(str(entry["file"]), int(entry["start"]), int(entry["length"]))
            continue
        chunks = []
        for c in entry["chunks"]:
            chunks.append(ChunkStorageMetadata(torch.Size(c["offsets"]), torch.Size(c["sizes"])))
            raw = (str(c["raw"]), tuple(c["sizes"])) if "raw" in c else None
            places[MetadataIndex(fqn, c["offsets"])] = Chunk(str(c["file"]), str(c["name"]), raw)
        said[fqn] = TensorStorageMetadata(_read_properties(entry), torch.Size(entry["size"]), chunks)
    meta = document["storage_meta"]
    metadata = Metadata(
        said,
        planner_data=_read_planner(document["planner_data"]),
        storage_data=places,
        storage_meta=StorageMeta(meta["checkpoint_id"], modules=list(meta["modules"])),
    )
    metadata.version = document["version"]
    return metadata


def _read_properties(entry: dict[str, Any]) -> TensorProperties:
    return TensorProperties(
        dtype=named(entry["dtype"], torch.dtype),
        layout=named(entry.get("layout", "strided"), torch.layout),
        requires_grad=bool(entry.get("requires_grad")),
        memory_format=named(entry.get("memory_format", "contiguous_format"), torch.memory_format),
        pin_memory=bool(entry.get("pin_memory")),
    )


def named(name: str, kind: type) -> Any:
    """torch's object of this name, such as ``float32``."""
    found = getattr(torch, str(name), None)
    if not isinstance(found, kind):
        raise StateError(f"this torch has no {kind.__name__} {name}", "load with the version of torch that saved")
    return found


def _read_planner(data: dict[str, Any] | None) -> Any:
    if data is None:
        return None
    if "paths" in data:
        return {fqn: tuple(path) for fqn, path in data["paths"].items()}

    def none(node: Any) -> Any:
        raise StateError(f"{FILE} speaks of a tensor: {node}", None)

    return decode(data["state"], none)["planner_data"]
