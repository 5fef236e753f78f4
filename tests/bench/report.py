"""Shared by the benches: description of the machine, medians, and Markdown + JSON reports in one shape."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "target" / "bench"
PEERS = ROOT / "target" / "peers"
GIT_LFS = (
    ["git", "init", "-q", "-b", "main"],
    ["git", "config", "user.email", "bench@example.org"],
    ["git", "config", "user.name", "bench"],
    ["git", "config", "gc.auto", "false"],
    ["git", "lfs", "install", "--local"],
    ["git", "lfs", "track", "*.safetensors"],
    ["git", "add", ".gitattributes"],
    ["git", "commit", "-q", "-m", "track"],
)
"""Make a repository of git-lfs that tracks safetensors files."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, help="folder for the Markdown and JSON report")
    return made


def machine() -> dict[str, Any]:
    """CPU, cores, memory and the commit under test, without anything that names this computer."""
    model = "unknown"
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = next((int(line.split()[1]) >> 20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "commit": _output(["git", "rev-parse", "--short", "HEAD"]),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def _lines(path: str) -> Iterable[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _output(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip()


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """Median and range, as a table cell."""
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; the first column is text, the others are right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def prose(*sentences: str) -> str:
    """A paragraph, wrapped as the other documents are."""
    return "\n" + textwrap.fill(" ".join(sentences), 116) + "\n"


def publish(name: str, title: str, text: str, data: dict[str, Any], out: Path | None) -> None:
    """Prints the report and, where --out was given, writes NAME.md and NAME.json there."""
    info = machine()
    where = ", ".join(
        [
            f"{info['cores']} cores of {info['cpu']}",
            f"{info['memory_gib']} GiB",
            f"Linux {info['kernel']}",
            info["date"],
        ]
    )
    command = f"Measured by `tests/bench/{Path(sys.argv[0]).name}` at {info['commit']} on {where}."
    document = f"# {title}\n\n{command}\n\n{text}"
    print(document)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(document)
        (out / f"{name}.json").write_text(json.dumps({"machine": info, **data}, indent=1) + "\n")
        print(f"wrote {out / name}.md and .json", file=sys.stderr)


def peer_python(name: str, requirements: Sequence[str], no_deps: bool = False) -> Path:
    """A virtual environment of a peer's own below target/peers, made on first use."""
    folder = PEERS / name
    python, stamp = folder / "bin" / "python", folder / f".{'-'.join(requirements).replace('==', '-')}"
    if not stamp.exists():
        print(f"installing {', '.join(requirements)} into {folder.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        options = ["--no-deps"] if no_deps else []
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *options]
        subprocess.run([*pip, *requirements], check=True)
        stamp.touch()
    return python
