"""Background commits: snapshots, back-pressure, failures, forks, kills."""

from __future__ import annotations

import gc
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import mdl
import numpy as np
import pytest
import torch
from support import scale

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Background commits wait until this is set."""
    go = threading.Event()
    make = mdl.Repo._make

    def waiting(self: mdl.Repo, *args: object, flushed: bool = False) -> mdl.Commit:
        if flushed:
            assert go.wait(60)
        return make(self, *args, flushed=flushed)  # type: ignore[arg-type]

    monkeypatch.setattr(mdl.Repo, "_make", waiting)
    return go


def test_later_values_never_leak_in(repo: mdl.Repo, held: threading.Event) -> None:
    """The case of pytorch #144657: a tensor is changed right after an asynchronous save returned."""
    tensor, array, text = torch.ones(1000, 1000), torch.zeros(7).numpy(), bytearray(b"before")
    state = {"model": {"w": tensor, "view": tensor[3]}, "rng": {"a": array, "b": text, "list": [1]}}
    pending = repo.commit(state, step=1)
    tensor.add_(1)
    array += 1
    text[:] = b"after!"
    state["rng"]["list"].append(2)
    del state["model"]["w"]
    assert not pending.done()
    held.set()
    pending.result()
    got = repo.load()
    assert torch.equal(got["model"]["w"], torch.ones(1000, 1000))
    assert torch.equal(got["model"]["view"], torch.ones(1000))
    assert got["rng"]["a"].tolist() == [0] * 7
    assert got["rng"]["b"] == b"before"
    assert got["rng"]["list"] == [1]


def test_many_threads_of_changes(repo: mdl.Repo) -> None:
    """Values of one step each: a mixture would be a leak."""
    tensors = {f"t{i}": torch.zeros(50_000) for i in range(8)}
    for step in range(40):
        for t in tensors.values():
            t.fill_(step)
        repo.commit({"model": tensors}, step=step)
    repo.flush()
    for commit in repo.log():
        state = repo.load(commit.id)["model"]
        assert all(torch.equal(t, torch.full_like(t, commit.step)) for t in state.values()), commit.step


def test_commits_keep_their_order(repo: mdl.Repo, held: threading.Event) -> None:
    first = repo.commit({"w": torch.zeros(3)}, step=1)
    second = repo.commit({"w": torch.ones(3)}, step=2)
    held.set()
    # One that waits is made after those that were asked for before it.
    third = repo.commit({"w": torch.ones(3)}, step=3, wait=True)
    assert third.parents == [second.result().id]
    assert second.result().parents == [first.result().id]


def test_memory_is_bounded_by_waiting(tmp_path: pathlib.Path, held: threading.Event) -> None:
    repo = mdl.Repo.init(tmp_path / "r", pending=2)
    state = {"w": torch.zeros(1 << 18)}
    for step in range(2):
        repo.commit(state, step=step)
    started, passed = threading.Event(), threading.Event()

    def third() -> None:
        started.set()
        repo.commit(state, step=2)
        passed.set()

    thread = threading.Thread(target=third)
    thread.start()
    started.wait()
    assert not passed.wait(0.3)
    held.set()
    thread.join()
    repo.flush()
    assert repo._arena.spare_bytes <= 2 << 20
    for step in range(3, 12):
        repo.commit(state, step=step)
    repo.flush()
    gc.collect()
    assert 0 < repo._arena.spare_bytes <= 2 << 20
    repo.close()
    assert repo._arena.spare_bytes == 0
    assert [c.step for c in repo.log()] == list(range(11, -1, -1))


def test_failures_are_raised_at_the_next_call(repo: mdl.Repo) -> None:
    repo.commit({"w": torch.ones(3)}, step=1, wait=True)
    failing = repo.commit({"w": torch.zeros(3)}, step=2, branch="no..name")
    while not failing.done():
        time.sleep(0.01)
    with pytest.raises(mdl.BackgroundError, match="step 2") as raised:
        repo.commit({"w": torch.ones(3)}, step=3)
    assert isinstance(raised.value.__cause__, mdl.UserError)
    assert (raised.value.step, raised.value.branch) == (2, "no..name")
    # It is said once, and what was refused with it was not made.
    repo.flush()
    assert [c.step for c in repo.log()] == [1]
    repo.commit({"w": torch.zeros(3)}, step=4, branch="no..name")
    with pytest.raises(mdl.BackgroundError):
        repo.flush()
    seen = repo.commit({"w": torch.zeros(3)}, step=5, branch="no..name")
    with pytest.raises(mdl.UserError):
        seen.result()
    repo.flush()
    assert [c.step for c in repo.log()] == [1]


