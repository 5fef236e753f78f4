"""Directories in the layout of trainers that are not installed here: `mdl watch` commits what each of them writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import mdl
import numpy as np
import pytest
from frameworks import need_here
from safetensors.numpy import save_file


def tensors(seed: int) -> dict[str, np.ndarray]:
    return {"layer.weight": np.random.default_rng(seed).standard_normal((64, 32)).astype("f4")}


def torch_file(path: Path, content: object) -> None:
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


def text_file(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def deepspeed(out: Path, step: int) -> Path:
    """ZeRO: model states once, optimizer states of each rank; the name of the newest beside them."""
    import torch

    folder = out / f"global_step{step}"
    weights = {name: torch.from_numpy(array) for name, array in tensors(step).items()}
    torch_file(folder / "mp_rank_00_model_states.pt", {"module": weights, "global_steps": step})
    for rank in range(2):
        flat = weights["layer.weight"].flatten()[rank::2].clone()
        state = {"optimizer_state_dict": {"single_partition_of_fp32_groups": [flat], "zero_stage": 1}}
        torch_file(folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", state)
    text_file(out / "latest", folder.name)
    text_file(out / "zero_to_fp32.py", "# written by the trainer\n")
    return folder


def megatron(out: Path, step: int) -> Path:
    """Megatron-Core and NeMo: `iter_0000010`, torch's distributed checkpoint with a marker file."""
    folder = out / f"iter_{step:07d}"
    torch_file(folder / "common.pt", {"iteration": step, "args": {"hidden_size": 32}})
    for rank in range(2):
        torch_file(folder / f"__{rank}_0.distcp", {"w": tensors(step + rank)["layer.weight"].tolist()})
    text_file(folder / "metadata.json", json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    (folder / ".metadata").write_bytes(b"\x80\x02}.")
    text_file(out / "latest_checkpointed_iteration.txt", str(step))
    return folder


def torchtune(out: Path, step: int) -> Path:
    """torchtune: a folder for each step with safetensors of weights, adapters and the recipe's state."""
    folder = out / f"step_{step}"
    folder.mkdir(parents=True)
    save_file(tensors(step), folder / "model-00001-of-00001.safetensors")
    save_file(tensors(step + 1), folder / "adapter_model.safetensors")
    text_file(folder / "adapter_config.json", json.dumps({"r": 8}))
    torch_file(out / "recipe_state" / "recipe_state.pt", {"steps_run": step})
    return folder


def verl(out: Path, step: int) -> Path:
    """verl: `global_step_10/actor` with a file for each rank of model, optimizer and extra state."""
    import torch

    folder = out / f"global_step_{step}"
    for rank in range(2):
        ending = f"world_size_2_rank_{rank}.pt"
        weights = {name: torch.from_numpy(array) for name, array in tensors(step + rank).items()}
        torch_file(folder / "actor" / f"model_{ending}", weights)
        torch_file(folder / "actor" / f"optim_{ending}", {"state": {0: {"exp_avg": weights["layer.weight"]}}})
        torch_file(folder / "actor" / f"extra_state_{ending}", {"rng": [1, 2, 3]})
    text_file(folder / "actor" / "huggingface" / "config.json", "{}")
    torch_file(folder / "data.pt", {"samples": step})
    text_file(out / "latest_checkpointed_iteration.txt", str(step))
    return folder


def orbax(out: Path, step: int) -> Path:
    """Orbax: a directory named by its step, with OCDBT's files, and one that says that all is written."""
    folder, rng = out / str(step), np.random.default_rng(step)
    for name in ("manifest.ocdbt", "d/0f1e", "ocdbt.process_0/d/aa", "ocdbt.process_0/manifest.ocdbt"):
        (folder / "default" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "default" / name).write_bytes(rng.bytes(5000))
    for name in ("default/_METADATA", "default/_sharding", "_CHECKPOINT_METADATA"):
        text_file(folder / name, "{}")
    return folder


LAYOUTS = {"deepspeed": deepspeed, "megatron": megatron, "orbax": orbax, "torchtune": torchtune, "verl": verl}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_a_trainer_writes_is_watched_and_comes_back(
    layout: Callable[[Path, int], Path], tmp_path: Path, binary: Path
) -> None:
    need_here("torch")
    repo = mdl.init(tmp_path / "repo")
    watch = [binary, "--repo", repo.path, "--json", "watch", tmp_path / "out", "--once", "--settle", "0"]
    written = {}
    for step in (10, 20):
        folder = layout(tmp_path / "out", step)
        written[step] = {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
        done = subprocess.run(watch, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    found = {c.step: c for c in repo.log() if c.step is not None}
    assert set(found) == {10, 20}
    for step, files in written.items():
        back = tmp_path / f"back-{step}"
        repo.checkout(found[step].id, back)
        there = {f.relative_to(back): f.read_bytes() for f in back.rglob("*") if f.is_file()}
        # The folder's own name may stand before its files.
        names = {name if name in there else Path(found[step].message) / name: data for name, data in files.items()}
        assert there == names
    if layout not in (megatron, orbax):
        assert found[20].tensors > 0


def test_a_checkpoint_of_ray_train_is_a_version(repo: mdl.Repo, tmp_path: Path) -> None:
    need_here("ray")
    from ray.train import Checkpoint

    (tmp_path / "one").mkdir()
    save_file(tensors(1), tmp_path / "one" / "model.safetensors")
    with Checkpoint.from_directory(tmp_path / "one").as_directory() as directory:
        made = repo.commit_dir(directory, step=1)
    repo.checkout(made.id, tmp_path / "back")
    with Checkpoint.from_directory(tmp_path / "back").as_directory() as directory:
        assert (Path(directory) / "model.safetensors").read_bytes() == (tmp_path / "one/model.safetensors").read_bytes()


RAY = """
import os, sys, tempfile
import numpy as np
os.environ["RAY_AUTH_MODE"] = "disabled"
import ray
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from safetensors.numpy import save_file

def loop(config):
    import mdl
    repo = mdl.Repo(config["repo"])
    for step in (1, 2):
        with tempfile.TemporaryDirectory() as directory:
            save_file({"w": np.full(1000, step, "f4")}, os.path.join(directory, "model.safetensors"))
            made = None
            if train.get_context().get_world_rank() == 0:
                made = repo.commit_dir(directory, step=step, metrics={"loss": 1 / step})
            train.report({"loss": 1 / step, "version": made.id if made else ""}, checkpoint=Checkpoint(directory))

ray.init(num_cpus=2, include_dashboard=False)
done = DataParallelTrainer(
    loop, train_loop_config={"repo": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(storage_path=sys.argv[2]),
).fit()
print("version", done.metrics["version"])
"""


@pytest.mark.xdist_group("timing")
def test_a_ray_train_loop_commits(
    repo: mdl.Repo, tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    need_here("ray", "pyarrow")
    done = run(RAY, str(repo.path), str(tmp_path / "ray"))
    assert [c.step for c in repo.log()] == [2, 1]
    assert f"version {repo.resolve()}" in done.stdout
