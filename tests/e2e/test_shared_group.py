"""A repository that a group of users writes to (`mdl init --shared`), tested as separate users."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from support.cli import binary

GROUP, ADA, BOB, STRANGER = 62_000, 62_001, 62_002, 62_003

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be other users, by setpriv"
)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A directory that both may write to; every directory above lets them in."""
    for above in [tmp_path, *tmp_path.parents][:4]:
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(0o755)
    shutil.copy(binary(), tmp_path / "mdl")
    folder = tmp_path / "team"
    folder.mkdir()
    os.chown(folder, ADA, GROUP)
    folder.chmod(0o2775)
    return folder


def run_as(user: int, team: Path, *argv: str | Path, umask: int = 0o022, group: int = GROUP) -> tuple[int, str]:
    """Runs mdl as a user; returns exit code and what it said."""
    home = team.parent / f"home-{user}"
    if not home.exists():
        home.mkdir()
        os.chown(home, user, group)
    who = ["setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups"]
    done = subprocess.run(
        [*who, str(team.parent / "mdl"), *map(str, argv)],
        capture_output=True,
        text=True,
        cwd=home,
        umask=umask,
        env={"HOME": str(home), "NO_COLOR": "1"},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def must(user: int, team: Path, *argv: str | Path, umask: int = 0o022) -> str:
    code, said = run_as(user, team, *argv, umask=umask)
    assert code == 0, said
    return said


def checkpoint(team: Path, seed: int) -> Path:
    path = team.parent / f"model-{seed}.bin"
    path.write_bytes(bytes([seed]) * 3000 + os.urandom(3000))
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize("when", ["from the start", "later"])
def test_members_of_the_group_work_on_one_repository(team: Path, umask: int, when: str) -> None:
    repo = team / "repo"
    if when == "from the start":
        must(ADA, team, "init", "--bare", "--shared", repo, umask=umask)
    else:
        must(ADA, team, "init", "--bare", repo, umask=umask)
        must(ADA, team, "--repo", repo, "commit", checkpoint(team, 1), "-m", "before", umask=umask)
        must(ADA, team, "init", "--bare", "--shared", repo, umask=umask)
    for turn in range(3):
        for user in (ADA, BOB):
            path = checkpoint(team, 10 + turn)
            must(user, team, "--repo", repo, "commit", path, "-m", f"{turn}", umask=umask)
    must(BOB, team, "--repo", repo, "tag", "v1", umask=umask)
    must(BOB, team, "--repo", repo, "gc", "--prune-now", umask=umask)
    must(ADA, team, "--repo", repo, "compact", umask=umask)
    must(BOB, team, "--repo", repo, "config", "delta.max_depth", "4", umask=umask)
    must(ADA, team, "--repo", repo, "fsck", umask=umask)
    for path in [repo, *repo.rglob("*")]:
        found = path.lstat()
        wanted = 0o070 if stat.S_ISDIR(found.st_mode) else 0o060
        assert (found.st_gid, found.st_mode & wanted) == (GROUP, wanted), f"{path}: {found.st_mode:o}"
    code, said = run_as(STRANGER, team, "--repo", repo, "commit", checkpoint(team, 99), "-m", "no", group=STRANGER)
    assert code != 0, said


def test_without_it_the_umask_decides(team: Path) -> None:
    repo = team / "repo"
    must(ADA, team, "init", "--bare", repo)
    code, said = run_as(BOB, team, "--repo", repo, "commit", checkpoint(team, 1), "-m", "no")
    assert code == 6, said
    assert "Permission denied" in said


def test_what_is_not_ones_own_cannot_be_shared(team: Path) -> None:
    repo = team / "repo"
    must(ADA, team, "init", "--bare", repo)
    code, said = run_as(BOB, team, "init", "--bare", "--shared", repo)
    assert code == 6, said
    must(ADA, team, "--repo", repo, "fsck")
