"""Many processes on one repository: commits on one branch conflict or land, commits on many branches all land."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import makers, scale
from support.cli import CONFLICT, OK, Mdl, assert_same

WORKERS, COMMITS = 8, scale.rounds(5, 20)
ROUNDS = scale.rounds(4, 10)


def prepare(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    return makers.write_small_checkpoint(folder, seed, layers=2, width=48)


def start(mdl: Mdl, folder: Path, message: str, *options: str) -> subprocess.Popen[str]:
    argv = mdl.argv("--json", "commit", folder, "-m", message, *options)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=mdl.environment())


def test_two_commits_to_one_branch_at_once(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """In each round both land, or one gets a conflict; exactly what was reported committed is in the history."""
    mdl.commit(prepare(source / "base", 0), "base")
    landed = ["base"]
    for i in range(ROUNDS):
        folders = {f"{i}-{side}": prepare(source / f"{i}-{side}", 2 * i + k + 1) for k, side in enumerate("ab")}
        running = {message: start(mdl, folder, message) for message, folder in folders.items()}
        codes = {}
        for message, process in running.items():
            out, err = process.communicate()
            codes[message] = process.returncode
            assert process.returncode in (OK, CONFLICT), f"{message}: exit {process.returncode}\n{err}"
            assert process.returncode == OK or err.strip()
            if process.returncode == OK:
                landed.append(message)
                assert_same(folders[message], mdl.checkout(json.loads(out)["commit"], tmp_path / message))
        assert OK in codes.values(), "two commits and neither landed"
    assert sorted(entry["message"].strip() for entry in mdl.log("main")) == sorted(landed)
    mdl.fsck()


def test_eight_processes_on_eight_branches_all_land(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    mdl.commit(prepare(source / "base", 0), "base")
    for w in range(WORKERS):
        mdl.run("branch", f"w{w}")

    def work(w: int) -> None:
        folder = prepare(source / f"w{w}", 100 * w)
        for i in range(COMMITS):
            makers.write_small_checkpoint(folder, 100 * w + i, layers=2, width=48)
            mdl.commit(folder, f"{w}-{i}", "--branch", f"w{w}", "--step", str(i))

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, w) for w in range(WORKERS)]:
            done.result()
    for w in range(WORKERS):
        messages = [entry["message"].strip() for entry in mdl.log(f"w{w}")]
        assert messages == [f"{w}-{i}" for i in reversed(range(COMMITS))] + ["base"]
        assert_same(source / f"w{w}", mdl.checkout(f"w{w}", tmp_path / f"out{w}"))
    mdl.fsck()


def test_gc_while_others_commit(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """Plain gc (with its grace period) beside running commits: everything that landed is whole."""
    mdl.commit(prepare(source / "base", 0), "base")
    folders = [prepare(source / f"c{i}", i + 1) for i in range(12)]

    def collect() -> None:
        for _ in range(6):
            mdl.run("gc", code=(OK, CONFLICT))

    with ThreadPoolExecutor(1) as pool:
        collecting = pool.submit(collect)
        for i, folder in enumerate(folders):
            mdl.commit(folder, f"c{i}")
        collecting.result()
    for i, folder in enumerate(reversed(folders)):
        assert_same(folder, mdl.checkout(f"main~{i}", tmp_path / f"out{i}"))
    mdl.fsck()
