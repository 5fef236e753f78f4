"""`mdl import` of git repositories: git-lfs, plain git and DVC, verified, and only once; nothing of theirs is run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from support import makers
from support.cli import CORRUPT, USER, Mdl, assert_same, copy_tree, files_of
from support.disks import cannot
from support.imports import git, history, imported, md5, sha256, weights

# git-lfs


@pytest.fixture
def lfs(tmp_path: Path) -> Path:
    """Three commits on main, two tags, pointers and plain files."""
    if subprocess.run(["git", "lfs", "version"], capture_output=True, check=False).returncode != 0:
        cannot("git-lfs is missing (Debian package git-lfs)")
    repo = tmp_path / "lfs"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "lfs", "install", "--local")
    git(repo, "lfs", "track", "*.safetensors")
    for n, message in enumerate(("first\n\nwith a body", "second", "third")):
        makers.write_small_checkpoint(repo / "model", n)
        (repo / "run.sh").write_text("#!/bin/sh\n")
        (repo / "run.sh").chmod(0o755)
        (repo / "link").unlink(missing_ok=True)
        (repo / "link").symlink_to("run.sh")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", message, date=f"{1700000000 + n} +0130")
    git(repo, "tag", "v1", "HEAD~1")
    git(repo, "tag", "-a", "v2", "-m", "annotated")
    return repo


def test_a_git_lfs_repository_with_authors_dates_and_tags(mdl: Mdl, lfs: Path, tmp_path: Path) -> None:
    report = imported(mdl, lfs)
    assert report["kind"] == "git-lfs"
    assert len(report["imported"]) == 3
    assert report["tags"] == ["v1", "v2"]
    assert any("links" in note for note in report["notes"])
    first, second, third = history(mdl)
    assert first["message"] == "first\n\nwith a body"
    assert first["author"] == {"name": "Ada", "email": "ada@example.org"}
    assert first["date"] == "2023-11-14T23:43:20.000+01:30"
    assert third["meta"]["imported"] == f"git-lfs {git(lfs, 'rev-parse', 'HEAD')}"
    assert mdl.commit_id("v1") == second["id"]
    out = mdl.checkout("main", tmp_path / "out")
    (lfs / "link").unlink()
    for name, path in files_of(out).items():
        assert path.read_bytes() == (lfs / name).read_bytes(), name
    assert os.access(out / "run.sh", os.X_OK)
    assert report["source_bytes"] < report["logical_bytes"]
    assert report["stored_bytes"] < report["source_bytes"]
    # What is there already stays; what is new comes on top.
    makers.write_small_checkpoint(lfs / "model", 9)
    git(lfs, "add", "-A")
    git(lfs, "commit", "-q", "-m", "fourth")
    again = imported(mdl, lfs)
    assert (len(again["imported"]), again["known"]) == (1, 3)
    assert imported(mdl, lfs, "--branch", "other", "--revision", "v1")["imported"][-1]["source"] == git(
        lfs, "rev-parse", "v1"
    )
    mdl.fsck()


def objects(lfs: Path) -> list[Path]:
    return sorted(p for p in (lfs / ".git" / "lfs" / "objects").rglob("*") if p.is_file())


def test_damaged_and_missing_objects_of_git_lfs_are_named(mdl: Mdl, lfs: Path) -> None:
    last = git(lfs, "cat-file", "-p", "HEAD:model/model.safetensors").split("sha256:")[1].split()[0]
    path = next(p for p in objects(lfs) if p.name == last)
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    mdl.run("import", lfs, code=CORRUPT).complains("model/model.safetensors", "damaged", last)
    # What came before it is imported, and stays.
    assert [e["message"].split("\n")[0] for e in history(mdl)] == ["first", "second"]
    path.unlink()
    mdl.run("import", lfs, code=CORRUPT).complains("has not fetched", "git lfs fetch --all")
    path.write_bytes(data)
    assert len(imported(mdl, lfs)["imported"]) == 1
    assert len(history(mdl)) == 3


def test_a_kill_at_any_time_imports_nothing_twice(mdl: Mdl, lfs: Path, tmp_path: Path) -> None:
    for n in range(3, 12):
        makers.write_small_checkpoint(lfs / "model", n)
        git(lfs, "add", "-A")
        git(lfs, "commit", "-q", "-m", f"number {n}")
    for wanted in (1, 4, 8):
        # It says what it has imported, line by line: the kill falls into the one that follows.
        with subprocess.Popen(mdl.argv("import", lfs), stdout=subprocess.PIPE, env=mdl.environment()) as process:
            assert process.stdout is not None
            while mdl.commit_id("main") is None or len(history(mdl)) < wanted:
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert wanted <= len(history(mdl)) < 12
    imported(mdl, lfs)
    marks = [e["meta"]["imported"].split()[1] for e in history(mdl)]
    assert marks == git(lfs, "rev-list", "--reverse", "--first-parent", "HEAD").splitlines()
    assert not (mdl.store / "import").exists()
    mdl.fsck()


def test_git_without_lfs_and_without_a_work_tree(mdl: Mdl, tmp_path: Path) -> None:
    repo = tmp_path / "plain"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    makers.write_small_checkpoint(repo, 1)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "one")
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    assert imported(mdl, tmp_path / "bare.git")["kind"] == "git-lfs"
    shutil.rmtree(repo / ".git")
    assert_same(repo, mdl.checkout("main", tmp_path / "out"))


def plain(folder: Path, *messages: str) -> Path:
    """A git repository without git-lfs."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for n, message in enumerate(messages):
        makers.write_small_checkpoint(folder, n)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty-message", "-m", message)
    return folder


