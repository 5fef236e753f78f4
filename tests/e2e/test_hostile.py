"""Hostile names, trees and files: a clear message, never a panic, wrong bytes or a write outside."""

from __future__ import annotations

import os
import resource
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import makers, scale
from support.cli import CORRUPT, IO, NOT_FOUND, OK, USAGE, USER, Mdl, assert_same, binary, files_of

FLIPS, CUTS = scale.rounds(8, 30), scale.rounds(6, 20)
MEMORY = 1 << 30
"""The data segment that mdl may use on a small repository (address space would count memory maps too)."""


def test_symlinks_are_refused(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside\n")
    (source / "ok.txt").write_text("inside\n")
    (source / "link.txt").symlink_to(tmp_path / "secret")
    mdl.run("commit", source, "-m", "x", code=USER).complains("link.txt")
    assert mdl.commit_id("main") is None


def test_symlinked_folders_are_refused(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("outside\n")
    (source / "ok.txt").write_text("inside\n")
    (source / "folder").symlink_to(tmp_path / "elsewhere")
    mdl.run("commit", source, "-m", "x", code=USER).complains("folder")


def test_special_files_are_refused(mdl: Mdl, source: Path) -> None:
    (source / "ok.txt").write_text("inside\n")
    os.mkfifo(source / "pipe")
    mdl.run("commit", source, "-m", "x", code=USER).complains("pipe")


def test_names_that_are_not_utf_8_are_refused(mdl: Mdl, source: Path) -> None:
    (source / "ok.txt").write_text("inside\n")
    with open(os.fsencode(source) + b"/bad\xff.bin", "wb") as file:
        file.write(b"x")
    mdl.run("commit", source, "-m", "x", code=USER).complains("bad", "utf-8")


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "a/../../b", ".mdl/refs/heads/main"])
def test_paths_in_a_revision_cannot_leave_the_tree(path: str, small: Mdl) -> None:
    small.run("ls", "main", path, code=(USER, USAGE, NOT_FOUND)).complains()
    small.run("cat", f"main:{path}", "x", code=(USER, USAGE, NOT_FOUND)).complains()


def test_checkout_does_not_write_through_symlinks(small: Mdl, tmp_path: Path) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "notes").symlink_to(outside)
    small.run("checkout", "main", "--to", out, code=(OK, USER, 4))
    assert list(outside.iterdir()) == []
    small.run("checkout", "main", "--to", out, "--force", code=(OK, USER, 4))
    assert list(outside.iterdir()) == []


