"""Kills commit, gc and compact before every nth system call that changes the disk; the repository must stay intact.

`make test` strikes a few points of an evenly spaced sample, MDL_TEST_SCALE=full the sample, `make kill-sweep`
(MDL_SWEEP=all) every point. After each kill: the repository opens, fsck is clean, the ref is the old or the new commit
and never another, and a retry works.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from support import faults, makers, scale
from support.cli import NOT_FOUND, OK, USER, Mdl, assert_same, copy_tree, files_of

EVERY = os.environ.get("MDL_SWEEP") == "all"
SAMPLE = 24
FEW = 8
"""Points of the sample that the quick look strikes."""
KILLED = -9

_reason = faults.why_not()
if _reason:
    warnings.warn(f"the kill sweep is SKIPPED: {_reason}", stacklevel=1)
pytestmark = pytest.mark.skipif(_reason is not None, reason=f"kill sweep: {_reason}")

ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MDL_THREADS": "1"}
"""strace counts calls per thread; one worker makes the points the same in every run."""


class Bench:
    """A template repository that is copied for every kill, and the folders that its commits must give back."""

    def __init__(self, root: Path) -> None:
        self.root, self.template = root, Mdl.init(root / "template")
        self.folders: dict[str, Path] = {}

    def commit(self, branch: str, seed: int) -> None:
        name = f"{branch}-{seed}"
        folder = self.root / "source" / name
        folder.mkdir(parents=True)
        makers.write_small_checkpoint(folder, seed, layers=3, width=64)
        self.template.commit(folder, name, *(["--branch", branch] if branch != "main" else []))
        self.folders[name] = folder

    def fresh(self, name: str) -> Mdl:
        """A new copy of the template."""
        shutil.rmtree(self.root / "copies", ignore_errors=True)
        return Mdl(copy_tree(self.template.repo, self.root / "copies" / name))

    def points(self, *args: str | Path, below: str = "") -> list[tuple[str, int]]:
        """What can be hit when this command runs on a fresh copy; a sample unless the whole sweep is asked for. Only
        calls whose path has `below` in it, if that is given."""
        mdl = self.fresh("count")
        env = mdl.environment(ONE_THREAD)
        calls = faults.calls_of(mdl.argv(*args), self.root / "trace.log", env, mdl.repo)
        assert any((below or str(mdl.store)) in call.path for call in calls), "the traced run touched no file of it"
        every = faults.points(call for call in calls if below in call.path)
        assert len(every) >= 4, f"only {every} to hit: strace missed what the command does"
        return every if EVERY else scale.sample(faults.spread(every, SAMPLE), FEW)

    def strike(self, name: str, nth: int, *args: str | Path) -> tuple[Mdl, bool]:
        """Runs the command on a fresh copy and kills it there; says whether the kill happened."""
        mdl = self.fresh(f"{name}-{nth}")
        done = mdl.run(*args, code=(0, KILLED, 137), env=ONE_THREAD, prefix=faults.killed_at(name, nth))
        return mdl, done.code != 0

    def branch_is_whole(self, mdl: Mdl, branch: str, names: list[str], out: Path) -> None:
        """The branch has exactly these commits, oldest first, and the newest gives its bytes back."""
        assert [entry["message"].strip() for entry in mdl.log(branch)] == names[::-1]
        shutil.rmtree(out, ignore_errors=True)
        for back, name in enumerate(names[::-1]):
            assert_same(self.folders[name], mdl.checkout(f"{branch}~{back}", out / name))


def sweep(bench: Bench, args: tuple[str | Path, ...], check: Callable[[Mdl, str], None], below: str = "") -> None:
    """Strikes every chosen point, checks each, and demands that nearly all of the kills took place."""
    chosen = bench.points(*args, below=below)
    struck = 0
    for name, nth in chosen:
        mdl, killed = bench.strike(name, nth, *args)
        struck += killed
        try:
            check(mdl, f"{name}-{nth}")
        except AssertionError as error:
            raise AssertionError(f"killed before {name} number {nth}: {error}") from error
    print(f"\n{args[0]}: killed at {struck} of {len(chosen)} points")
    assert struck >= 0.8 * len(chosen), f"only {struck} of {len(chosen)} kills took place"


def test_commit_killed_anywhere(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for seed in (1, 2):
        bench.commit("main", seed)
    new = makers.write_small_checkpoint(make(tmp_path / "source" / "main-3"), 3, layers=3, width=64)
    bench.folders["main-3"] = new
    old, args = ["main-1", "main-2"], ("commit", new, "-m", "main-3")
    seen: set[int] = set()

    def check(mdl: Mdl, _: str) -> None:
        mdl.fsck()
        length = len(mdl.log("main"))
        seen.add(length)
        now = old if length == 2 else [*old, "main-3"]
        bench.branch_is_whole(mdl, "main", now, tmp_path / "out")
        mdl.run(*args, *(["--allow-empty"] if length == 3 else []))
        bench.branch_is_whole(mdl, "main", [*now, "main-3"], tmp_path / "out")
        mdl.fsck()
        mdl.run("gc", "--prune-now")
        assert not files_of(mdl.store / "tmp"), "gc left temporary files of the killed commit"
        bench.branch_is_whole(mdl, "main", [*now, "main-3"], tmp_path / "out")

    sweep(bench, args, check)
    assert 2 in seen, "no kill came before the ref moved"


def test_commit_killed_while_it_fills_the_cache(tmp_path: Path) -> None:
    """What a killed commit left in the cache of decoded tensors is no base and no checkout's bytes, unless whole."""
    bench = Bench(tmp_path)
    first = makers.write_small_checkpoint(make(tmp_path / "source" / "main-1"), 1, layers=3, width=64)
    second = copy_tree(first, tmp_path / "source" / "main-2")
    for path in second.glob("*.safetensors"):
        # So near that the cached tensor is what it is coded against.
        whole = path.read_bytes()
        path.write_bytes(whole[:-8] + bytes(byte ^ 1 for byte in whole[-8:]))
    bench.folders |= {"main-1": first, "main-2": second}
    args = ("commit", first, "-m", "main-1")

    def check(mdl: Mdl, _: str) -> None:
        if mdl.commit_id("main") is None:
            mdl.run(*args)
        # With the cache as the kill left it, and once more without it.
        mdl.run("commit", second, "-m", "main-2")
        bench.branch_is_whole(mdl, "main", ["main-1", "main-2"], tmp_path / "out")
        shutil.rmtree(mdl.store / "cache")
        bench.branch_is_whole(mdl, "main", ["main-1", "main-2"], tmp_path / "out")
        mdl.fsck()
        mdl.run("gc", "--prune-now")
        assert not [path for path in files_of(mdl.store).values() if "/cache/." in str(path) and path.name != ".held"]

    sweep(bench, args, check, below="/cache/")