def test_no_command_that_a_repository_names_is_run(mdl: Mdl, tmp_path: Path) -> None:
    repo = plain(tmp_path / "evil", "one")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    trap.chmod(0o755)
    blob = git(repo, "rev-parse", "HEAD:model.safetensors")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(repo)),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", str(trap)),
        ("protocol.file.allow", "always"),
        ("core.fsmonitor", str(trap)),
        ("core.sshCommand", str(trap)),
    ):
        git(repo, "config", key, value)
    done = mdl.run("import", repo, code=(CORRUPT, USER))
    assert not (tmp_path / "ran").exists(), done


def test_a_hooks_environment_names_no_other_repository(mdl: Mdl, tmp_path: Path) -> None:
    ours, other = plain(tmp_path / "ours", "ours"), plain(tmp_path / "other", "other")
    inside = {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / ".git/index")}
    mdl.run("import", ours, env=inside)
    assert [e["message"] for e in history(mdl)] == ["ours"]


@pytest.mark.parametrize("date", ["1700000000 +9959", "9000000000000000 +0000"])
def test_odd_dates_and_empty_messages_of_git(mdl: Mdl, tmp_path: Path, date: str) -> None:
    repo = plain(tmp_path / "plain", "")
    raw = git(repo, "cat-file", "commit", "HEAD").replace("1700000000 +0130", date) + "\n\n"
    (tmp_path / "raw").write_text(raw)
    odd = git(repo, "hash-object", "-t", "commit", "-w", "--literally", str(tmp_path / "raw"))
    git(repo, "update-ref", "refs/heads/main", odd)
    imported(mdl, repo)
    (entry,) = history(mdl)
    datetime.fromisoformat(entry["date"])
    assert entry["author"]["name"] == "Ada"
    assert entry["message"] == f"revision {git(repo, 'rev-parse', 'HEAD')[:10]}"


def test_what_is_wrong_in_the_scratch_directory_is_made_anew(mdl: Mdl, tmp_path: Path) -> None:
    """A power cut leaves an empty file under a name that says what is in it."""
    repo = plain(tmp_path / "plain", "one", "two")
    scratch = mdl.store / "import" / sha256(str(repo).encode())[:16]
    scratch.mkdir(parents=True)
    for revision in ("HEAD", "HEAD~1"):
        (scratch / git(repo, "rev-parse", f"{revision}:model.safetensors")).write_bytes(b"")
    assert len(imported(mdl, repo)["imported"]) == 2
    shutil.rmtree(repo / ".git")
    assert_same(repo, mdl.checkout("main", tmp_path / "out"))


def test_what_an_import_left_for_good_is_collected(mdl: Mdl) -> None:
    old, young = (mdl.store / "import" / name for name in ("0" * 16, "1" * 16))
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "blob.part").write_bytes(bytes(1 << 20))
    for path in (old / "blob.part", old):
        os.utime(path, (1, 1))
    assert mdl.json("gc", "--dry-run")["abandoned_bytes"] == 1 << 20
    assert old.exists()
    # What may be under way has its time of grace, whatever is said.
    assert mdl.json("gc", "--prune-now")["abandoned_bytes"] == 1 << 20
    assert not old.exists()
    assert young.exists()


# DVC


