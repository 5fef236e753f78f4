"""Starts `mdl serve` on a free port and stops it; a few lines around urllib for asking it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cli import binary

STOP_SECONDS = 20


@dataclass(frozen=True)
class Answer:
    """How a request ended."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; use it as a context. What is to be done in its process `before` it runs may set limits."""

    root: Path
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    log: Path | None = None
    listen: str = "127.0.0.1:0"
    under: tuple[str, ...] = ()
    """A program that runs it, and its arguments: a tracer."""
    before: Callable[[], None] | None = None
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0, f"the server ended badly\n{self.log and self.log.read_text()}"

    def start(self) -> Server:
        """Starts it and waits until it accepts connections."""
        argv = [*self.under, str(binary()), "serve", "--root", str(self.root), "--listen", self.listen, *self.options]
        self.log = self.log or self.root.parent / f"{self.root.name}.server.log"
        with self.log.open("ab") as log:
            env = os.environ | dict(self.environment)
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, env=env, preexec_fn=self.before)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("listening on "), f"the server did not start: {line!r}\n{self.log.read_text()}"
        self.url = line.split()[-1]
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        own = self.process.pid
        return int(Path(f"/proc/{own}/task/{own}/children").read_text().split()[0]) if self.under else own

    def stop(self) -> int:
        """Asks it to stop, and waits; returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def kill(self) -> None:
        """SIGKILL: no last words."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Answer:
        """One request; no status is an exception."""
        all_headers = dict(headers or {})
        if self.token and "Authorization" not in all_headers:
            all_headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data=body, headers=all_headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def send(self, method: str, path: str, document: Any, **headers: str) -> Answer:
        """A request with a JSON body."""
        body = json.dumps(document).encode()
        return self.ask(method, path, body, {"Content-Type": "application/json", **headers})


def create_token(root: Path, scope: str = "admin", repo: str = "**", expires: str = "1d", name: str = "tester") -> str:
    """Makes a token for a served directory."""
    argv = [str(binary()), "token", "create", "--root", str(root), "--name", name]
    argv += ["--repo", repo, "--scope", scope, "--expires", expires]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
