"""Transfers over a bad line, and between programs that are killed: what had arrived is not sent again.

MDL_TRANSFER_MB sets the size of the model (CI: small), MDL_TRANSFER_KILLS how often each side is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import Mdl, assert_same, tree_size
from support.flaky import Flaky
from support.server import Server
from support.tensors import Tensor, write_safetensors

MB = int(os.environ.get("MDL_TRANSFER_MB", "120"))
KILLS = int(os.environ.get("MDL_TRANSFER_KILLS", "5"))
PART = 8 << 20
"""What may be sent again of what had arrived; a server that is killed also loses what it had not read yet."""


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
    return tree_size(mdl.store / "packs")


def killed(argv: list[str], mdl: Mdl, cwd: Path, seconds: float) -> bool:
    """Runs a command and kills it after a while; whether it was still at it."""
    process = subprocess.Popen(
        argv, cwd=cwd, env=mdl.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


@pytest.fixture
def served(tmp_path: Path) -> tuple[Mdl, Path, int]:
    """A repository to send, the root of a server that has an empty one, and the bytes of its packs."""
    mdl = Mdl.init(tmp_path / "repo")
    total = big(mdl, tmp_path / "source")
    Mdl.init(tmp_path / "root" / "team" / "model", "--bare")
    return mdl, tmp_path / "root", total


def test_kills_of_both_sides_send_nothing_twice(served: tuple[Mdl, Path, int], tmp_path: Path) -> None:
    mdl, root, total = served
    chance = random.Random(1)
    with Server(root) as server, Flaky(server.url) as line:
        mdl.run("remote", "add", "origin", f"{line.url}/team/model")
        kills = sum(killed(mdl.argv("push"), mdl, mdl.repo, chance.uniform(0.05, 0.6)) for _ in range(KILLS))
        # The server too, in the middle of a push.
        push = subprocess.Popen(
            mdl.argv("push"), cwd=mdl.repo, env=mdl.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(0.1, 0.5))
        server.kill()
        server.listen = server.url.removeprefix("http://")
        server.start()
        push.wait(120)
        mdl.run("push")
        print(f"{kills + 1} kills: {line.sent / total:.4f} of {total} bytes sent")
        assert line.sent <= total * 1.01 + 2 * PART, f"{line.sent} sent for {total}"
        there = Mdl(root / "team" / "model")
        there.fsck()
        assert there.commit_id("main") == mdl.commit_id("main")

        before, clone = line.received, Mdl(tmp_path / "clone")
        argv = clone.argv("clone", f"{line.url}/team/model", str(clone.repo), repo_flag=False)
        kills = sum(killed(argv, clone, tmp_path, chance.uniform(0.05, 0.6)) for _ in range(KILLS))
        if not (clone.repo / "model.safetensors").exists():
            subprocess.run(argv, cwd=tmp_path, env=clone.environment(), check=True, capture_output=True)
        received = line.received - before
        print(f"{kills} kills: {received / total:.4f} of {total} bytes received")
        assert received <= total * 1.01 + PART, f"{received} received for {total}"
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
