"""Merges of weights in numpy, written from the formulas of the papers and not from the code.

Model soups (Wortsman et al., 2022, section 2), slerp (Shoemake, 1985, section 3.3, with mergekit's limits), task
arithmetic (Ilharco et al., 2023, section 2), TIES (Yadav et al., 2023, section 3.2 and algorithm 1), DARE (Yu et al.,
2024, section 3.2). All take float64 arrays and give float64, before any rounding to a dtype. Sums over versions go in
their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import blake3
import mpmath
import numpy as np

Floats = np.ndarray
DOT_THRESHOLD = 0.9995


def added(parts: Sequence[Floats]) -> Floats:
    """The sum, first to last."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def average(versions: Sequence[Floats]) -> Floats:
    return added(versions) / len(versions)


def weighted(versions: Sequence[Floats], weight: Sequence[float], normalize: bool = True) -> Floats:
    total = added([w * x for w, x in zip(weight, versions, strict=True)])
    return total / added([np.float64(w) for w in weight]) if normalize else total


def slerp(a: Floats, b: Floats, t: float) -> Floats:
    """The angle, which all elements share, to 60 digits."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return (1 - t) * a + t * b
    with mpmath.workdps(60):
        flat = [[mpmath.mpf(float(x)) for x in v.ravel()] for v in (a, b)]
        norms = [mpmath.sqrt(mpmath.fsum(x * x for x in v)) for v in flat]
        norms = [norm if norm > 1e-8 else mpmath.mpf(1) for norm in norms]
        dot = mpmath.fsum(x * y for x, y in zip(*flat, strict=True)) / (norms[0] * norms[1])
        if abs(dot) > DOT_THRESHOLD:
            return (1 - t) * a + t * b
        theta = mpmath.acos(dot)
        s0 = float(mpmath.sin((1 - mpmath.mpf(t)) * theta) / mpmath.sin(theta))
        s1 = float(mpmath.sin(mpmath.mpf(t) * theta) / mpmath.sin(theta))
    return s0 * a + s1 * b


def task_arithmetic(
    base: Floats, versions: Sequence[Floats], weight: Sequence[float], lam: float = 1.0, normalize: bool = False
) -> Floats:
    return base + lam * mixed([x - base for x in versions], weight, normalize)


def mixed(deltas: Sequence[Floats], weight: Sequence[float], normalize: bool) -> Floats:
    total = added([d * w for d, w in zip(deltas, weight, strict=True)])
    divisor = added([np.float64(w) for w in weight])
    return total / divisor if normalize and abs(divisor) >= 1e-8 else total


def trim(delta: Floats, density: float) -> Floats:
    """Keeps the top share by magnitude; of equal ones the first."""
    if density >= 1:
        return delta
    keep = max(int(density * delta.size), min(1, delta.size))
    order = np.argsort(-np.abs(delta), axis=None, kind="stable")
    out = np.zeros(delta.size)
    out[order[:keep]] = delta.ravel()[order[:keep]]
    return out.reshape(delta.shape)


def elect(deltas: Sequence[Floats], weight: Sequence[float], normalize: bool) -> Floats:
    """The sign with the larger total mass, and the mean of the changes that have it."""
    scaled = [d * w for d, w in zip(deltas, weight, strict=True)]
    sign = np.where(added(scaled) >= 0, 1.0, -1.0)
    total, divisor = np.zeros_like(sign), np.zeros_like(sign)
    for s, w in zip(scaled, weight, strict=True):
        agrees = np.sign(s) == sign
        total = total + np.where(agrees, s, 0.0)
        divisor = divisor + np.where(agrees, w, 0.0)
    return total / np.where(divisor == 0, 1.0, divisor) if normalize else total


def ties(
    base: Floats,
    versions: Sequence[Floats],
    weight: Sequence[float],
    density: float = 1.0,
    lam: float = 1.0,
    normalize: bool = True,
) -> Floats:
    return base + lam * elect([trim(x - base, density) for x in versions], weight, normalize)


def kept(size: int, density: float, seed: int, version: int, name: str) -> np.ndarray:
    """DARE's mask: SplitMix64 from a key that BLAKE3 makes of seed, version and name."""
    if density >= 1:
        return np.ones(size, bool)
    data = seed.to_bytes(8, "little") + version.to_bytes(8, "little") + name.encode()
    digest = blake3.blake3(data, derive_key_context="mdl 2026-11-24 dare v1").digest()
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        z = np.uint64(int.from_bytes(digest[:8], "little")) + step * np.arange(1, size + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53 < density


def dare(
    base: Floats,
    versions: Sequence[Floats],
    weight: Sequence[float],
    density: float,
    seed: int,
    name: str,
    elects: bool,
    lam: float = 1.0,
    normalize: bool = False,
) -> Floats:
    """Each change survives with the probability `density` and is divided by it."""
    deltas = []
    for version, x in enumerate(versions):
        mask = kept(base.size, density, seed, version, name).reshape(base.shape)
        deltas.append(np.where(mask, (x - base) / density, 0.0))
    return base + lam * (elect if elects else mixed)(deltas, weight, normalize)
