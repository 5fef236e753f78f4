"""A reader of mdl repositories written from docs/format.md alone: checks a revision out and verifies every id.

Usage: read_repo.py REPO_DIR REF_OR_ID OUT_DIR   (REPO_DIR is the .mdl directory). segments.py decodes tensor bytes.
"""

import math
import struct
import sys
from collections import namedtuple
from pathlib import Path

import blake3
import segments
import zstandard

KINDS = {1: "blob", 2: "tensor", 3: "manifest", 4: "tree", 5: "commit", 6: "tag"}
SIZES = [1, 8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 16]
SEGMENT = 8 << 20
Record = namedtuple("Record", "pack kind depth offset length logical check")


class Cursor:
    """Primitives of canonical objects."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError("truncated")
        self.at += n
        return self.data[self.at - n : self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self):
        return self.take(self.varint()).decode()

    def dims(self):
        return [self.varint() for _ in range(self.varint())]


class Repo:
    """Objects by id, from the footers of all packs."""

    def __init__(self, root):
        assert (root / "format").read_bytes() == b"mdl repository 1\n"
        self.root, self.records = root, {}
        for pack in sorted((root / "packs").glob("*.pack")):
            self.load(pack)

    def load(self, pack):
        data = pack.read_bytes()
        at, length, digest, version, magic = struct.unpack("<QQ32sQ8s", data[-64:])
        footer = data[at : at + length]
        assert (magic, data[:8]) == (b"MDLPACK\n", b"MDLPACK\n")
        assert version in (1, 2)
        assert digest == blake3.blake3(footer).digest() == bytes.fromhex(pack.stem)
        cur = Cursor(footer)
        for _ in range(struct.unpack("<Q", cur.take(8))[0]):
            oid, kind, depth, *rest = struct.unpack("<32sBBQQQ16s", cur.take(74))
            if depth:
                cur.take(32)
            if version == 2 and kind & 0x80:
                cur.take(32)
                kind &= 0x7F
            if oid not in self.records or depth < self.records[oid].depth:
                self.records[oid] = Record(pack, KINDS[kind], depth, *rest)

    def payload(self, oid, kind):
        record = self.records[oid]
        assert record.kind == kind
        with record.pack.open("rb") as f:
            f.seek(record.offset)
            data = f.read(record.length)
        assert blake3.blake3(data).digest()[:16] == record.check
        return data

    def checked(self, oid, kind, data):
        assert blake3.blake3(data, derive_key_context=f"mdl 2026-11-21 {kind} v1").digest() == oid
        return data

    def read(self, oid, kind):
        data = self.payload(oid, kind)
        return self.checked(oid, kind, zstandard.ZstdDecompressor().decompress(data[1:]) if data[0] else data[1:])

    def elements(self, oid, known=None):
        """A tensor's bytes, its chain of relatives followed; `known` has what was decoded on the way."""
        known = {} if known is None else known
        if oid in known:
            return known[oid]
        data = self.payload(oid, "tensor")
        (length,) = struct.unpack("<I", data[-4:])
        cur = Cursor(data[-4 - length : -4])
        version, flags, dtype = cur.take(3)
        assert (version, flags) in ((1, 0), (1, 1), (2, 3))
        start = cur.at
        total = SIZES[dtype] * math.prod(cur.dims())
        head = bytes([dtype]) + cur.data[start : cur.at]
        relatives = [self.elements(cur.take(32), known) for flag in (1, 2) if flags & flag]
        at, out = 0, b""
        while len(out) < total:
            (n,) = struct.unpack("<I", cur.take(4))
            size = min(SEGMENT, total - len(out))
            below = [r[len(out) : len(out) + size] for r in relatives]
            out += segments.decode(dtype, data[at : at + n], size, *below)
            at += n
        self.checked(oid, "tensor", head + out)
        known[oid] = out
        return out

    def file(self, oid):
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
            gap, _dtype, _shape = cur.varint(), cur.take(1), cur.dims()
            out[end : end + gap] = skeleton[used : used + gap]
            end, used = end + gap, used + gap
            elements = self.elements(cur.take(32))
            out[end : end + len(elements)] = elements
            end += len(elements)
        out[end:] = skeleton[used:]
        return bytes(out)

    def checkout(self, tree, out):
        out.mkdir(parents=True, exist_ok=True)
        cur = Cursor(self.read(tree, "tree"))
        cur.take(1)
        for _ in range(cur.varint()):
            name, mode, _size, oid = cur.text(), cur.take(1)[0] & 0x7F, cur.varint(), cur.take(32)
            if mode == 3:
                self.checkout(oid, out / name)
            else:
                (out / name).write_bytes(self.read(oid, "blob") if mode == 1 else self.file(oid))

    def resolve(self, name):
        for ref in (f"refs/heads/{name}", f"refs/tags/{name}"):
            if (self.root / ref).is_file():
                name = (self.root / ref).read_text().strip()
        oid = bytes.fromhex(name)
        return self.read(oid, "tag")[1:33] if self.records[oid].kind == "tag" else oid


if __name__ == "__main__":
    repo = Repo(Path(sys.argv[1]))
    commit = Cursor(repo.read(repo.resolve(sys.argv[2]), "commit"))
    assert commit.take(3)[1:] == b"\x01\x20", "field 1 is the tree, 32 bytes"
    repo.checkout(commit.take(32), Path(sys.argv[3]))
