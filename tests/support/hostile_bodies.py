"""Generates request bodies: what the route takes, mostly changed in one place."""

from __future__ import annotations

import base64
import io
import json
import random
import zipfile
from collections.abc import Sequence
from typing import Any, Protocol

from . import raw

JSON, NDJSON, TAR, OCTETS = "application/json", "application/x-ndjson", "application/x-tar", "application/octet-stream"
ARRAY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n" + bytes(8)


class Values(Protocol):
    """Where values come from."""

    random: random.Random
    ids: Sequence[str]
    packs: Sequence[bytes]

    def value(self, name: str) -> str: ...
    def hostile(self, name: str) -> str: ...


class Bodies:
    """Bodies by kind: a good one for the route, mostly changed."""

    def __init__(self, maker: Values) -> None:
        self.maker, self.random = maker, maker.random

    def of(self, method: str, template: str) -> tuple[str, bytes]:
        kind, body = self.good(method, template)
        chance = self.random.random()
        if chance < 0.35:
            return kind, body
        if kind == JSON and chance < 0.85:
            return kind, json.dumps(self.changed(json.loads(body))).encode()
        if chance < 0.93:
            return kind, self.damaged(body)
        return self.random.choice(
            (JSON, NDJSON, TAR, OCTETS, raw.FORM, "text/plain", "multipart/form-data", "")
        ), self.damaged(body)

    def good(self, method: str, template: str) -> tuple[str, bytes]:
        pack = self.random.choice(self.maker.packs or (b"",))
        choice, value = self.random.choice, self.maker.value
        url = choice(("http://192.0.2.1/x", "http://127.0.0.1:1/", "file:///etc/passwd", value("path")))
        commit = {"message": value("rev"), "base": "parent", "remove": [value("path")], "branch": value("branch")}
        commit |= {"resumed_from": value("rev"), "uploads": [{"path": value("path"), "upload": value("id")}]}
        objects = {
            "objects": [{"oid": value("oid"), "size": 4}],
            "hash_algo": "sha256",
            "transfers": ["basic", "multipart"],
        }
        move = {"name": "refs/heads/" + value("ref"), "expected": None, "new": value("oid"), "force": True}
        files = [{"path": value("path"), "sample": "eA==", "size": 1}]
        named = "ada/" + choice(("made", "gpt", value("owner")))
        documents: dict[str, Any] = {
            "PATCH /api/v1/repos/{owner}/{name}": {"anonymous_read": None},
            "POST /api/v1/repos": {"name": named, "branch": value("branch")},
            "POST /api/repos/create": {"name": "made", "organization": "ada", "type": "model", "private": True},
            "PUT …/refs/{kind}/{ref}": {
                "target": value("rev"),
                "annotate": choice((True, False)),
                "message": value("rev"),
            },
            "POST …/notes/{rev}": {"notes": {value("rev"): choice((0.5, None, value("rev")))}},
            "POST …/jobs": {"kind": choice(("fsck", "gc", "compact")), "quick": True},
            "POST …/webhooks": {"url": url},
            "POST …/uploads": {"size": choice((4, 4, 0, 1 << 40)), "sha256": choice((None, "0" * 64))},
            "POST …/commits": commit,
            "POST …/branch/{branch}": {"startingPoint": value("rev")},
            "POST …/tag/{rev}": {"tag": value("ref"), "message": value("rev")},
            "POST …/preupload/{rev}": {"files": files, "gitAttributes": value("rev")},
            "POST …/paths-info/{rev}": {"paths": [value("path"), value("path")], "expand": True},
            "POST …/objects/batch": {"operation": choice(("download", "upload")), **objects},
            "POST …/info/lfs/verify": {"oid": value("oid"), "size": 4},
            "POST …/sync/offer": {"tips": [value("oid")], "objects": [value("oid")], "haves": [value("oid")]},
            "POST …/sync/whole": {"tensors": [value("oid")]},
            "POST …/sync/read": {"pieces": [{"pack": value("oid"), "offset": 0, "len": 100}]},
            "POST …/sync/packs": {"packs": [{"id": value("oid"), "size": len(pack)}]},
            "POST …/sync/pruned": {"pruned": [{"commit": value("oid"), "time_ms": 1, "rules": value("rev")}]},
            "POST …/sync/refs": {"moves": [move], "message": "x"},
        }
        for route, document in documents.items():
            verb, path = route.split(" ")
            if verb == method and (template == path or (path.startswith("…") and template.endswith(path[1:]))):
                if path == "…/commits" and self.random.random() < 0.6:
                    return self.commit()
                return JSON, json.dumps(document).encode()
        if template.endswith("/commit/{rev}"):
            return NDJSON, self.lines()
        if template in ("/login", "/logout"):
            return "application/x-www-form-urlencoded", f"token={value('id')}&next={value('next')}".encode(
                "utf-8", "replace"
            )
        if template.endswith(("/sync/lacking", "/sync/known")):
            return OCTETS, bytes.fromhex("".join(i for i in self.maker.ids if len(i) == 64))
        if "/sync/packs/" in template:
            return OCTETS, pack
        if template.endswith(("/{id}", "/{oid}")):
            return OCTETS, self.checkpoint()
        return JSON, b"{}"

    def commit(self) -> tuple[str, bytes]:
        path, data = self.maker.value("path"), self.checkpoint()
        meta = {"message": "x", "step": self.random.choice((1, -1, 1 << 63)), "metrics": {"loss": 1}}
        if self.random.random() < 0.5:
            return raw.FORM, raw.form(meta, {path: data})
        try:
            return TAR, raw.tar_of((raw.member(path), data))
        except ValueError:
            return TAR, data

    def lines(self) -> bytes:
        value = self.maker.value
        header = {
            "key": "header",
            "value": {"summary": value("rev"), "parentCommit": self.random.choice((None, value("oid")))},
        }
        content = base64.b64encode(self.checkpoint()).decode()
        lines = [
            {"key": "file", "value": {"path": value("path"), "content": content, "encoding": "base64"}},
            {"key": "lfsFile", "value": {"path": value("path"), "algo": "sha256", "oid": value("oid"), "size": 4}},
            {"key": "deletedFile", "value": {"path": value("path")}},
            {"key": "deletedFolder", "value": {"path": value("path")}},
            {
                "key": "copyFile",
                "value": {"path": value("path"), "srcPath": value("path"), "srcRevision": value("rev")},
            },
        ]
        return b"".join(json.dumps(line).encode() + b"\n" for line in (header, *self.random.sample(lines, 2)))

    def checkpoint(self) -> bytes:
        kind = self.random.random()
        if kind < 0.5:
            about = {
                "w": {
                    "dtype": self.random.choice(("F32", "I64", "X")),
                    "shape": [2, self.random.choice((2, 1 << 40, -1))],
                    "data_offsets": [0, 16],
                }
            }
            text = json.dumps(about).encode()
            return len(text).to_bytes(8, "little") + text + bytes(16)
        if kind < 0.8:
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", self.random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
                archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
                archive.writestr("../x.npy", ARRAY)
            return out.getvalue()
        return self.random.randbytes(self.random.choice((0, 1, 100, 3000)))

    def changed(self, document: Any) -> Any:
        """One place of a document is another."""
        pick = self.random
        if isinstance(document, dict) and document and pick.random() < 0.8:
            key = pick.choice(list(document))
            choice = pick.random()
            if choice < 0.1:
                return {k: v for k, v in document.items() if k != key}
            if choice < 0.15:
                return {**document, self.maker.hostile("x"): 1}
            return {**document, key: self.changed(document[key])}
        if isinstance(document, list) and document and pick.random() < 0.8:
            return [self.changed(document[0]), *document[1:]] * pick.choice((1, 1, 1, 50))
        hostile = self.maker.hostile("rev").encode("utf-8", "replace").decode()
        return pick.choice(
            (hostile, hostile, hostile, None, -1, 1 << 63, 1 << 64, 1e300, False, [], {}, [[[[]]]], ["x"] * 3)
        )

    def damaged(self, body: bytes) -> bytes:
        pick = self.random
        at = pick.randrange(len(body) + 1)
        flipped = body[:at] + pick.randbytes(pick.randint(1, 4)) + body[at + 1 :]
        return pick.choice((flipped, body[:at], body * 2, body[at:], b"", b"[" * 3000, flipped))
