"""Every method of merging against numpy: to one ulp of f64 before rounding, to the bit after it, with any threads."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from quant import merge_reference as reference
from support.cli import ROOT

DTYPES = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}
SHAPES = [(), (1,), (0,), (3,), (7, 11), (129, 131)]
NAME = "model.safetensors encoder.layer.0.weight"

# Parameters of a strategy, and how many versions there are.
CASES: list[tuple[dict[str, Any], int]] = [
    ({"method": "average"}, 2),
    ({"method": "average"}, 5),
    ({"method": "weighted", "weight": [0.3, 0.7, 1.9]}, 3),
    ({"method": "weighted", "weight": [0.3, -0.7], "normalize": False}, 2),
    ({"method": "slerp", "t": 0.5}, 2),
    ({"method": "slerp", "t": 0.123}, 2),
    ({"method": "task-arithmetic"}, 2),
    ({"method": "task-arithmetic", "weight": [0.4, -0.3, 1.0], "lambda": 0.7, "normalize": True}, 3),
    ({"method": "ties"}, 3),
    ({"method": "ties", "density": 0.2, "weight": [0.5, 1.5, 1.0], "lambda": 1.1}, 3),
    ({"method": "ties", "density": 0.6, "normalize": False}, 2),
    ({"method": "dare-linear", "density": 0.3, "seed": 17, "weight": [0.6, 0.4]}, 2),
    ({"method": "dare-linear", "density": 0.1, "normalize": True, "lambda": 0.9}, 3),
    ({"method": "dare-ties", "density": 0.5, "seed": 2**63 + 5}, 3),
]


@pytest.fixture(scope="module")
def dump() -> Path:
    """The example that writes down what the crate does."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cargo = [os.environ.get("CARGO", "cargo"), "build", "--locked", "-q", "-p", "mdl-merge"]
    subprocess.run([*cargo, "--example", "merge_dump"], cwd=ROOT, check=True)
    return target / "debug" / "examples" / "merge_dump"


def expected(case: dict[str, Any], base: np.ndarray, versions: list[np.ndarray]) -> np.ndarray:
    method, given = case["method"], {k: v for k, v in case.items() if k != "method"}
    weight = given.pop("weight", [1.0] * len(versions))
    if "lambda" in given:
        given["lam"] = given.pop("lambda")
    if method == "average":
        return reference.average(versions)
    if method == "weighted":
        return reference.weighted(versions, weight, **given)
    if method == "slerp":
        return reference.slerp(versions[0], versions[1], given["t"])
    if method == "task-arithmetic":
        return reference.task_arithmetic(base, versions, weight, **given)
    if method == "ties":
        return reference.ties(base, versions, weight, **given)
    given = {"seed": 0, **given}
    return reference.dare(base, versions, weight, name=NAME, elects=method == "dare-ties", **given)


def run(dump: Path, folder: Path, case: dict[str, Any], dtype: str, tensors: list[np.ndarray], threads: int) -> Path:
    paths = [folder / f"in{i}" for i in range(len(tensors))]
    for path, tensor in zip(paths, tensors, strict=True):
        path.write_bytes(tensor.tobytes())
    out = folder / f"out{threads}"
    subprocess.run([dump, str(threads), json.dumps(case), dtype, NAME, out, *paths], check=True)
    return out


def is_within_one_ulp(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= np.spacing(np.maximum(np.abs(wanted), np.finfo(np.float64).tiny))
    return near | (got == wanted) | (np.isnan(got) & np.isnan(wanted))


def tensors_of(dtype: str, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    """Fine-tunes of one base: changes of another size than the weights, and some weights that did not change."""
    rng = np.random.default_rng([len(shape), *shape, count])
    base = rng.normal(0, 0.05, shape)
    out = [base.astype(DTYPES[dtype])]
    for _ in range(count):
        change = rng.standard_t(3, shape) * 0.02 * (rng.random(shape) > 0.2)
        out.append((out[0].astype(np.float64) + change).astype(DTYPES[dtype]))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]['method']}-{case[1]}")
def test_equals_the_formula(dump: Path, tmp_path: Path, case: tuple[dict[str, Any], int], dtype: str) -> None:
    strategy, count = case
    for shape in SHAPES:
        tensors = tensors_of(dtype, shape, count)
        wide = [t.astype(np.float64) for t in tensors]
        wanted = expected(strategy, wide[0], wide[1:])
        out = run(dump, tmp_path, strategy, dtype, tensors, threads=2)
        got = np.fromfile(out.with_suffix(".f64"), np.float64).reshape(shape)
        assert is_within_one_ulp(got, wanted).all(), (shape, np.abs(got - wanted).max())
        rounded = np.fromfile(out.with_suffix(".bytes"), np.uint8).tobytes()
        # Where every version holds the same, its bytes stay.
        if not all(t.tobytes() == tensors[1].tobytes() for t in tensors[1:]):
            assert rounded == rounded_once(got, dtype), shape


