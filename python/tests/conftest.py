"""Fixtures of the package's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mdl
import pytest
from support import scale, workers


@pytest.fixture
def repo(tmp_path: Path) -> mdl.Repo:
    return mdl.Repo.init(tmp_path / "repo")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in another process, in the test's directory."""

    def start(text: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, str(script), *args], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        if check and done.returncode != 0:
            raise AssertionError(f"the program ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    return start


@pytest.fixture(scope="session")
def binary() -> Path:
    """The command line tool."""
    path = Path(os.environ.get("MDL_BIN", "target/release/mdl")).resolve()
    if not path.is_file():
        pytest.skip(f"{path} is not there: run `make build`")
    return path


@pytest.fixture
def collect(binary: Path) -> Callable[[mdl.Repo], mdl.Repo]:
    """Collects what nothing keeps, exact contents of aged versions too; gives the repository, opened anew."""

    def run(repo: mdl.Repo) -> mdl.Repo:
        subprocess.run([binary, "--repo", repo.path, "gc", "--prune-now"], check=True, capture_output=True)
        return mdl.Repo.open(repo.path)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers.keep_together(items, "saved")


def pytest_collection_finish(session: pytest.Session) -> None:
    workers.require_groups(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    scale.told(terminalreporter)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # noqa: ANN201
    outcome = yield
    report = outcome.get_result()
    # Where every framework is to be there, a skip is a failure. A GPU is no framework: MDL_REQUIRE_CUDA asks for that.
    wanted = os.environ.get("MDL_REQUIRE_FRAMEWORKS") == "1" and "gpu" not in getattr(item, "fixturenames", ())
    if report.skipped and wanted and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but MDL_REQUIRE_FRAMEWORKS=1: {report.longrepr}"
