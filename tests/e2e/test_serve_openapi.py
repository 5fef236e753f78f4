"""The OpenAPI document against the running server: schemathesis sends requests that it allows, and others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import scale
from support.cli import Mdl
from support.server import Server, create_token
from support.tensors import Tensor, write_safetensors

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = scale.rounds(3, 15)
SECONDS = 240

REPO = {"owner": "ada", "name": "gpt"}
FILE = REPO | {"rev": "main", "path": "model.safetensors"}
ANSWERED = 12
"""Paths of the repository that must have been answered with 200: asking only for what does not exist shows nothing."""


def settings(file: Path, values: dict[str, str]) -> Path:
    """What schemathesis asks with, of the parameters in paths."""
    lines = ["[parameters]"] + [f'"path.{name}" = {json.dumps(value)}' for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def fuzz(server: Server, config: Path, *options: str) -> str:
    """Runs it; returns what it says if something is wrong."""
    argv = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "--no-color", "run"]
    argv += [f"{server.url}/api/v1/openapi.json", "--header", f"Authorization: Bearer {server.token}"]
    argv += [
        "--checks",
        CHECKS,
        "--max-examples",
        str(EXAMPLES),
        "--seed",
        "6",
        "--phases",
        "examples,coverage,fuzzing",
    ]
    argv += ["--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "30", *options]
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(config.parent), "NO_PROXY": "*", "COLUMNS": "160"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=config.parent)
    return "" if done.returncode == 0 else done.stdout[-20_000:] + done.stderr[-2000:]


def test_the_document_is_true(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="tests/requirements.txt")
    mdl = Mdl.init(tmp_path / "root" / "ada/gpt", "--bare")
    folder = tmp_path / "folder"
    (folder / "notes").mkdir(parents=True)
    for step in (1, 2, 3):
        tensors = [Tensor.of(f"layer.{n}", np.full((8, 16), step + n, np.float32)) for n in range(3)]
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        (folder / "notes" / "a.txt").write_text(f"step {step}\n")
        mdl.commit(folder, f"step {step}", "--step", str(step), "--metric", f"loss={1 / step}")
    mdl.run("tag", "v1")
    root = tmp_path / "root"
    with Server(root, token=create_token(root)) as server:
        wrong = fuzz(server, settings(tmp_path / "file.toml", FILE))
        assert not wrong, wrong
        wrong = fuzz(
            server, settings(tmp_path / "any.toml", {}), "--include-path-regex", "owner", "--phases", "fuzzing"
        )
        assert not wrong, wrong
        assert server.log is not None
        log = server.log.read_text()
        assert "panicked" not in log
        answered = re.findall(r'path="(/api/v1/repos/ada/gpt[^"]*)" status=200', log)
        assert len(set(answered)) >= ANSWERED, sorted(set(answered))
    mdl.fsck()
