"""Bisection as a user runs it: trials in directories of their own, several at once, kills in the middle."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.cli import Mdl

VERSIONS = 24
FIRST_BAD = 17


@pytest.fixture
def mdl(tmp_path: Path) -> Mdl:
    work = tmp_path / "work"
    mdl = Mdl.init(work)
    for i in range(VERSIONS):
        (work / "number.txt").write_text(f"{i}\n")
        (work / "big.bin").write_bytes(bytes(1000))
        loss = 2.5 if i >= FIRST_BAD else 2.0
        mdl.run("commit", "-m", f"number {i}", "--step", str(i), "--metric", f"loss={loss}")
    return mdl


def first_bad(mdl: Mdl) -> str:
    return str(mdl.commit_id(f"main@step={FIRST_BAD}"))


def test_a_killed_run_goes_on_and_leaves_nothing(mdl: Mdl, tmp_path: Path) -> None:
    mdl.run("bisect", "start", "HEAD", "main@step=0")
    began = tmp_path / "began"
    wait = f"touch {began}; until test -e {tmp_path}/go; do sleep 0.05; done"
    script = f'{wait}; test "$(cat number.txt)" -lt {FIRST_BAD}'
    run = subprocess.Popen(
        mdl.argv("bisect", "run", "--jobs", "2", "sh", "-c", script),
        cwd=mdl.repo,
        env=mdl.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for _ in range(600):
        if began.exists():
            break
        time.sleep(0.05)
    assert began.exists()
    run.send_signal(signal.SIGKILL)
    run.wait()
    left = [p for p in (mdl.repo / ".mdl/bisect-trials").iterdir() if p.name != "lock"]
    assert left, "the kill came while trials were there"
    (tmp_path / "go").touch()
    found = mdl.json("bisect", "run", "sh", "-c", script)
    assert found["first_bad"] == first_bad(mdl)
    assert [p.name for p in (mdl.repo / ".mdl/bisect-trials").iterdir()] == ["lock"]
    mdl.run("bisect", "reset")
    assert mdl.json("status")["branch"] == "main"


def test_only_what_is_named_is_checked_out_and_programs_are_found_from_here(mdl: Mdl) -> None:
    check = mdl.repo.parent / "check.sh"
    check.write_text(f'#!/bin/sh\n[ "$(ls)" = number.txt ] || exit 200\n[ "$(cat number.txt)" -lt {FIRST_BAD} ]\n')
    check.chmod(0o755)
    mdl.run("bisect", "start", "HEAD", "main@step=0")
    found = mdl.json("bisect", "run", "--only", "number.txt", "../check.sh")
    assert (found["first_bad"], found["trials"] <= 5) == (first_bad(mdl), True)


def test_metrics_alone_decide(mdl: Mdl) -> None:
    found = mdl.json("bisect", "--metric", "loss", "--above", "2.3")
    assert found["first_bad"] == first_bad(mdl)
    assert len(found["looked_at"]) <= 5
    assert not (mdl.repo / ".mdl/bisect").exists()
