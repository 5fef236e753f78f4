"""No commit over any route may hold a repository's own directory, in any of its spellings."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterator

import pytest
from support.served import fill
from support.server import Server, create_token

BAD = [
    ".git/config",
    ".GIT/hooks/post-checkout",
    "deep/er/.Git/config",
    ".git",
    ".git./config",
    ".git /config",
    ".git::$INDEX_ALLOCATION/config",
    "git~1/config",
    ".g\u200cit/config",
    ".mdl/config",
    ".MDL./config",
    "mdl~1",
]
GOOD = [".gitattributes", ".gitignore", "git/config", "a.git/config", ".mdlignore"]
API, HUB = "/api/v1/repos/ada/gpt", "/api/models/ada/gpt"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("trees") / "root"
    root.mkdir()
    fill(root, "ada/gpt", "mark")
    with Server(root, token=create_token(root, "admin")) as server:
        yield server


def tip(server: Server) -> str:
    return str(server.get(f"{API}/commits/main").json()["commit"])


def by_hub(server: Server, path: str) -> int:
    file = {"path": path, "content": base64.b64encode(b"x").decode(), "encoding": "base64"}
    lines = [{"key": "header", "value": {"summary": f"hub {path}"}}, {"key": "file", "value": file}]
    body = "\n".join(json.dumps(line) for line in lines).encode()
    return server.ask("POST", f"{HUB}/commit/main", body, {"Content-Type": "application/x-ndjson"}).status


def by_tar(server: Server, path: str) -> int:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo(path)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    path = f"{API}/commits?meta=%7B%22message%22%3A%22tar%22%7D"
    return server.ask("POST", path, packed.getvalue(), {"Content-Type": "application/x-tar"}).status


def by_form(server: Server, path: str) -> int:
    quoted = path.replace('"', "%22")
    parts = [
        b'--B\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{"message":"form"}\r\n',
        f'--B\r\nContent-Disposition: form-data; name="file"; filename="{quoted}"\r\n\r\nx\r\n'.encode(),
        b"--B--\r\n",
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    return server.ask("POST", f"{API}/commits", b"".join(parts), headers).status


@pytest.mark.parametrize("path", BAD)
@pytest.mark.parametrize("send", [by_hub, by_tar, by_form])
def test_no_commit_over_http_holds_a_repository(server: Server, send: object, path: str) -> None:
    assert callable(send)
    before = tip(server)
    status = send(server, path)
    assert 400 <= status < 500, status
    assert tip(server) == before


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize("send", [by_hub, by_tar, by_form])
def test_names_that_only_look_alike_are_taken(server: Server, send: object, path: str) -> None:
    assert callable(send)
    status = send(server, path)
    assert 200 <= status < 300, status
