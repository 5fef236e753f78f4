"""The command that comes with the wheel."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import mdl
import mdl.__main__ as main
import pytest

PROGRAM = Path(sysconfig.get_path("scripts")) / "mdl"


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_the_wheel_brings_the_program() -> None:
    done = run(PROGRAM, "--version")
    assert (done.returncode, done.stdout.split()) == (0, ["mdl", mdl.__version__])
    # A program, and not a script that starts Python.
    assert PROGRAM.read_bytes()[:4] == b"\x7fELF"


def test_python_runs_it_as_a_module(tmp_path: Path) -> None:
    assert run(sys.executable, "-m", "mdl", "init", tmp_path / "a repo").returncode == 0
    assert not mdl.Repo.open(tmp_path / "a repo").branches()
    by_module = run(sys.executable, "-m", "mdl", "log", "no-such-branch")
    alone = run(PROGRAM, "log", "no-such-branch")
    assert (by_module.returncode, by_module.stderr) == (alone.returncode, alone.stderr)
    assert by_module.returncode != 0


def test_a_package_without_its_program_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "__file__", str(tmp_path / "lib/python3/site-packages/mdl/__main__.py"))
    scripts = tmp_path / "scripts"
    monkeypatch.setattr(main.sysconfig, "get_path", lambda *_: str(scripts))
    with pytest.raises(SystemExit, match="not installed beside the package"):
        main.command()
    scripts.mkdir()
    (scripts / "mdl").touch()
    assert main.command() == scripts / "mdl"
    # The interpreter's may be another one.
    for place in ("lib/python3/site-packages/bin", "bin"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "mdl").touch()
        assert main.command() == tmp_path / place / "mdl"
        (tmp_path / place / "mdl").unlink()
