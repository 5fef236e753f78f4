"""Skips tests whose framework is not installed, or fails them if frameworks are required."""

from __future__ import annotations

import importlib.util
import os

import pytest

#: Too large for the packages that every test run installs: `pip install aim jax orbax-checkpoint ray[train]` to have
#: their tests.
LARGE = ("aim", "jax", "orbax", "pyarrow", "ray")


def missing(*modules: str) -> list[str]:
    """Those that are not installed."""
    return [module for module in modules if importlib.util.find_spec(module) is None]


def need_here(*modules: str) -> None:
    """As `need`, for one test; of what is `LARGE` it only skips."""
    absent = missing(*modules)
    if absent and not set(absent) - set(LARGE):
        # In a run that requires frameworks, skips are failures: an expected failure is what it may be there.
        reason = f"not installed, as it is large: pip install {' '.join(absent)}"
        pytest.xfail(reason) if os.environ.get("MDL_REQUIRE_FRAMEWORKS") == "1" else pytest.skip(reason)
    need(*modules)


def need(*modules: str) -> None:
    """Skips where one of `modules` is not installed; fails instead where MDL_REQUIRE_FRAMEWORKS is set."""
    absent = missing(*modules)
    if not absent:
        return
    reason = f"not installed: {', '.join(absent)}; see python/tests/requirements.txt"
    if os.environ.get("MDL_REQUIRE_FRAMEWORKS") == "1":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)
