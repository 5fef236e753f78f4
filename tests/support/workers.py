"""Tests on several workers (pytest-xdist): which of them stay on one, one after the other.

Tests say so themselves by the mark `xdist_group`. `timing`: limits of time and rates, delays, floods, kills at moments
that are waited for. `disks`: disks whose power is cut. `bucket`, `chromium`: one S3 server, one browser at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def keep_together(items: Iterable[pytest.Item], *fixtures: str) -> None:
    """Groups the tests of each of these fixtures, which take long to make: one worker makes them, once."""
    for item in items:
        shared = [name for name in fixtures if name in getattr(item, "fixturenames", ())]
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(shared[0]))


def require_groups(session: pytest.Session) -> None:
    """Fails where the workers would take groups apart, as pytest-xdist 3.8 does with pytest 9.2."""
    if getattr(session.config.option, "loadgroup", False):
        apart = [i.nodeid for i in session.items if i.get_closest_marker("xdist_group") and "@" not in i.nodeid]
        if apart:
            raise RuntimeError(f"pytest-xdist does not keep groups together: {apart[0]}; see tests/requirements.txt")
