"""`mdl watch`: commits checkpoints that frameworks write into a directory, complete, once, and in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import makers, scale
from support.cli import NOT_FOUND, OK, USAGE, Mdl, assert_same, copy_tree
from support.tensors import Tensor, safetensors_bytes, write_safetensors

PATIENCE = 60.0
"""Seconds after which something that should have happened counts as not happening."""
QUICK = ("--interval", "0.05", "--settle", "0.5")
ROTATED = scale.rounds(12, 24)
"""Checkpoints that a framework writes and deletes beside the watcher."""


class Watcher:
    """A running `mdl watch --json` and the documents it printed."""

    def __init__(self, mdl: Mdl, folder: Path, *options: str) -> None:
        quick = QUICK[:2] if "--settle" in options else QUICK
        argv = mdl.argv("--json", "watch", folder, *quick, *options)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=mdl.environment())
        self.events: list[dict[str, Any]] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [e for e in list(self.events) if e["event"] == event]

    def sources(self, event: str = "committed") -> list[str]:
        return [e["source"] for e in self.of(event)]

    def wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            assert time.monotonic() < end, f"it did not happen; events: {self.events}"
            time.sleep(0.02)

    def wait_for(self, *sources: str, event: str = "committed") -> None:
        self.wait(lambda: set(sources) <= set(self.sources(event)))

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        assert "panicked" not in errors, errors
        return code


@pytest.fixture
def watch(mdl: Mdl, source: Path) -> Iterator[Callable[..., Watcher]]:
    running: list[Watcher] = []

    def start(*options: str) -> Watcher:
        running.append(Watcher(mdl, source, *options))
        return running[-1]

    yield start
    for watcher in running:
        watcher.process.kill()
        watcher.process.wait()


def checkpoint(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    return makers.write_small_checkpoint(folder, seed)


def once(mdl: Mdl, folder: Path, *options: str) -> list[dict[str, Any]]:
    out = mdl.run("--json", "watch", folder, "--once", *QUICK, *options).out
    return [json.loads(line) for line in out.splitlines()]


def sources(mdl: Mdl, branch: str = "main") -> list[str]:
    """What the branch has, oldest first."""
    return [entry["meta"]["source"] for entry in reversed(mdl.log(branch))]


def test_what_is_there_is_committed_once_and_in_order(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    for step in (1000, 500, 90):
        checkpoint(source / f"checkpoint-{step}", step)
    makers.torch_zip(source / "epoch=1-step=2000.ckpt", makers.training_state(1))
    checkpoint(source / "tmp-checkpoint-3000", 9)
    (source / "runs").mkdir()
    (source / "runs" / "events").write_bytes(b"no tensors")
    (source / "log.txt").write_text("no checkpoint\n")
    (source / "latest").symlink_to("checkpoint-1000")
    names = ["checkpoint-90", "checkpoint-500", "checkpoint-1000", "epoch=1-step=2000.ckpt"]
    events = once(mdl, source)
    assert [e["source"] for e in events] == names
    assert [e["step"] for e in events] == [90, 500, 1000, 2000]
    assert events[-1]["epoch"] == 1
    assert events[-1]["resume"] == "exact-resume"
    assert [e["message"] for e in events] == [*names[:3], "epoch=1-step=2000"]
    assert once(mdl, source) == []
    assert sources(mdl) == names
    assert_same(mdl.checkout("main@step=500", tmp_path / "out"), source / "checkpoint-500")
    mdl.fsck()


def test_patterns_and_branches(mdl: Mdl, source: Path) -> None:
    for name in ("step_1", "step_2", "other_3"):
        checkpoint(source / name, 1)
    events = once(mdl, source, "--pattern", "step_*", "--branch", "run7")
    assert [(e["source"], e["branch"]) for e in events] == [("step_1", "run7"), ("step_2", "run7")]
    # The same bytes are versions of their own, at the price of their words.
    assert events[1]["new_tensors"] == 0
    mdl.run("watch", source / "nothing", "--once", code=NOT_FOUND).complains("nothing")
    mdl.run("watch", source, "--once", "--settle=-1", code=USAGE)
    mdl.run("watch", source, "--keep", "0", "--remove", code=USAGE)
    mdl.run("watch", source, "--once", "--policy", "nobody", code=NOT_FOUND).complains("nobody")


def test_trainer_state_says_more_than_the_name(mdl: Mdl, source: Path) -> None:
    folder = checkpoint(source / "checkpoint-7", 1)
    history = [
        {"loss": 2.5, "grad_norm": float("nan"), "step": 10},
        {"eval_loss": 2.25, "eval_runtime": 3.0, "step": 20},
        {"loss": 1.5, "step": 20},
    ]
    (folder / "trainer_state.json").write_text(
        json.dumps({"global_step": 20, "epoch": 0.5, "log_history": history}, indent=2)
    )
    (event,) = once(mdl, source)
    assert (event["step"], event["epoch"]) == (20, 0.5)
    assert event["metrics"] == {"loss": 1.5, "eval_loss": 2.25}
    assert mdl.log("main@best(loss)")[0]["message"] == "checkpoint-7"


def test_what_is_written_slowly_is_committed_whole(mdl: Mdl, source: Path, watch: Any, tmp_path: Path) -> None:
    """In place, as older frameworks do: a byte at a time would do, but for the time it takes."""
    watcher = watch()
    wanted = checkpoint(tmp_path / "wanted", 1)
    data = (wanted / "model.safetensors").read_bytes()
    target = source / "step_1"
    target.mkdir()
    with (target / "model.safetensors").open("wb") as file:
        for part in range(0, len(data), len(data) // 12 + 1):
            file.write(data[part : part + len(data) // 12 + 1])
            file.flush()
            time.sleep(0.1)
    copy_tree(wanted, target)
    watcher.wait_for("step_1")
    assert watcher.stop() == OK
    assert watcher.sources() == ["step_1"]
    assert_same(mdl.checkout("main", tmp_path / "out"), target)


def test_what_is_renamed_into_place_does_not_wait(mdl: Mdl, source: Path, watch: Any, tmp_path: Path) -> None:
    watcher = watch("--settle", "3600")
    for step in (1, 2):
        temporary = checkpoint(source / f"tmp-checkpoint-{step}", step)
        time.sleep(0.5)
        temporary.rename(source / f"checkpoint-{step}")
        watcher.wait_for(f"checkpoint-{step}")
    single = source / "step=3.ckpt.tmp"
    makers.torch_zip(single, makers.training_state(3))
    time.sleep(0.5)
    single.rename(source / "step=3.ckpt")
    watcher.wait_for("step=3.ckpt")
    assert watcher.stop(signal.SIGINT) == OK
    assert sources(mdl) == ["checkpoint-1", "checkpoint-2", "step=3.ckpt"]
    assert_same(mdl.checkout("main@step=2", tmp_path / "out"), source / "checkpoint-2")


def test_what_is_torn_is_told_once_and_taken_when_it_is_mended(mdl: Mdl, source: Path, watch: Any) -> None:
    whole = safetensors_bytes(makers.small_model(1))
    (source / "step_1.safetensors").write_bytes(whole[: len(whole) // 2])
    watcher = watch()
    watcher.wait_for("step_1.safetensors", event="failed")
    checkpoint(source / "step_2", 2)
    watcher.wait_for("step_2")
    time.sleep(1.0)
    assert watcher.sources("failed") == ["step_1.safetensors"]
    (source / "step_1.safetensors").write_bytes(whole)
    watcher.wait_for("step_1.safetensors")
    assert watcher.stop() == OK
    # For people it is an error on standard error, and no reason to fail.
    (source / "step_3.safetensors").write_bytes(whole[:-1])
    mdl.run("watch", source, "--once", *QUICK, code=OK).complains("step_3.safetensors", "not committed")


def test_a_shard_that_is_missing_makes_it_incomplete(mdl: Mdl, source: Path) -> None:
    folder = checkpoint(source / "step_1", 1)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (event,) = once(mdl, source)
    assert event["event"] == "failed"
    assert "model-2.safetensors" in event["error"]["message"]


def test_a_kill_at_any_time_commits_nothing_twice(mdl: Mdl, source: Path, watch: Any) -> None:
    for step in range(1, 9):
        checkpoint(source / f"step_{step}", step)
    for wait in (0.6, 0.7, 0.9):
        watcher = watch()
        time.sleep(wait)
        watcher.process.kill()
        watcher.process.wait()
    watcher = watch()
    watcher.wait(lambda: mdl.commit_id("main") is not None and len(mdl.log("main")) == 8)
    assert watcher.stop() == OK
    assert sources(mdl) == [f"step_{step}" for step in range(1, 9)]
    assert once(mdl, source) == []
    mdl.fsck()


def test_a_name_with_new_content_is_a_new_version(mdl: Mdl, source: Path) -> None:
    for seed in (1, 2, 1):
        makers.torch_zip(source / "last.ckpt", makers.training_state(seed))
        once(mdl, source)
    # The third is what the first was.
    assert sources(mdl) == ["last.ckpt", "last.ckpt"]


def test_single_files_are_differences_whatever_their_names(mdl: Mdl, source: Path) -> None:
    makers.torch_zip(source / "step=1.ckpt", makers.training_state(1))
    makers.torch_zip(source / "step=2.ckpt", makers.training_state(1, tied=False))
    events = once(mdl, source)
    assert events[1]["stored_bytes"] < events[0]["stored_bytes"] / 4


def test_originals_go_once_every_byte_is_safe(mdl: Mdl, source: Path, watch: Any, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    for step in (1, 2, 3, 4):
        copy_tree(checkpoint(source / f"checkpoint-{step}", step), copies / f"checkpoint-{step}")
    (source / "linked").symlink_to("checkpoint-1")
    watcher = watch("--remove", "--keep", "2")
    watcher.wait_for("checkpoint-2", event="removed")
    checkpoint(source / "checkpoint-5", 5)
    watcher.wait_for("checkpoint-3", event="removed")
    assert watcher.stop() == OK
    left = sorted(p.name for p in source.iterdir())
    assert left == ["checkpoint-1", "checkpoint-4", "checkpoint-5", "linked"]
    for step in (2, 3):
        out = mdl.checkout(f"main@step={step}", tmp_path / f"out-{step}")
        assert_same(out, copies / f"checkpoint-{step}")
    # Another run knows what an earlier one committed.
    (source / "linked").unlink()
    assert [e["event"] for e in once(mdl, source, "--remove")] == ["removed", "removed"]
    assert [p.name for p in source.iterdir()] == ["checkpoint-5"]


def test_originals_that_the_version_lacks_a_byte_of_stay(mdl: Mdl, source: Path) -> None:
    for step in (1, 2, 3):
        folder = checkpoint(source / f"checkpoint-{step}", step)
        if step == 1:
            (folder / ".mdlignore").write_text("notes\n")
    once(mdl, source)
    # Changed behind our back: the same size and time.
    changed = source / "checkpoint-2" / "model.safetensors"
    before = changed.stat()
    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    events = once(mdl, source, "--remove")
    assert {e["source"]: e["event"] for e in events if e["source"] == "checkpoint-1"} == {"checkpoint-1": "kept"}
    # What changed is a version of its own now, and only then may go.
    assert next(e["event"] for e in events if e["source"] == "checkpoint-2") == "committed"
    assert (source / "checkpoint-1").is_dir()
    assert (source / "checkpoint-3").is_dir()


def test_the_best_checkpoint_of_the_trainer_stays(mdl: Mdl, source: Path) -> None:
    for step in (1, 2, 3):
        folder = checkpoint(source / f"checkpoint-{step}", step)
        state = {"global_step": step, "best_model_checkpoint": "out/checkpoint-1"}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    once(mdl, source, "--remove")
    assert sorted(p.name for p in source.iterdir()) == ["checkpoint-1", "checkpoint-3"]


def test_a_removal_that_was_cut_off_is_finished_or_undone(mdl: Mdl, source: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(source / f"checkpoint-{step}", step)
    once(mdl, source)
    half, other = source / ".mdl-removing-checkpoint-1", source / ".mdl-removing-checkpoint-2"
    (source / "checkpoint-1").rename(half)
    (half / "model.safetensors").unlink()
    (source / "checkpoint-2").rename(other)
    (other / "config.json").write_text("changed\n")
    events = once(mdl, source, "--remove", "--keep", "2")
    assert not half.exists()
    assert not other.exists()
    assert [(e["event"], e["source"]) for e in events] == [("committed", "checkpoint-2")]
    assert sorted(p.name for p in source.iterdir()) == ["checkpoint-2", "checkpoint-3"]


def test_what_the_framework_deletes_meanwhile_is_no_failure(mdl: Mdl, source: Path, watch: Any) -> None:
    """Rotation while the watcher reads: whatever is committed has all its files."""
    watcher = watch()
    stop = threading.Event()

    def rotate() -> None:
        for step in range(1, ROTATED + 1):
            folder = checkpoint(source / f"tmp-checkpoint-{step}", step)
            time.sleep(0.08)
            folder.rename(source / f"checkpoint-{step}")
            time.sleep(0.02 * (step % 5))
            old = source / f"checkpoint-{step - 1}"
            for path in sorted(old.rglob("*"), reverse=True) if old.exists() else []:
                path.rmdir() if path.is_dir() else path.unlink()
                time.sleep(0.002)
            if old.exists():
                old.rmdir()
        stop.set()

    thread = threading.Thread(target=rotate)
    thread.start()
    watcher.wait(stop.is_set)
    thread.join()
    watcher.wait_for(f"checkpoint-{ROTATED}")
    assert watcher.stop() == OK
    assert watcher.of("failed") == []
    for entry in mdl.log("main"):
        assert entry["files"] == 3
    assert len(set(sources(mdl))) == len(sources(mdl))
    mdl.fsck()


def test_lossy_originals_are_known_and_removed(mdl: Mdl, source: Path) -> None:
    for step in (1, 2):
        checkpoint(source / f"checkpoint-{step}", step)
    options = ("--policy", "lattice", "--eval", "echo 1")
    events = once(mdl, source, *options)
    assert [e["quality"]["family"] for e in events] == ["lattice", "lattice"]
    assert once(mdl, source, *options) == []
    events = once(mdl, source, *options, "--remove")
    assert [(e["event"], e["source"]) for e in events] == [("removed", "checkpoint-1")]


def test_a_directory_that_comes_later_is_waited_for(mdl: Mdl, source: Path, watch: Any) -> None:
    source.rmdir()
    watcher = watch()
    time.sleep(0.3)
    checkpoint(source / "step_1", 1)
    watcher.wait_for("step_1")
    assert watcher.stop() == OK
    mdl.run("log", "--oneline").names("[step 1] step_1")


def test_a_signal_ends_it_after_the_commit_that_runs(mdl: Mdl, source: Path, watch: Any, tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint(source / f"step_{step}", step)
    began = tmp_path / "began"
    watcher = watch("--policy", "lattice", "--eval", f"touch {began}; sleep 0.3; echo 1")
    watcher.wait(began.exists)
    assert watcher.stop(signal.SIGINT) == OK
    assert watcher.sources() == ["step_1"]
    assert sources(mdl) == ["step_1"]


def temporary(mdl: Mdl) -> list[str]:
    """What commits keep only while they run, by its path in the repository."""
    inside = mdl.repo / ".mdl" if (mdl.repo / ".mdl").is_dir() else mdl.repo
    there = [path.name for folder in ("tmp", "candidates") for path in (inside / folder).glob("*")]
    return there + [path.name for path in (inside / "cache").glob(".*") if path.name != ".held"]


@pytest.mark.xdist_group("timing")
def test_a_second_signal_leaves_nothing_of_the_commit_that_ran(mdl: Mdl, source: Path, watch: Any) -> None:
    watcher = watch("--settle", "0.1")
    folder = source / "checkpoint-1"
    folder.mkdir()
    values = np.random.default_rng(1).standard_normal((64, 1 << 18)).astype(np.float32)
    tensors = [Tensor.of(f"w{i}", row) for i, row in enumerate(values)]
    write_safetensors(folder / "model.safetensors", tensors)
    watcher.wait(lambda: bool(temporary(mdl)))
    watcher.process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    assert watcher.stop(signal.SIGINT) in (0, -signal.SIGINT)
    assert temporary(mdl) == []
    mdl.fsck()
    assert [e["source"] for e in once(mdl, source)] in (["checkpoint-1"], [])
    assert sources(mdl) == ["checkpoint-1"]


@pytest.mark.xdist_group("timing")
def test_candidates_of_a_watch_that_was_killed_go_with_the_next_collection(
    mdl: Mdl, source: Path, watch: Any, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    # The evaluator is not waited for: what asks it is killed meanwhile, and leaves its candidates.
    watcher = watch("--settle", "0.1", "--policy", "lattice", "--eval", f"touch {began}; sleep 3; echo 1")
    folder = source / "checkpoint-1"
    folder.mkdir()
    values = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)
    write_safetensors(folder / "model.safetensors", [Tensor.of("layer.weight", values)])
    watcher.wait(began.exists)
    assert temporary(mdl)
    mdl.run("gc")
    assert temporary(mdl), "it is in use"
    watcher.process.kill()
    watcher.process.wait()
    assert temporary(mdl)
    mdl.run("gc")
    assert temporary(mdl) == []


@pytest.mark.xdist_group("timing")
def test_what_is_written_to_again_and_again_is_told_once(mdl: Mdl, source: Path, watch: Any) -> None:
    watcher = watch("--settle", "0.3")
    latest = source / "latest.safetensors"
    size = 0

    def rewritten() -> bool:
        nonlocal size
        size += 1
        latest.write_bytes(safetensors_bytes([Tensor.of("w", np.zeros(1000 + size, np.float32))]))
        return bool(watcher.of("waiting"))

    watcher.wait(rewritten)
    for _ in range(100):
        rewritten()
        time.sleep(0.02)
    (told,) = watcher.of("waiting")
    assert told["source"] == "latest.safetensors"
    assert "--settle" in told["message"]
    watcher.wait_for("latest.safetensors")
