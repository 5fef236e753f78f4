"""Incoming bytes of a server: limited by quotas, dropped when unused, never visible to another repository."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from support import raw
from support.cli import Mdl
from support.disks import tmpfs
from support.processes import until
from support.raw import BOUNDARY, FORM, form
from support.served import state_dir
from support.server import Answer, Server, create_token
from support.tensors import Tensor, write_safetensors

REPO = "/api/v1/repos/ada/gpt"
HUB = "/api/models/ada/gpt"
LFS = "/ada/gpt.git/info/lfs"
HOOK = {"url": "https://ci.example.org/hook", "secret": "s3cret"}
NDJSON = {"Content-Type": "application/x-ndjson"}
KIB = 1 << 10
DAY = 24 * 3600


def make(root: Path, seed: int = 0) -> Mdl:
    """The repository ada/gpt with one version."""
    mdl = Mdl.init(root / "ada/gpt", "--bare")
    source = root.parent / f"source-{seed}"
    write_safetensors(source / "model.safetensors", [Tensor.of("w", np.full(64, seed, np.float32))], {"format": "pt"})
    mdl.commit(source, "first", "--step", "0")
    return mdl


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make(tmp_path / "root")
    return tmp_path / "root"


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def batch(server: Server, operation: str, data: bytes, **headers: str) -> dict[str, object]:
    oid = hashlib.sha256(data).hexdigest()
    document = {"operation": operation, "transfers": ["basic"], "objects": [{"oid": oid, "size": len(data)}]}
    answer = server.send("POST", f"{LFS}/objects/batch", document, **headers)
    assert answer.status == 200, answer.body
    (found,) = answer.json()["objects"]
    return found


def link(found: dict[str, object], action: str = "upload") -> str:
    parts = urlsplit(found["actions"][action]["href"])  # type: ignore[index]
    return f"{parts.path}?{parts.query}"


def put_object(server: Server, data: bytes) -> Answer:
    return server.ask("PUT", link(batch(server, "upload", data)), data)


def is_there(server: Server, data: bytes) -> bool:
    return "error" not in batch(server, "download", data)


def line(key: str, **value: object) -> str:
    return json.dumps({"key": key, "value": value}) + "\n"


def hub_commit(server: Server, *lines: str) -> Answer:
    body = line("header", summary="s") + "".join(lines)
    return server.ask("POST", f"{HUB}/commit/main", body.encode(), NDJSON)


def lfs_file(path: str, data: bytes) -> str:
    return line("lfsFile", path=path, algo="sha256", oid=hashlib.sha256(data).hexdigest(), size=len(data))


def begin(server: Server, size: int) -> Answer:
    return server.send("POST", f"{REPO}/uploads", {"size": size})


def append(server: Server, upload: str, offset: int, data: bytes) -> Answer:
    headers = {"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"}
    return server.ask("PATCH", f"{REPO}/uploads/{upload}", data, headers)


# Another repository of the same name


def test_what_was_kept_for_a_deleted_repository_is_not_its_successors(root: Path) -> None:
    secret = os.urandom(1000)
    with Server(root) as server:
        assert server.send("POST", f"{REPO}/webhooks", HOOK).status == 201
        upload = begin(server, len(secret)).json()["id"]
        assert append(server, upload, 0, secret).status == 200
        assert put_object(server, secret).status == 200
        job = server.send("POST", f"{REPO}/jobs", {"kind": "fsck"}).json()["id"]
        assert server.get(f"{REPO}/jobs/{job}").status == 200
        grant = link(batch(server, "upload", b"other"))
    shutil.rmtree(root / "ada/gpt")
    make(root, seed=1)
    with Server(root) as server:
        assert server.get(f"{REPO}/webhooks").json()["webhooks"] == [], "it hears of a repository it was not set for"
        assert server.get(f"{REPO}/uploads").json()["uploads"] == []
        assert server.get(f"{REPO}/uploads/{upload}").status == 404
        commit = {"message": "m", "uploads": [{"path": "stolen", "upload": upload}]}
        assert server.send("POST", f"{REPO}/commits", commit).status == 422
        assert not is_there(server, secret), "an object of another repository is handed out"
        assert hub_commit(server, lfs_file("stolen", secret)).status == 400
        assert server.get(f"{REPO}/jobs").json()["jobs"] == []
        assert server.ask("PUT", grant, b"other").status == 200, "no token is wanted here, with a link or without"
        kept = state_dir(root) / "repos/ada/gpt"
        assert until(lambda: len(list(kept.iterdir())) == 1), "what belongs to a repository that is gone stays"


def test_a_link_of_a_deleted_repository_leads_nowhere(root: Path) -> None:
    token = create_token(root)
    with Server(root, token=token) as server:
        grant = link(batch(server, "upload", b"other"))
    shutil.rmtree(root / "ada/gpt")
    make(root, seed=1)
    with Server(root) as server:
        assert server.ask("PUT", grant, b"other").status == 401, "its link uploads to another repository"


def test_a_copy_of_a_repository_shares_nothing_with_it(root: Path) -> None:
    shutil.copytree(root / "ada/gpt", root / "ada/copy")
    with Server(root) as server:
        assert server.send("POST", f"{REPO}/webhooks", HOOK).status == 201
        assert server.send("POST", "/api/v1/repos/ada/copy/uploads", {"size": 1}).status == 201
        assert server.get("/api/v1/repos/ada/copy/webhooks").json()["webhooks"] == []
        assert server.get(f"{REPO}/uploads").json()["uploads"] == []


def test_what_servers_kept_by_name_goes_to_the_repository_it_was_for(root: Path) -> None:
    data, begun = os.urandom(100), "0123456789abcdef" * 2
    (root / "ada/gpt/identity").unlink(missing_ok=True)
    now = int(time.time() * 1000)
    hook = {"id": "aa" * 8, "secret": None, "refs": None, "by": "x", **HOOK}
    hooks = [{**hook, "created_ms": now}, {**hook, "id": "bb" * 8, "created_ms": now - 1000 * DAY}]
    unseen = [{**hook, "id": "cc" * 8, "created_ms": now}]
    (state_dir(root) / "uploads/ada/gpt").mkdir(parents=True)
    (state_dir(root) / "webhooks.json").write_text(json.dumps({"ada/gpt": hooks, "ada/away": unseen}))
    (state_dir(root) / "uploads/ada/gpt" / begun).write_bytes(data[:60])
    plan = {"size": 100, "sha256": None, "created_ms": now}
    (state_dir(root) / "uploads/ada/gpt" / f"{begun}.json").write_text(json.dumps(plan))
    oid = hashlib.sha256(data).hexdigest()
    (state_dir(root) / "lfs/ada/gpt" / oid[:2] / oid[2:4]).mkdir(parents=True)
    (state_dir(root) / "lfs/ada/gpt" / oid[:2] / oid[2:4] / oid).write_bytes(data)
    for _ in range(2):
        with Server(root) as server:
            found = [h["id"] for h in server.get(f"{REPO}/webhooks").json()["webhooks"]]
            assert found == ["aa" * 8], "one is lost, or one is of an earlier repository"
            assert is_there(server, data)
            assert server.get(f"{REPO}/uploads/{begun}").json()["offset"] == 60
    with Server(root) as server:
        assert append(server, begun, 60, data[60:]).json()["complete"]
        assert "cc" * 8 in (state_dir(root) / "webhooks.json").read_text(), "that of a repository that is away is lost"


# How much


def test_one_limit_bounds_commits_of_the_hub_and_their_objects(root: Path) -> None:
    with Server(root, ("--max-upload", "100KiB")) as server:
        half = "x" * (60 * KIB)
        assert hub_commit(server, line("file", path="a", content=half)).status == 200
        both = [line("file", path=p, content=half + p) for p in ("b", "c")]
        assert hub_commit(server, *both).status == 413, "files inside a commit are not added up"
        objects = [os.urandom(50 * KIB) for _ in range(2)]
        assert all(put_object(server, data).status == 200 for data in objects)
        named = [lfs_file(f"o{n}", data) for n, data in enumerate(objects)]
        assert hub_commit(server, *named, line("file", path="d", content="x" * KIB)).status == 413, "objects are not"
        assert hub_commit(server, *named).status == 200
        assert files_below(state_dir(root) / "spool") == []


def test_objects_that_no_version_holds_are_bounded(root: Path) -> None:
    with Server(root, ("--max-upload", "100KiB")) as server:
        assert all(put_object(server, os.urandom(90 * KIB)).status == 200 for _ in range(2))
        second = os.urandom(60 * KIB)
        over = put_object(server, second)
        assert over.status == 507, f"{over.status}: any number of them is taken"
        assert over.json()["kind"] == "quota"
        assert begin(server, 60 * KIB).status == 507, "each kind is counted by itself"
        assert begin(server, 20 * KIB).status == 201
        assert hub_commit(server, line("file", path="a", content="x" * KIB)).status == 507
        assert not is_there(server, second)
        assert files_below(state_dir(root) / "spool") == []


def test_a_token_is_bounded_over_all_its_repositories_and_others_are_not_kept_out(root: Path) -> None:
    Mdl.init(root / "ada/other", "--bare")
    one, other = create_token(root, "write", "ada/*", name="one"), create_token(root, "write", "ada/*", name="other")
    limits = ("--quota-token", "100KiB", "--quota-repo", "1MiB")
    with Server(root, limits, token=one) as server:
        assert begin(server, 60 * KIB).status == 201
        path = "/api/v1/repos/ada/other/uploads"
        assert server.send("POST", path, {"size": 60 * KIB}).status == 507
        mine = {"Authorization": f"Bearer {other}"}
        assert server.send("POST", path, {"size": 60 * KIB}, **mine).status == 201
        # A link counts to the token that it was made for.
        data = os.urandom(60 * KIB)
        href = link(batch(server, "upload", data, **mine))
        assert server.ask("PUT", href, data, {"Authorization": ""}).status in (401, 507)
        with raw.connect(server.url) as connection:
            head = raw.head("PUT", href, {"Content-Length": str(len(data)), "Connection": "close"})
            with contextlib.suppress(OSError):
                connection.sendall(head + data)
            assert raw.status(raw.drain(connection)) == 507


def test_what_is_counted_is_counted_after_a_restart_and_given_back_when_it_goes(root: Path) -> None:
    limits = ("--quota-repo", "100KiB", "--max-upload", "100KiB")
    with Server(root, limits) as server:
        upload = begin(server, 60 * KIB).json()["id"]
        assert put_object(server, os.urandom(30 * KIB)).status == 200
        server.kill()
        server.start()
        assert begin(server, 20 * KIB).status == 507, "what was promised before is forgotten"
        assert begin(server, 10 * KIB).status == 201
        assert server.ask("DELETE", f"{REPO}/uploads/{upload}").status == 204
        assert begin(server, 60 * KIB).status == 201


def test_of_many_at_once_no_more_get_in_than_fit_and_those_that_break_off_leave_nothing(root: Path) -> None:
    with Server(root, ("--quota-repo", "100KiB", "--max-upload", "100KiB")) as server, ThreadPoolExecutor(16) as pool:
        begun = [a.status for a in pool.map(lambda _: begin(server, 30 * KIB), range(32))]
        assert sorted(set(begun)) == [201, 507], begun
        assert begun.count(201) == 3, begun
        for upload in server.get(f"{REPO}/uploads").json()["uploads"]:
            assert server.ask("DELETE", f"{REPO}/uploads/{upload['id']}").status == 204

        def break_off(n: int) -> None:
            data = bytes([n]) * (50 * KIB)
            href = link(batch(server, "upload", data))
            with raw.connect(server.url) as connection:
                connection.sendall(raw.head("PUT", href, {"Content-Length": str(len(data))}) + data[: 20 * KIB])

        list(pool.map(break_off, range(32)))
        whole = os.urandom(100 * KIB)
        assert until(lambda: put_object(server, whole).status == 200, 10), "what broke off is counted still"
        assert files_below(state_dir(root) / "spool") == []


# How long


def test_objects_that_no_version_holds_go_when_nothing_asks_for_them(root: Path) -> None:
    old, asked, held = os.urandom(500), os.urandom(500), os.urandom(500)
    with Server(root) as server:
        assert all(put_object(server, data).status == 200 for data in (old, asked, held))
        assert hub_commit(server, lfs_file("held", held)).status == 200
    aged = 0
    for path in state_dir(root).rglob("*"):
        if path.is_file() and path.name in {hashlib.sha256(d).hexdigest() for d in (old, held)}:
            os.utime(path, (time.time() - 31 * DAY,) * 2)
            aged += 1
    assert aged == 2
    with Server(root) as server:
        name = hashlib.sha256(old).hexdigest()
        assert until(lambda: not list(state_dir(root).rglob(name))), "it stays for ever"
        assert not is_there(server, old)
        assert is_there(server, asked)
        assert is_there(server, held)


def test_what_a_killed_server_left_half_written_goes_at_the_next_start(root: Path) -> None:
    part = state_dir(root) / "webhooks.json.4711.part"
    with Server(root) as server:
        body = form({"message": "x"}, {"a": os.urandom(2 << 20)})
        connection = raw.connect(server.url)
        head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(body))})
        connection.sendall(head + body[:-100])
        assert until(lambda: files_below(state_dir(root) / "spool"))
        server.kill()
        connection.close()
    part.write_text("{")
    with Server(root):
        assert files_below(state_dir(root) / "spool") == []
        assert not part.exists()


def test_two_servers_of_one_directory_leave_each_other_their_files(root: Path) -> None:
    with Server(root) as one:
        body = form({"message": "x"}, {"a": os.urandom(2 << 20)})
        with raw.connect(one.url) as connection:
            fields = {"Content-Type": FORM, "Content-Length": str(len(body)), "Connection": "close"}
            head = raw.head("POST", f"{REPO}/commits", fields)
            connection.sendall(head + body[:-100])
            assert until(lambda: files_below(state_dir(root) / "spool"))
            with Server(root, log=root.parent / "other.log"):
                connection.sendall(body[-100:])
                assert raw.status(raw.drain(connection)) == 201, "the other server removed what was being received"


@pytest.mark.xdist_group("timing")
@pytest.mark.parametrize("path", ["commits", "hub", "lfs", "upload"])
def test_a_body_that_trickles_is_cut(root: Path, path: str) -> None:
    with Server(root, ("--stall", "3")) as server:
        size, data = {"Content-Length": "100000"}, os.urandom(100000)
        requests = {
            "commits": lambda: raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, **size}),
            "hub": lambda: raw.head("POST", f"{HUB}/commit/main", {**NDJSON, **size}),
            "lfs": lambda: raw.head("PUT", link(batch(server, "upload", data)), size),
            "upload": lambda: raw.head(
                "PATCH", f"{REPO}/uploads/{begin(server, 100000).json()['id']}", {"Upload-Offset": "0", **size}
            ),
        }
        with raw.connect(server.url) as connection:
            connection.sendall(requests[path]())
            end, response = time.monotonic() + 20, b""
            connection.settimeout(0.5)
            while time.monotonic() < end and not response:
                with contextlib.suppress(TimeoutError):
                    connection.sendall(b"x")
                    response = connection.recv(1 << 16)
            assert response, "a byte now and then holds it for ever"
            assert raw.status(response) == 408, response[:300]


# How many


def endless(server: Server, head: bytes, begin: bytes, piece: Callable[[int], bytes], most: int) -> bytes:
    """Sends a body that does not end, in chunks, until it is answered; `most` bytes of it at most."""
    sent = n = 0
    with raw.connect(server.url, 30) as connection:
        connection.sendall(head + b"%x\r\n%s\r\n" % (len(begin), begin) if begin else head)
        connection.settimeout(0.001)
        response, left = b"", b""
        deadline = time.monotonic() + 60
        while sent < most and time.monotonic() < deadline:
            if not left:
                data = b"".join(piece(n * 1000 + i) for i in range(1000))
                left, n = b"%x\r\n%s\r\n" % (len(data), data), n + 1
            with contextlib.suppress(TimeoutError):
                try:
                    done = connection.send(left)
                except TimeoutError:
                    done = 0
                except OSError:
                    break
                sent, left = sent + done, left[done:]
                response = connection.recv(1 << 16)
                if response:
                    break
        connection.settimeout(10)
        return response or raw.drain(connection)


CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.xdist_group("timing")
def test_bodies_without_end_are_refused_soon(root: Path) -> None:
    meta = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="meta"\r\n\r\n{{"message": "x"}}\r\n'.encode()
    form_head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, **CHUNKED})
    hub_head = raw.head("POST", f"{HUB}/commit/main", {**NDJSON, **CHUNKED})

    def field(n: int) -> bytes:
        about = f'Content-Disposition: form-data; name="file"; filename="f{n}"'
        return f"--{BOUNDARY}\r\n{about}\r\n\r\nx\r\n".encode()

    def long_field(n: int) -> bytes:
        path = "/".join([str(n), *["x" * 200] * 20])
        about = f'Content-Disposition: form-data; name="file"; filename="{path}"'
        return f"--{BOUNDARY}\r\n{about}\r\n\r\nx\r\n".encode()

    deleted = line("deletedFile", path="x" * 4000).encode()
    header = line("header", summary="s").encode()
    opened = meta + f"--{BOUNDARY}\r\n".encode()
    told = 0
    with Server(root) as server:
        for what, head, first, piece, most in [
            ("headers of a part", form_head, opened, lambda _: b"X: yyyyyyyyyyyyyyyyyyyy\r\n", 64 << 20),
            ("what is before a part", form_head, b"", lambda _: b"z" * 1000, 64 << 20),
            ("empty lines", hub_head, header, lambda _: b"\n" * 100, 64 << 20),
            ("names", hub_head, header, lambda _: deleted, 256 << 20),
            ("long names", form_head, meta, long_field, 64 << 20),
        ]:
            response = endless(server, head, first, piece, most)
            told += 1
            # A client that goes on sending may hear of no more than the end of the connection.
            assert raw.status(response) in (413, 0), f"{what}: {response[:300]!r}"
            assert until(lambda told=told: server.log.read_text().count("status=413") == told, 30), what
        many = meta + b"".join(field(n) for n in range(20_001))
        head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(many) + 1000)})
        assert raw.status(raw.exchange(server.url, head + many, 120)) == 413, "fields"
        assert until(lambda: files_below(state_dir(root) / "spool") == [])


# A full disk, and who may look


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MiB; mounting it needs root."""
    with tmpfs(tmp_path / "disk", 4) as disk:
        yield disk


