"""Ports for servers that are started again on the same one, or that cannot choose one themselves."""

from __future__ import annotations

import os
import random
import socket

FIRST, SHARE = 12000, 1000
"""Below the ports that the system gives to connections, and so many of them for each worker of a parallel run."""


def free_ports(count: int) -> list[int]:
    """Free ports; so are those ten thousand above them, where SeaweedFS has its second ones."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = FIRST + worker % 10 * SHARE
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(first, first + SHARE)
        if port not in found and is_free(port) and is_free(port + 10000):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def lasting() -> str:
    """An address to listen on that stays a server's own when it is killed and started again."""
    return f"127.0.0.1:{free_ports(1)[0]}"
