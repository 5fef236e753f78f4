"""Kills rebase, cherry-pick, revert, pull --rebase, --continue and --abort before every nth system call that changes
the disk: `--abort` gives HEAD, branch and work tree back as they were, and `--continue` comes to the end.

Scale as in `test_kill_sweep.py`: a sample, with MDL_TEST_SCALE=full more of it, with MDL_SWEEP=all every point.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest
from support import faults, makers, scale
from support.cli import CONFLICT, OK, Mdl, copy_tree

EVERY = os.environ.get("MDL_SWEEP") == "all"
SAMPLE = 24
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MDL_THREADS": "1"}
KILLED = -9
FEW = 6
"""Points that the quick look strikes, of each command."""

_reason = faults.why_not()
if _reason:
    warnings.warn(f"the kills of replays are SKIPPED: {_reason}", stacklevel=1)
pytestmark = pytest.mark.skipif(_reason is not None, reason=f"kills of replays: {_reason}")

State = tuple[dict[str, bytes], str, dict[str, str]]


def commit(mdl: Mdl, seed: int, message: str, **texts: str) -> None:
    makers.write_small_checkpoint(mdl.repo, seed, layers=2, width=32)
    # One file that changes with every version would stop every replay: the tests say where they want that.
    (mdl.repo / "config.json").write_text("{}\n")
    (mdl.repo / "notes" / "run.txt").write_text("a run\n")
    for name, text in texts.items():
        (mdl.repo / f"{name}.json").write_text(text)
    mdl.commit(None, message, "--step", str(seed))


def template(root: Path, *, stops: bool) -> Mdl:
    """Two sides that have parted, each with a remote that is a copy of the other; `stops`: both changed a text."""
    mdl = Mdl.init(root / "template")
    commit(mdl, 1, "base", only_theirs="0", both="0")
    mdl.run("branch", "theirs")
    for seed in (2, 3):
        commit(mdl, seed, f"own {seed}", **({"both": "own"} if stops and seed == 3 else {}))
    mdl.run("switch", "theirs")
    commit(mdl, 4, "theirs", only_theirs="1", **({"both": "theirs"} if stops else {}), added="new")
    mdl.run("switch", "main")
    other = Mdl.init(root / "other", "--bare")
    mdl.run("remote", "add", "origin", str(other.repo))
    mdl.run("push", "origin", "theirs:refs/heads/main")
    return mdl


def state(mdl: Mdl) -> State:
    """Files, HEAD and branches. What a killed checkout leaves under a temporary name counts as nothing."""
    files = {
        str(path.relative_to(mdl.repo)): path.read_bytes()
        for path in sorted(mdl.repo.rglob("*"))
        if path.is_file() and ".mdl" not in path.parts and not path.name.startswith(".mdl-")
    }
    refs = mdl.store / "refs" / "heads"
    heads = {path.name: path.read_text() for path in sorted(refs.rglob("*")) if path.is_file()}
    return files, (mdl.store / "HEAD").read_text(), heads


class Sweep:
    """A command on copies of a template, killed at points that a run of it has shown."""

    def __init__(self, root: Path, template: Mdl, args: tuple[str, ...], code: int = OK) -> None:
        self.root, self.template, self.args, self.code = root, template, args, code
        self.struck = 0

    def fresh(self, name: str) -> Mdl:
        shutil.rmtree(self.root / "copies", ignore_errors=True)
        return Mdl(copy_tree(self.template.repo, self.root / "copies" / name))

    def points(self) -> list[tuple[str, int]]:
        mdl = self.fresh("count")
        # The run may end with a stop.
        argv = ["sh", "-c", '"$@"; test $? -eq ' + str(self.code), "sh", *mdl.argv(*self.args)]
        calls = faults.calls_of(argv, self.root / "trace.log", mdl.environment(ONE_THREAD), mdl.repo)
        every = faults.points(calls)
        assert len(every) >= 4, f"only {every} to hit: strace missed what the command does"
        return every if EVERY else scale.sample(faults.spread(every, SAMPLE), FEW)

    def kill(self, name: str, nth: int) -> Mdl:
        mdl = self.fresh(f"{name}-{nth}")
        ends = (OK, CONFLICT, KILLED, 137)
        done = mdl.run(*self.args, code=ends, env=ONE_THREAD, prefix=faults.killed_at(name, nth))
        self.struck += done.code in (KILLED, 137)
        return mdl


CASES = {
    "rebase": (False, ("rebase", "theirs"), "rebase"),
    "rebase that stops": (True, ("rebase", "theirs"), "rebase"),
    "cherry-pick": (False, ("cherry-pick", "theirs"), "cherry-pick"),
    "revert": (False, ("revert", "HEAD~1"), "revert"),
    "merge": (False, ("merge", "theirs", "--strategy", "ties"), "merge"),
    "pull": (False, ("pull", "--rebase"), "rebase"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_abort_restores_after_a_kill_anywhere(tmp_path: Path, case: str) -> None:
    stops, args, verb = CASES[case]
    mdl = template(tmp_path, stops=stops)
    before = state(mdl)
    sweep = Sweep(tmp_path, mdl, args, CONFLICT if stops else OK)
    chosen = sweep.points()
    in_progress = 0
    for name, nth in chosen:
        hit = sweep.kill(name, nth)
        (hit.repo / "made meanwhile.txt").write_text("the user's")
        if hit.json("status")["in_progress"]:
            in_progress += 1
            hit.run(verb, "--abort")
            files, head, heads = state(hit)
            assert files.pop("made meanwhile.txt") == b"the user's"
            assert (files, head, heads) == before, f"killed before {name} number {nth}"
        else:
            # It was killed before it began, or once all was done.
            files, head, heads = state(hit)
            assert head == before[1]
            files.pop("made meanwhile.txt")
            assert heads["main"] != before[2]["main"] or files == before[0], f"killed before {name} number {nth}"
        assert hit.json("status")["files"] == [{"path": "made meanwhile.txt", "change": "added", "mode_only": False}]
        hit.fsck()
    print(f"\n{case}: killed at {sweep.struck} of {len(chosen)} points, {in_progress} times in the middle")
    assert sweep.struck >= 0.8 * len(chosen)
    assert in_progress > 0


@pytest.mark.parametrize("verb", ["--abort", "--continue"])
def test_going_on_and_back_killed_anywhere(tmp_path: Path, verb: str) -> None:
    """Killed while it goes back it can be asked to go back again; killed while it goes on, either way is open."""
    mdl = template(tmp_path, stops=True)
    before = state(mdl)
    mdl.run("rebase", "theirs", code=CONFLICT)
    (mdl.repo / "both.json").write_text("the answer" if verb == "--continue" else "half of it")
    sweep = Sweep(tmp_path, mdl, ("rebase", verb))
    chosen = sweep.points()
    for n, (name, nth) in enumerate(chosen):
        hit = sweep.kill(name, nth)
        on = verb == "--continue" and n % 2 == 0
        if hit.json("status")["in_progress"]:
            hit.run("rebase", "--continue" if on else "--abort")
        elif verb == "--continue":
            on = True
        files, head, heads = state(hit)
        if on:
            assert files["both.json"] == b"the answer"
            assert files["only_theirs.json"] == b"1"
            assert [entry["message"].strip() for entry in hit.log()] == ["own 3", "own 2", "theirs", "base"]
        else:
            kept = [path for path in files if ".kept-" in path]
            assert kept == [] or files.pop(kept[0]) in (b"the answer", b"half of it")
            assert (files, head, heads) == before, f"killed before {name} number {nth}"
        assert hit.run("rebase", "--abort", code=1).err.count("in progress") == 1
        hit.fsck()
    assert sweep.struck >= 0.8 * len(chosen)
