"""The parts of the measurement. Each gives a JSON value."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from history.sets import Between, Checkpoints, Versions, checked_out, committed, some
from history.tools import Dvc, GitLfs, Mdl, Tool, run, timed

LOSSY_POLICY = """try = ["lattice", "bins"]

[gate]
epsilon = 0.01

[keep]
exact_latest = 0
"""
RESTORES = (5, 9, 13)
"""Versions of the lossy history whose run went on from the version before: its lattices get new offsets."""


def least(rows: Sequence[Sequence[float]]) -> list[float]:
    return [min(column) for column in zip(*rows, strict=True)]


def remove(tool: Tool) -> None:
    shutil.rmtree(tool.root, ignore_errors=True)


def one_set(name: str, n: int, rounds: int, scratch: Path) -> dict[str, Any]:
    """Commits of mdl and git-lfs in turn; checkouts of all versions without the cache, of some in a clone; DVC."""
    files = Checkpoints(name, scratch)
    tools: dict[str, tuple[type[Any], list[list[float]]]] = {"mdl": (Mdl, []), "git-lfs": (GitLfs, [])}
    data: dict[str, Any] = {"versions": n, "rounds": rounds, "commit": {}, "checkout": {}}
    made: dict[str, Any] = {}
    for _ in range(rounds):
        for tool_name, (kind, rows) in tools.items():
            made[tool_name] = kind(scratch / f"{name}-{tool_name}", files.files)
            rows.append(committed(made[tool_name], files, n))
    for tool_name, (_, rows) in tools.items():
        data["commit"][tool_name] = least(rows)
        data[f"{tool_name} stored"] = made[tool_name].stored()
    few = some(n, 16)
    data["checkout"]["git-lfs"] = checked_out(made["git-lfs"], files, n, few, rounds)
    remove(made.pop("git-lfs"))
    mdl = made["mdl"]
    data["cache"] = mdl.cache()
    data["head, cache"] = min(checked_out(mdl, files, n, [n - 1], rounds))
    mdl.drop_cache()
    data["checkout"]["mdl"] = checked_out(mdl, files, n, range(n), rounds)
    clone = scratch / f"{name}-clone"
    run([Mdl.program, "clone", "-q", mdl.root, clone], scratch)
    data["clone"] = checked_out(Mdl(clone, files.files, new=False), files, n, few, rounds)
    remove(mdl)
    shutil.rmtree(clone)
    dvc = Dvc(scratch / f"{name}-dvc", files.files)
    data["commit"]["dvc"] = committed(dvc, files, n)
    data["checkout"]["dvc"] = checked_out(dvc, files, n, few, rounds)
    remove(dvc)
    data["raw"] = sum((files.folder(0) / file).stat().st_size for file in files.files)
    shutil.rmtree(files.scratch, ignore_errors=True)
    return data


def before(name: str, n: int, rounds: int, scratch: Path, program: Path) -> dict[str, Any]:
    """The bytes of an earlier build's chains, and what a compaction by this build makes of them."""
    files = Checkpoints(name, scratch)
    old = Mdl.__new__(Mdl)
    old.program = program
    Tool.__init__(old, scratch / f"{name}-before", files.files)
    data: dict[str, Any] = {"commit": committed(old, files, n), "stored": old.stored()}
    new = Mdl(old.root, files.files, new=False)

    def ids() -> list[str]:
        return [line.split()[0] for line in run([Mdl.program, "log", "--oneline"], old.root).splitlines()]

    versions = ids()
    data["compact"] = timed(lambda: run([Mdl.program, "compact"], old.root))
    run([Mdl.program, "gc", "--prune-now"], old.root)
    if ids() != versions or len(versions) != n:
        raise SystemExit("a compaction changed ids")
    data["stored, compacted"] = new.stored()
    new.drop_cache()
    data["checkout"] = checked_out(new, files, n, range(n), rounds)
    remove(old)
    shutil.rmtree(files.scratch, ignore_errors=True)
    return data


def thousand(n: int, rounds: int, scratch: Path) -> dict[str, Any]:
    """Verbs and checkouts in a history of `n` small versions."""
    files: Versions = Between(scratch, 1.0)
    mdl = Mdl(scratch / "thousand", files.files)
    commits = committed(mdl, files, n)
    asked: dict[str, Callable[[], object]] = {
        "log": lambda: run([Mdl.program, "log", "--oneline"], mdl.root),
        "status": lambda: run([Mdl.program, "status"], mdl.root),
        "branch": lambda: run([Mdl.program, "branch"], mdl.root),
    }
    verbs = {name: min(timed(step) for _ in range(max(3, rounds))) for name, step in asked.items()}
    mdl.drop_cache()
    outs = checked_out(mdl, files, n, some(n, 100), rounds)
    remove(mdl)
    return {"versions": n, "commit": commits, "verbs": verbs, "checkout": outs}


class Approximations(Versions):
    """Versions that come back as something near them."""

    def __init__(self, of: Checkpoints) -> None:
        self.of, self.files = of, of.files

    def check(self, number: int, root: Path) -> None:
        for file in self.files:
            back, exact = (load_file(folder / file) for folder in (root, self.of.folder(number)))
            far = max(float((back[name] - tensor).norm() / tensor.norm()) for name, tensor in exact.items())
            if back.keys() != exact.keys() or far > 0.15:
                raise SystemExit(f"version {number} came back {far} away")


def lossy(n: int, rounds: int, scratch: Path) -> dict[str, Any]:
    """A quantised history with restores: seconds of its commits, and of the checkouts of its first 16 versions."""
    files = Checkpoints("f32", scratch)
    mdl = Mdl(scratch / "lossy", files.files)
    policy = scratch / "policy.toml"
    policy.write_text(LOSSY_POLICY)
    gate = ("--policy", str(policy), "--eval", "echo 1")
    commits, outs, stored = [], [], []
    for number in range(n):
        files.place(number, mdl.root)
        mdl.arguments = (*gate, "--resumed-from", "main") if number in RESTORES else gate
        commits.append(timed(mdl.commit))
        stored.append(mdl.stored())
        if number == 15:
            mdl.drop_cache()
            outs = checked_out(mdl, Approximations(files), 16, range(16), max(3, rounds))
    remove(mdl)
    return {"versions": n, "commit": commits, "checkout": outs, "stored": stored}
