"""Path traversal by names: no revision, branch or ref opens a file outside its repository, or blocks on one inside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from support.cli import CORRUPT, NOT_FOUND, USAGE, USER, Mdl
from support.processes import peak
from support.served import fill
from support.server import Answer, Server, create_token

SECRET = "kept-between-us"
GENTLY = 30.0
"""Seconds within which everything here answers, however busy the machine is; what blocks would take for ever."""
MEMORY = 512 << 20
"""What the server may have in memory afterwards; what reads a device has it all in seconds."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    root = tmp_path_factory.mktemp("names") / "root"
    root.mkdir()
    fill(root, "ada/open", "for-everybody")
    fill(root, "bob/secret", SECRET)
    os.mkfifo(root.parent / "pipe")
    (root.parent / "note").write_text("a file of the machine\n")
    token = create_token(root, "admin")
    with Server(root, token=token) as server:
        assert server.send("PATCH", "/api/v1/repos/ada/open", {"anonymous_read": True}).status == 200
        yield Server(root, url=server.url), root.parent
        memory = peak(server.pid)
        assert memory < MEMORY, f"{memory} bytes"


def readers(name: str) -> list[tuple[str, str]]:
    """Every request that looks a revision up, with this one."""
    rev, api, hub = quote(name, safe=""), "/api/v1/repos/ada/open", "/api/models/ada/open"
    return [
        ("GET", f"{api}/commits/{rev}"),
        ("GET", f"{api}/log?rev={rev}"),
        ("GET", f"{api}/diff?a={rev}&b=main"),
        ("GET", f"{api}/diff?a=main&b={rev}"),
        ("GET", f"{api}/checkout/{rev}"),
        ("GET", f"{hub}/revision/{rev}"),
        ("GET", f"{hub}/commits/{rev}"),
        ("GET", f"{hub}/tree/{rev}"),
        ("GET", f"/ada/open/resolve/{rev}/README.md"),
        ("GET", f"/ada/open/commits/{rev}"),
        ("GET", f"/ada/open/tree/{rev}"),
    ]


def told(answer: Answer, name: str) -> tuple[int, str]:
    """What was answered, without the name itself."""
    text = answer.body.decode(errors="replace")
    for form in (name, quote(name, safe=""), name.replace("/", "\\/")):
        text = text.replace(form, "NAME")
    return answer.status, text


@pytest.mark.parametrize("asked", readers("X"), ids=lambda r: r[1].split("?")[0])
def test_a_file_of_the_machine_is_answered_as_a_name_that_does_not_exist(
    place: tuple[Server, Path], asked: tuple[str, str]
) -> None:
    server, outside = place
    at = readers("X").index(asked)
    missing = "/no/such/thing@{0}"
    method, path = readers(missing)[at]
    wanted = told(server.ask(method, path, timeout=GENTLY), missing)
    assert wanted[0] == 404, wanted
    for file in ("/dev/zero", "/etc/passwd", "/proc/self/environ", f"{outside}/pipe", f"{outside}/note", "config"):
        name = f"{file}@{{0}}"
        method, path = readers(name)[at]
        assert told(server.ask(method, path, timeout=GENTLY), name) == wanted, file


@pytest.mark.xdist_group("timing")
def test_many_pipes_asked_for_at_once_leave_the_server_answering(place: tuple[Server, Path]) -> None:
    server, outside = place
    path = f"/api/v1/repos/ada/open/commits/{quote(f'{outside}/pipe@{{0}}', safe='')}"
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: server.ask("GET", path, timeout=GENTLY).status, range(600)))
    assert set(answers) <= {404, 429}
    assert server.get("/api/v1/repos/ada/open/commits/main").status == 200


NAMES = [
    "../../../bob/secret/refs/heads/main",
    "../../bob/secret/refs/heads/main",
    "../../../../bob/secret/refs/heads/main",
    "/dev/zero",
    "main/../main",
    "..",
    "a\\..\\b",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_branch_of_a_writer_is_a_file_elsewhere(place: tuple[Server, Path], name: str) -> None:
    server, outside = place
    token = create_token(outside / "root", "write", "ada/*", name="writer")
    writer = Server(outside / "root", url=server.url, token=token)
    tip = Mdl(outside / "root" / "bob/secret").commit_id("main")
    assert tip is not None
    branch, api, hub = quote(name, safe=""), "/api/v1/repos/ada/open", "/api/models/ada/open"
    lines = {"Content-Type": "application/x-ndjson"}
    head = '{"key":"header","value":{"summary":"x"}}\n'
    parent = f'{{"key":"header","value":{{"summary":"x","parentCommit":"{tip}"}}}}\n'
    move = {"name": f"refs/heads/{name}", "expected": None, "new": tip}
    answers = [
        writer.ask("POST", f"{hub}/commit/{branch}", head.encode(), lines),
        writer.ask("POST", f"{hub}/commit/{branch}", parent.encode(), lines),
        writer.send("POST", f"{hub}/branch/{branch}", {}),
        writer.ask("DELETE", f"{hub}/branch/{branch}"),
        writer.send("POST", f"{hub}/tag/main", {"tag": name}),
        writer.send("PUT", f"{api}/refs/heads/{branch}", {"target": "main"}),
        writer.send("PUT", f"{api}/refs/heads/new", {"target": f"{name}@{{0}}"}),
        writer.ask("DELETE", f"{api}/refs/heads/{branch}"),
        writer.send("POST", f"{api}/sync/refs", {"moves": [move]}),
    ]
    for n, answer in enumerate(answers):
        assert 400 <= answer.status < 500, f"{n}: {answer.status} {answer.body[:300]!r}"
        said = f"{n}: {answer.body[:300]!r}"
        assert tip[:12].encode() not in answer.body, said
        assert SECRET.encode() not in answer.body, said


@pytest.mark.xdist_group("timing")
def test_what_lies_in_the_place_of_a_ref_is_refused_at_once(tmp_path: Path) -> None:
    """Also on the command line, where the user of a repository is not the one who filled it."""
    mdl = fill(tmp_path, "r", "mark")
    ref, log = mdl.store / "refs/heads/odd", mdl.store / "logs/HEAD"
    log.unlink()
    kinds = {
        "pipe": os.mkfifo,
        "device": lambda p: os.symlink("/dev/zero", p),
        "huge": lambda p: (p.touch(), os.truncate(p, 1 << 40)),
    }
    for kind, make in kinds.items():
        make(ref)
        make(log)
        begun = time.monotonic()
        for command in (["log", "odd"], ["reflog"], ["branch"], ["log", "HEAD@{1}"]):
            prefix = ["timeout", str(GENTLY), "prlimit", f"--data={MEMORY}"]
            mdl.run(*command, code=CORRUPT, prefix=prefix).complains()
        assert time.monotonic() - begun < 4 * GENTLY, kind
        ref.unlink()
        log.unlink()


@pytest.mark.parametrize("name", ["/dev/zero@{0}", "/etc/passwd@{0}", "/etc/passwd", "config@{0}", "logs/HEAD@{0}"])
def test_a_revision_on_the_command_line_is_no_path(tmp_path: Path, name: str) -> None:
    mdl = fill(tmp_path, "r", "mark")
    prefix = ["timeout", str(GENTLY), "prlimit", f"--data={MEMORY}"]
    for command in (["log", name], ["diff", "main", name], ["checkout", name, "--to", tmp_path / "out"]):
        mdl.run(*command, code=(NOT_FOUND, USAGE), prefix=prefix).complains()
    mdl.run("branch", "new", name, code=(NOT_FOUND, USAGE, USER), prefix=prefix).complains()
    assert not (tmp_path / "out").exists()
