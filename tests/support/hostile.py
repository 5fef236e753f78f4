"""Generates requests for every route from good, hostile, and slightly wrong values."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_from_bytes

from . import raw
from .hostile_bodies import Bodies
from .routes import listed


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NUMBERS = ("", *words("0 1 -1 7 18446744073709551615 18446744073709551616 1e309 0x10 1e3 NaN true"))
ODD = (
    *words(r". .. ... ~ / // ../.. ../../../.. a/../../x -x --help * ** [ {a,b} ? %s%n % %00 %2e%2e%2f"),
    *words(r"C:\x \\host\share a:b"),
    *words(".git .git/config .GIT/config git~1/config .mdl .mdl/config .mdl-serve/tokens.json x.lock con aux.txt"),
    *words("é e\u0301 💥 \ufeff null undefined ${HOME} ' \" <b>"),
    *("", "\0", "a\0b", "a\nb", "a\r\nX-Y: z", "\x1b[2J", "\x7f", "a b", "\t", "\u202eabc"),
    *("x" * 300, "x" * 5000, "a/" * 2000),
)
REVISIONS = (
    *words("HEAD main main~1 main^ v1 step-2 step-1 main@step=2 main@best(loss) refs/heads/main heads/main HEAD@{0}"),
    "main@{0}",
)
BROKEN_REVISIONS = (
    *words("@ @{0} @{-1} @{99999999999999999999} @{upstream} @{ @} main@{1e9} main@{0}@{0} main@best( main@best()"),
    *words(
        "main@step= main@step=99999999999999999999 main~99999999999999999999 main~1~1~1 ~1 ^ refs/heads/ refs/ step-"
    ),
    *words(".. main..v1 main:x step-99999999999999999999 refs/../HEAD HEAD/.. heads/../../HEAD x.lock@{0}"),
    "main" + "^" * 500,
)
FILES = ("model.safetensors", "README.md", "arrays.npz", "state.pt", "notes/a.txt")


@dataclass(frozen=True)
class Request:
    """What is sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    caller: str
    template: str

    def head(self) -> bytes:
        target = self.target.encode("utf-8", "surrogateescape")
        return raw.head(self.method, target, [(k, v) for k, v in self.headers])

    def __str__(self) -> str:
        shown = [
            f"{k}: {v[:80]}" for k, v in self.headers if k.lower() not in ("host", "content-length", "authorization")
        ]
        return f"{self.method} {self.target[:400]} as {self.caller} {shown} {self.body[:300]!r}"


@dataclass
class World:
    """What requests can name: of the server, and of the machine around it."""

    callers: Mapping[str, str]
    """Name and the Authorization or Cookie header's value."""
    outside: Sequence[str]
    """Paths that are not the server's."""
    queries: Mapping[str, Sequence[str]]
    """Names of the query parameters of `METHOD PATH`."""
    ids: Sequence[str]
    tensors: Sequence[str] = ("weight", "bias")
    packs: Sequence[bytes] = ()


