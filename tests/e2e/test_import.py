"""`mdl import`: histories of git-lfs, DVC, W&B, the Hub and runs' folders become versions, verified, and only once."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import makers
from support.cli import CORRUPT, NOT_FOUND, OK, USAGE, USER, Mdl, assert_same, copy_tree, files_of
from support.disks import cannot
from support.server import Server

GIT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *args: str, date: str = "1700000000 +0130") -> str:
    env = os.environ | GIT | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imported(mdl: Mdl, *args: str | Path, code: int = OK) -> Any:
    return mdl.json("import", *args, code=code)


def history(mdl: Mdl, branch: str = "main") -> list[dict[str, Any]]:
    """Oldest first."""
    return list(reversed(mdl.log(branch)))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


# A run's folder


def test_a_folder_of_checkpoints_in_the_order_of_steps(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    for step in (1000, 90, 500):
        folder = makers.write_small_checkpoint(source / f"checkpoint-{step}", step)
        log = [{"loss": 1 / step, "step": step}, {"eval_loss": 2 / step, "eval_runtime": 1.0, "step": step}]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": 0.5, "log_history": log}))
    (source / "runs").mkdir()
    (source / "runs" / "events").write_text("no tensors")
    (source / "tmp-checkpoint-2000").mkdir()
    (source / "tmp-checkpoint-2000" / "model.safetensors").write_text("half")
    planned = imported(mdl, source, "--dry-run")
    assert [v["step"] for v in planned["versions"]] == [90, 500, 1000]
    assert mdl.commit_id("main") is None
    report = imported(mdl, source)
    assert report["kind"] == "folder"
    assert [v["source"] for v in report["imported"]] == ["checkpoint-90", "checkpoint-500", "checkpoint-1000"]
    assert any("tmp-checkpoint-2000" in note for note in report["notes"])
    entries = history(mdl)
    assert [e["step"] for e in entries] == [90, 500, 1000]
    assert entries[0]["metrics"] == {"loss": 1 / 90, "eval_loss": 2 / 90}
    assert_same(source / "checkpoint-500", mdl.checkout("main@step=500", tmp_path / "out"))
    # Again: nothing; and a watch knows them as well.
    again = imported(mdl, source)
    assert (again["imported"], again["known"]) == ([], 3)
    mdl.run("watch", source, "--once", "--settle", "0")
    assert len(history(mdl)) == 3
    # What has other contents now is another version.
    makers.write_small_checkpoint(source / "checkpoint-500", 77)
    assert [v["source"] for v in imported(mdl, source)["imported"]] == ["checkpoint-500"]


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
    for wait in (0.05, 0.15, 0.3):
        process = subprocess.Popen(mdl.argv("import", lfs), stdout=subprocess.DEVNULL, env=mdl.environment())
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
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


def weights(seed: int, tmp_path: Path) -> bytes:
    folder = makers.write_small_checkpoint(tmp_path / f"weights-{seed}", seed)
    return (folder / "model.safetensors").read_bytes()


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


# W&B


def artifact(folder: Path, files: dict[str, bytes]) -> Path:
    contents = {}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        digest = base64.b64encode(hashlib.md5(data).digest()).decode()
        contents[name] = {"digest": digest, "size": len(data)}
    manifest = {"version": 1, "storagePolicy": "wandb-storage-policy-v1", "contents": contents}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_artifacts_of_wandb_by_their_versions(mdl: Mdl, tmp_path: Path) -> None:
    for n in (10, 9):
        artifact(tmp_path / "artifacts" / f"model:v{n}", {"model.safetensors": weights(n, tmp_path), "a/b.txt": b"b"})
    report = imported(mdl, tmp_path / "artifacts")
    assert report["kind"] == "wandb"
    assert [v["source"] for v in report["imported"]] == ["model:v9", "model:v10"]
    out = mdl.checkout("main", tmp_path / "out")
    assert (out / "model.safetensors").read_bytes() == weights(10, tmp_path)
    assert sorted(files_of(out)) == ["a/b.txt", "model.safetensors"]
    one = artifact(tmp_path / "one:v0", {"model.safetensors": weights(3, tmp_path)})
    (one / "model.safetensors").write_bytes(b"x")
    mdl.run("import", one, "--branch", "one", code=CORRUPT).complains("model.safetensors of one:v0 is damaged")
    # What is not beside the manifest may be in W&B's cache.
    oid = md5(weights(3, tmp_path))
    cached = tmp_path / "cache" / "obj" / "md5" / oid[:2] / oid[2:]
    cached.parent.mkdir(parents=True)
    cached.write_bytes(weights(3, tmp_path))
    (one / "model.safetensors").unlink()
    mdl.run("import", one, "--branch", "one", code=CORRUPT).complains("there is no model.safetensors")
    imported(mdl, one, "--branch", "one", "--cache", tmp_path / "cache")
    assert (mdl.checkout("one", tmp_path / "out1") / "model.safetensors").read_bytes() == weights(3, tmp_path)


# The Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Server, Mdl]]:
    origin = Mdl.init(tmp_path / "root" / "ada/gpt", "--bare")
    folder = tmp_path / "folder"
    for step in (1, 2, 3):
        makers.write_small_checkpoint(folder, step)
        (folder / "README.md").write_text(f"# version {step}\n")
        origin.commit(folder, f"version {step}", "--step", str(step))
    origin.run("tag", "v2", "main~1")
    with Server(tmp_path / "root") as server:
        yield server, origin


def test_a_model_of_a_hub_with_its_revisions(mdl: Mdl, hub: tuple[Server, Mdl], tmp_path: Path) -> None:
    server, origin = hub
    report = imported(mdl, "ada/gpt", "--endpoint", server.url)
    assert (report["kind"], len(report["imported"]), report["tags"]) == ("hub", 3, ["v2"])
    assert [e["message"] for e in history(mdl)] == ["version 1", "version 2", "version 3"]
    for rev in ("main", "v2", "main~2"):
        ours = mdl.checkout(rev, tmp_path / f"ours-{rev}")
        assert_same(origin.checkout(rev, tmp_path / f"theirs-{rev}"), ours)
    assert not (mdl.store / "import").exists()
    # By URL, and by HF_ENDPOINT, it is the same.
    assert imported(mdl, f"{server.url}/ada/gpt")["known"] == 3
    known = mdl.json("import", "ada/gpt", env={"HF_ENDPOINT": server.url})["known"]
    assert known == 3
    mdl.run("import", "ada/none", "--endpoint", server.url, code=NOT_FOUND).complains("ada/none")


def test_a_hubs_download_goes_on_after_a_kill(mdl: Mdl, hub: tuple[Server, Mdl], tmp_path: Path) -> None:
    """What a killed run left in its directory is used if it is whole, gone on with, or thrown away if it is wrong."""
    server, origin = hub
    first = origin.checkout("main~2", tmp_path / "first")
    data = (first / "model.safetensors").read_bytes()
    own = sha256(b"ada/gpt")[:16]
    scratch = mdl.store / "import" / own
    scratch.mkdir(parents=True)
    (scratch / f"{sha256(data)}.part").write_bytes(data[: len(data) // 2])
    imported(mdl, "ada/gpt", "--endpoint", server.url)
    other = Mdl.init(tmp_path / "other")
    (other.store / "import" / own).mkdir(parents=True)
    (other.store / "import" / own / f"{sha256(data)}.part").write_bytes(b"wrong" + data[5 : len(data) // 2])
    imported(other, "ada/gpt", "--endpoint", server.url)
    for repo in (mdl, other):
        assert_same(first, repo.checkout("main~2", tmp_path / f"out-{repo.repo.name}"))


def test_the_cache_of_huggingface_hub(mdl: Mdl, tmp_path: Path) -> None:
    cache = tmp_path / "models--ada--gpt"
    (cache / "blobs").mkdir(parents=True)
    (cache / "refs").mkdir()
    revisions = ["a" * 40, "b" * 40]
    for n, revision in enumerate(revisions):
        snapshot = cache / "snapshots" / revision
        snapshot.mkdir(parents=True)
        text = f"# {n}\n".encode()
        blob = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        for name, oid, data in (
            ("model.safetensors", sha256(weights(n, tmp_path)), weights(n, tmp_path)),
            ("README.md", blob, text),
        ):
            (cache / "blobs" / oid).write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{oid}")
    (cache / "refs" / "main").write_text(revisions[0])
    report = imported(mdl, cache)
    assert report["kind"] == "hub-cache"
    # What main is comes last.
    assert [v["source"] for v in report["imported"]] == [revisions[1], revisions[0]]
    assert (mdl.checkout("main", tmp_path / "out") / "README.md").read_text() == "# 0\n"
    (cache / "blobs" / sha256(weights(1, tmp_path))).write_bytes(b"x")
    mdl.run("import", cache, "--branch", "again", code=CORRUPT).complains("model.safetensors is damaged")


def test_what_cannot_be_imported_is_said(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    mdl.run("import", tmp_path / "nothing", code=NOT_FOUND).complains("nothing")
    mdl.run("import", source, "--from", "git-lfs", code=USER).complains("git")
    mdl.run("import", source, "--from", "svn", code=USAGE)
    mdl.run("import", source, "--revision", "main", code=USAGE).complains("--revision", "folder")
    mdl.run("import", source, "--from", "wandb", code=USER).complains("no artifact")
    assert imported(mdl, source)["imported"] == []