def test_first_commit_killed_anywhere(tmp_path: Path) -> None:
    """The same on an empty repository, where the branch itself is new."""
    bench = Bench(tmp_path)
    new = makers.write_small_checkpoint(make(tmp_path / "source" / "main-1"), 1, layers=1, width=32)
    bench.folders["main-1"] = new
    args = ("commit", new, "-m", "main-1")

    def check(mdl: Mdl, _: str) -> None:
        mdl.fsck()
        had = mdl.commit_id("main") is not None
        mdl.run(*args, *(["--allow-empty"] if had else []))
        bench.branch_is_whole(mdl, "main", ["main-1"] * (1 + had), tmp_path / "out")
        mdl.fsck()

    sweep(bench, args, check)


def with_garbage(tmp_path: Path) -> Bench:
    """Two branches, and a third whose commits nothing names any more."""
    bench = Bench(tmp_path)
    bench.commit("main", 1)
    for branch in ("dev", "gone"):
        bench.template.run("branch", branch)
    for seed, branch in ((2, "main"), (3, "dev"), (4, "gone"), (5, "gone"), (6, "main")):
        bench.commit(branch, seed)
    bench.template.run("branch", "-d", "gone", code=(0, 1, 4))
    if bench.template.commit_id("gone"):
        bench.template.run("branch", "-D", "gone")
    return bench


BRANCHES = {"main": ["main-1", "main-2", "main-6"], "dev": ["main-1", "dev-3"]}


def everything_named_is_whole(bench: Bench, mdl: Mdl, out: Path) -> None:
    mdl.fsck()
    for branch, names in BRANCHES.items():
        bench.branch_is_whole(mdl, branch, names, out / branch)