class Maker:
    """Makes requests; the same for the same seed."""

    def __init__(self, world: World, seed: str) -> None:
        self.world, self.random = world, random.Random(seed)
        self.routes = listed()
        self.learned: list[str] = []
        self.ids, self.packs = world.ids, world.packs

    def learn(self, body: bytes) -> None:
        """Keeps the id of what was just made: later requests name it."""
        if body.startswith(b"{") and len(body) < 1 << 16:
            try:
                made = json.loads(body).get("id")
            except (ValueError, AttributeError):
                return
            if isinstance(made, str):
                self.learned = [*self.learned[-20:], made]

    def next(self) -> Request:
        pick = self.random
        method, template, need = pick.choice(self.routes)
        caller = self.caller(need)
        path = self.path(template)
        target = path + self.query(method, template)
        method = self.method(method)
        headers, body = self.headers(method, template), b""
        if method not in ("GET", "HEAD") or pick.random() < 0.02:
            kind, body = Bodies(self).of(method, template)
            headers.append(("Content-Type", kind))
        if method == "PATCH" and "/uploads/" in template:
            headers.append(("Upload-Offset", pick.choice(("0", "0", "4", *NUMBERS))))
        if pick.random() < 0.05 and body:
            headers.append(("Transfer-Encoding", "chunked"))
            body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:7], body[7:]) if p) + b"0\r\n\r\n"
        elif body or method not in ("GET", "HEAD"):
            headers.append(("Content-Length", str(len(body))))
        if shown := self.world.callers[caller]:
            headers.append(("Cookie" if caller == "cookie" else "Authorization", shown))
        return Request(method, target, tuple(headers), body, caller, template)

    def caller(self, need: str) -> str:
        """Mostly a caller with the right: otherwise the values that come next are never read."""
        enough = {
            "write": ("write", "admin"),
            "write-or-link": ("write",),
            "admin": ("admin",),
            "admin-of-named": ("admin",),
        }
        if self.random.random() < 0.65:
            return self.random.choice(enough.get(need, ("read", "none", "cookie")))
        return self.random.choice(
            [c for c in self.world.callers if c != "wrong" or self.random.random() < 0.1] or ["none"]
        )

    def method(self, own: str) -> str:
        if self.random.random() < 0.03:
            return self.random.choice(
                ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get")
            )
        return "HEAD" if own == "GET" and self.random.random() < 0.05 else own

    # Values

    def value(self, name: str) -> str:
        """A value for a parameter: good, hostile, or good and changed in one place."""
        kind = self.random.random()
        good = self.good(name)
        if kind < 0.5:
            return good
        return self.hostile(name) if kind < 0.8 else self.off(good)

    def good(self, name: str) -> str:
        pick = self.random.choice
        revisions = (*REVISIONS, *self.world.ids)
        ids = self.world.ids
        known: dict[str, Sequence[str]] = {
            "owner": ("ada",), "name": (*self.world.tensors, "gpt"), "path": (*FILES, "notes"), "part": ("0", "1"),
            "branch": ("main", "topic"), "kind": ("heads", "tags"), "ref": ("main", "topic"), "asset": ("none.css",),
            "slice": ("0:1", ":", "0,0:2"), "format": ("raw", "npy", "tar", "safetensors"), "only": ("*.pt", "notes/*"),
            "limit": ("1", "5", "1000"), "p": ("0", "1"), "start": ("0", "10"), "all": ("true", "1"), "from": ("0",),
            "files": ("true",), "size": ("100", "4"), "recursive": ("true",), "expand": ("true",), "tensors": ("true",),
            "blobs": ("true",), "meta": ('{"message": "x"}',), "search": ("gpt",), "author": ("ada",), "filter": ("w",),
            "next": ("/ada/gpt",), "id": (*self.learned, *ids), "oid": ids, "after": ids, "expected": ids,
            "cursor": ("ada/gpt", *ids),
        }  # fmt: skip
        return pick(known.get(name) or revisions)

    def hostile(self, name: str) -> str:
        pick = self.random
        if name in ("limit", "start", "p", "size", "from", "part", "after", "slice") and pick.random() < 0.6:
            return pick.choice(NUMBERS)
        outside = pick.choice(self.world.outside)
        shapes: Sequence[Callable[[], str]] = (
            lambda: outside,
            lambda: outside + "@{0}",
            lambda: outside + pick.choice(("~1", "^", "@step=1", "@best(x)", "/..", "/.")),
            lambda: "../" * pick.randint(1, 9) + outside.lstrip("/"),
            lambda: (
                "refs/heads/"
                + "../" * pick.randint(1, 6)
                + pick.choice(("bob/gpt/refs/heads/main", outside.lstrip("/")))
            ),
            lambda: "../" * pick.randint(1, 6) + "bob/gpt/refs/heads/main" + pick.choice(("", "@{0}")),
            lambda: pick.choice(ODD),
            lambda: pick.choice(ODD),
            lambda: pick.choice(BROKEN_REVISIONS),
            lambda: pick.choice(NUMBERS),
            lambda: "".join(
                chr(pick.choice((pick.randrange(256), pick.randrange(0xD800)))) for _ in range(pick.randint(1, 40))
            ),
        )
        return pick.choice(shapes)()

    def off(self, good: str) -> str:
        pick = self.random
        at = pick.randrange(len(good) + 1)
        odd = pick.choice(("/", "..", "\0", "@", "{", "}", "~", "^", ":", "%", "\\", " ", "é", "\n", "0", ".lock"))
        return pick.choice(
            (good[:at], good[at:], good[:at] + odd + good[at:], good + odd, odd + good, good.upper(), good * 2)
        )

    # Where it goes

    def written(self, value: str, *, whole: bool) -> str:
        """As a client writes it into an address, rightly or not."""
        pick, data = self.random.random(), value.encode("utf-8", "surrogatepass")
        usual = quote_from_bytes(data, safe="/" if whole else "")
        if pick < 0.75:
            return usual
        if pick < 0.8:
            return quote(usual, safe="/")
        if pick < 0.87:
            return "".join(f"%{byte:02x}" for byte in data[:800])
        if pick < 0.92:
            return usual.replace("..", "%2e%2e").replace("/", self.random.choice(("%2F", "%5c", "%252f", "//")))
        if pick < 0.95:
            return usual + self.random.choice(("%", "%z", "%ff", "%c0%ae", ";x", "%00", "%0d%0a", "?", "#"))
        return quote_from_bytes(data, safe="/~@^:{}[]|\\'\"<>`")

    def path(self, template: str) -> str:
        out = []
        for part in template.split("/"):
            if not part.startswith("{"):
                out.append(part)
            elif part == "{owner}":
                out.append("ada" if self.random.random() < 0.93 else self.written(self.value("owner"), whole=False))
            elif part == "{name}":
                usual = self.random.choice(("gpt", "gpt", "gpt", "gpt", "open", "gpt.git", "none"))
                out.append(usual if self.random.random() < 0.93 else self.written(self.hostile("name"), whole=False))
            else:
                name = part.strip("{}")
                out.append(self.written(self.value(name), whole=name in ("path", "ref")))
        return "/".join(out)

    def query(self, method: str, template: str) -> str:
        names = list(self.world.queries.get(f"{method} {template}", ()))
        if self.random.random() < 0.1:
            names += self.random.sample(
                ("rev", "path", "after", "limit", "start", "p", "meta", "name", "sig", "until", "x"), 2
            )
        # What is required has to be there for anything else to be looked at.
        chosen = [n for n in names if n in ("name", "a", "size") or self.random.random() < 0.4]
        pairs = [f"{n}={self.written(self.value(n), whole=False).replace('#', '')}" for n in chosen]
        return "?" + "&".join(pairs) if pairs else ""

    def headers(self, method: str, template: str) -> list[tuple[str, str]]:
        pick = self.random
        out = [("Host", "localhost")]
        pool = {
            "Range": (*words("bytes=0-3 bytes=-1 bytes=5- bytes=0-0,2-3 bytes=9999999999999999999- bytes=3-1 lines=1"),
                      "bytes=" + "0-1," * 500),
            "If-None-Match": ("*", '"x"', 'W/"x"', '"' + "x" * 2000 + '"', "x"),
            "If-Match": ("*", '"x"'),
            "If-Range": ('"x"', "Sun, 06 Nov 1994 08:49:37 GMT", "x"),
            "Accept": ("text/html", "*/*", "application/json", ",", ";q=" + "9" * 99),
            "Accept-Encoding": ("gzip, br, zstd", "*;q=0", "identity"),
            "Content-Encoding": ("gzip", "deflate", "br", "x"),
            "Idempotency-Key": ("k1", "k2", "x" * 3000, "é", " "),
            "Origin": ("https://evil.example", "null", "http://localhost", "https://localhost"),
            "Sec-Fetch-Site": ("cross-site", "same-site", "same-origin", "none"),
            "X-Forwarded-For": ("203.0.113.7", "127.0.0.1, x", "' or 1=1"),
            "X-Forwarded-Proto": ("https",),
            "Forwarded": ("for=203.0.113.7;host=evil.example",),
            "X-HTTP-Method-Override": ("DELETE",),
            "X-Xet-Cas-Uid": ("x",),
            "User-Agent": ("git-lfs/3.4", "huggingface_hub/0.30", "\x80\xff", "x" * 4000),
            "Expect": ("100-continue", "x"),
            "Cookie": ("mdl_token=x; a=b", "mdl_session=x", "=;=;", "x" * 3000),
        }  # fmt: skip
        for name, values in pool.items():
            if pick.random() < 0.04:
                out.append((name, pick.choice(values)))
        if pick.random() < 0.01:
            out[0] = (
                "Host",
                pick.choice(("evil.example", "localhost:1", "", "[::1", "127.0.0.1", "localhost.evil.example")),
            )
        return out
