"""Many concurrent jobs over several repositories while others read: all end, and none stops the others."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import scale
from support.processes import status
from support.served import fill
from support.server import Server, create_token

REPOS = ("ada/one", "ada/two", "bob/three")
ASKED = scale.rounds(60, 120)
THREADS = 100
END = 120
"""Seconds in which all jobs have ended, on a machine with other things to do."""

pytestmark = pytest.mark.xdist_group("timing")


def test_jobs_that_are_asked_for_at_once_all_end_and_stop_no_reader(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    repos = [fill(root, name, f"mark-{n}") for n, name in enumerate(REPOS)]
    pick = random.Random(1)
    asked = [(pick.choice(REPOS), pick.choice(("fsck", "gc", "compact"))) for _ in range(ASKED)]
    with Server(root, token=create_token(root)) as server:

        def start(job: tuple[str, str]) -> int:
            name, kind = job
            answer = server.send("POST", f"/api/v1/repos/{name}/jobs", {"kind": kind})
            if answer.status == 202 and pick.random() < 0.2:
                server.ask("DELETE", answer.headers["location"])
            read = server.get(f"/{name}/resolve/main/model.safetensors")
            assert read.status == 200, read.body[:300]
            assert status(server.pid, "Threads") < THREADS
            return answer.status

        with ThreadPoolExecutor(24) as pool:
            statuses = Counter(pool.map(start, asked))
        # A repository has one job at a time.
        assert set(statuses) <= {202, 409, 429, 503}, statuses
        assert statuses[202] >= len(REPOS), statuses
        deadline = time.monotonic() + END
        for name in REPOS:
            while True:
                jobs = server.get(f"/api/v1/repos/{name}/jobs").json()["jobs"]
                states = Counter(job["state"] for job in jobs)
                if not states.keys() & {"queued", "running"}:
                    break
                assert time.monotonic() < deadline, states
                time.sleep(0.1)
            assert not states.keys() - {"done", "cancelled"}, jobs
    for mdl in repos:
        mdl.fsck()
