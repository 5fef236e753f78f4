"""Makes the golden repository of a format version: run once per version; its output is then frozen.

Usage: make_repo.py OUT   (the mdl binary as MDL_BIN, PYTHONPATH=tests). OUT gets `store/`, a bare repository, and
`expected.json`: for every version the SHA-256 of every file. The versions are small but take every scheme: stored,
zstd, planes, delta and sparse segments, several dtypes, tied tensors, views, a zip, trees, chunks, both kinds of tag.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from support.cli import Mdl, files_of
from support.makers import odd_files, torch_zip, training_state, write_numpy_files
from support.tensors import Tensor, cast_bf16, write_safetensors

SIZE = 6000


def weights(seed: int, rate: float, steps: int) -> list[Tensor]:
    """A little training run: the same start, `steps` small updates."""
    rng = np.random.default_rng(seed)
    out = []
    for name in ("embed", "layer.0", "layer.1", "norm"):
        value = rng.normal(0, 0.04, (SIZE // 8, 8) if name != "norm" else (64,)).astype(np.float32)
        for step in range(steps):
            moved = np.random.default_rng([seed, step]).normal(0, rate, value.shape).astype(np.float32)
            value = value + moved * (np.float32(1) if name != "layer.1" else np.float32(0))
        out.append(Tensor.of(name, value))
    return out


def sparse(tensors: list[Tensor]) -> list[Tensor]:
    """A few elements of every tensor moved."""
    out = []
    for t in tensors:
        array = t.array().copy()
        array.reshape(-1)[::997] *= -1
        out.append(Tensor.of(t.name, array))
    return out


def write(folder: Path, version: int) -> None:
    model = sparse(weights(1, 1e-4, 2)) if version == 3 else weights(1, 1e-4, version)
    write_safetensors(folder / "model.safetensors", model)
    write_safetensors(folder / "bf16" / "model.safetensors", cast_bf16(model))
    half = [Tensor.of(t.name, t.array().astype(np.float16)) for t in model[:2]]
    write_safetensors(folder / "half.safetensors", half)
    if version == 0:
        torch_zip(folder / "state.pt", training_state(version))
        write_numpy_files(folder / "numpy", 1)
        for name, data in odd_files().items():
            (folder / "odd").mkdir(exist_ok=True)
            if name != "random.bin":
                (folder / "odd" / name).write_bytes(data)
        # A plain file long enough to be cut into chunks, and easy to store.
        (folder / "train.log").write_bytes(b"".join(b"step %07d loss %.6f\n" % (i, 9 / (i + 1)) for i in range(90_000)))


def digests(folder: Path) -> dict[str, str]:
    return {rel: hashlib.sha256(path.read_bytes()).hexdigest() for rel, path in files_of(folder).items()}


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    env = {"MDL_AUTHOR_NAME": "golden", "MDL_AUTHOR_EMAIL": "golden@example.org"}
    mdl = Mdl.init(out / "store", "--bare")
    expected: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "bf16").mkdir()
        for version in range(4):
            write(folder, version)
            labels = ["--allow-damaged", "--step", str(version * 100), "--metric", f"loss={3.5 - version}"]
            done = json.loads(mdl.run("commit", folder, "-m", f"v{version}", *labels, "--json", env=env).out)
            expected[done["commit"]] = digests(folder)
    mdl.run("tag", "light", "main~2", env=env)
    mdl.run("tag", "first", "main~3", "-a", "-m", "the first", env=env)
    mdl.run("branch", "side", "main~1", env=env)
    shutil.rmtree(mdl.index, ignore_errors=True)
    (out / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
