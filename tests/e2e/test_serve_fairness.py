"""Fairness between clients for scarce resources: decoding memory, disk, jobs, webhook deliveries."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import makers, raw
from support.cli import Mdl
from support.disks import tmpfs
from support.processes import peak, until
from support.server import Answer, Server, create_token
from support.tensors import Tensor, write_safetensors

MIB = 1 << 20
SOON = 45
"""Seconds in which something must happen that would never happen where one client takes everything."""

pytestmark = pytest.mark.xdist_group("timing")


def tensor_path(repo: str, name: str = "w", file: str = "model.safetensors", more: str = "") -> str:
    return f"/api/v1/repos/{repo}/tensor/main/{file}?name={name}{more}"


def zeros(root: Path, name: str, mib: int) -> Mdl:
    """A repository with one large tensor that is quick to store and to decode."""
    mdl = Mdl.init(root / name, "--bare")
    folder = root.parent / "zeros" / name
    write_safetensors(folder / "model.safetensors", [Tensor.of("w", np.zeros(mib * MIB // 4, np.float32))])
    mdl.commit(folder, "zeros")
    shutil.rmtree(folder)
    return mdl


def slow_reader(server: Server, path: str, token: str, headers: dict[str, str] | None = None) -> socket.socket:
    """A connection whose answer is left where it is."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = server.url.removeprefix("http://").split(":")
    connection.settimeout(SOON)
    connection.connect((host, int(port)))
    asked = {"Authorization": f"Bearer {token}", "Connection": "close", **(headers or {})}
    connection.sendall(raw.head("GET", path, asked))
    return connection


