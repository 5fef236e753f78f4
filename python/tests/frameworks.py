"""Skips tests whose framework is not installed, or fails them if frameworks are required."""

from __future__ import annotations

import importlib.util
import os

import pytest


def need(*modules: str) -> None:
    """Skips where one of `modules` is not installed; fails instead where MDL_REQUIRE_FRAMEWORKS is set."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}; see python/tests/requirements.txt"
    if os.environ.get("MDL_REQUIRE_FRAMEWORKS") == "1":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)
