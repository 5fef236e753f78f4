"""Bucket storage passes the common storage tests: the suite of the Rust crates, on S3 servers started here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import buckets

ROOT = Path(__file__).resolve().parent.parent.parent


def conforms(bucket: buckets.Bucket, *tests: str) -> None:
    env = os.environ | bucket.environment | {"MDL_TEST_S3": bucket.url}
    argv = ["make", "--no-print-directory", "test-s3-conformance", f"S3_TESTS={' '.join(tests)}"]
    run = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "SKIPPED" not in run.stdout + run.stderr


def test_moto(tmp_path: Path) -> None:
    """Threads race at one ref here; processes too would keep moto busy for minutes."""
    with buckets.moto(tmp_path) as bucket:
        conforms(bucket, "buckets::", "rounds::sixteen_threads")


@pytest.mark.skipif(os.environ.get("MDL_SEAWEEDFS") != "1", reason="`make test-s3` runs it")
def test_seaweedfs(tmp_path: Path) -> None:
    assert buckets.weed(), "SeaweedFS is not installed: `make test-s3` does that"
    with buckets.seaweedfs(tmp_path) as bucket:
        conforms(bucket, "buckets::", "rounds::")
