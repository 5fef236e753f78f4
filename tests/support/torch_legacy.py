"""Finds the storages in a PyTorch checkpoint of the format before 1.6: five pickles, then the raw storages in a row."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

ELEMENT = {"DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "LongStorage": 8, "IntStorage": 4, "ByteStorage": 1}
MAGIC = 0x1950A86A20F9469CFC6C


@dataclass(frozen=True)
class LegacyStorage:
    """Where one storage's elements are in the file."""

    key: str
    kind: str
    offset: int
    numel: int


class _Anything:
    """Stands for every class and function that the pickle names; nothing of the pickle's is ever imported."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        return type(name, (_Anything,), {})

    def persistent_load(self, pid: Any) -> Any:
        self.kinds[pid[2]] = pid[1].__name__
        return None


def storages_of(raw: bytes) -> list[LegacyStorage]:
    """Every storage in the order of the file."""
    file = io.BytesIO(raw)
    if pickle.Unpickler(file).load() != MAGIC:
        raise ValueError("not a PyTorch file of the old format")
    for _ in range(2):
        pickle.Unpickler(file).load()
    state = _Unpickler(file)
    state.load()
    keys = pickle.Unpickler(file).load()
    out = []
    for key in keys:
        (numel,) = struct.unpack("<q", file.read(8))
        out.append(LegacyStorage(key, state.kinds[key], file.tell(), numel))
        file.seek(numel * ELEMENT[state.kinds[key]], io.SEEK_CUR)
    if file.tell() != len(raw):
        raise ValueError("bytes left over after the last storage")
    return out
