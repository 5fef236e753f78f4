"""A reader of mdl repositories written from docs/format.md alone: checks a revision out, verifying every id.

Usage: read_repo.py REPO_DIR REF_OR_ID OUT_DIR   (REPO_DIR is the .mdl directory)
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import blake3
import segments
import zstandard

KINDS = {1: "blob", 2: "tensor", 3: "manifest", 4: "tree", 5: "commit", 6: "tag"}
SIZES = [1, 8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16]
SEGMENT = 8 << 20


class Cursor:
    """Primitives of canonical objects."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if self.at + n > len(self.data):
            raise ValueError("truncated")
        self.at += n
        return self.data[self.at - n : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str:
        return self.take(self.varint()).decode()

    def dims(self) -> list[int]:
        return [self.varint() for _ in range(self.varint())]


@dataclass
class Record:
    """One line of a pack's footer."""

    pack: Path
    kind: int
    depth: int
    offset: int
    length: int
    logical: int
    check: bytes


class Repo:
    """Objects by id, from the footers of all packs."""

    def __init__(self, root: Path) -> None:
        if (root / "format").read_bytes() != b"mdl repository 1\n":
            raise ValueError("not a repository of version 1")
        self.root = root
        self.records: dict[bytes, Record] = {}
        for pack in sorted((root / "packs").glob("*.pack")):
            self.load(pack)

    def load(self, pack: Path) -> None:
        data = pack.read_bytes()
        at, length, digest, version, magic = struct.unpack("<QQ32sQ8s", data[-64:])
        footer = data[at : at + length]
        assert magic == b"MDLPACK\n" == data[:8]
        assert version == 1
        assert digest == blake3.blake3(footer).digest() == bytes.fromhex(pack.stem)
        cur = Cursor(footer)
        for _ in range(struct.unpack("<Q", cur.take(8))[0]):
            oid, kind, depth, *rest = struct.unpack("<32sBBQQQ16s", cur.take(74))
            if depth:
                cur.take(32)
            record = Record(pack, kind, depth, *rest)
            if oid not in self.records or depth < self.records[oid].depth:
                self.records[oid] = record

    def payload(self, oid: bytes, kind: str) -> bytes:
        record = self.records[oid]
        assert KINDS[record.kind] == kind
        with record.pack.open("rb") as f:
            f.seek(record.offset)
            data = f.read(record.length)
        assert blake3.blake3(data).digest()[:16] == record.check
        return data

    def read(self, oid: bytes, kind: str) -> bytes:
        data = self.payload(oid, kind)
        data = data[1:] if data[0] == 0 else zstandard.ZstdDecompressor().decompress(data[1:])
        assert blake3.blake3(data, derive_key_context=f"mdl 2026-11-21 {kind} v1").digest() == oid
        return data

    def elements(self, oid: bytes) -> bytes:
        """A tensor's bytes, its chain of bases followed segment by segment."""
        data = self.payload(oid, "tensor")
        (length,) = struct.unpack("<I", data[-4:])
        cur = Cursor(data[-4 - length : -4])
        version, flags, dtype = cur.take(3)
        assert version == 1
        shape_at = cur.at
        shape = cur.dims()
        head = bytes([dtype]) + cur.data[shape_at : cur.at]
        base = self.elements(cur.take(32)) if flags & 1 else None
        total = SIZES[dtype]
        for dim in shape:
            total *= dim
        at, out = 0, b""
        for start in range(0, total, SEGMENT):
            n = struct.unpack("<I", cur.take(4))[0]
            size = min(SEGMENT, total - start)
            below = base[start : start + size] if base is not None else None
            out += segments.decode(data[at : at + n], dtype, size, below)
            at += n
        assert blake3.blake3(head + out, derive_key_context="mdl 2026-11-21 tensor v1").digest() == oid
        return out

    def file(self, oid: bytes) -> bytes:
        """Pastes a manifest's tensors into its skeleton."""
        cur = Cursor(self.read(oid, "manifest"))
        cur.take(2)
        out = bytearray(cur.varint())
        skeleton = b""
        for _ in range(cur.varint()):
            cur.varint()
            skeleton += self.read(cur.take(32), "blob")
        end = used = 0
        for _ in range(cur.varint()):
            cur.text()
            gap, dtype, shape = cur.varint(), cur.u8(), cur.dims()
            out[end : end + gap] = skeleton[used : used + gap]
            end, used = end + gap, used + gap
            elements = self.elements(cur.take(32))
            out[end : end + len(elements)] = elements
            end += len(elements)
            assert dtype < len(SIZES)
            assert len(shape) < 256
        out[end:] = skeleton[used:]
        return bytes(out)

    def checkout(self, tree: bytes, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        cur = Cursor(self.read(tree, "tree"))
        cur.u8()
        for _ in range(cur.varint()):
            name, mode, _size, oid = cur.text(), cur.u8(), cur.varint(), cur.take(32)
            if mode & 0x7F == 3:
                self.checkout(oid, out / name)
            else:
                (out / name).write_bytes(self.read(oid, "blob") if mode & 0x7F == 1 else self.file(oid))

    def resolve(self, name: str) -> bytes:
        for ref in (f"refs/heads/{name}", f"refs/tags/{name}"):
            if (self.root / ref).is_file():
                name = (self.root / ref).read_text().strip()
        oid = bytes.fromhex(name)
        return self.read(oid, "tag")[1:33] if KINDS[self.records[oid].kind] == "tag" else oid


def main() -> None:
    root, name, out = sys.argv[1:]
    repo = Repo(Path(root))
    cur = Cursor(repo.read(repo.resolve(name), "commit"))
    cur.u8()
    assert (cur.varint(), cur.varint()) == (1, 32), "field 1 is the tree"
    repo.checkout(cur.take(32), Path(out))


if __name__ == "__main__":
    main()
