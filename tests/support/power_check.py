"""Checks a repository after a power cut: old or new state, never torn, and the next commands work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .cli import Mdl, files_of

TOLD = ("HEAD", "refs/", "config", "pruned", "shards/")
"""What a store states: of the rest contents are restored, and logs, locks, and what is on its way state nothing."""

Files = dict[str, bytes]


def contents(folder: Path) -> Files:
    """The files of a directory or work tree but for the temporary ones of a checkout that was cut off."""
    found = {} if not folder.is_dir() else files_of(folder)
    ours = [name for name in found if any(part.startswith(".mdl-") for part in Path(name).parts)]
    return {name: path.read_bytes() for name, path in found.items() if name not in ours}


@dataclass(frozen=True)
class Told:
    """What a repository says at one moment: refs, HEAD, settings, prunings and records by name; its work tree."""

    there: bool
    facts: Files = field(default_factory=dict)
    files: Files = field(default_factory=dict)

    @classmethod
    def by(cls, mdl: Mdl, beside: Sequence[Path] = ()) -> Told:
        """`beside`: further directories whose files count."""
        files = {f"{f.name}//{name}": data for f in beside for name, data in contents(f).items()}
        store = mdl.store
        if not (store / "HEAD").exists() or not (store / "format").exists():
            return cls(False, {}, files)
        facts = {
            name: path.read_bytes()
            for path in sorted(store.rglob("*"))
            if path.is_file() and (name := str(path.relative_to(store))).startswith(TOLD)
        }
        return cls(True, facts, files | (contents(mdl.repo) if store != mdl.repo else {}))

    @property
    def refs(self) -> list[str]:
        return [name for name in self.facts if name.startswith("refs/")]


def among(what: str, now: Files, moments: Sequence[Files], skip: Iterable[str] = ()) -> list[str]:
    """What is neither as it was at one of the moments nor absent where it was absent then."""
    out = []
    for name in sorted(set(now).union(*moments) - set(skip)):
        values = [m.get(name) for m in moments]
        if now.get(name) not in values:
            have, were = now.get(name), ", ".join(brief(v) for v in values)
            out.append(f"{what} {name} is {brief(have)}; it was {were}")
    return out


def brief(data: bytes | None) -> str:
    if data is None:
        return "absent"
    zeros = data.count(0)
    shown = (
        repr(data[:70]) if len(data) <= 70 else f"{len(data)} bytes, {zeros} of them zero, {hash(data) & 0xFFFF:04x}"
    )
    return "empty" if not data else shown


class Versions:
    """Bytes of every commit, known from the folders they were committed from and never from what was cut."""

    def __init__(self, folders: Sequence[Path], scratch: Path) -> None:
        self.known: dict[str, Files] = {}
        self.folders, self.scratch = folders, scratch

    def restored(self, mdl: Mdl, rev: str) -> Files:
        shutil.rmtree(self.scratch, ignore_errors=True)
        mdl.run("checkout", rev, "--to", self.scratch)
        return contents(self.scratch)

    def learn(self, mdl: Mdl, allowed: Sequence[Files]) -> None:
        """New commits of a repository before any cut; each must be one of the folders, or what a test put together."""
        wanted = [*(contents(f) for f in self.folders), *allowed]
        for commit in reachable(mdl, Told.by(mdl)):
            if commit not in self.known:
                files = self.restored(mdl, commit)
                assert files in wanted, f"{commit} has other bytes than any folder: {sorted(files)}"
                self.known[commit] = files


def reachable(mdl: Mdl, told: Told) -> list[str]:
    """All commits that a ref leads to, or HEAD where it is on none."""
    head = [] if told.facts["HEAD"].startswith(b"ref: ") else ["HEAD"]
    out: dict[str, None] = {}
    for name in [*told.refs, *head]:
        out |= dict.fromkeys(str(entry["id"]) for entry in mdl.log(name))
    return list(out)


@dataclass(frozen=True)
class Expected:
    """What was acknowledged before the cut, first, and whatever was under way."""

    moments: Sequence[Told]
    loose: frozenset[str]
    """Files that another program wrote and did not sync."""
    gone: bool
    """Whether a version may have lost its contents."""


def findings(mdl: Mdl, versions: Versions, expected: Expected, beside: Sequence[Path] = ()) -> list[str]:
    """Everything that is wrong with a repository after a cut; it is looked at, and not changed."""
    told = Told.by(mdl, beside)
    moments = expected.moments
    out = among("file", told.files, [m.files for m in moments], expected.loose)
    if not told.there:
        return out + ["there is no repository any more"] * all(m.there for m in moments)
    # Until a clone or an init is over, its settings and HEAD may be those of an empty repository.
    early = [] if moments[0].there else ["config", "HEAD"]
    # A session is decided on before it is settled.
    if len(moments) > 1:
        early += [name for name in told.facts if name.startswith("shards/") and name.endswith("/state")]
    out += among("fact", told.facts, [m.facts for m in moments], early)
    if moments[0].there and told.facts == moments[-1].facts != moments[0].facts:
        tree = {name: data for name, data in told.files.items() if "//" not in name}
        new = {name: data for name, data in moments[-1].files.items() if "//" not in name}
        out += among("HEAD or a branch moved before file", tree, [new], expected.loose)
    for looked in (("fsck",), ("reflog",)):
        done = mdl.run(*looked, code=tuple(range(7)))
        out += [] if done.code == 0 else [f"{looked[0]}: {done}"]
    lost = lost_versions(mdl, told, versions, expected.gone)
    out += lost or untrue_status(mdl, told, versions, beside)
    return out


def lost_versions(mdl: Mdl, told: Told, versions: Versions, gone: bool) -> list[str]:
    """Versions that a ref leads to and that do not come back bit for bit."""
    out = []
    try:
        ids = reachable(mdl, told)
    except AssertionError as error:
        return [f"history cannot be listed: {error}"]
    pruned = {str(e["id"]) for name in told.refs for e in mdl.log(name) if e["pruned"]} if gone else set()
    for commit in ids:
        if commit in pruned:
            continue
        try:
            if commit not in versions.known:
                out.append(f"{commit} is no commit that was made")
            elif versions.restored(mdl, commit) != versions.known[commit]:
                out.append(f"{commit} comes back with other bytes")
        except AssertionError as error:
            out.append(f"{commit} does not come back: {error}")
    return out


def untrue_status(mdl: Mdl, told: Told, versions: Versions, beside: Sequence[Path]) -> list[str]:
    """`status` against the bytes: a file that was lost must not pass for one that is committed."""
    if mdl.store == mdl.repo:
        return []
    done = mdl.run("--json", "status", code=tuple(range(7)))
    if done.code != 0:
        return [f"status: {done}"]
    status = json.loads(done.out)
    base = versions.known.get(status["files_of"], {})
    here = contents(mdl.repo)
    want = {name for name in base.keys() | here.keys() if base.get(name) != here.get(name)}
    said = {f["path"] for f in status["files"]}
    return (
        []
        if want == said
        else [f"status says {sorted(said)} differ from {status['files_of']}, and it is {sorted(want)}"]
    )


def works_on(mdl: Mdl, versions: Versions, folder: Path) -> list[str]:
    """The next commands: leftovers of what was cut off block nothing, and a collection takes them away."""
    try:
        # A half-written first checkout of a partial clone is of no version, and its commit is refused.
        if mdl.store != mdl.repo and contents(mdl.repo) and mdl.json("status")["files_of"]:
            # What is left of another program's files may be damaged.
            mdl.run("commit", "-m", "the work tree", "--allow-empty", "--allow-damaged")
            if not mdl.json("status")["clean"]:
                return ["the work tree is not clean after a commit of it"]
        mdl.commit(folder, "after the cut", "--allow-empty", "--branch", "after-the-cut")
        if versions.restored(mdl, "after-the-cut") != contents(folder):
            return ["a commit after the cut comes back with other bytes"]
        if mdl.store != mdl.repo:
            mdl.run("checkout", "after-the-cut", "--force")
            here = contents(mdl.repo)
            if any(here.get(name) != data for name, data in contents(folder).items()):
                return ["a checkout after the cut leaves other bytes"]
        mdl.run("gc", "--prune-now")
        left = [name for name in files_of(mdl.store) if name.startswith("tmp/")]
        if left:
            return [f"a collection leaves {left}"]
        mdl.fsck()
    except AssertionError as error:
        return [f"after the cut: {error}"]
    return []
