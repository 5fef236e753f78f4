"""Frozen repositories of every format version stay readable, by mdl and by a reader written from the specification."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import Mdl, files_of

TESTS = Path(__file__).resolve().parents[1]
GOLDEN = sorted((TESTS / "golden").glob("repo-v*"))
READER = TESTS / "reader" / "read_repo.py"


def expected(golden: Path) -> dict[str, dict[str, str]]:
    return json.loads((golden / "expected.json").read_text())


def digests(folder: Path) -> dict[str, str]:
    return {rel: hashlib.sha256(path.read_bytes()).hexdigest() for rel, path in files_of(folder).items()}


def test_there_is_a_golden_repository() -> None:
    assert [g.name for g in GOLDEN] == ["repo-v1"]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g.name)
def test_mdl_reads_it(golden: Path, tmp_path: Path) -> None:
    mdl = Mdl(shutil.copytree(golden / "store", tmp_path / "store"))
    assert "problem" not in mdl.run("fsck").out.replace("no problems", "")
    versions = expected(golden)
    assert len(versions) == 4
    for commit, files in versions.items():
        assert digests(mdl.checkout(commit, tmp_path / commit)) == files
    assert list(versions) != []
    schemes = {t["scheme"] for commit in versions for t in mdl.tensors(commit).values()}
    assert schemes >= {"stored", "zstd", "planes", "delta", "sparse"}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g.name)
def test_the_reader_from_the_specification_reads_it(golden: Path, tmp_path: Path) -> None:
    revisions = [(commit, files) for commit, files in expected(golden).items()]
    for commit, files in revisions:
        out = tmp_path / commit
        subprocess.run([sys.executable, READER, golden / "store", commit, out], check=True)
        assert digests(out) == files
    by_tag = tmp_path / "tag"
    subprocess.run([sys.executable, READER, golden / "store", "first", by_tag], check=True)
    assert digests(by_tag) in [files for _, files in revisions]


def test_signed_versions_keep_their_signatures_and_their_provenance(tmp_path: Path) -> None:
    golden = TESTS / "golden" / "signed"
    mdl = Mdl(shutil.copytree(golden / "store", tmp_path / "store"))
    assert mdl.run("fsck").out
    signers = ("--allowed-signers", golden / "allowed_signers")
    versions = expected(golden)
    kinds = {mdl.json("verify-commit", commit, "--deep", *signers)["key_type"] for commit in versions}
    assert kinds == {"ssh-ed25519", "ecdsa-sha2-nistp256"}
    assert mdl.json("verify-tag", "v1", *signers)["status"] == "good"
    for commit, files in versions.items():
        assert digests(mdl.checkout(commit, tmp_path / commit)) == files
        subprocess.run([sys.executable, READER, golden / "store", commit, tmp_path / "read"], check=True)
        assert digests(tmp_path / "read") == files
        shutil.rmtree(tmp_path / "read")
        record = mdl.json("show", commit)["provenance"]
        assert record["command"] == ["python", "train.py"]
        assert record["datasets"] == [{"name": "wiki", "uri": "s3://bucket/wiki", "digest": {"sha256": "ab" * 32}}]


def test_the_reader_notices_damage(tmp_path: Path) -> None:
    store = Path(shutil.copytree(GOLDEN[0] / "store", tmp_path / "store"))
    pack = max((store / "packs").iterdir(), key=lambda p: p.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 3] ^= 1
    pack.write_bytes(data)
    outcomes = [
        subprocess.run([sys.executable, READER, store, c, tmp_path / c], capture_output=True, check=False).returncode
        for c in expected(GOLDEN[0])
    ]
    assert any(outcomes)


def test_the_reader_decodes_the_engine_s_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The segments that the engine's own golden test froze, which take every scheme, dtype and coder."""
    monkeypatch.syspath_prepend(str(READER.parent))
    import segments

    vectors = sorted((TESTS.parent / "crates" / "codec" / "tests" / "golden").glob("*.seg"))
    assert len(vectors) >= 66
    for vector in vectors:
        raw = vector.with_suffix(".raw").read_bytes()
        relatives = [vector.with_suffix(name) for name in (".base", ".grand")]
        below = [r.read_bytes() if r.exists() else None for r in relatives]
        dtype = int(vector.name.split("-")[0])
        assert segments.decode(dtype, vector.read_bytes(), len(raw), *below) == raw, vector.name
