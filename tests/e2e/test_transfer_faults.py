"""Transfers over a faulty network and between killed programs: what had arrived is not sent again.

MDL_TRANSFER_MB sets the size of the model (CI: small), MDL_TRANSFER_KILLS how often each way is killed into, one side
or the other.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support import makers, scale
from support.cli import Mdl, assert_same, tree_size
from support.flaky import Flaky
from support.ports import lasting
from support.server import Server
from support.tensors import Tensor, write_safetensors

MB = int(os.environ.get("MDL_TRANSFER_MB", "120"))
KILLS = scale.rounds(3, 6, "MDL_TRANSFER_KILLS")
PART = 8 << 20
"""What may be sent again of what had arrived."""
STREAMS = 4
"""Parts on their way at once: of each, a reader that is killed may leave some unread in the system's buffers."""
PATIENCE = 30
"""Seconds until what a living program was sent is read and counted."""

pytestmark = pytest.mark.xdist_group("timing")


def big(mdl: Mdl, folder: Path) -> int:
    """Two versions of a model that does not compress well; returns the bytes of their packs."""
    folder.mkdir()
    parts = max(MB // 10, 2)
    for version in range(2):
        rng = np.random.default_rng(version)
        tensors = []
        for i in range(parts):
            noise = np.random.default_rng(100 + i).standard_normal(1_250_000, dtype=np.float32)
            noise += np.float32(version * 1e-3) * rng.standard_normal(noise.shape, dtype=np.float32)
            tensors.append(Tensor.of(f"layers.{i}.w", noise))
        tensors.append(Tensor.of("steady", makers.random_f32((1000,), 5)))
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        mdl.commit(folder, f"version {version}")
    return mdl.packed()


@pytest.fixture
def served(tmp_path: Path) -> tuple[Mdl, Path, int]:
    """A repository to send, the root of a server that has an empty one, and the bytes of its packs."""
    mdl = Mdl.init(tmp_path / "repo")
    total = big(mdl, tmp_path / "source")
    Mdl.init(tmp_path / "root" / "team" / "model", "--bare")
    return mdl, tmp_path / "root", total


def arrived(packs: Path, incoming: Path) -> int:
    """Bytes of packs that a reader has: stored ones, and what it noted of those that come in parts."""
    there = tree_size(packs) if packs.exists() else 0
    for noted in incoming.glob("*.list"):
        part = noted.with_suffix(".part")
        # A reader that lives may take it in meanwhile.
        with suppress(FileNotFoundError):
            if part.stat().st_size == int(part.stem.split("-")[1]):
                there += int(np.frombuffer(noted.read_bytes(), "<u8").sum())
    return there


class Way:
    """One way over a line, between kills: what went over beside what the reader has of it."""

    def __init__(self, line: Flaky, what: str, store: Path, incoming: Path, total: int) -> None:
        self.line, self.what, self.total = line, what, total
        self.packs, self.incoming = store / "packs", incoming
        # Requests and answers about the packs are counted with them.
        self.talk = total // 100
        self.kills = self.lost = 0
        self.start, self.there = self.over(), self.arrived()

    def over(self) -> int:
        return int(getattr(self.line, self.what))

    def arrived(self) -> int:
        return arrived(self.packs, self.incoming)

    def until(self, process: subprocess.Popen[bytes], share: float, more: float) -> None:
        """Waits until a share of all bytes went over, and some seconds, or the process ended."""
        while process.poll() is None and self.over() < share * self.total:
            time.sleep(0.001)
        time.sleep(more)

    def broken(self, reader: bool) -> None:
        """Call it after each kill: nothing that had arrived went over again, and what went over has arrived.

        Args:
            reader: It was the reader's side that was killed.
        """
        self.line.settle()
        went, until = self.over() - self.start, time.monotonic() + PATIENCE
        most = self.talk + (STREAMS * PART if reader else PART)
        while (lost := went - (self.arrived() - self.there)) > most and time.monotonic() < until:
            time.sleep(0.05)
        assert lost <= most, f"{went} bytes went over, all but {lost} are there"
        self.once(went)
        self.kills, self.lost = self.kills + 1, self.lost + max(lost, 0)
        self.start, self.there = self.over(), self.arrived()

    def once(self, went: int) -> None:
        most = self.total - self.there + self.talk + PART
        assert went <= most, f"{went} bytes went over where {self.there} were there"

    def ended(self) -> None:
        went = self.over() - self.start
        self.once(went)
        print(f"{self.kills} kills: {self.over() / self.total:.4f} of {self.total} bytes {self.what}, {self.lost} lost")


def kills_into(way: Way, start: Callable[[], subprocess.Popen[bytes]], server: Server, chance: random.Random) -> None:
    """Kills the client or the server as a transfer goes on, at random moments; the last one when all has gone over."""
    process = start()
    for n, share in enumerate([*sorted(chance.random() for _ in range(KILLS - 1)), 1.0]):
        if process.poll() is not None:
            process = start()
        way.until(process, share, chance.uniform(0, 0.1))
        if n % 3 == 1:
            server.kill()
            way.broken(reader=way.what == "sent")
            server.start()
        else:
            process.kill()
            process.wait()
            way.broken(reader=way.what == "received")
    process.kill()
    process.wait()
    way.line.settle()


def test_kills_of_both_sides_send_nothing_twice(served: tuple[Mdl, Path, int], tmp_path: Path) -> None:
    mdl, root, total = served
    chance = random.Random(1)
    with Server(root, listen=lasting()) as server, Flaky(server.url) as line:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        mdl.run("remote", "add", "origin", f"{line.url}/team/model")
        there = Mdl(root / "team" / "model")
        identity = (there.store / "identity").read_text().strip()
        kept = root / ".mdl-serve" / "repos" / "team" / "model" / identity / "packs"
        way = Way(line, "sent", there.store, kept, total)
        env = mdl.environment()
        kills_into(way, lambda: subprocess.Popen(mdl.argv("push"), cwd=mdl.repo, env=env, **quiet), server, chance)
        mdl.run("push")
        way.ended()
        there.fsck()
        assert there.commit_id("main") == mdl.commit_id("main")

        clone = Mdl(tmp_path / "clone")
        argv = clone.argv("clone", f"{line.url}/team/model", str(clone.repo), repo_flag=False)
        line.received = 0
        store = clone.repo / ".mdl"
        way = Way(line, "received", store, store / "incoming", total)
        kills_into(way, lambda: subprocess.Popen(argv, cwd=tmp_path, env=env, **quiet), server, chance)
        if not (clone.repo / "model.safetensors").exists():
            subprocess.run(argv, cwd=tmp_path, env=env, check=True, capture_output=True)
        way.ended()
        # A checkout that was killed leaves its temporary file.
        for left in clone.repo.glob(".mdl-*"):
            left.unlink()
        assert_same(clone.repo, tmp_path / "source")
        clone.fsck()


def test_a_line_that_loses_cuts_delays_and_repeats(served: tuple[Mdl, Path, int], tmp_path: Path) -> None:
    mdl, root, total = served
    with Server(root) as server, Flaky(server.url, rate=0.15, seed=3) as line:
        mdl.run("remote", "add", "origin", f"{line.url}/team/model")
        for _ in range(5):
            if mdl.run("push", code=(0, 4, 6)).code == 0:
                break
        there = Mdl(root / "team" / "model")
        assert there.commit_id("main") == mdl.commit_id("main")
        there.fsck()
        print(f"{line.sent / total:.4f} of {total} bytes sent")
        assert line.sent <= total * 1.01 + PART, f"{line.sent} sent for {total}"
        before, clone = line.received, Mdl(tmp_path / "clone")
        for _ in range(5):
            argv = ("clone", f"{line.url}/team/model", str(clone.repo))
            if clone.run(*argv, repo_flag=False, cwd=tmp_path, code=(0, 1, 3, 6)).code == 0:
                break
        assert_same(clone.repo, tmp_path / "source")
        clone.fsck()
        received = line.received - before
        print(f"{received / total:.4f} of {total} bytes received")
        assert received <= total * 1.01 + PART, f"{received} received for {total}"
        assert sum(n for kind, n in line.done.items() if kind != "none") >= 3, line.done
