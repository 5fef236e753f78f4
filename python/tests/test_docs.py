"""Runs the Python of documentation pages, block after block as a reader would, on a small model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from frameworks import missing, need

need("torch")

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ["python.md", "loop.md", "nn.md", "palettize.md", "shards.md", "trackers.md"]
#: What pages take for granted: a model, data, and so on, under the names that they use.
BEFORE = """
import itertools
import mdl, torch
torch.manual_seed(0); torch.set_num_threads(1)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(256, 16)
        self.head = torch.nn.Linear(16, 256)
    def forward(self, input_ids):
        return self.head(self.wte(input_ids))
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
def forward(batch):
    return torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
def draw_batch():
    return torch.randint(0, 256, (4, 17))
held_out = draw_batch()
def validation_loss(_=None):
    return forward(held_out).item()
def train(step):
    optimizer.zero_grad(); loss = forward(draw_batch()); loss.backward(); optimizer.step(); scheduler.step()
    return loss
"""
PAGE = {
    "python.md": """
import matplotlib; matplotlib.use("Agg")
from pathlib import Path
step, steps, epoch, backup = 0, 1500, 1, "backup"
batches = iter(draw_batch, None)
mdl.init(backup, bare=True)
Path("out/checkpoint-500").mkdir(parents=True)
from safetensors.torch import save_file
save_file(model.state_dict(), "out/checkpoint-500/model.safetensors")
""",
    # The page's loop goes on for ever: three checkpoints, the first where it is due.
    "loop.md": """
batches = itertools.islice(iter(draw_batch, None), 1001)
def loss(model, batch):
    return forward(batch)
repo = mdl.Repo("runs/gpt", create=True)
step = 1000
import types
model.config = types.SimpleNamespace(vocab_size=256, max_position_embeddings=16)
model.main_input_name = "input_ids"
""",
    "palettize.md": """
batches = itertools.islice(iter(draw_batch, None), 20)
def loss(model, batch):
    return forward(batch)
repo = mdl.Repo("runs/small", create=True)
""",
    "nn.md": """
batches = itertools.islice(iter(draw_batch, None), 20)
def loss(model, batch):
    return forward(batch)
repo = mdl.Repo("runs/packed", create=True)
""",
    # The ranks that are not this one have come to the barrier.
    "shards.md": """
repo = mdl.Repo("runs/gpt", create=True)
loss, tensors = 0.38, model.state_dict()
for rank in reversed(range(8)):
    if rank:
        repo.put_shard("run7/2000", rank, {f"model-{rank:05}-of-00008.safetensors": tensors})
""",
    "trackers.md": """
import os, sys
os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
os.environ["MLFLOW_TRACKING_URI"] = "file:" + os.path.abspath("mlruns")
sys.path.insert(0, TRAINING)
import common
from hf_trainer import Tokens, build
from pathlib import Path
rows = torch.stack([Tokens()[i]["input_ids"] for i in range(8)])
def make_trainer(callbacks):
    global validation_loss
    return build(Path("trainer"), 8, 4, callbacks)
def validation_loss(model):
    return float(model(input_ids=rows, labels=rows).loss)
""",
}
#: Modules that blocks want and that may be absent.
WANTED = ("jax", "wandb", "mlflow", "tensorboard", "transformers", "accelerate", "pandas", "matplotlib")


def blocks(page: str) -> list[tuple[int, str]]:
    """Line and text of each block of Python."""
    text = (DOCS / page).read_text()
    found = [(text[: m.start(1)].count("\n"), m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]
    assert found, f"{page} has no Python"
    return found


def wants(page: str, text: str) -> list[str]:
    """Packages that a block needs."""
    named = [module for module in WANTED if re.search(rf"\b{module}\b", text)]
    named += ["pandas"] * ("to_pandas" in text) + ["matplotlib"] * ("log.plot" in text)
    return named + (["accelerate"] if "transformers" in named else [])


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    program = [f"TRAINING = {str(Path(__file__).parent / 'training')!r}", BEFORE, PAGE[page]]
    left_out: dict[str, list[str]] = {}
    for line, text in blocks(page):
        absent = missing(*wants(page, text))
        if absent:
            left_out[f"{page}:{line}"] = absent
            continue
        # A line of the page is a line of the traceback.
        program.append(f"exec(compile({chr(10) * line + text!r}, {page!r}, 'exec'), globals())")
    (tmp_path / "page.py").write_text("\n".join(program))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    if {name for names in left_out.values() for name in names} - {"jax"}:
        pytest.skip(f"these blocks were left out, as packages are not installed: {left_out}")


def test_the_example_of_palettize_runs(tmp_path: Path) -> None:
    script = DOCS.parent / "examples" / "palettize.py"
    done = subprocess.run([sys.executable, script, "out"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    loss = {name: float(value) for name, value in re.findall(r"^(.*?) +loss ([\d.]+)", done.stdout, re.M)}
    exact, afterwards, palettized = (loss[name] for name in loss)
    assert exact < palettized < afterwards


def test_the_example_of_nn_runs(tmp_path: Path) -> None:
    script = DOCS.parent / "examples" / "nn.py"
    done = subprocess.run([sys.executable, script, "out"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "the same bits after 60 steps: True" in done.stdout
    found = re.findall(r"loss ([\d.]+) \(([\d.]+) plain\), ([\d.]+)", done.stdout)
    losses, plain, ratios = zip(*found, strict=True)
    assert losses[0] == plain[0]
    assert float(ratios[0]) < 0.7 > 0.5 > float(ratios[1]) > float(ratios[2]) > float(ratios[3])
