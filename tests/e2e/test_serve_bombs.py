"""Decompression bombs and endless bodies: refused, or handled within bounds of memory and disk."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator

import pytest
from support import raw
from support.cli import Mdl
from support.processes import peak
from support.server import Server

REPO = "/api/v1/repos/ada/gpt"
MAX_UPLOAD = 8 << 20
BOMB = 256 << 20
"""Bytes that a bomb would become."""
SLACK = 160 << 20
"""Bytes that a server may take for whatever it does."""
ENOUGH = 48 << 20
"""Bytes after which a body was read on and on."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all of them: what it takes adds up."""
    tmp_path = tmp_path_factory.mktemp("bombs")
    mdl = Mdl.init(tmp_path / "root" / "ada/gpt", "--bare")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "README.md").write_text("# first\n")
    mdl.commit(tmp_path / "first", "first")
    options = ("--max-upload", "8MiB", "--memory", "64MiB", "--cache", "32MiB")
    with Server(tmp_path / "root", options) as server:
        used = peak(server.pid)
        yield server
        assert peak(server.pid) < used + 2 * SLACK, f"{(peak(server.pid) - used) >> 20} MiB were taken"
        assert server.get("/ada/gpt").status == 200
        spool = tmp_path / "root" / ".mdl-serve"
        kept = [p for p in spool.rglob("*") if p.is_file()]
        assert sum(p.stat().st_size for p in kept) < 64 << 20, kept
    mdl.fsck()


@pytest.fixture(autouse=True)
def bounded(server: Server) -> Iterator[None]:
    used = peak(server.pid)
    yield
    assert peak(server.pid) < used + SLACK, f"{(peak(server.pid) - used) >> 20} MiB were taken"
    assert server.get("/healthz").status == 200