def test_writers_beside_each_other_lose_nothing(repo: mdl.Repo) -> None:
    """Several trainers commit to one branch: each version lands on top of whichever came before it."""
    others = [mdl.Repo.open(repo.path) for _ in range(3)]
    for step in range(10):
        for i, other in enumerate(others):
            other.commit({"w": torch.full((1000,), float(step * 3 + i))}, step=step * 3 + i)
    for other in others:
        other.flush()
    assert sorted(c.step for c in repo.log()) == list(range(30))
    assert all(repo.load(c.id)["w"][0] == c.step for c in repo.log())


def test_a_full_disk_is_told_and_loses_nothing(run: Run, tmp_path: pathlib.Path) -> None:
    program = """
import resource, signal, sys, numpy as np, mdl
repo = mdl.Repo.init(sys.argv[1])
repo.commit({"w": np.random.rand(1000)}, step=1, wait=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
repo.commit({"w": np.random.rand(1 << 20)}, step=2)
try:
    repo.flush()
except mdl.BackgroundError as error:
    assert isinstance(error.__cause__, mdl.StorageError), error.__cause__
    print("told")
repo.commit({"w": np.random.rand(1000)}, step=3, wait=True)
print([c.step for c in repo.log()])
"""
    assert run(program, str(tmp_path / "r")).stdout.split("\n")[:2] == ["told", "[3, 1]"]


def test_forks_beside_commits_leave_no_lock_behind(run: Run, tmp_path: pathlib.Path) -> None:
    """A child that lives on has inherited every open file; nothing may stay locked by it."""
    program = """
import os, sys, threading, time, numpy as np, mdl
repo, steps = mdl.Repo.init(sys.argv[1]), int(sys.argv[2])
stop, children = threading.Event(), []
def fork():
    while not stop.is_set():
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
        time.sleep(0.01)
forker = threading.Thread(target=fork)
forker.start()
for step in range(steps):
    repo.commit({"w": np.full(100, step)}, step=step)
repo.flush(60)
stop.set()
forker.join()
repo.prune(mdl.retention.LatestN(3))
mdl.Repo.open(sys.argv[1]).commit({"w": np.ones(3)}, step=steps, wait=True)
for child in children:
    os.kill(child, 9)
print(len(repo.log()), len(children) > 5)
"""
    steps = scale.rounds(30, 60)
    assert run(program, str(tmp_path / "r"), str(steps)).stdout.split() == [str(steps + 1), "True"]


def test_files_on_disk_are_taken_as_they_are(repo: mdl.Repo, held: threading.Event, tmp_path: pathlib.Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"before")
    large.write_bytes(b"before" * 500_000)
    pending = repo.commit({"w": torch.ones(1)}, files={"small": small, "large": large})
    small.write_bytes(b"after")
    large.unlink()
    held.set()
    pending.result()
    assert repo.read("main", "small") == b"before"
    assert repo.read("main", "large") == b"before" * 500_000
    assert not list((repo.path / "candidates").iterdir())


def test_a_callback_that_commits_is_told_how(repo: mdl.Repo) -> None:
    seen: list[object] = []

    def commits(done: mdl.PendingCommit) -> None:
        try:
            repo.commit({"w": torch.ones(2)}, step=2)
        except mdl.UsageError:
            seen.append(repo.commit({"w": torch.ones(2)}, step=2, wait=True).step)

    repo.commit({"w": torch.ones(1)}, step=1).add_done_callback(commits)
    repo.flush()
    assert seen == [2]


def test_callbacks_may_use_the_repository(repo: mdl.Repo) -> None:
    seen: list[object] = []
    pending = repo.commit({"w": torch.ones(3)}, step=1)
    pending.add_done_callback(lambda p: seen.append((p.result().step, repo.show().step, len(repo.log()))))
    repo.flush()
    assert seen == [(1, 1, 1)]


def test_a_program_that_ends_flushes(run: Run, tmp_path: pathlib.Path) -> None:
    program = """
import sys, numpy as np, mdl
repo = mdl.Repo.init(sys.argv[1])
for step in range(5):
    repo.commit({"w": np.full(1 << 18, float(step))}, step=step)
if sys.argv[2] == "raise":
    raise SystemExit(3)
if sys.argv[2] == "drop":
    del repo
"""
    for i, how in enumerate(["end", "raise", "drop"]):
        run(program, str(tmp_path / str(i)), how, check=False)
        assert [c.step for c in mdl.Repo.open(tmp_path / str(i)).log()] == [4, 3, 2, 1, 0]
    failing = "import sys, numpy as np, mdl\nmdl.Repo.init(sys.argv[1]).commit({'w': np.ones(1)}, branch='a..b')"
    assert "a..b" in run(failing, str(tmp_path / "f")).stderr


def test_closing_in_a_with_block(tmp_path: pathlib.Path) -> None:
    with mdl.Repo.init(tmp_path / "r") as repo:
        repo.commit({"w": torch.ones(3)}, step=1)
    assert mdl.Repo.open(tmp_path / "r").show().step == 1
    repo = mdl.Repo.open(tmp_path / "r")

    def fails() -> None:
        with repo:
            repo.commit({"w": torch.ones(3)}, branch="no..name")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fails()
    # Still of use.
    repo.commit({"w": torch.ones(3)}, step=2, wait=True)