def rounded_once(values: np.ndarray, dtype: str) -> bytes:
    """To the nearest, ties to even: numpy does so from f64 where the dtype is its own; ml_dtypes may go through f32."""
    if dtype in ("f64", "f32", "f16"):
        return values.astype(DTYPES[dtype]).tobytes()
    finite = every(dtype)
    wide = finite.astype(np.float64)
    above = np.clip(np.searchsorted(wide, values), 1, len(wide) - 1)
    low, high = wide[above - 1], wide[above]
    # Distances of numbers with few bits to an f64 near them are exact.
    down, up = np.abs(values - low), np.abs(high - values)
    is_even = finite[above - 1].view(np.uint8 if finite.itemsize == 1 else np.uint16) % 2 == 0
    picked = np.where((down < up) | ((down == up) & is_even), above - 1, above)
    # The list has one zero: the sign is the value's.
    out = finite[picked]
    return np.where(out == 0, np.copysign(np.zeros(()), values).astype(DTYPES[dtype]), out).astype(out.dtype).tobytes()


def every(dtype: str) -> np.ndarray:
    """All finite values, ascending."""
    width = DTYPES[dtype].itemsize
    codes = np.arange(2 ** (8 * width)).astype(f"u{width}").view(DTYPES[dtype])
    with np.errstate(invalid="ignore"):
        wide = codes.astype(np.float64)
    codes = codes[np.isfinite(wide) & ~((wide == 0) & np.signbit(wide))]
    return codes[np.argsort(codes.astype(np.float64))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]['method']}-{case[1]}")
def test_threads_do_not_show(dump: Path, tmp_path: Path, case: tuple[dict[str, Any], int]) -> None:
    tensors = tensors_of("bf16", (301, 307), case[1])
    outs = [run(dump, tmp_path, case[0], "bf16", tensors, threads) for threads in (1, 2, 8)]
    for suffix in (".f64", ".bytes"):
        first, *others = [out.with_suffix(suffix).read_bytes() for out in outs]
        assert first != b""
        assert all(other == first for other in others)


@pytest.mark.parametrize("method", ["average", "slerp", "task-arithmetic", "ties"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_what_is_no_number_goes_by_ieee_754(dump: Path, tmp_path: Path, method: str, dtype: str) -> None:
    tiny = float(np.finfo(np.float32).smallest_subnormal) if dtype != "f16" else 2.0**-24
    rows = [
        [0.0, -0.0, np.inf, -np.inf, np.nan, 3 * tiny, 1.0, -0.0],
        [0.0, -0.0, 1.0, np.inf, 1.0, tiny, np.nan, -0.0],
        [-0.0, -0.0, np.inf, -np.inf, 2.0, 2 * tiny, 1.0, 1.0],
    ]
    tensors = [np.array(row).astype(DTYPES[dtype]) for row in rows]
    base, *versions = [t.astype(np.float64) for t in tensors]
    with np.errstate(invalid="ignore"):
        wanted = expected({"method": method, "t": 0.5} if method == "slerp" else {"method": method}, base, versions)
    got = np.fromfile(run(dump, tmp_path, {"method": method}, dtype, tensors, 1).with_suffix(".f64"), np.float64)
    rounded = np.fromfile(tmp_path / "out1.bytes", DTYPES[dtype])
    if method == "ties":
        # The paper says nothing of NaN. A NaN among the changes is the result, as it is for the others.
        with np.errstate(invalid="ignore"):
            is_nan = np.isnan(versions[0] - base) | np.isnan(versions[1] - base)
        wanted = np.where(is_nan, np.nan, wanted)
    np.testing.assert_array_equal(got, wanted)
    assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(wanted)].all()
    quiet = np.array([np.nan]).astype(DTYPES[dtype])
    assert all(x.tobytes() == np.abs(quiet).tobytes() for x in rounded[np.isnan(wanted)])


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_an_update_carried_over(dump: Path, tmp_path: Path, dtype: str) -> None:
    current, old, new = tensors_of(dtype, (53, 59), 2)
    paths = [tmp_path / name for name in ("current", "old", "new")]
    for path, tensor in zip(paths, (current, old, new), strict=True):
        path.write_bytes(tensor.tobytes())
    for scale in (1.0, -0.5):
        subprocess.run([dump, "2", "update", dtype, str(scale), tmp_path / "out", *paths], check=True)
        wide = [t.astype(np.float64) for t in (current, old, new)]
        wanted = np.frombuffer(rounded_once(wide[0] + scale * (wide[2] - wide[1]), dtype), DTYPES[dtype])
        wanted = np.where(old == new, current.ravel().reshape(old.shape), wanted.reshape(old.shape))
        if scale == 1.0:
            wanted = np.where(current == old, new, wanted)
        assert np.fromfile(tmp_path / "out.bytes", DTYPES[dtype]).tobytes() == wanted.astype(DTYPES[dtype]).tobytes()
