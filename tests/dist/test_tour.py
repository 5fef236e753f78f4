"""A new user's first minutes from the wheel alone, without Rust: README's first page, and the demo's story."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import bare
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DIST = Path(os.environ.get("MDL_DIST", ROOT / "target/dist"))
MINUTES = 5

# The checkpoints that README's commands name, as a training run would leave them.
CHECKPOINTS = """
import pathlib, sys
import numpy as np
from safetensors.numpy import save_file
rng = np.random.default_rng(7)
weights = {f"layer.{i}.weight": rng.standard_normal((512, 512)).astype(np.float32) for i in range(8)}
for name in sys.argv[1:]:
    weights = {k: w + 1e-3 * rng.standard_normal(w.shape).astype(np.float32) for k, w in weights.items()}
    pathlib.Path(name).mkdir(parents=True)
    save_file(weights, pathlib.Path(name) / "model.safetensors")
"""
# What a training loop has at hand where README's Python begins; torch would say the same.
LOOP = """
import numpy as np
class Module:
    def __init__(self):
        self.weights = {"w": np.arange(1 << 20, dtype=np.float32)}
    def state_dict(self):
        return self.weights
    def load_state_dict(self, weights):
        self.weights = weights
    def train(self):
        self.weights = {"w": self.weights["w"] * np.float32(1.25) + np.float32(np.random.standard_normal())}
model, optimizer, step, loss = Module(), Module(), 0, 2.31
"""


@pytest.fixture(scope="module", params=["venv", "debian"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bare.Bare]:
    """A machine with the wheel installed."""
    wheels = list(DIST.glob("*.whl"))
    assert wheels, f"no wheel in {DIST}; run `make dist` first"
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "debian" and (why := bare.why_no_debian()):
        pytest.skip(why)
    made = bare.debian(folder) if request.param == "debian" else bare.here(folder)
    made.install(wheels[0])
    yield made
    for command, seconds in made.took.items():
        print(f"{request.param}: {seconds:6.1f} s  {command[:100]}", file=sys.stderr)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_the_first_page_runs_as_it_stands(machine: bare.Bare) -> None:
    page = next(block for block in blocks("console") if "$ mdl commit" in block)
    commands = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ ")]
    assert sum(line.startswith("mdl ") for line in commands) >= 4, "README's first commands are not found any more"
    named = sorted(set(re.findall(r"[\w./-]*checkpoint-\d+", "\n".join(commands))))
    machine.run(f"python -c {shlex.quote(CHECKPOINTS)} {' '.join(named)}")
    machine.run("\n".join(commands))
    log = machine.run("mdl log --all --oneline" if "branch" in "".join(commands) else "mdl log --oneline")
    assert len(log.splitlines()) == sum(line.startswith("mdl commit") for line in commands), log
    machine.run("mdl fsck")


def test_the_training_loop_runs_as_it_stands(machine: bare.Bare) -> None:
    code = next(block for block in blocks("python") if "repo.commit(" in block)
    # Where tensors go is torch's; it is left aside here.
    code = code.replace(', map_location="cpu"', "")
    before, then = code.split("# in the loop", 1)
    # A run of two steps, and one that ends after the first and is begun again.
    steps = f"import sys\n{before}\nwhile step < int(sys.argv[1]):\n    step += 1\n    model.train()\n"
    steps += textwrap.indent("# in the loop" + then, "    ")
    check = 'assert (best["model"]["w"] == model.weights["w"]).all()\nprint(step, model.weights["w"].sum())\n'
    (machine.work / "loop.py").write_text(f"{LOOP}np.random.seed(1)\n{textwrap.dedent(steps)}{check}")
    whole = machine.run("python loop.py 2; rm -r runs")
    assert machine.run("python loop.py 1") != whole
    assert machine.run("python loop.py 2") == whole, "the second step goes on with the same bits"
    assert machine.run("cd runs/gpt && python -m mdl log --oneline").count("\n") == 2


def test_the_first_page_took_minutes(machine: bare.Bare) -> None:
    assert machine.run("mdl --version").startswith("mdl ")
    assert sum(machine.took.values()) < MINUTES * 60, machine.took


def test_the_demo_tells_its_story_from_the_wheel(machine: bare.Bare) -> None:
    if machine.root:
        pytest.skip("the models are outside of that root; the environment of this system has run it")
    models = ROOT / ".venv/models"
    assert models.is_dir(), "the models are missing; run `make venv` first"
    (machine.venv / "models").symlink_to(models)
    told = machine.run(f"python {ROOT}/demo/demo.py", MDL_BIN=str(machine.venv / "bin/mdl"))
    assert "identical" in told