def test_checkout_does_not_write_through_a_symlinked_file(small: Mdl, tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine\n")
    out.mkdir()
    (out / "config.json").symlink_to(victim)
    small.run("checkout", "main", "--to", out, "--force", code=(OK, USER, 4))
    assert victim.read_text() == "mine\n"


def test_repository_folder_is_never_committed_or_overwritten(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """A nested `.mdl` in what is committed is left out or refused: a checkout must not plant a repository's insides."""
    (source / "sub" / ".mdl").mkdir(parents=True)
    (source / "sub" / ".mdl" / "config.toml").write_text("planted = true\n")
    (source / "ok.txt").write_text("inside\n")
    if mdl.run("commit", source, "-m", "x", code=(OK, USER)).code == OK:
        out = mdl.checkout("main", tmp_path / "out")
        assert (out / "ok.txt").is_file()
        assert not list(out.rglob(".mdl"))


@pytest.mark.parametrize("name", sorted(makers.hostile_files()))
def test_lying_checkpoint_files(name: str, mdl: Mdl, source: Path, tmp_path: Path) -> None:
    """Refused with a message that names the file; on request kept as plain bytes, and then byte-identical."""
    makers.make_folder(source, {name: makers.hostile_files()[name]})
    mdl.run("commit", source, "-m", "x", code=(USER, CORRUPT), prefix=limited()).complains(name)
    assert mdl.commit_id("main") is None
    mdl.run("commit", source, "-m", "x", "--allow-damaged", prefix=limited())
    assert mdl.tensors("main") == {}
    assert_same(source, mdl.checkout("main", tmp_path / "out"))


def limited() -> list[str]:
    """A prefix that caps the data segment, so that an absurd allocation fails the test and not the machine."""
    return ["prlimit", f"--data={MEMORY}"] if resource.getrlimit(resource.RLIMIT_DATA)[0] < 0 else []


def hostile_pickles() -> dict[str, bytes]:
    """Pickles that would run code, name absurd sizes or never end, inside a torch archive."""
    run = b"\x80\x02cos\nmkdir\nX\x05\x00\x00\x00pwned\x85R."
    huge = b"\x80\x02X\xff\xff\xff\x7fabc."
    deep = b"\x80\x02" + b"(" * 200_000 + b"."
    memo = b"\x80\x02]q\x00" + b"h\x00a" * 50_000 + b"."
    return {"run": run, "huge": huge, "deep": deep, "memo": memo, "empty": b"", "no_stop": b"\x80\x02]q\x00"}


@pytest.mark.parametrize("kind", sorted(hostile_pickles()))
def test_hostile_pickles(kind: str, mdl: Mdl, source: Path, tmp_path: Path) -> None:
    raw = hostile_pickles()[kind]
    with zipfile.ZipFile(source / "x.pt", "w") as archive:
        makers.zip_member(archive, "archive/data.pkl", raw)
        makers.zip_member(archive, "archive/data/0", bytes(64))
        makers.zip_member(archive, "archive/version", b"3\n")
    result = mdl.run("commit", source, "-m", "x", code=(OK, USER, CORRUPT), prefix=limited())
    assert "panicked" not in result.err
    assert not (mdl.repo / "pwned").exists(), "the pickle was executed"
    if result.code == OK:
        assert_same(source, mdl.checkout("main", tmp_path / "out"))


# --- a damaged repository --------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(mdl: Mdl, source: Path) -> tuple[Mdl, Path]:
    """One commit of one small file; its pack is a few KiB."""
    makers.write_small_checkpoint(source, 1, layers=1, width=16)
    mdl.commit(source, "tiny")
    return mdl, source


def packs(mdl: Mdl) -> list[Path]:
    found = list(files_of(mdl.store / "packs").values())
    assert found, "no pack to damage"
    return found


def damaged_run(mdl: Mdl, source: Path, out: Path, what: str) -> bool:
    """A checkout from a damaged repository: the right bytes, or an error and no wrong file. True if it noticed."""
    result = mdl.run("checkout", "main", "--to", out, code=(OK, USER, NOT_FOUND, CORRUPT, IO), prefix=limited())
    assert "panicked" not in result.err, f"{what}\n{result}"
    if result.code == OK:
        assert_same(source, out)
        return False
    for name, path in files_of(out).items() if out.is_dir() else ():
        assert path.read_bytes() == (source / name).read_bytes(), f"{what}: {name} has wrong bytes after an error"
    return True


def test_pack_with_flipped_bits(tiny: tuple[Mdl, Path], tmp_path: Path) -> None:
    """A sample of single-bit flips over every pack (the Rust tests try all): noticed by fsck or without effect."""
    mdl, source = tiny
    noticed = 0
    for pack in packs(mdl):
        good = pack.read_bytes()
        rng = np.random.default_rng(len(good))
        for k, at in enumerate(sorted({0, len(good) - 1, *map(int, rng.integers(0, len(good), FLIPS))})):
            bad = bytearray(good)
            bad[at] ^= 1 << int(rng.integers(8))
            rewrite(pack, bytes(bad))
            fsck = mdl.run("fsck", code=(OK, CORRUPT))
            seen = damaged_run(mdl, source, tmp_path / f"{pack.name}-{k}", f"bit flip at {at} of {len(good)}")
            assert fsck.code == CORRUPT, f"fsck did not see the flipped bit at {at} of {len(good)}"
            noticed += seen
        rewrite(pack, good)
    assert noticed, "no checkout noticed any flipped bit"
    mdl.fsck()


def test_truncated_pack(tiny: tuple[Mdl, Path], tmp_path: Path) -> None:
    mdl, source = tiny
    pack = max(packs(mdl), key=lambda p: p.stat().st_size)
    good = pack.read_bytes()
    for length in sorted({0, 1, 7, len(good) // 2, len(good) - 1, *range(0, len(good), max(1, len(good) // CUTS))}):
        rewrite(pack, good[:length])
        mdl.run("fsck", code=CORRUPT).names(pack.name)
        damaged_run(mdl, source, tmp_path / str(length), f"truncated to {length} of {len(good)}")
    rewrite(pack, good)
    mdl.fsck()


def test_missing_pack_is_named(tiny: tuple[Mdl, Path], tmp_path: Path) -> None:
    mdl, source = tiny
    pack = max(packs(mdl), key=lambda p: p.stat().st_size)
    pack.unlink()
    mdl.run("fsck", code=CORRUPT).names("missing", "refs/heads/main")
    assert damaged_run(mdl, source, tmp_path / "out", "missing pack")


def test_fsck_names_the_affected_commit_file_and_tensor(small: Mdl) -> None:
    """A flip in the middle of the largest pack hits tensor data: the report says whose."""
    pack = max(packs(small), key=lambda p: p.stat().st_size)
    raw = bytearray(pack.read_bytes())
    raw[len(raw) // 2] ^= 1
    rewrite(pack, bytes(raw))
    result = small.run("fsck", code=CORRUPT)
    text = result.out + result.err
    assert "model.safetensors" in text
    assert "layers." in text


def test_damaged_refs(tiny: tuple[Mdl, Path]) -> None:
    mdl, _ = tiny
    ref = mdl.store / "refs" / "heads" / "main"
    good = ref.read_bytes()
    for bad in (b"", b"garbage\n", good[:20], b"\0" * len(good), b"0" * 64 + b"\n", b"../../x\n", good * 1000):
        ref.write_bytes(bad)
        mdl.run("log", "main", code=(USER, NOT_FOUND, CORRUPT)).complains()
        mdl.run("fsck", code=CORRUPT).names("refs/heads/main")
    ref.write_bytes(good)
    mdl.fsck()


def rewrite(path: Path, data: bytes) -> None:
    """Replaces a file's bytes, read-only or not."""
    os.chmod(path, 0o644)
    path.write_bytes(data)


def test_help_never_fails() -> None:
    done = subprocess.run([str(binary()), "--help"], capture_output=True, text=True, check=True)
    assert "commit" in done.stdout
