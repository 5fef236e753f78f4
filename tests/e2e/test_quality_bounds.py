"""The yardstick of the quality bench: errors by row over the weight and over the update, zeros and all."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from quality.bounds import compare


def tensors(**values: object) -> dict[str, np.ndarray]:
    return {name: np.array(value, np.float32) for name, value in values.items()}


def test_errors_by_row() -> None:
    exact = tensors(embedding=[[3, 4], [0, 2]], bias=[3, 4], new=[[1, 1]])
    stored = tensors(embedding=[[3, 4], [0, 0]], bias=[3, 3.5], new=[[1, 0.9]])
    before = tensors(embedding=[[3, 3], [0, 1]], bias=[3, 3])
    found = compare(exact, stored, before)
    assert found["rows"] == 4
    assert found["exact_rows"] == 1
    assert found["above"] == 1
    assert found["wiped_embeddings"] == 1
    assert found["weight"]["row"] == pytest.approx(1.0)
    assert found["weight"]["row_at"] == "embedding[1]"
    assert found["weight"]["tensor"] == pytest.approx((4 / 29) ** 0.5)
    assert found["update"]["row"] == pytest.approx(2.0)
    assert found["first"]["row"] == pytest.approx(0.1 / 2**0.5)
    assert found["changed"] == []
    assert found["trained"] is None


def test_an_update_may_begin_at_restored_weights() -> None:
    exact, stored, restored = tensors(w=[[4, 4]]), tensors(w=[[4, 3]]), tensors(w=[[4, 2]])
    found = compare(exact, stored, exact, restored)
    assert found["trained"]["row"] == pytest.approx(0.5)
    assert found["update"]["over_zero"] == 1


def test_an_error_over_nothing_is_counted() -> None:
    exact, stored = tensors(w=[[0, 0], [1, 1], [2, 2]]), tensors(w=[[0, 0.1], [1, 1.1], [2, 2]])
    found = compare(exact, stored, exact)
    assert found["weight"]["over_zero"] == 1
    assert found["above"] == 1
    assert found["update"]["over_zero"] == 2
    assert found["update"]["row"] == 0.0


def test_not_the_same_tensors() -> None:
    exact = tensors(a=[1], b=[1], c=[1]) | {"ids": np.arange(3)}
    stored = tensors(a=[1], b=[1, 2], d=[1]) | {"ids": np.arange(3) + 1}
    assert compare(exact, stored, None)["changed"] == ["b", "c", "d", "ids"]
    assert compare(exact, stored, None)["update"] is None