def test_a_full_disk_is_told_by_everything_that_keeps_something(root: Path, tiny_disk: Path) -> None:
    with Server(root, ("--state", str(tiny_disk / "state"))) as server:
        upload = begin(server, 1 << 20).json()["id"]
        assert server.send("POST", f"{REPO}/webhooks", HOOK).status == 201
        href = link(batch(server, "upload", b"x" * (1 << 20)))
        ballast = tiny_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as out:
            while out.write(bytes(4096)):
                pass
        before = files_below(tiny_disk / "state")
        small = form({"message": "m"}, {"a": b"x" * 9999})
        answers = {
            "webhook": server.send("POST", f"{REPO}/webhooks", HOOK),
            "upload": begin(server, 10),
            "piece": append(server, upload, 0, b"x" * (1 << 20)),
            "object": server.ask("PUT", href, b"x" * (1 << 20)),
            "commit": server.ask("POST", f"{REPO}/commits", small, {"Content-Type": FORM}),
            "hub": hub_commit(server, line("file", path="a", content="x" * 9999)),
        }
        assert {what: a.status for what, a in answers.items()} == dict.fromkeys(answers, 507)
        assert files_below(tiny_disk / "state") == before, "something is left behind"
        assert len(server.get(f"{REPO}/webhooks").json()["webhooks"]) == 1
        ballast.unlink()
        assert server.send("POST", f"{REPO}/webhooks", HOOK).status == 201
        offset = server.get(f"{REPO}/uploads/{upload}").json()["offset"]
        assert append(server, upload, offset, b"x" * ((1 << 20) - offset)).json()["complete"]


def test_what_is_on_its_way_in_is_the_servers_user_s_alone(root: Path) -> None:
    os.umask(0o022)
    with Server(root) as server:
        upload = begin(server, 10).json()["id"]
        assert append(server, upload, 0, b"12345").status == 200
        assert put_object(server, b"object").status == 200
        assert server.send("POST", f"{REPO}/webhooks", HOOK).status == 201
        body = form({"message": "x"}, {"a": os.urandom(2 << 20)})
        with raw.connect(server.url) as connection:
            head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(body))})
            connection.sendall(head + body[:-100])
            assert until(lambda: files_below(state_dir(root) / "spool")), raw.drain(connection)[:300]
            places = [p for p in state_dir(root).rglob("*") if "decoded" not in p.parts]
            wide = {str(p): oct(p.stat().st_mode & 0o777) for p in places if p.stat().st_mode & 0o077}
            assert len(places) > 8
            assert wide == {}