def test_gc_killed_anywhere(tmp_path: Path) -> None:
    bench = with_garbage(tmp_path)
    args = ("gc", "--prune-now")
    done = bench.fresh("done")
    before = done.size()
    done.run(*args)
    after = done.size()
    assert after < before, "gc had nothing to remove, the sweep would prove little"

    def check(mdl: Mdl, _: str) -> None:
        everything_named_is_whole(bench, mdl, tmp_path / "out")
        mdl.run(*args)
        everything_named_is_whole(bench, mdl, tmp_path / "out")
        assert mdl.size() <= after + 4096, "the retried gc left garbage behind"

    sweep(bench, args, check)


def test_compact_killed_anywhere(tmp_path: Path) -> None:
    bench = with_garbage(tmp_path)

    def check(mdl: Mdl, _: str) -> None:
        everything_named_is_whole(bench, mdl, tmp_path / "out")
        mdl.run("compact")
        everything_named_is_whole(bench, mdl, tmp_path / "out")

    sweep(bench, ("compact",), check)


def test_checkout_killed_anywhere(tmp_path: Path) -> None:
    """A file that is there after the kill has the old or the new bytes, never a part of them; a retry finishes."""
    bench = Bench(tmp_path)
    repo = bench.template.repo
    for seed in (1, 2):
        makers.write_small_checkpoint(repo, seed, layers=3, width=64)
        bench.template.commit(None, f"main-{seed}")
        bench.folders[f"main-{seed}"] = bench.template.checkout("main", tmp_path / "source" / f"main-{seed}")
    args = ("checkout", "main~1")

    def check(mdl: Mdl, _: str) -> None:
        mdl.fsck()
        for name, path in files_of(mdl.repo).items():
            if any((folder / name).is_file() for folder in bench.folders.values()):
                assert path.read_bytes() in [(folder / name).read_bytes() for folder in bench.folders.values()]
        mdl.run(*args, "--force")
        for name, path in files_of(bench.folders["main-1"]).items():
            assert (mdl.repo / name).read_bytes() == path.read_bytes()

    sweep(bench, args, check)


def test_worktree_add_killed_anywhere(tmp_path: Path) -> None:
    """What is left can be removed or pruned, keeps no branch, and the same work tree can then be made."""
    bench = Bench(tmp_path)
    bench.commit("main", 1)
    bench.commit("side", 2)
    # Beside the copies, and removed with them.
    place = tmp_path / "copies" / "beside"
    args = ("worktree", "add", place, "side")

    def check(mdl: Mdl, _: str) -> None:
        mdl.fsck()
        mdl.run("worktree", "list")
        mdl.run("gc", "--prune-now")
        if any(Path(tree["path"]) == place for tree in mdl.json("worktree", "list")["worktrees"]):
            mdl.run("worktree", "remove", place, "--force")
        shutil.rmtree(place, ignore_errors=True)
        mdl.run("worktree", "prune")
        assert len(mdl.json("worktree", "list")["worktrees"]) == 1
        assert not files_of(mdl.store / "worktrees"), "the state of a killed work tree was left"
        mdl.run(*args)
        assert mdl.json("worktree", "list")["worktrees"][1]["branch"] == "side"
        for name, path in files_of(bench.folders["side-2"]).items():
            assert (place / name).read_bytes() == path.read_bytes()
        mdl.fsck()

    sweep(bench, args, check)


def test_clone_killed_anywhere(tmp_path: Path) -> None:
    """What is left may be looked at; the same clone goes on from it."""
    bench = Bench(tmp_path)
    for seed in (1, 2):
        bench.commit("main", seed)
    # Beside the copies, and removed with them.
    place = tmp_path / "copies" / "clone"
    args = ("clone", bench.template.repo, place)

    def check(_: Mdl, __: str) -> None:
        clone = Mdl(place)
        if place.exists():
            clone.run("show", "main", code=(OK, USER, NOT_FOUND))
        if not clone.store.is_dir() or clone.run("show", "HEAD", code=(OK, USER, NOT_FOUND)).code != OK:
            clone.run("clone", bench.template.repo, place, repo_flag=False, cwd=tmp_path)
        clone.fsck()
        bench.branch_is_whole(clone, "origin/main", ["main-1", "main-2"], tmp_path / "out")

    sweep(bench, args, check, below=str(place))


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
