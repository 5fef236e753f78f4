"""The routes of a server, a request for each: those that the OpenAPI document describes, and the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .cli import ROOT

READ, WRITE, ADMIN = "read", "write", "admin"
SOURCES = ROOT / "server" / "src"
METHODS = ("get", "head", "post", "put", "patch", "delete")

HUB = {
    "GET /api/models/{owner}/{name}": READ,
    "GET /api/models/{owner}/{name}/revision/{rev}": READ,
    "GET /api/models/{owner}/{name}/auth-check": READ,
    "GET /api/models/{owner}/{name}/auth-check/write": WRITE,
    "GET /api/models/{owner}/{name}/tree/{rev}": READ,
    "GET /api/models/{owner}/{name}/tree/{rev}/": READ,
    "GET /api/models/{owner}/{name}/tree/{rev}/{path}": READ,
    "POST /api/models/{owner}/{name}/paths-info/{rev}": READ,
    "GET /api/models/{owner}/{name}/refs": READ,
    "GET /api/models/{owner}/{name}/commits/{rev}": READ,
    "POST /api/models/{owner}/{name}/branch/{branch}": WRITE,
    "DELETE /api/models/{owner}/{name}/branch/{branch}": WRITE,
    "POST /api/models/{owner}/{name}/tag/{rev}": WRITE,
    "DELETE /api/models/{owner}/{name}/tag/{rev}": WRITE,
    "POST /api/models/{owner}/{name}/preupload/{rev}": WRITE,
    "POST /api/models/{owner}/{name}/commit/{rev}": WRITE,
    "GET /{owner}/{name}/resolve/{rev}/{path}": READ,
    "HEAD /{owner}/{name}/resolve/{rev}/{path}": READ,
    "POST /{owner}/{name}/info/lfs/objects/batch": READ,
    "GET /{owner}/{name}/info/lfs/objects/{oid}": READ,
    "PUT /{owner}/{name}/info/lfs/objects/{oid}": WRITE,
    "POST /{owner}/{name}/info/lfs/verify": WRITE,
}
PAGES = {
    "GET /{owner}/{name}": READ,
    "GET /{owner}/{name}/commits/{rev}": READ,
    "GET /{owner}/{name}/commit/{rev}": READ,
    "GET /{owner}/{name}/tree/{rev}": READ,
    "GET /{owner}/{name}/tree/{rev}/{path}": READ,
    "GET /{owner}/{name}/blob/{rev}/{path}": READ,
    "GET /{owner}/{name}/compare": READ,
    "GET /{owner}/{name}/compare/{a}/{b}": READ,
}
OF_NO_REPOSITORY = (
    "GET /",
    "GET /login",
    "POST /login",
    "GET /logout",
    "POST /logout",
    "GET /assets/{asset}",
    "GET /metrics",
    "GET /api/v1/openapi.json",
    "GET /api/v1/repos",
    "POST /api/v1/repos",
    "GET /api/whoami-v2",
    "POST /api/repos/create",
    "POST /api/validate-yaml",
    "GET /api/models",
    "GET /api/models/{owner}",
)
OPEN = ("GET /healthz", "GET /readyz")
"""For anybody, with or without a token that is good."""

API = "/api/v1/repos/{owner}/{name}"
SCOPES = {
    "patch": ADMIN,
    f"get {API}/webhooks": ADMIN,
    f"post {API}/webhooks": ADMIN,
    f"get {API}/webhooks/{{id}}": ADMIN,
    f"delete {API}/webhooks/{{id}}": ADMIN,
    f"patch {API}/uploads/{{id}}": WRITE,
    f"get {API}/uploads": WRITE,
    f"get {API}/uploads/{{id}}": WRITE,
    f"head {API}/uploads/{{id}}": WRITE,
    f"post {API}/sync/offer": READ,
    f"post {API}/sync/whole": READ,
    f"post {API}/sync/read": READ,
    f"post {API}/sync/lacking": READ,
    f"post {API}/sync/known": READ,
    f"get {API}/sync/packs/{{id}}": WRITE,
    f"get {API}/jobs": WRITE,
    f"get {API}/jobs/{{id}}": WRITE,
}
"""Of our own API: what wants another scope than its method says."""

VALUES = {
    "rev": "main",
    "path": "model.safetensors",
    "branch": "topic",
    "kind": "heads",
    "ref": "topic",
    "id": "0" * 32,
    "oid": "0" * 64,
    "a": "main",
    "b": "main",
    "asset": "none.css",
    "part": "0",
}


@dataclass(frozen=True)
class Route:
    """A request to one route of a repository."""

    method: str
    template: str
    scope: str

    def __str__(self) -> str:
        return f"{self.method} {self.template}"

    def path(self, owner: str, name: str, **values: str) -> str:
        usual = VALUES | ({"id": VALUES["oid"]} if "/sync/packs/" in self.template else {})
        filled = self.template.format_map({**usual, "owner": owner, "name": name, **values})
        needed = {"/diff": "?a=main", "/tensor/{rev}/{path}": "?name=none"}
        needed |= {"/sync/packs/{id}": "?size=100", "/parts/{part}": "?size=100"}
        return filled + next((query for end, query in needed.items() if self.template.endswith(end)), "")


def described(document: dict[str, Any]) -> list[str]:
    """`METHOD path` of everything in an OpenAPI document."""
    return [
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item if method in METHODS
    ]


def scope_of(method: str, path: str) -> str:
    usual = READ if method in ("get", "head") else WRITE
    return SCOPES.get(f"{method} {path}", SCOPES.get(method, usual))


def of_a_repository(document: dict[str, Any]) -> list[Route]:
    """Every route about a repository."""
    own = [line.split() for line in described(document) if "{owner}" in line]
    found = [Route(method, path, scope_of(method.lower(), path)) for method, path in own]
    return found + [Route(*line.split(), scope) for line, scope in (HUB | PAGES).items()]


def registered() -> set[str]:
    """The paths that the sources of the server register outside the document."""
    found = set()
    for source in SOURCES.rglob("*.rs"):
        text = source.read_text()
        constants = dict(re.findall(r'const (\w+): &str = "([^"]*)";', text))
        # What `model("/x")` and `lfs("/x")` put in front.
        before = {"model": constants.get("MODEL", ""), "lfs": constants.get("LFS", "")}
        for call in re.findall(r"\.route\(\s*([^,]+),", text):
            literal = re.fullmatch(r'(?:&(\w+)\()?"([^"]*)"\)?', call.strip())
            if literal:
                found.add(before.get(literal[1] or "", "") + literal[2])
            else:
                assert call.strip() in constants, f"{source.name}: who is {call!r}?"
                found.add(constants[call.strip()])
    return {path.replace("{*", "{").replace("/assets/{name}", "/assets/{asset}") for path in found}


def in_sources() -> set[str]:
    """The paths that the sources describe for the document."""
    sources = [source for room in ("api", "sync") for source in (SOURCES / room).rglob("*.rs")]
    found = {p for source in sources for p in re.findall(r'^\s*path = "(/[^"]*)"', source.read_text(), re.M)}
    return {"/api/v1" + path.replace("{*", "{") for path in found}