class Dvc:
    """A repository as DVC 3 leaves it (`files/md5`), or DVC 2 (`old`)."""

    def __init__(self, repo: Path, old: bool = False) -> None:
        self.repo, self.old = repo, old
        (repo / ".dvc").mkdir(parents=True)
        (repo / ".dvc" / "config").write_text("[core]\n    autostage = true\n")
        git(repo, "init", "-q", "-b", "main")

    def keep(self, data: bytes, suffix: str = "", known_as: str | None = None) -> str:
        name = known_as or md5(data)
        cache = self.repo / ".dvc" / "cache" / ("" if self.old else "files/md5")
        (cache / name[:2]).mkdir(parents=True, exist_ok=True)
        (cache / name[:2] / (name[2:] + suffix)).write_bytes(data)
        return name + suffix

    def track(self, path: str, data: bytes, known_as: str | None = None) -> None:
        self.write(path, self.keep(data, known_as=known_as), len(data))

    def track_folder(self, path: str, files: dict[str, bytes]) -> None:
        listing = [{"md5": self.keep(data), "relpath": rel} for rel, data in sorted(files.items())]
        self.write(path, self.keep(json.dumps(listing).encode(), ".dir"), sum(map(len, files.values())))

    def write(self, path: str, oid: str, size: int) -> None:
        name = self.repo / f"{path}.dvc"
        name.parent.mkdir(parents=True, exist_ok=True)
        how = "" if self.old else "  hash: md5\n"
        name.write_text(f"outs:\n- md5: {oid}\n  size: {size}\n{how}  path: {Path(path).name}\n")

    def commit(self, message: str) -> None:
        git(self.repo, "add", "--all", "--", ":!.dvc/cache")
        git(self.repo, "commit", "-q", "-m", message)


@pytest.mark.parametrize("old", [False, True], ids=["dvc 3", "dvc 2"])
def test_a_dvc_repository_from_its_cache(mdl: Mdl, tmp_path: Path, old: bool) -> None:
    dvc = Dvc(tmp_path / "dvc", old)
    one, two = weights(1, tmp_path), weights(2, tmp_path)
    dvc.track("models/model.safetensors", one)
    dvc.track_folder("data", {"a.txt": b"a\n", "deep/b.txt": b"b\n"})
    dvc.commit("first")
    (dvc.repo / "train.py").write_text("print()\n")
    dvc.commit("only code")
    dvc.track("models/model.safetensors", two)
    lock = f"schema: '2.0'\nstages:\n  eval:\n    cmd: x\n    outs:\n    - path: m.json\n      md5: {dvc.keep(b'{}')}\n"
    (dvc.repo / "dvc.lock").write_text(lock)
    dvc.commit("second")
    report = imported(mdl, dvc.repo)
    assert report["kind"] == "dvc"
    assert [e["message"] for e in history(mdl)] == ["first", "second"]
    out = mdl.checkout("main~1", tmp_path / "first")
    assert {n: p.read_bytes() for n, p in files_of(out).items()} == {
        "models/model.safetensors": one,
        "data/a.txt": b"a\n",
        "data/deep/b.txt": b"b\n",
    }
    out = mdl.checkout("main", tmp_path / "second")
    assert (out / "models" / "model.safetensors").read_bytes() == two
    assert (out / "m.json").read_bytes() == b"{}"
    assert imported(mdl, dvc.repo)["known"] == 2


def test_dvcs_ids_are_verified_and_its_cache_may_be_elsewhere(mdl: Mdl, tmp_path: Path) -> None:
    dvc = Dvc(tmp_path / "dvc")
    dvc.track("model.safetensors", weights(1, tmp_path))
    dvc.commit("first")
    elsewhere = tmp_path / "shared"
    (dvc.repo / ".dvc" / "cache").rename(elsewhere)
    mdl.run("import", dvc.repo, code=CORRUPT).complains("cache does not have model.safetensors", "dvc fetch")
    assert len(imported(mdl, dvc.repo, "--cache", elsewhere)["imported"]) == 1
    (dvc.repo / ".dvc" / "config.local").write_text("[cache]\n    dir = ../../shared\n")
    dvc.track("model.safetensors", b"other")
    dvc.commit("second")
    copy_tree(dvc.repo / ".dvc" / "cache", elsewhere)
    oid = md5(b"other")
    (elsewhere / "files" / "md5" / oid[:2] / oid[2:]).write_bytes(b"forged")
    mdl.run("import", dvc.repo, code=CORRUPT).complains("model.safetensors is damaged", oid)


def test_texts_of_older_dvc_go_by_unix_lines(mdl: Mdl, tmp_path: Path) -> None:
    dvc = Dvc(tmp_path / "dvc", old=True)
    dvc.track("notes.txt", b"one\r\ntwo\r\n", known_as=md5(b"one\ntwo\n"))
    dvc.commit("first")
    imported(mdl, dvc.repo)
    assert (mdl.checkout("main", tmp_path / "out") / "notes.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_listing_that_leads_outside_is_refused(mdl: Mdl, tmp_path: Path) -> None:
    dvc = Dvc(tmp_path / "dvc")
    dvc.track_folder("data", {"../../etc/passwd": b"x"})
    dvc.commit("first")
    mdl.run("import", dvc.repo, code=CORRUPT).complains("../../etc/passwd")
