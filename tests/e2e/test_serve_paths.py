"""Path traversal by paths, refs and ids: nothing outside a repository is read or written."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from support import raw
from support.raw import FORM, form, member, tar_of
from support.served import fill
from support.server import Server, create_token

CANARY = "canary-outside-of-everything"
UP = (
    "..",
    "%2e%2e",
    "%2E.",
    "..%2f..",
    "%2e%2e%2f%2e%2e",
    "..%5c..",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%252e%252e",
    "..%00",
    "%ff",
    "%",
    "%2",
    "~",
    ".mdl-serve",
    "%2fetc",
    "C:%5c",
)


class Grounds:
    """A server for its administrator, with canaries around the repositories."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "root"
        self.root.mkdir()
        self.mdl = fill(self.root, "ada/gpt", "grounds")
        self.token = create_token(self.root)
        self.canaries = [top / "canary.txt", self.root / "canary.txt", self.root / ".mdl-serve" / "canary.txt"]
        self.canaries += [self.root / "ada" / "canary.txt", self.root / "ada/gpt" / "canary.txt"]
        for canary in self.canaries:
            canary.write_text(CANARY)

    def outside(self) -> dict[str, bytes]:
        """Every file that is in no repository and not the server's to change."""
        own = (self.root / "ada/gpt", self.root / ".mdl-serve" / "decoded", self.root / ".mdl-serve" / "repos")
        files = [p for p in self.top.rglob("*") if p.is_file() and not any(o in p.parents for o in own)]
        skipped = ("server.log", ".lock", "webhooks.json", "audit.jsonl")
        return {str(p): p.read_bytes() for p in files if not p.name.endswith(skipped)}


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Grounds, Server]]:
    grounds = Grounds(tmp_path_factory.mktemp("grounds"))
    with Server(grounds.root, token=grounds.token) as server:
        before, log = grounds.outside(), grounds.mdl.log()
        yield grounds, server
        assert grounds.outside() == before, "something outside of the repository changed"
        assert [c["id"] for c in grounds.mdl.log("--all")][-len(log) :] == [c["id"] for c in log]
    grounds.mdl.fsck()


def refuses(response: bytes, what: object) -> None:
    assert CANARY.encode() not in response, what
    assert b'"hash"' not in response, f"{what}: tokens.json"
    assert b"root:x:" not in response, what
    assert raw.status(response) < 500, f"{what}: {response[:300]!r}"


def test_no_path_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    files = ("canary.txt", ".mdl-serve/canary.txt", ".mdl-serve/tokens.json", "etc/passwd")
    for up in UP:
        for file in files:
            deep = "/".join([up] * 6)
            for target in (
                f"/{up}/{file}",
                f"/{deep}/{file}",
                f"/api/v1/repos/{up}/{up}",
                f"/api/v1/repos/ada/{up}",
                f"/api/v1/repos/{quote(f'../{file}', safe='')}/x",
                f"/api/v1/repos/ada/gpt/files/main/{deep}/{file}",
                f"/api/v1/repos/ada/gpt/files/{up}/{file}",
                f"/api/v1/repos/ada/gpt/tree/{up}?path={up}/{file}",
                f"/api/v1/repos/ada/gpt/tensor/main/{up}/{file}?name={up}",
                f"/api/v1/repos/ada/gpt/checkout/{up}",
                f"/api/v1/repos/ada/gpt/uploads/{up}",
                f"/api/v1/repos/ada/gpt/jobs/{up}",
                f"/ada/gpt/resolve/main/{deep}/{file}",
                f"/ada/{up}/resolve/main/{file}",
                f"/{up}/gpt/resolve/{up}/{file}",
                f"/ada/gpt/blob/main/{up}/{file}",
                f"/ada/gpt/tree/{up}/{up}",
                f"/ada/gpt.git/info/lfs/objects/{up}",
                f"/api/models/ada/{up}/tree/main/{up}",
                f"/api/models/ada/gpt/revision/{up}",
                f"/assets/{up}%2f{file}",
                f"http://evil.example/{up}/{file}",
                f"file:///{up}/{file}",
            ):
                response = raw.request(server.url, "GET", target, here.token)
                refuses(response, target)
                assert raw.status(response) not in (200, 206) or file == "etc/passwd" or up == "~", (
                    f"{target}: {response[:300]!r}"
                )
    for target in (
        b"/api/v1/repos/ada/gpt/files/main/\x00",
        b"/\xff\xfe",
        b"/ada/gpt/resolve/main/\xc0\xae\xc0\xae/x",
        b"*",
        b"",
    ):
        response = raw.request(server.url, "GET", target, here.token)
        refuses(response, target)
        assert 400 <= raw.status(response) < 500, f"{target!r}: {response[:200]!r}"


