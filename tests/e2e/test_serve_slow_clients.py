"""Clients that are slow or too many: they are let go, or wait, and keep nobody else waiting."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import raw
from support.processes import handles, resident, until
from support.raw import FORM, form
from support.served import COMMITS, left_behind, new_root
from support.server import Server

STALL = 2
SLACK = 6
"""Seconds beyond a time limit, on a machine with other things to do."""


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Server]:
    """A server that waits for few and not for long, with a file that fills every buffer on the way."""
    mdl = new_root(tmp_path)
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "big.bin").write_bytes(os.urandom(24 << 20))
    mdl.commit(folder, "big")
    with Server(tmp_path / "root", ("--stall", str(STALL), "--max-connections", "24")) as server:
        yield server
        assert not left_behind(server.root)


@pytest.mark.xdist_group("timing")
def test_slow_clients_are_let_go_and_keep_nobody_waiting(impatient: Server) -> None:
    server = impatient
    big = "/ada/gpt/resolve/main/big.bin"
    assert len(server.get(big).body) == 24 << 20
    handles_before, begin = handles(server.pid), time.monotonic()
    with contextlib.ExitStack() as stack:

        def connections(n: int) -> list[socket.socket]:
            return [stack.enter_context(raw.connect(server.url)) for _ in range(n)]

        dripping, stalling, reading = connections(7), connections(7), connections(7)
        for connection in stalling:
            connection.sendall(raw.head("POST", COMMITS, {"Content-Type": FORM, "Content-Length": "100000"}))
            connection.sendall(form({"message": "slow"}, {"x": b"y" * 1000})[:500])
        for connection in reading:
            connection.sendall(raw.head("GET", big))
            connection.recv(100)
        used = resident(server.pid)

        def drip() -> None:
            text = raw.head("GET", "/healthz", {"X": "y" * 200})
            for n in range(len(text)):
                for connection in dripping:
                    with contextlib.suppress(OSError):
                        connection.send(text[n : n + 1])
                if done.wait(1):
                    return

        done = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            dripper = pool.submit(drip)
            for _ in range(10):
                asked = time.monotonic()
                assert server.get("/readyz", Connection="close").status == 200
                assert time.monotonic() - asked < 3, "others were kept waiting"
            assert all(raw.is_closed(c, STALL + SLACK) for c in stalling), "a body that stalls holds its connection"
            # What is read of the rest empties the buffers: a dropped client gets less than the whole.
            assert until(lambda: handles(server.pid) <= handles_before + 7 + 4, STALL + SLACK), (
                "a reader that stalls holds its connection"
            )
            assert all(len(raw.drain(c)) < 24 << 20 for c in reading)
            left = max(0.0, begin + 10 + SLACK - time.monotonic())
            assert until(lambda: handles(server.pid) <= handles_before + 3, left), "headers may take forever"
            done.set()
            dripper.result()
    assert resident(server.pid) < used + (64 << 20)
    assert server.get("/readyz").status == 200


def test_more_connections_than_there_may_be_have_to_wait_and_are_served(tmp_path: Path) -> None:
    new_root(tmp_path)
    with Server(tmp_path / "root", ("--max-connections", "4")) as server, ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: server.get("/api/v1/repos", Connection="close").status, range(120)))
        assert answers == [200] * 120
