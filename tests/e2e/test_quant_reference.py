"""The quantiser against a reference written from the paper: the same cells, centres, levels and reconstruction."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quant import reference
from support.cli import ROOT

SEED = 11
CASES = [(4, 0.0, 0.0005, "magnitude"), (16, 0.3, 0.005, "sensitivity"), (32, 0.1, 0.01, "magnitude")]


@pytest.fixture(scope="module")
def dump() -> Path:
    """The example that prints what the engine does."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cargo = [os.environ.get("CARGO", "cargo"), "build", "--locked", "-q", "-p", "mdl-codec"]
    subprocess.run([*cargo, "--example", "quant_dump"], cwd=ROOT, check=True)
    return target / "debug" / "examples" / "quant_dump"


def numbers(shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Weights and a gradient: a bell, heavy tails, or few different values with zeros."""
    rng = np.random.default_rng([ord(c) for c in shape])
    n = 6000
    bell, gradient = rng.normal(0, 0.02, n), rng.normal(0, 1e-3, n)
    tails = rng.standard_t(3, n) * 0.01
    few = rng.integers(-40, 40, n) / 64 * (rng.random(n) > 0.2)
    x = {"bell": bell, "tails": tails, "few": few}[shape]
    return x.astype(np.float32), gradient.astype(np.float32)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", ["bell", "tails", "few"])
def test_symbol_by_symbol(dump: Path, tmp_path: Path, shape: str, case: tuple[int, float, float, str]) -> None:
    bins, prune, protect, metric = case
    x, gradient = numbers(shape)
    x.tofile(tmp_path / "x")
    gradient.tofile(tmp_path / "g")
    args = [tmp_path / "x", bins, prune, protect, metric, SEED, tmp_path / "g"]
    run = subprocess.run([dump, *map(str, args)], check=True, capture_output=True, text=True)
    got: dict[str, Any] = json.loads(run.stdout)

    values, counts = reference.sketch(x)
    assert got["cells"] == pairs(values, counts)
    assert floats(got["quantiles"]) == floats(
        [reference.quantile_abs(x, q) for q in (0, 0.1, 0.25, 0.5, 0.9, 0.999, 1)]
    )

    pruned, protected = reference.partition(x, gradient, prune, protect, metric)
    values, counts = reference.sketch(x[~pruned & ~protected])
    assert got["rest"] == pairs(values, counts)
    w = reference.weights(values, counts)
    seeded = reference.lloyd(values, w, reference.plus_plus(values, w, bins, SEED))
    assert got["kmeans"] == seeded.tolist()
    book = reference.codebook(reference.exact(values, w, bins))
    assert floats(got["codebook"]) == book.tolist()

    levels = np.where(pruned, len(book), np.where(protected, len(book) + 1, reference.levels(x, book)))
    assert got["levels"] == levels.tolist()
    assert got["protected"] == reference.bf16(x[protected]).tolist()
    restored = np.concatenate([book, np.zeros(2, np.float32)])[levels]
    restored[protected] = reference.from_bf16(reference.bf16(x[protected]))
    assert got["restored"] == restored.view(np.uint32).tolist()


def floats(values: list[float]) -> list[float]:
    """Through f32, whose shortest digits the engine prints."""
    return [float(np.float32(v)) for v in values]


def pairs(values: np.ndarray, counts: np.ndarray) -> list[list[float]]:
    shortest = [float(str(np.float32(v))) for v in values]
    return [[v, int(n)] for v, n in zip(shortest, counts, strict=True)]
