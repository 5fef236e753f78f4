"""Runs the `mdl` binary: one object per repository, exit codes checked, output captured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

OK, USER, USAGE, NOT_FOUND, CONFLICT, CORRUPT, IO = 0, 1, 2, 3, 4, 5, 6
INDEX_LIMIT = 64 << 10
"""What a commit that stores no new tensor may add to the repository."""


def binary() -> Path:
    """The binary under test: $MDL_BIN, else the release build of this checkout."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("MDL_BIN", target / "release" / "mdl")).resolve()


@dataclass(frozen=True)
class Result:
    """How one run of mdl ended."""

    args: Sequence[str]
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"mdl {' '.join(self.args)}\n-> exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    def complains(self, *words: str) -> None:
        """Fails unless stderr is a message for people: no panic, and it has every word (any case)."""
        assert "panicked" not in self.err, str(self)
        assert self.err.strip(), f"no message\n{self}"
        for word in words:
            assert word.lower() in self.err.lower(), f"{word!r} is not in the message\n{self}"

    def names(self, *words: str) -> None:
        """Fails unless what was asked for (stdout) has every word, and nothing panicked."""
        assert "panicked" not in self.err, str(self)
        for word in words:
            assert word in self.out, f"{word!r} is not in the output\n{self}"


class UnexpectedExit(AssertionError):
    """mdl ended with another exit code than the test wanted."""


class Mdl:
    """One repository and the commands run on it."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo

    @classmethod
    def init(cls, repo: Path, *options: str) -> Mdl:
        mdl = cls(repo)
        mdl.run("init", str(repo), *options, repo_flag=False)
        return mdl

    @property
    def store(self) -> Path:
        """The folder of the repository's data."""
        inside = self.repo / ".mdl"
        return inside if inside.is_dir() else self.repo

    @property
    def index(self) -> Path:
        return self.store / "index"

    def packed(self) -> int:
        """Bytes of the packs."""
        return tree_size(self.store / "packs")

    def size(self) -> int:
        """Bytes of the store without the disposable index."""
        return tree_size(self.store, skip=("index", "cache"))

    def argv(self, *args: str | Path, repo_flag: bool = True) -> list[str]:
        flags = ["--repo", str(self.repo)] if repo_flag else []
        return [str(binary()), *flags, *map(str, args)]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("MDL_")}
        return env | {"NO_COLOR": "1", "RUST_BACKTRACE": "0"} | dict(extra or {})

    def run(
        self,
        *args: str | Path,
        code: int | tuple[int, ...] = OK,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        repo_flag: bool = True,
    ) -> Result:
        """Runs one command; any other exit code than `code` fails the test with everything that was printed."""
        argv = [*prefix, *self.argv(*args, repo_flag=repo_flag)]
        where = cwd or (self.repo if self.repo.is_dir() else None)
        done = subprocess.run(argv, capture_output=True, cwd=where, env=self.environment(env), check=False)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        result = Result([str(a) for a in args], done.returncode, out, err)
        wanted = code if isinstance(code, tuple) else (code,)
        if result.code not in wanted:
            raise UnexpectedExit(f"wanted exit {' or '.join(map(str, wanted))}\n{result}")
        return result

    def json(self, *args: str | Path, **options: Any) -> Any:
        """Runs a command with --json and parses the one document on its standard output."""
        result = self.run("--json", *args, **options)
        try:
            return json.loads(result.out)
        except json.JSONDecodeError as error:
            raise AssertionError(f"stdout is not one JSON document: {error}\n{result}") from error

    def bytes(self, *args: str | Path) -> bytes:
        """Standard output as bytes (`cat --raw`)."""
        return subprocess.run(self.argv(*args), capture_output=True, check=True, env=self.environment()).stdout

    def commit(self, path: Path | None, message: str, *options: str) -> dict[str, Any]:
        where = [path] if path is not None else []
        return self.json("commit", *where, "-m", message, *options)

    def commit_id(self, rev: str) -> str | None:
        """The full id `rev` names, or None where there is no such revision."""
        result = self.run("--json", "log", rev, "-n", "1", code=(OK, NOT_FOUND))
        if result.code == NOT_FOUND:
            return None
        entries = log_entries(json.loads(result.out))
        return str(entries[0]["id"]) if entries else None

    def log(self, rev: str = "HEAD", *options: str) -> list[dict[str, Any]]:
        return log_entries(self.json("log", rev, *options))

    def tensors(self, rev: str, path: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
        """Every tensor of a revision by (file, name)."""
        listed = self.json("ls", rev, *([path] if path else []))
        return {(f["path"], t["name"]): t for f in listed["files"] for t in f.get("tensors") or []}

    def checkout(self, rev: str, to: Path, *options: str) -> Path:
        self.run("checkout", rev, "--to", to, *options)
        return to

    def fsck(self) -> Result:
        return self.run("fsck")


def log_entries(document: Any) -> list[dict[str, Any]]:
    """`log --json` as a list, whether it is a bare array or an object with `commits`; every entry gets an `id`."""
    entries = document["commits"] if isinstance(document, dict) else document
    return [{**e, "id": e.get("id") or e.get("commit")} for e in entries]


def tree_size(folder: Path, skip: Sequence[str] = ()) -> int:
    """Bytes of all files below a folder, hard links once, top-level entries left out on request."""
    seen: dict[tuple[int, int], int] = {}
    for base, dirs, files in os.walk(folder):
        if Path(base) == folder:
            dirs[:] = [name for name in dirs if name not in skip]
        for name in files:
            try:
                info = os.lstat(os.path.join(base, name))
            except FileNotFoundError:
                continue
            seen[(info.st_dev, info.st_ino)] = info.st_size
    return sum(seen.values())


def files_of(folder: Path) -> dict[str, Path]:
    """Every regular file below a folder by its relative path; a repository's own `.mdl` does not count."""
    return {
        str(path.relative_to(folder)): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] != ".mdl"
    }


def differences(left: Path, right: Path) -> list[str]:
    """What differs between two folders, byte for byte: an empty list means identical."""
    a, b = files_of(left), files_of(right)
    out = [f"only in {left.name}: {name}" for name in sorted(a.keys() - b.keys())]
    out += [f"only in {right.name}: {name}" for name in sorted(b.keys() - a.keys())]
    return out + [f"differs: {name}" for name in sorted(a.keys() & b.keys()) if not same_bytes(a[name], b[name])]


def same_bytes(left: Path, right: Path) -> bool:
    if left.stat().st_size != right.stat().st_size:
        return False
    with left.open("rb") as a, right.open("rb") as b:
        while chunk := a.read(1 << 20):
            if chunk != b.read(1 << 20):
                return False
    return True


def assert_same(left: Path, right: Path) -> None:
    assert files_of(left), f"{left} has no files, the comparison would say nothing"
    assert differences(left, right) == []


def copy_tree(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target
