"""The routes of a server, a request for each: those that the OpenAPI document describes, and the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cli import ROOT

READ, WRITE, ADMIN = "read", "write", "admin"
METHODS = ("get", "head", "post", "put", "patch", "delete")

LIST = ROOT / "server" / "routes.txt"
"""`METHOD PATH NEED` of every route: a test of the server holds it to the router."""


def listed() -> list[tuple[str, str, str]]:
    """Method, path and need of every route."""
    lines = [line.split() for line in LIST.read_text().splitlines()]
    return [(method, path.replace("{*", "{"), need) for method, path, need in lines]


OF_NO_REPOSITORY = tuple(f"{m} {p}" for m, p, need in listed() if need in ("anyone", "known", "admin-of-named"))

VALUES = {
    "rev": "main",
    "path": "model.safetensors",
    "branch": "topic",
    "kind": "heads",
    "ref": "topic",
    "id": "0" * 32,
    "oid": "0" * 64,
    "hash": "0" * 64,
    "session": "0123456789abcdef",
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


def described(document: dict[str, Any]) -> dict[str, str]:
    """`METHOD path` of everything in an OpenAPI document, and what it needs."""
    operations = [(method, path, item[method]) for path, item in document["paths"].items() for method in item]
    return {f"{m.upper()} {path}": operation["x-needs"] for m, path, operation in operations if m in METHODS}


def of_a_repository() -> list[Route]:
    """Every route about a repository."""
    scopes = {READ: READ, WRITE: WRITE, "write-or-link": WRITE, ADMIN: ADMIN}
    found = [Route(method, path, scopes[need]) for method, path, need in listed() if need in scopes]
    return [*found, Route("HEAD", "/{owner}/{name}/resolve/{rev}/{path}", READ)]
