"""200 steps straight against some 100, kill -9, load, and the rest: the same losses, and the same bits at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks import need
from support import scale

TRAINING = Path(__file__).parent / "training"
SCRIPTS = {
    "plain.py": "torch",
    "hf_trainer.py": "transformers",
    "lightning_module.py": "pytorch_lightning",
    "accelerated.py": "accelerate",
}


def run(script: str, mode: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """Runs one script to its end, or to its kill; its exit status and its account."""
    out = folder / f"{mode}.json"
    command = [sys.executable, str(TRAINING / script), mode, str(folder / "repo"), str(out)]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=300)
    assert out.is_file(), done.stderr[-4000:]
    return done.returncode, json.loads(out.read_text())


@pytest.mark.parametrize("script", scale.sample(SCRIPTS, 2))
def test_a_killed_run_goes_on_to_the_bit(script: str, tmp_path: Path) -> None:
    need(SCRIPTS[script])
    status, straight = run(script, "straight", tmp_path)
    assert status == 0
    status, killed = run(script, "killed", tmp_path)
    assert status == -signal.SIGKILL
    status, resumed = run(script, "resumed", tmp_path)
    assert status == 0

    first = min(int(step) for step in resumed["losses"])
    assert 26 <= first <= 101, "it went on from a version of the killed run"
    before = {step: loss for step, loss in killed["losses"].items() if int(step) < first}
    assert {**before, **resumed["losses"]} == straight["losses"]
    assert resumed["state"] == straight["state"]
    assert len(set(straight["losses"].values())) > 150, "losses that never change would prove nothing"
