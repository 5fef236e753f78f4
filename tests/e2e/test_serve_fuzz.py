"""Hostile requests against a server under strace: it opens nothing outside, reveals no secrets, and goes on.

`MDL_FUZZ_REQUESTS` says how many, `MDL_FUZZ_SEED` which.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import faults, scale
from support.fuzz import CLIENTS, Fuzz, Grounds
from support.opened import Opened, tracer
from support.server import Server

REQUESTS = scale.rounds(1000, 5000, "MDL_FUZZ_REQUESTS")
SEED = os.environ.get("MDL_FUZZ_SEED", "1")
_reason = faults.why_not()
if _reason:
    warnings.warn(f"the fuzzing of the server is SKIPPED: {_reason}", stacklevel=1)
pytestmark = pytest.mark.skipif(_reason is not None, reason=f"strace: {_reason}")


@pytest.fixture
def fuzz(tmp_path: Path) -> Iterator[Fuzz]:
    grounds = Grounds(tmp_path)
    repos = grounds.fill()
    log = tmp_path / "opened.log"
    options = ("--memory", "64MiB", "--cache", "64MiB", "--max-upload", "16MiB", "--token-failures", "0")
    with Server(grounds.root, options, token=grounds.admin, under=tracer(log)) as server:
        opened = Opened(log, [grounds.root], Path.cwd())
        opened.learn()
        grounds.sign_in(server)
        for path in ("/ada/gpt", "/api/v1/repos/ada/gpt/log", "/ada/open/resolve/main/README.md"):
            assert server.get(path).status == 200
        opened.learn()
        fuzz = Fuzz(grounds, server, opened, SEED)
        # A sandbox tries at its start whether it holds.
        opened.known.difference_update(fuzz.world.outside)
        yield fuzz
        assert server.get("/ada/gpt").status == 200, "it does not answer any more"
    for mdl in repos:
        mdl.fsck()
    assert server.log is not None
    assert "panicked" not in server.log.read_text()


def test_no_request_reaches_outside_tells_of_others_or_stops_the_server(fuzz: Fuzz) -> None:
    begin = time.monotonic()
    fuzz.run(REQUESTS)
    fuzz.look()
    seconds = time.monotonic() - begin
    asked = sum(fuzz.statuses.values())
    print(f"\nseed {SEED}: {asked} requests in {seconds:.0f} s, {fuzz.opened.calls} calls with paths, {fuzz.peak}")
    print(dict(sorted(fuzz.statuses.items())))
    assert not fuzz.findings, f"MDL_FUZZ_SEED={SEED}:\n" + "\n".join(dict.fromkeys(fuzz.findings))
    assert asked >= REQUESTS - CLIENTS
    # Only what gets past the first look says anything about what comes behind.
    assert fuzz.statuses[200] + fuzz.statuses[206] > asked // 12, fuzz.statuses
