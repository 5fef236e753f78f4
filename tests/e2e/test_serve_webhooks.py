"""Webhooks reach only addresses that the operator allows."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.served import fill
from support.server import Server, create_token


class Ears(http.server.ThreadingHTTPServer):
    """Listens on a port of its own, notes what arrives, answers as it is told."""

    daemon_threads = True

    def __init__(self, answer: int = 200, location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Ear)
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.connections = 0
        self.answer, self.location = answer, location

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.connections += 1
        return True

    @property
    def port(self) -> int:
        return self.server_address[1]


class Ear(http.server.BaseHTTPRequestHandler):
    server: Ears

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((dict(self.headers), body))
        self.send_response(self.server.answer)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(answer: int = 200, location: str = "") -> Iterator[Ears]:
    with Ears(answer, location) as ears:
        thread = threading.Thread(target=ears.serve_forever, daemon=True)
        thread.start()
        try:
            yield ears
        finally:
            ears.shutdown()


HOOKS = "/api/v1/repos/ada/gpt/webhooks"
NOT_PUBLIC = """
127.0.0.1 127.1 127.9.9.9 0 0.0.0.0 2130706433 0x7f000001 0x7f.1 017700000001 0177.0.0.1
127.0.0.1. 10.0.0.1 10.1 172.16.0.1 172.31.255.255 192.168.0.1 169.254.169.254 0xa9fea9fe
2852039166 100.64.0.1 100.100.100.200 198.18.0.1 192.0.0.192 224.0.0.1 255.255.255.255
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [fe80::1] [fc00::1]
[fd00:ec2::254] [64:ff9b::127.0.0.1] [2002:7f00:1::] [ff02::1] [0:0:0:0:0:0:0:1]
ⓗ127.0.0.1 １２７.0.0.1 127。0.0.1
"""
"""This machine and its neighbours, in the ways that addresses can be written."""


def move(server: Server, name: str) -> None:
    moved = server.send("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{name}", {"target": "main"})
    assert moved.status == 200, moved.body


def test_webhooks_do_not_reach_this_machine_or_its_neighbours(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fill(root, "ada/gpt", "hooks")
    with Server(root, token=create_token(root)) as server, listening() as ears:
        for host in NOT_PUBLIC.split():
            answer = server.send("POST", HOOKS, {"url": f"http://{host}:{ears.port}/"})
            assert answer.status in (400, 422), f"{host}: {answer.status} {answer.body!r}"
        for url in (
            f"http://me:secret@example.com:{ears.port}/",
            f"http://127.0.0.1:{ears.port}#@example.com/",
            f"http://example.com@127.0.0.1:{ears.port}/",
            f"http://127.0.0.1:{ears.port}\\@example.com/",
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "ftp://127.0.0.1/",
            "http://example.com:22/",
            "//127.0.0.1/",
            "",
            "http://" + "a" * 5000,
        ):
            answer = server.send("POST", HOOKS, {"url": url})
            assert answer.status in (400, 422), f"{url}: {answer.status} {answer.body!r}"
        # Names are looked at when it is delivered: they may lead elsewhere by then.
        names = ("localhost", "LOCALHOST", "localhost.", "ip6-localhost", "ip6-loopback", os.uname().nodename)
        for name in names:
            answer = server.send("POST", HOOKS, {"url": f"http://{name}:{ears.port}/{name}"})
            assert answer.status in (201, 400, 422), f"{name}: {answer.status}"
        move(server, "moved")
        time.sleep(2)
        assert ears.connections == 0, "a webhook reached this machine"
        # Once one was allowed: what the operator allows now counts, not what was allowed when it was made.
        file = root / ".mdl-serve" / "webhooks.json"
        stored = json.loads(file.read_text())
        (hooks,) = [r["webhooks"] for r in stored["repositories"] if r["repo"] == "ada/gpt"]
        hooks[:] = [{**hooks[0], "url": f"http://127.0.0.1:{ears.port}/old"}]
        file.write_text(json.dumps(stored))
        move(server, "again")
        time.sleep(1)
        assert ears.connections == 0, "a webhook of earlier reached this machine"


def test_webhooks_to_neighbours_where_the_operator_wants_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    fill(root, "ada/gpt", "hooks")
    options = ("--private-webhooks",)
    with Server(root, options, token=create_token(root)) as server, listening() as ears, listening(302) as bouncer:
        bouncer.location = f"http://127.0.0.1:{ears.port}/bounced"
        made = server.send("POST", HOOKS, {"url": f"http://localhost:{ears.port}/hook", "secret": "of two"})
        assert made.status == 201, made.body
        assert server.send("POST", HOOKS, {"url": f"http://127.0.0.1:{bouncer.port}/"}).status == 201
        assert b"of two" not in server.get(HOOKS).body
        move(server, "moved")
        deadline = time.monotonic() + 10
        while not (ears.heard and bouncer.heard) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        assert [len(ears.heard), len(bouncer.heard)] == [1, 1], "a redirect was followed, or nothing came"
        headers, body = ears.heard[0]
        wanted = "sha256=" + hmac.new(b"of two", body, hashlib.sha256).hexdigest()
        shown = {k.lower(): v for k, v in headers.items()}
        assert shown["x-mdl-signature-256"] == wanted
        assert "authorization" not in shown
        assert json.loads(body)["ref"] == "refs/heads/moved"
