"""A machine without Rust: an environment with nothing but Python, on this system or in a bare root of Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# What pip needs to reach its index, wherever that is.
NETWORK = ("PIP_", "SSL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Bare:
    """Runs shell commands in `work`, with Python's environment first on the path and no compiler on it."""

    work: Path
    venv: Path
    root: Path | None = None
    """The root of another system, if it is one; the two paths above are this system's names."""
    took: dict[str, float] = field(default_factory=dict)

    def inside(self, path: Path) -> str:
        """What a path is called there."""
        return f"/{path.relative_to(self.root)}" if self.root else str(path)

    def run(self, command: str, **variables: str) -> str:
        """The output of a shell command that must succeed."""
        env = {name: value for name, value in os.environ.items() if name.startswith(NETWORK)}
        path = f"{self.inside(self.venv)}/bin:/usr/bin:/bin"
        env |= {"PATH": path, "HOME": self.inside(self.work), "LANG": "C.UTF-8"}
        # By its path: it is searched for on the path that the command gets.
        there = [shutil.which("chroot") or "chroot", str(self.root)] if self.root else []
        call = [*there, "bash", "-euo", "pipefail", "-c", f"cd {self.inside(self.work)}\n{command}"]
        began = time.monotonic()
        done = subprocess.run(call, env=env | variables, capture_output=True, text=True, timeout=900)
        self.took[command.strip().splitlines()[0]] = time.monotonic() - began
        assert done.returncode == 0, f"{command}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
        return done.stdout

    def install(self, wheel: Path) -> None:
        """Makes the environment and installs the wheel, with what it depends on."""
        shutil.copy2(wheel, self.work)
        python = "python3" if self.root else str(Path(sys.base_prefix) / "bin/python3")
        self.run(f"{python} -m venv {self.inside(self.venv)}")
        self.run("! command -v cargo rustc")
        self.run(f"pip install -q --disable-pip-version-check ./{wheel.name}")


def here(folder: Path) -> Bare:
    """An environment on this system."""
    (folder / "work").mkdir()
    return Bare(folder / "work", folder / "venv")


def why_no_debian() -> str | None:
    """Why a bare root of Debian cannot be had here."""
    if os.geteuid() != 0:
        return "a root of Debian wants root"
    return None if shutil.which("debootstrap") else "debootstrap is missing"


def debian(folder: Path) -> Bare:
    """An environment in a fresh root of Debian with Python and certificates only."""
    root = folder / "debian"
    call = ["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", "bookworm", str(root)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    if CERTIFICATES.is_file():
        shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    (root / "work").mkdir()
    return Bare(root / "work", root / "venv", root)
