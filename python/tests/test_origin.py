"""Versions that say where they come from, and that are signed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mdl
import numpy as np
import pytest

STATE = {"w": np.zeros(8, np.float32)}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mdl.Repo:
    # Neither the settings nor the agent of whoever runs this.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return mdl.Repo(tmp_path / "run", create=True)


def recorded(commit: mdl.Commit) -> dict[str, Any]:
    assert commit.provenance is not None
    return commit.provenance


@pytest.mark.parametrize("wait", [True, False])
def test_a_commit_says_where_it_comes_from(repo: mdl.Repo, tmp_path: Path, wait: bool) -> None:
    (tmp_path / "wiki.txt").write_text("text")
    made = repo.commit(STATE, step=1, provenance={"wiki": tmp_path / "wiki.txt"}, wait=wait)
    commit = made if wait else made.result()
    record = recorded(commit)
    assert record["command"][0] == sys.orig_argv[0]
    assert record["environment"]["packages"]["numpy"] == np.__version__
    assert record["datasets"] == [{"name": "wiki", "digest": {"sha256": hashlib.sha256(b"text").hexdigest()}}]
    assert recorded(next(iter(repo.log()))) == record
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("a")
    assert "datasets" not in recorded(repo.commit_dir(tmp_path / "out", step=2, provenance=True))
    assert repo.commit(STATE, step=3, wait=True).provenance is None
    with pytest.raises(mdl.UsageError, match="is no data set"):
        repo.commit(STATE, step=4, provenance={"wiki": tmp_path / "missing"}, wait=True)


def test_commits_and_tags_are_signed_where_asked(repo: mdl.Repo, tmp_path: Path) -> None:
    with pytest.raises(mdl.UserError, match="no key to sign with is named"):
        repo.commit(STATE, step=1, sign=True, wait=True)
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is missing (openssh-client)")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    assert repo.commit(STATE, step=1, sign=key, wait=True).signed
    assert not repo.commit(STATE, step=2, sign=False, wait=True).signed
    repo.tag("v1", message="released", sign=key)
    with pytest.raises(mdl.UsageError, match="a signed tag has a message"):
        repo.tag("v2", sign=key)
