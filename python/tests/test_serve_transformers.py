"""`from_pretrained` from a running server, at versions stored as deltas, and `push_to_hub`, by nothing but
`HF_ENDPOINT`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from frameworks import need

need("torch", "transformers")

import torch  # noqa: E402
from support.cli import Mdl, binary  # noqa: E402
from support.server import Server  # noqa: E402
from transformers import BertConfig, BertModel  # noqa: E402

STEPS = (0, 10, 20)

# A process of its own: where the models come from is read when huggingface_hub is imported.
PROGRAM = """
import sys
import torch
from transformers import AutoConfig, AutoModel
for revision in sys.argv[2:]:
    model = AutoModel.from_pretrained("ada/bert", revision=revision)
    torch.save(model.state_dict(), f"{sys.argv[1]}/{revision}.pt")
assert AutoConfig.from_pretrained("ada/bert").hidden_size == 32
model.push_to_hub("ada/pushed")
again = AutoModel.from_pretrained("ada/pushed").state_dict()
assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())
"""


def versions(folder: Path) -> dict[int, dict[str, torch.Tensor]]:
    """Three versions of a tiny BERT, each a little further than the one before; returns what was committed."""
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = BertModel(config)
    repo = Mdl.init(folder, "--bare")
    out = {}
    for step in STEPS:
        with torch.no_grad():
            for tensor in model.parameters():
                tensor += 1e-4 * step * torch.randn_like(tensor)
        saved = folder.parent / f"saved-{step}"
        model.save_pretrained(saved)
        repo.commit(saved, f"step {step}", "--step", str(step))
        out[step] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    depths = [max(t["depth"] for t in repo.tensors(f"main@step={step}").values()) for step in STEPS]
    assert [depth > 0 for depth in depths] == [False, True, True], f"not deltas: {depths}"
    return out


def test_auto_model_loads_every_version(tmp_path: Path) -> None:
    assert binary().is_file(), f"{binary()} is missing; run `make build`"
    root = tmp_path / "root"
    (root / "ada").mkdir(parents=True)
    want = versions(root / "ada" / "bert")
    out = tmp_path / "out"
    out.mkdir()
    with Server(root) as server:
        env = os.environ | {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "*"}
        revisions = [f"step-{step}" for step in STEPS]
        argv = [sys.executable, "-c", PROGRAM, str(out), *revisions]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    for step in STEPS:
        loaded = torch.load(out / f"step-{step}.pt")
        assert loaded.keys() == want[step].keys()
        different = [name for name, tensor in loaded.items() if not torch.equal(tensor, want[step][name])]
        assert not different, f"step {step}: {different}"