def test_no_name_of_a_ref_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    body = json.dumps({"target": "main"}).encode()
    kind = "application/json"
    for up in (
        *UP,
        quote("../../../canary.txt", safe=""),
        "a%2f..%2f..%2fx",
        "x.lock",
        "-x",
        "HEAD%0a",
        "%20",
        "a%0d%0ax",
    ):
        for method, target, data in (
            ("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{up}", body),
            ("PUT", f"/api/v1/repos/ada/gpt/refs/tags/{up}", body),
            ("PUT", f"/api/v1/repos/ada/gpt/refs/{up}/x", body),
            ("DELETE", f"/api/v1/repos/ada/gpt/refs/heads/{up}", b""),
            ("POST", f"/api/models/ada/gpt/branch/{up}", b"{}"),
            ("DELETE", f"/api/models/ada/gpt/branch/{up}", b""),
            ("POST", "/api/models/ada/gpt/tag/main", json.dumps({"tag": up}).encode()),
        ):
            response = raw.request(server.url, method, target, here.token, data, kind)
            refuses(response, (method, target))
    own = {p.name for p in (here.root / "ada" / "gpt").iterdir()}
    assert not {"x", "passwd", "etc"} & own


def test_no_id_of_an_upload_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    for up in (*UP, quote("../../../tokens.json", safe=""), quote("../../canary.txt", safe=""), "tokens", "canary.txt"):
        target = f"/api/v1/repos/ada/gpt/uploads/{up}"
        for method in ("GET", "HEAD", "DELETE"):
            response = raw.request(server.url, method, target, here.token)
            refuses(response, (method, up))
            assert 400 <= raw.status(response) < 500, (method, up, response[:200])
        headers = [
            ("Authorization", f"Bearer {here.token}"),
            ("Upload-Offset", "0"),
            ("Content-Length", "4"),
            ("Connection", "close"),
        ]
        refuses(raw.exchange(server.url, raw.head("PATCH", target, headers) + b"gone"), ("PATCH", up))
        oid = f"/ada/gpt.git/info/lfs/objects/{up}"
        response = raw.request(server.url, "PUT", oid, here.token, b"gone")
        assert 400 <= raw.status(response) < 500, (up, response[:200])
        named = json.dumps({"message": "x", "uploads": [{"path": "x", "upload": up}]}).encode()
        response = raw.request(
            server.url, "POST", "/api/v1/repos/ada/gpt/commits", here.token, named, "application/json"
        )
        assert 400 <= raw.status(response) < 500, (up, response[:200])


NAMES = (
    "../x",
    "a/../../x",
    "/etc/x",
    "a/./b",
    "a//b",
    "",
    ".",
    "..",
    "a\\..\\b",
    "\u0000",
    "a\nb",
    ".mdl/x",
    "a/",
    "x" * 300,
)


def commits(server: Server) -> list[str]:
    listed = server.get("/api/v1/repos/ada/gpt/log?all=true").json()
    return [c["commit"] for c in listed["commits"]]


def test_no_name_of_a_file_leads_out(grounds: tuple[Grounds, Server]) -> None:
    here, server = grounds
    before = commits(server)
    target = "/api/v1/repos/ada/gpt/commits"
    for name in NAMES:
        answer = raw.request(server.url, "POST", target, here.token, form({"message": "x"}, {name: b"gone"}), FORM)
        assert 400 <= raw.status(answer) < 500, f"multipart {name!r}: {answer[:300]!r}"
        header = {"key": "header", "value": {"summary": "x"}}
        line = {"key": "file", "value": {"path": name, "content": "eA==", "encoding": "base64"}}
        ndjson = f"{json.dumps(header)}\n{json.dumps(line)}\n".encode()
        answer = raw.request(
            server.url, "POST", "/api/models/ada/gpt/commit/main", here.token, ndjson, "application/x-ndjson"
        )
        assert 400 <= raw.status(answer) < 500, f"hub {name!r}: {answer[:300]!r}"
    meta = quote_plus(json.dumps({"message": "x"}))
    heads = [member(name) for name in NAMES if "\u0000" not in name]
    heads += [
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../../canary.txt"),
        member("link", tarfile.LNKTYPE, "../../canary.txt"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
        member("disk", tarfile.BLKTYPE),
        member("../dir", tarfile.DIRTYPE),
    ]
    for info in heads:
        archive = tar_of((info, b"" if info.type != tarfile.REGTYPE else b"gone"))
        answer = raw.request(server.url, "POST", f"{target}?meta={meta}", here.token, archive, "application/x-tar")
        shown = (info.name, info.type)
        # A directory by itself is nothing to commit; everything else is refused by its name or kind.
        assert 400 <= raw.status(answer) < 500 or info.name in ("a/./b", "a//b", "a/"), f"tar {shown}: {answer[:300]!r}"
        refuses(answer, shown)
    # Only tars whose names are cleaned of `.` and empty parts were taken, if any.
    assert len(set(commits(server)) - set(before)) <= 3
