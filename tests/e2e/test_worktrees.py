"""Work trees that share a store, from the command line, and checkouts that share their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import disks, makers
from support.cli import NOT_FOUND, USER, Mdl


def same(one: Path, other: Path) -> None:
    assert one.read_bytes() == other.read_bytes()


@pytest.fixture
def main(tmp_path: Path) -> Mdl:
    mdl = Mdl.init(tmp_path / "main")
    makers.noise(mdl.repo, 1 << 20, 1)
    mdl.run("commit", "-m", "one", "--step", "1")
    return mdl


def test_a_work_tree_from_its_making_to_its_removal(main: Mdl, tmp_path: Path) -> None:
    before = main.packed()
    made = main.json("worktree", "add", tmp_path / "side")
    assert (made["branch"], made["created"], made["written"]) == ("side", True, 1)
    same(tmp_path / "side" / "model.safetensors", main.repo / "model.safetensors")
    assert main.packed() == before
    side = Mdl(tmp_path / "side")
    makers.noise(side.repo, 1 << 20, 2)
    side.run("commit", "-m", "two", "--step", "2", cwd=side.repo, repo_flag=False)
    assert [e["step"] for e in main.log("side")] == [2, 1]
    assert main.json("status")["clean"]
    main.run("worktree", "list").names("main", "side")
    main.run("switch", "side", code=USER).complains("checked out in", str(side.repo))
    main.run("branch", "-D", "side", code=USER).complains("checked out in")
    main.run("worktree", "add", tmp_path / "again", "side", code=USER).complains("checked out in")
    assert not (tmp_path / "again").exists()
    (side.repo / "notes.txt").write_text("not committed")
    main.run("worktree", "remove", side.repo, code=USER).complains("notes.txt")
    side.run("commit", "-m", "three", cwd=side.repo, repo_flag=False)
    main.run("worktree", "remove", side.repo)
    assert not side.repo.exists()
    main.run("switch", "side")


def test_collections_keep_what_every_work_tree_is_on(main: Mdl, tmp_path: Path) -> None:
    main.run("worktree", "add", tmp_path / "look", "main", "--detach")
    look = Mdl(tmp_path / "look")
    makers.noise(look.repo, 1 << 20, 2)
    here = look.json("commit", "-m", "on no branch")["commit"]
    main.run("gc", "--prune-now")
    same(look.checkout(here, tmp_path / "out") / "model.safetensors", look.repo / "model.safetensors")
    # The other way round: the main work tree is on no branch, and the linked one collects.
    main.run("checkout", "HEAD~0")
    makers.noise(main.repo, 1 << 20, 3)
    there = main.json("commit", "-m", "on no branch either")["commit"]
    look.run("gc", "--prune-now")
    main.run("fsck")
    same(main.checkout(there, tmp_path / "out2") / "model.safetensors", main.repo / "model.safetensors")
    shutil.rmtree(look.repo)
    main.run("worktree", "list").names("prunable: its directory is gone")
    main.run("worktree", "lock", look.repo, "--reason", "on a disk")
    assert main.json("worktree", "prune")["pruned"] == []
    main.run("worktree", "unlock", look.repo)
    main.run("worktree", "prune", "--dry-run").names("Would forget")
    assert len(main.json("worktree", "prune")["pruned"]) == 1
    main.run("gc", "--prune-now")
    main.run("show", here, code=NOT_FOUND)


def test_linked_checkouts_share_their_files_and_never_the_store(main: Mdl, tmp_path: Path) -> None:
    first = main.json("checkout", "main", "--to", tmp_path / "a", "--link")
    second = main.json("checkout", "main", "--to", tmp_path / "b", "--link")
    assert (first["shared"], second["shared"]) == (0, 1)
    main.run("checkout", "main", "--link", code=2).complains("--to")
    victim = tmp_path / "a" / "model.safetensors"
    victim.chmod(0o644)
    victim.write_bytes(b"overwritten")
    main.run("fsck")
    main.run("checkout", "main", "--to", tmp_path / "c", "--link")
    same(tmp_path / "c" / "model.safetensors", main.repo / "model.safetensors")


@pytest.mark.parametrize(("kind", "mib"), [("btrfs", 160), ("xfs", 320)])
def test_reflinked_checkouts_cost_one_and_are_copied_on_write(kind: str, mib: int, tmp_path: Path) -> None:
    size = 8 << 20
    with disks.formatted(kind, tmp_path / "image", mib) as disk:
        mdl = Mdl.init(disk.root / "main")
        makers.noise(mdl.repo, size, 1)
        mdl.run("commit", "-m", "one")
        first = disk.root / "first"
        mdl.run("checkout", "main", "--to", first, "--link")
        whole = (first / "model.safetensors").read_bytes()
        subprocess.run(["sync", "-f", disk.root], check=True)
        before = shutil.disk_usage(disk.root).used
        for n in range(10):
            done = mdl.json("checkout", "main", "--to", disk.root / f"again-{n}", "--link")
            assert done["shared"] == 1
        subprocess.run(["sync", "-f", disk.root], check=True)
        assert shutil.disk_usage(disk.root).used - before < size
        # A reflink is a file of its own.
        files = [disk.root / f"again-{n}" / "model.safetensors" for n in range(10)]
        assert len({path.stat().st_ino for path in files}) == 10
        files[0].chmod(0o644)
        with files[0].open("r+b") as out:
            out.seek(size // 2)
            out.write(b"overwritten")
        assert all(path.read_bytes() == whole for path in [*files[1:], first / "model.safetensors"])
        same(mdl.repo / "model.safetensors", first / "model.safetensors")
        mdl.fsck()
        # The changed one is not taken for the version's.
        mdl.run("checkout", "main", "--to", disk.root / "last", "--link")
        assert (disk.root / "last" / "model.safetensors").read_bytes() == whole