def has_begun(connection: socket.socket) -> bool:
    """Whether an answer has come; nothing is taken."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(SOON)


def begun(connections: list[socket.socket]) -> int:
    return sum(map(has_begun, connections))


@contextlib.contextmanager
def closing(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def status_line(connection: socket.socket) -> int:
    return raw.status(connection.recv(64, socket.MSG_PEEK))


def is_all_zeros(answer: Answer, mib: int) -> bool:
    return answer.status == 200 and len(answer.body) == mib * MIB and not any(memoryview(answer.body)[:: 64 << 10])


def fetch(server: Server, path: str, token: str, timeout: float = SOON) -> Answer:
    return server.ask("GET", path, headers={"Authorization": f"Bearer {token}"}, timeout=timeout)


# Memory


def test_a_small_file_is_never_sent_as_terabytes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    mdl = Mdl.init(root / "ada/views", "--bare")
    folder = tmp_path / "views"
    folder.mkdir()
    storage = makers.Storage.of("0", np.arange(256, dtype=np.float32))
    state = {
        "bomb": makers.View(storage, 0, (1100, 1000, 1000, 1000), (0, 0, 0, 0)),
        "overlap": makers.View(storage, 0, (200, 50, 1000, 1000, 2), (1, 1, 0, 0, 0)),
        "expanded": makers.View(storage, 0, (64, 256), (0, 1)),
    }
    makers.torch_zip(folder / "view.pt", state)
    saved = (folder / "view.pt").read_bytes()
    mdl.commit(folder, "views")
    ada, bob = (create_token(root, "read", name=name) for name in ("ada", "bob"))
    zeros(root, "bob/gpt", 8)
    with Server(root, ("--memory", "1GiB", "--cache", "64MiB", "--stall", "600"), token=bob) as server:
        bombs = [tensor_path("ada/views", name, "view.pt") for name in ("bomb", "overlap")]
        bombs.append("/api/v1/repos/ada/views/checkout/main?format=safetensors")
        with closing([slow_reader(server, bombs[n % 3], ada) for n in range(18)]) as slow:
            assert is_all_zeros(fetch(server, tensor_path("bob/gpt"), bob), 8), "others are not served"
            assert {status_line(one) for one in slow} <= {413, 422}
        # What a program would do with it still works: a part, a modest expansion, and the file as it was saved.
        part = fetch(server, tensor_path("ada/views", "bomb", "view.pt", "&slice=0,0,0,:"), ada)
        assert (part.status, part.body) == (200, bytes(4000))
        expanded = fetch(server, tensor_path("ada/views", "expanded", "view.pt"), ada)
        assert (expanded.status, expanded.body) == (200, np.tile(np.arange(256, dtype=np.float32), 64).tobytes())
        assert fetch(server, "/ada/views/resolve/main/view.pt", ada).body == saved


def test_a_client_that_takes_nothing_leaves_others_their_share_of_the_memory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    zeros(root, "ada/gpt", 96)
    zeros(root, "bob/gpt", 96)
    ada, bob = (create_token(root, "read", name=name) for name in ("ada", "bob"))
    # No disk for what is not taken, and a client is never given up: only the shares are left.
    with Server(root, ("--memory", "1GiB", "--cache", "0", "--stall", "600", "--min-download-rate", "0")) as server:
        with closing([slow_reader(server, tensor_path("ada/gpt"), ada) for _ in range(24)]) as slow:
            assert until(lambda: begun(slow) >= 8, SOON)
            assert is_all_zeros(fetch(server, tensor_path("bob/gpt"), bob), 96)
            assert is_all_zeros(fetch(server, tensor_path("ada/gpt"), bob), 96), "of the same repository"
            assert begun(slow) < 24, "it had all it asked for"
        # It hung up: its share is free again, and the ones that waited have left the queue.
        assert is_all_zeros(fetch(server, tensor_path("ada/gpt"), ada), 96)


def is_cut(one: socket.socket, size: int) -> bool:
    """Whether a body that began has ended before its end."""
    if not has_begun(one):
        return False
    try:
        got = raw.drain(one, 256 * MIB)
    except ConnectionError:
        return True
    return raw.status(got) == 200 and len(got) < size


def test_clients_that_take_nothing_are_cut_off_where_others_wait_for_all_that_they_hold(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("ada/gpt", "cy/gpt", "bob/gpt"):
        zeros(root, name, 96)
    many = [create_token(root, "read", name=f"eve{n}") for n in range(6)]
    bob = create_token(root, "read", name="bob")
    # No repository may have all of the memory: two of them together do.
    asked = [(tensor_path(repo), token) for repo in ("ada/gpt", "cy/gpt") for token in many * 3]
    with (
        Server(root, ("--memory", "1GiB", "--cache", "0", "--stall", "600")) as server,
        closing([slow_reader(server, path, token) for path, token in asked]) as slow,
    ):
        assert until(lambda: begun(slow) >= 16, SOON), "all of the memory"
        assert is_all_zeros(fetch(server, tensor_path("bob/gpt"), bob, 120), 96)
        assert any(is_cut(one, 96 * MIB) for one in slow), "a body that was cut off must not look complete"


def test_requests_that_wait_are_bounded_and_those_whose_client_left_wait_no_more(tmp_path: Path) -> None:
    root = tmp_path / "root"
    zeros(root, "ada/gpt", 96)
    zeros(root, "bob/gpt", 8)
    ada, bob = (create_token(root, "read", name=name) for name in ("ada", "bob"))
    options = ("--memory", "256MiB", "--cache", "0", "--stall", "600", "--min-download-rate", "0")
    with Server(root, options) as server:
        with closing([slow_reader(server, tensor_path("ada/gpt"), ada) for _ in range(200)]) as slow:
            assert until(lambda: begun(slow) > 20, SOON), "nothing was refused"
            answered = [one for one in slow if has_begun(one)]
            refused = [one for one in answered if status_line(one) == 503]
            assert refused
            assert b"retry-after:" in raw.drain(refused[0]).lower()
            assert is_all_zeros(fetch(server, tensor_path("bob/gpt"), bob), 8)
        assert is_all_zeros(fetch(server, tensor_path("ada/gpt"), ada), 96), "those who left are still in the queue"


def test_memory_stays_bounded_under_many_slow_readers(tmp_path: Path) -> None:
    root = tmp_path / "root"
    zeros(root, "ada/gpt", 160)
    many = [create_token(root, "read", name=f"eve{n}") for n in range(8)]
    with Server(root, ("--memory", "256MiB", "--cache", "2GiB", "--stall", "600")) as server:
        base = peak(server.pid)
        file = "/ada/gpt/resolve/main/model.safetensors"
        asked: list[tuple[str, dict[str, str]]] = [
            (file, {"Range": f"bytes=0-{60 * MIB}"}),
            (file, {"Range": f"bytes={80 * MIB}-{140 * MIB}"}),
            (tensor_path("ada/gpt"), {}),
            ("/api/v1/repos/ada/gpt/checkout/main", {}),
        ]
        every = [(token, *asked[n % 4]) for n in range(8) for token in many]
        with closing([slow_reader(server, path, token, headers) for token, path, headers in every]) as slow:
            assert len(slow) == 64
            until(lambda: begun(slow) == 64, 60)
            assert begun(slow) >= 16
            grown = peak(server.pid) - base
        assert grown < 900 * MIB, f"{grown >> 20} MiB for a server that was given 256"


# A full disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", 48) as disk:
        yield disk


def fill_up(path: Path) -> None:
    """Takes all there is, to the last block."""
    with contextlib.suppress(OSError), (path / "filler").open("wb", buffering=0) as filler:
        for size in (MIB, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))


@pytest.mark.parametrize("left", ["nothing", "a part"])
@pytest.mark.parametrize("where", ["the server's directory", "everything"])
def test_what_can_be_read_is_sent_where_the_disk_is_full(disk: Path, tmp_path: Path, where: str, left: str) -> None:
    root = disk / "root" if where == "everything" else tmp_path / "root"
    mdl = Mdl.init(root / "ada/gpt", "--bare")
    folder = tmp_path / "folder"
    # Longer than the disk, so that it breaks off in the middle where there is something left.
    values = np.repeat(np.arange(72, dtype=np.float32), 1 << 18)
    write_safetensors(folder / "model.safetensors", [Tensor.of("w", values)])
    (folder / "README.md").write_text("# Read me\n")
    mdl.commit(folder, "one")
    write_safetensors(folder / "model.safetensors", [Tensor.of("w", values + 1)])
    mdl.commit(folder, "two")
    data = (folder / "model.safetensors").read_bytes()
    options = () if where == "everything" else ("--state", str(disk / "state"))
    with Server(root, options, log=tmp_path / "server.log") as server:
        assert server.get("/ada/gpt").status == 200
        if left == "nothing":
            fill_up(disk)
        api, n = "/api/v1/repos/ada/gpt", len(data)
        for _ in range(2):
            for path in ("/ada/gpt/resolve/main/model.safetensors", f"{api}/files/main/model.safetensors"):
                whole = server.get(path)
                assert (whole.status, len(whole.body)) == (200, n), path
                assert whole.body == data, path
                for start, end in ((0, 100), (20 * MIB, 50 * MIB), (3, n)):
                    part = server.get(path, Range=f"bytes={start}-{end - 1}")
                    assert (part.status, part.body) == (206, data[start:end]), f"{path}: {start} to {end}"
        head = server.ask("HEAD", "/ada/gpt/resolve/main/model.safetensors")
        assert head.status == 200
        assert server.get(tensor_path("ada/gpt")).body == (values + 1).tobytes()
        for path in (
            f"{api}/checkout/main",
            f"{api}/checkout/main?format=safetensors",
            f"{api}/diff?a=main~1&b=main",
            f"{api}/stats",
            f"{api}/log?rev=main",
            "/",
            "/ada/gpt",
            "/ada/gpt/tree/main",
            "/ada/gpt/blob/main/model.safetensors",
            "/ada/gpt/blob/main/README.md",
            "/ada/gpt/commit/main",
            "/ada/gpt/commits/main",
            "/ada/gpt/compare/main~1/main",
            "/api/models/ada/gpt/tree/main",
        ):
            assert server.get(path).status == 200, path


# Jobs and deliveries


def of_jobs(server: Server, repo: str, token: str) -> list[str]:
    listed = fetch(server, f"/api/v1/repos/{repo}/jobs", token).json()["jobs"]
    return [job["state"] for job in listed]


def start_job(server: Server, repo: str, token: str) -> Answer:
    headers = {"Authorization": f"Bearer {token}"}
    return server.send("POST", f"/api/v1/repos/{repo}/jobs", {"kind": "fsck"}, **headers)


def test_a_client_with_many_jobs_is_told_to_wait_and_another_comes_first(tmp_path: Path) -> None:
    root = tmp_path / "root"
    zeros(root, "ada/r0", 384)
    for n in range(1, 12):
        shutil.copytree(root / "ada/r0", root / f"ada/r{n}")
    shutil.copytree(root / "ada/r0", root / "bob/gpt")
    ada, bob = (create_token(root, "write", f"{name}/*", name=name) for name in ("ada", "bob"))
    with Server(root) as server:
        started = [start_job(server, f"ada/r{n}", ada) for n in range(12)]
        states = [answer.status for answer in started]
        assert 429 in states, states
        assert set(states) == {202, 429}
        refused = next(answer for answer in started if answer.status == 429)
        assert "retry-after" in {name.lower() for name in refused.headers}
        again = start_job(server, "ada/r7", ada)
        assert again.status in (409, 429), "a repository has one at a time"
        assert start_job(server, "bob/gpt", bob).status == 202
        assert until(lambda: of_jobs(server, "bob/gpt", bob) == ["done"], 120)
        left = [state for n in range(12) for state in of_jobs(server, f"ada/r{n}", ada)]
        assert "queued" in left or "running" in left, f"the other came last: {left}"


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append(body["repo"])  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_dead_receivers_of_one_repository_delay_no_others_deliveries(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("eve/flood", "eve/other", "bob/gpt"):
        zeros(root, name, 1)
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    receiver.heard = []  # type: ignore[attr-defined]
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    # It takes connections and says nothing.
    dead = socket.create_server(("127.0.0.1", 0), backlog=512)
    try:
        with Server(root, ("--private-webhooks",)) as server:
            for n in range(32):
                url = f"http://127.0.0.1:{dead.getsockname()[1]}/{n}"
                assert server.send("POST", "/api/v1/repos/eve/flood/webhooks", {"url": url}).status == 201
            for repo in ("eve/other", "bob/gpt"):
                url = f"http://127.0.0.1:{receiver.server_port}/"
                assert server.send("POST", f"/api/v1/repos/{repo}/webhooks", {"url": url}).status == 201
            for repo, moves in (("eve/flood", 8), ("eve/other", 1), ("bob/gpt", 1)):
                for n in range(moves):
                    path = f"/api/v1/repos/{repo}/refs/heads/new{n}"
                    moved = server.send("PUT", path, {"target": "main", "expected": None})
                    assert moved.status in (200, 201), moved.body
            heard = receiver.heard  # type: ignore[attr-defined]
            assert until(lambda: sorted(heard) == ["bob/gpt", "eve/other"], 25), heard
    finally:
        receiver.shutdown()
        dead.close()
