"""Limits on the size of a commit's message and meta, and of a page of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.cli import USER, Mdl
from support.processes import peak
from support.server import Answer, Server, create_token

API, HUB = "/api/v1/repos/ada/gpt", "/api/models/ada/gpt"
VERSIONS = 60
MESSAGE = 64 << 10
METADATA = 700 << 10
ANSWER = 16 << 20
"""More than any page has, JSON's escapes counted; all versions together have several times as much."""
MEMORY = 400 << 20
"""What a server may have taken after six clients asked for everything at once."""


def commit(server: Server, message: str, metadata: dict[str, str], name: str = "a") -> Answer:
    said = json.dumps({"message": message, "meta": metadata, "branch": "main"})
    parts = [
        f'--B\r\nContent-Disposition: form-data; name="meta"\r\nContent-Type: application/json\r\n\r\n{said}\r\n',
        f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n{name}\r\n--B--\r\n',
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    return server.ask("POST", f"{API}/commits", "".join(parts).encode(), headers)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("log") / "root"
    root.mkdir()
    Mdl.init(root / "ada/gpt", "--bare")
    with Server(root, token=create_token(root, "admin")) as server:
        for n in range(VERSIONS):
            message = f"version {n}\n\n".ljust(MESSAGE, "m")
            answer = commit(server, message, {"notes": "n" * METADATA}, f"file-{n}")
            assert answer.status in (200, 201), answer.body[:300]
        yield server


def test_a_page_of_the_log_ends_by_bytes_and_the_pages_hold_every_version(server: Server) -> None:
    titles, after = [], ""
    while True:
        answer = server.get(f"{API}/log?rev=main&limit=1000{after}")
        assert answer.status == 200
        assert len(answer.body) < ANSWER, len(answer.body)
        page = answer.json()
        assert not any(c.get("cut") for c in page["commits"])
        titles += [c["message"].split("\n")[0] for c in page["commits"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert titles == [f"version {n}" for n in reversed(range(VERSIONS))]


def test_a_page_of_the_hub_ends_by_bytes_and_links_to_the_next(server: Server) -> None:
    titles, path = [], f"{HUB}/commits/main?limit=1000&expand[]=formatted"
    for _ in range(VERSIONS + 1):
        answer = server.get(path)
        assert answer.status == 200
        assert len(answer.body) < 5 << 20, len(answer.body)
        titles += [c["title"] for c in answer.json()]
        link = {k.lower(): v for k, v in answer.headers.items()}.get("link")
        if link is None:
            break
        url = link[link.index("<") + 1 : link.index(">")]
        path = url[url.index("/api/") :]
    assert titles == [f"version {n}" for n in reversed(range(VERSIONS))]


def test_many_clients_who_ask_for_everything_take_bounded_memory(server: Server) -> None:
    paths = [f"{API}/log?limit=1000", f"{HUB}/commits/main?limit=1000", "/ada/gpt/commits/main"]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(server.get, paths * 8))
    assert {a.status for a in answers} == {200}
    assert max(len(a.body) for a in answers) < ANSWER
    memory = peak(server.pid)
    assert memory < MEMORY, f"{memory} bytes"


def test_a_version_that_says_too_much_is_refused(server: Server) -> None:
    before = server.get(f"{API}/commits/main").json()["commit"]
    for message, metadata in (
        ("x" * (MESSAGE + 1), {}),
        ("\u00e9" * (MESSAGE // 2 + 1), {}),
        ("x", {f"k{n}": "" for n in range(40_000)}),
    ):
        answer = commit(server, message, metadata, "long")
        assert answer.status in (413, 422), answer.status
    assert server.get(f"{API}/commits/main").json()["commit"] == before
    lines = [
        {"key": "header", "value": {"summary": "x" * (MESSAGE + 1)}},
        {"key": "file", "value": {"path": "y", "content": "eA==", "encoding": "base64"}},
    ]
    body = "\n".join(map(json.dumps, lines)).encode()
    answer = server.ask("POST", f"{HUB}/commit/main", body, {"Content-Type": "application/x-ndjson"})
    assert answer.status in (413, 422), answer.status
    tag = {"target": "main", "expected": None, "annotate": True, "message": "x" * (MESSAGE + 1)}
    assert server.send("PUT", f"{API}/refs/tags/long", tag).status == 422


def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "r")
    (tmp_path / "r" / "a").write_text("a")
    mdl.run("commit", "-m", "x" * (MESSAGE + 1), code=USER).complains("message", str(MESSAGE))
    mdl.run("commit", "-m", "x" * MESSAGE)
    mdl.run("tag", "v1", "-m", "x" * (MESSAGE + 1), code=USER).complains("message", str(MESSAGE))