def test_forks(run: Run, tmp_path: pathlib.Path) -> None:
    program = """
import os, sys, torch, mdl
from torch.utils.data import DataLoader
repo = mdl.Repo.init(sys.argv[1])
repo.commit({"w": torch.randn(1 << 20)}, step=1)
for _ in DataLoader(list(range(8)), num_workers=2):
    pass
child = os.fork()
if child == 0:
    # Its parent's commit is not its own; reading and committing work.
    repo.flush()
    repo.commit({"w": torch.ones(9)}, step=100, branch="child", wait=True)
    repo.commit({"w": torch.ones(9)}, step=101, branch="child")
    repo.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
repo.commit({"w": torch.randn(1 << 20)}, step=2)
repo.flush()
print([c.step for c in repo.log()], repo.show("child").step)
"""
    assert run(program, str(tmp_path / "r")).stdout.strip() == "[2, 1] 101"


def test_children_that_commit_while_their_parent_does(run: Run, tmp_path: pathlib.Path) -> None:
    program = """
import os, sys, numpy as np, mdl
repo = mdl.Repo.init(sys.argv[1])
for i in range(8):
    repo.commit({"w": np.full(200_000, float(i))}, step=i)
    if os.fork() == 0:
        mdl.Repo.open(sys.argv[1]).commit({"w": np.full(200_000, -float(i))}, step=i, branch="child", wait=True)
        repo.load("child")
        os._exit(0)
    assert os.wait()[1] == 0
repo.flush()
print(len(repo.log()), len(repo.log("child")))
"""
    mains, children = run(program, str(tmp_path / "r")).stdout.split()
    assert int(mains) == 8
    assert int(children) >= 8


# numpy alone: importing torch takes longer than all of the commits.
KILLED = """
import sys, numpy as np, mdl
repo = mdl.Repo.open(sys.argv[1])
start = repo.show().step + 1 if repo.branches() else 0
base = [np.random.default_rng(i).standard_normal((200, 100), np.float32) for i in range(6)]
def durable(pending):
    print(pending.result().id, pending.step, flush=True)
for step in range(start, 200):
    state = {"model": {f"w{i}": t + np.float32(step / 1000) for i, t in enumerate(base)}, "step": step}
    repo.commit(state, step=step, metrics={"loss": 1 / (1 + step)}).add_done_callback(durable)
repo.flush()
"""


def test_kills_at_random_times_lose_nothing_that_was_reported(tmp_path: pathlib.Path, binary: pathlib.Path) -> None:
    """Kill -9 during 200 background commits, again and again: every commit that was reported durable loads exactly."""
    repo = mdl.Repo.init(tmp_path / "r")
    script = tmp_path / "train.py"
    script.write_text(KILLED)
    reported: dict[int, str] = {}
    rng, kills = random.Random(5), 0
    for _ in range(100):
        with subprocess.Popen([sys.executable, script, repo.path], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = []
            deadline: float | None = None
            while line := process.stdout.readline():
                lines.append(line)
                deadline = deadline or time.monotonic() + rng.uniform(0.0, 0.4)
                if time.monotonic() > deadline:
                    process.send_signal(signal.SIGKILL)
                    break
            lines += process.stdout.readlines()
        kills += process.returncode == -signal.SIGKILL
        for line in lines:
            if line.endswith("\n"):
                commit, step = line.split()
                reported[int(step)] = commit
        if process.returncode == 0:
            break
    assert kills >= 5, "it was too fast to be killed"
    assert set(reported) <= set(range(200))
    assert repo.show().step == 199
    on_branch = {c.id for c in repo.log()}
    base = [np.random.default_rng(i).standard_normal((200, 100), np.float32) for i in range(6)]
    for step, commit in reported.items():
        assert commit in on_branch
        state = repo.load(commit)
        assert state["step"] == step
        assert all(np.array_equal(state["model"][f"w{i}"], t + np.float32(step / 1000)) for i, t in enumerate(base)), (
            step
        )
    subprocess.run([binary, "--repo", repo.path, "fsck"], check=True, capture_output=True)


def test_a_killed_process_leaves_only_whole_versions(run: Run, tmp_path: pathlib.Path) -> None:
    program = """
import os, signal, sys, numpy as np, mdl
repo = mdl.Repo.init(sys.argv[1])
repo.commit({"w": np.ones(10)}, step=1, wait=True)
repo.commit({"w": np.random.rand(1 << 22)}, step=2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run(program, str(tmp_path / "r"), check=False)
    assert done.returncode == -signal.SIGKILL
    repo = mdl.Repo.open(tmp_path / "r")
    assert repo.show().step in (1, 2)
    repo.load()
    assert os.listdir(repo.path)