def deflated(length: int, start: bytes = b"") -> bytes:
    """Raw deflate of some bytes and then zeros, made without having them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    out = [packer.compress(start)]
    out += [packer.compress(bytes(1 << 20)) for _ in range(length >> 20)]
    return b"".join([*out, packer.flush()])


def archive(name: str, packed: bytes, length: int) -> bytes:
    """A zip file of one member that says how long it becomes."""
    crc, size = 0, len(packed)
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, size, length, len(name), 0) + name.encode()
    head = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, crc, size, length, len(name), 0, 0, 0, 0, 0, 0)
    body = local + packed
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(head) + len(name), len(body), 0)
    return body + head + name.encode() + end


def overlapping(count: int) -> bytes:
    """A zip file whose members are all the same bytes of it."""
    one = archive("x.npy", deflated(16 << 20), 16 << 20)
    start = one.index(b"PK\x01\x02")
    head, end = one[start : one.index(b"PK\x05\x06")], one[one.index(b"PK\x05\x06") :]
    heads = head * count
    end = end[:8] + struct.pack("<2H2L", count, count, len(heads), start) + end[20:]
    return one[:start] + heads + end


def many_members(count: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for n in range(count):
            file.writestr(f"archive/data/{n}", b"")
    return out.getvalue()


NPY = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (67108864,), }".ljust(117) + b"\n"
BOMBS = {
    "weights.npz": archive("weights.npy", deflated(BOMB, NPY), BOMB + len(NPY)),
    "model.pt": archive("archive/data.pkl", deflated(BOMB, b"\x80\x02"), BOMB + 2),
    "lies.pt": archive("archive/data.pkl", deflated(BOMB, b"\x80\x02"), 100),
    "overlap.npz": overlapping(2000),
    "many.pt": many_members(40_000),
    "text.txt": b"\n" * (4 << 20),
    "card/README.md": b"[" * (1 << 20) + b"> " * (1 << 20),
    "deep.json": b"[" * (1 << 20),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_unpacks_to_much_is_kept_and_shown_within_bounds(server: Server, name: str) -> None:
    form = raw.form({"message": "a bomb", "allow_damaged": True}, {name: BOMBS[name]})
    made = server.ask("POST", f"{REPO}/commits", form, {"Content-Type": raw.FORM})
    assert made.status == 201 or 400 <= made.status < 500, made.body[:300]
    for path in (
        f"{REPO}/tree/main?tensors=true",
        f"{REPO}/tensors/main/{name}",
        f"{REPO}/tensor/main/{name}?name=weights",
        f"{REPO}/diff?a=main~1&b=main",
        f"{REPO}/checkout/main?format=safetensors",
        f"/ada/gpt/tree/main/{name.rpartition('/')[0]}",
        f"/ada/gpt/blob/main/{name}",
        "/ada/gpt",
        "/ada/gpt/compare/main~1/main",
        "/api/models/ada/gpt/tree/main?recursive=true",
    ):
        answer = server.get(path)
        assert answer.status < 500, f"{path}: {answer.body[:300]!r}"
        assert len(answer.body) < 32 << 20, path
    if made.status == 201:
        assert server.get(f"/ada/gpt/resolve/main/{name}").body == BOMBS[name]


def test_bodies_that_say_they_are_packed_are_not_unpacked(server: Server) -> None:
    bomb = gzip.compress(bytes(BOMB))
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, gzip"):
        for method, path, kind in (
            ("POST", "/api/v1/repos", "application/json"),
            ("POST", f"{REPO}/commits", raw.FORM),
            ("POST", f"{REPO}/commits?meta=%7B%7D", "application/x-tar"),
            ("POST", "/api/models/ada/gpt/commit/main", "application/x-ndjson"),
            ("POST", f"{REPO}/sync/lacking", "application/octet-stream"),
            ("POST", "/login", "application/x-www-form-urlencoded"),
        ):
            answer = server.ask(method, path, bomb, {"Content-Type": kind, "Content-Encoding": encoding})
            assert 400 <= answer.status < 500, f"{method} {path} {encoding}: {answer.status} {answer.body[:200]!r}"


BOUNDARY = f"--{raw.BOUNDARY}\r\n".encode()
META = raw.part("meta", json.dumps({"message": "x"}).encode())
PIECE = bytes(1 << 16)


def endless() -> dict[str, tuple[str, str, Iterator[bytes]]]:
    """Where it goes, what it says it is, and its bytes."""
    commits, hub = f"{REPO}/commits", "/api/models/ada/gpt/commit/main"
    disposition = b'Content-Disposition: form-data; name="file"; filename="x"\r\n'
    lines = b'{"key": "header", "value": {"summary": "x"}}\n'
    again = itertools.repeat
    pax = raw.tar_of((raw.member("x" * 99), b""))[:512]
    huge = pax[:124] + b"77777777777\0" + pax[136:148] + b"        x" + pax[157:]
    total = sum(huge[:148]) + sum(huge[156:]) + 8 * 32
    huge = huge[:148] + b"%06o\0 " % total + b"x" + huge[157:]
    tar = raw.tar_of((raw.member("a"), b"a"))[:1024]
    return {
        "a form before its first part": (commits, raw.FORM, again(PIECE)),
        "headers of a part": (commits, raw.FORM, itertools.chain([BOUNDARY], again(b"X-Y: z\r\n" * 4096))),
        "one header of a part": (commits, raw.FORM, itertools.chain([BOUNDARY + b"X: "], again(b"x" * 65536))),
        "what a form says about itself": (commits, raw.FORM, itertools.chain([META[:-2]], again(b" " * 65536))),
        "a file of a form": (
            commits,
            raw.FORM,
            itertools.chain([META + BOUNDARY + disposition + b"\r\n"], again(PIECE)),
        ),
        "empty files of a form": (
            commits,
            raw.FORM,
            itertools.chain([META], (raw.part("file", b"", f"f{n}") * 1 for n in itertools.count())),
        ),
        "parts that mean nothing": (commits, raw.FORM, itertools.chain([META], again(raw.part("x", b"") * 500))),
        "what comes behind a form": (
            commits,
            raw.FORM,
            itertools.chain([META + BOUNDARY[:-2] + b"--\r\n"], again(PIECE)),
        ),
        "a line": (hub, "application/x-ndjson", itertools.chain([lines + b'{"key": "'], again(b"x" * 65536))),
        "lines": (hub, "application/x-ndjson", itertools.chain([lines], again(b"\n" * 65536))),
        "blanks of a document": (f"{REPO}/webhooks", "application/json", again(b" " * 65536)),
        "a member's name": (
            commits + "?meta=%7B%7D",
            "application/x-tar",
            itertools.chain([huge], again(b"x" * 65536)),
        ),
        "members": (commits + "?meta=%7B%7D", "application/x-tar", again(tar * 32)),
        "ids": (f"{REPO}/sync/lacking", "application/octet-stream", again(PIECE)),
        "known ids": (f"{REPO}/sync/known", "application/octet-stream", again(PIECE)),
        "a form to sign in": ("/login", "application/x-www-form-urlencoded", again(b"a=b&" * 4096)),
        "fields of a form to sign in": ("/logout", "application/x-www-form-urlencoded", again(b"a=b&" * 4096)),
        "an object": (f"/ada/gpt.git/info/lfs/objects/{'0' * 64}", "application/octet-stream", again(PIECE)),
    }


@pytest.mark.parametrize("what", endless())
def test_a_body_without_an_end_is_not_read_without_end(server: Server, what: str) -> None:
    path, kind, pieces = endless()[what]
    method = "PUT" if "/objects/" in path else "POST"
    sent, ended = 0, False
    with raw.connect(server.url, 20) as connection:
        connection.sendall(raw.head(method, path, {"Content-Type": kind, "Transfer-Encoding": "chunked"}))
        try:
            while sent < ENOUGH:
                piece = b"".join(itertools.islice(pieces, 1000)) if sent % 3 else next(pieces)
                piece = piece[: 1 << 20]
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
        except OSError:
            ended = True
        with contextlib.suppress(OSError):
            connection.settimeout(10)
            response = raw.drain(connection, 1 << 16)
            # An answer may be lost with what was under way when the server closed.
            ended = ended or bool(response) or raw.is_closed(connection, 1)
            # Signing out reads no body.
            assert raw.status(response) in (0, *((303,) if path == "/logout" else range(400, 500))), response[:300]
    assert ended or sent < ENOUGH, f"{sent >> 20} MiB were read"


def test_a_bomb_is_a_bomb() -> None:
    assert all(len(data) < MAX_UPLOAD for data in BOMBS.values())
    with zipfile.ZipFile(io.BytesIO(BOMBS["model.pt"])) as file:
        assert file.infolist()[0].file_size > BOMB
