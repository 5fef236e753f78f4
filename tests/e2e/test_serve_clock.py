"""A server while the machine's clock is set: back, forward, by much."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import time
from pathlib import Path

import pytest
from support.raw import FORM, form
from support.served import fill
from support.server import Server, create_token

SOURCE = Path(__file__).parents[1] / "support/clock.c"
HOUR = 3600
DAY = 24 * HOUR
REPO = "/api/v1/repos/ada/gpt"
JSON = {"Content-Type": "application/json"}


class Clock:
    """The wall clock of the processes in this environment."""

    def __init__(self, folder: Path) -> None:
        library, self.file = folder / "clock.so", folder / "moved"
        try:
            argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
            subprocess.run(argv, check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip("there is no C compiler")
        self.file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_MOVED": str(self.file)}

    def set(self, seconds: int) -> None:
        with self.file.open("r+b") as file:
            file.write(struct.pack("q", seconds))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    fill(tmp_path / "root", "ada/gpt", "mark")
    return tmp_path / "root"


def commit(server: Server, name: str) -> int:
    body = form({"message": name}, {f"{name}.bin": os.urandom(1000)})
    return server.ask("POST", f"{REPO}/commits", body, {"Content-Type": FORM}).status


def test_tokens_and_links_end_by_the_clock_and_everything_else_goes_on(root: Path, clock: Clock) -> None:
    lasting = create_token(root, expires="3650d", name="lasting")
    short = create_token(root, expires="2h", name="short")
    data = b"an object"
    oid = hashlib.sha256(data).hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": len(data)}]}
    with Server(root, token=lasting, environment=clock.environment) as server:

        def status(token: str) -> int:
            return server.get(REPO, Authorization=f"Bearer {token}").status

        linked = server.send("POST", "/ada/gpt.git/info/lfs/objects/batch", batch).json()
        href = linked["objects"][0]["actions"]["upload"]["href"].removeprefix(server.url)
        assert status(short) == 200
        for moved in (3 * HOUR, DAY, 400 * DAY):
            clock.set(moved)
            assert status(lasting) == 200, moved
            assert status(short) == 401, f"a token outlives its end by {moved} seconds"
            if moved > DAY:
                anonymous = Server(root, url=server.url).ask("PUT", href, data)
                assert anonymous.status == 401, "a link outlives its end"
            assert commit(server, f"forward-{moved}") == 201
        for moved in (0, -HOUR, -DAY, -400 * DAY):
            clock.set(moved)
            assert status(lasting) == 200, moved
            assert commit(server, f"back{moved}") == 201, "a commit is older than its parent"
        log = server.get(f"{REPO}/log?limit=1000").json()["commits"]
        assert len(log) == 2 + 3 + 4
        assert server.log is not None
        assert "panicked" not in server.log.read_text()


def test_on_a_machine_without_a_clock_a_server_still_answers(root: Path, clock: Clock) -> None:
    with Server(root, environment=clock.environment) as server:
        # 1970: no system lets a clock be set to before.
        clock.set(HOUR - int(time.time()))
        for path in (REPO, f"{REPO}/log", "/ada/gpt", "/ada/gpt/resolve/main/README.md", "/metrics"):
            assert server.get(path).status == 200, path
        assert commit(server, "early") < 500
        clock.set(0)
        assert commit(server, "late") == 201
        assert server.log is not None
        assert "panicked" not in server.log.read_text()


def test_an_upload_under_way_survives_a_clock_that_is_set_back(root: Path, clock: Clock) -> None:
    data = os.urandom(100_000)
    with Server(root, environment=clock.environment) as server:
        # Files have the kernel's time: a day ahead, an upload would be old for the sweep after the server's start.
        ahead = DAY - HOUR
        clock.set(ahead)
        plan = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        begun = server.send("POST", f"{REPO}/uploads", plan)
        assert begun.status == 201, begun.body
        path = f"{REPO}/uploads/{begun.json()['id']}"
        for at, moved in ((0, ahead), (40_000, -DAY), (80_000, -40 * DAY)):
            clock.set(moved)
            piece = data[at : at + 40_000]
            sent = server.ask("PATCH", path, piece, {"Upload-Offset": str(at)})
            assert sent.status == 200, (moved, sent.body)
        # What lies there is of the future now.
        server.stop()
        server.start()
        meta = {"message": "x", "uploads": [{"path": "x.bin", "upload": begun.json()["id"]}]}
        assert server.ask("POST", f"{REPO}/commits", json.dumps(meta).encode(), JSON).status == 201
        assert server.get("/ada/gpt/resolve/main/x.bin").body == data


@pytest.mark.xdist_group("timing")
def test_rates_do_not_go_by_the_clock(root: Path, clock: Clock) -> None:
    with Server(root, ("--rate", "2"), environment=clock.environment) as server:
        while server.get(REPO).status != 429:
            pass
        for moved in (DAY, -DAY):
            clock.set(moved)
            refused = [server.get(REPO).status for _ in range(30)].count(429)
            assert refused > 10, "setting the clock lets a client off"
            time.sleep(2)
            assert 200 in [server.get(REPO).status for _ in range(3)], "setting the clock shuts a client out"
