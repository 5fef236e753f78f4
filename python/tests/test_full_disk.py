"""A full disk under a training run: an exception of its own, or a wait, as the repository's settings say."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import mdl
import numpy as np
import pytest

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs", str(path)]
    if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def noise(mib: int, seed: int = 1) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(seed).integers(0, 256, mib * MIB, dtype=np.uint8)}


def fill(disk: Path, leave: int) -> Path:
    path = disk / "filler"
    path.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))
    return path


@pytest.mark.parametrize("leave", [64 << 10, 2 * MIB])
def test_a_full_disk_has_an_exception_of_its_own(disk: Path, leave: int) -> None:
    repo = mdl.Repo.init(disk / "repo")
    first = repo.commit(noise(1), step=1, wait=True)
    filler = fill(disk, leave)
    with pytest.raises(mdl.FullError) as raised:
        repo.commit(noise(6, 2), step=2, wait=True)
    assert isinstance(raised.value, mdl.StorageError)
    assert repo.log()[0].id == first.id
    filler.unlink()
    repo.commit(noise(6, 2), step=2, wait=True)
    assert np.array_equal(repo.load()["w"], noise(6, 2)["w"])


@pytest.mark.parametrize("wait", [True, False])
def test_a_commit_waits_for_room_where_told_to(disk: Path, wait: bool) -> None:
    repo = mdl.Repo.init(disk / "repo")
    config = disk / "repo" / ".mdl" / "config"
    config.write_text('[commit]\non_full = "wait"\n')
    repo = mdl.Repo.open(disk / "repo")
    filler = fill(disk, 2 * MIB)

    def free() -> None:
        time.sleep(2)
        filler.unlink()

    freeing = threading.Thread(target=free)
    freeing.start()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        repo.commit(noise(6), step=1, wait=wait)
        repo.flush()
    freeing.join()
    assert any("waiting for room" in str(w.message) for w in said)
    assert np.array_equal(repo.load()["w"], noise(6)["w"])
