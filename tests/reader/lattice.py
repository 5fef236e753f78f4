"""Reads lattice segments (docs/format-lattice.md) with numpy. Shares no code with mdl; slow and plain."""

from __future__ import annotations

import numpy as np
import segments
from segments import blocks, classes, lanes_rans, table, tree

F = np.float32
M = (1 << 64) - 1
LIMIT = 1 << 20


def widen(dtype, raw):
    if dtype == 4:
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(F)
    return np.frombuffer(raw, "<f4" if dtype == 2 else "<f2").astype(F)


def narrow(dtype, y):
    if dtype == 4:
        b = y.view(np.uint32).astype(np.uint64)
        return ((b + 0x7FFF + (b >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return y.astype("<f4" if dtype == 2 else "<f2").tobytes()


def factors(c, n):
    return widen(4, segments.decode(4, c.take(c.varint()), 2 * n))


def offsets(seed, positions):
    out = np.zeros(len(positions), F)
    for i, p in enumerate(positions):
        z = (seed + (p // 2 + 1) * 0x9E3779B97F4A7C15) & M
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M
        z ^= z >> 31
        v = (z >> 16 if p % 2 else z >> 40) & 0xFFFFFF
        out[i] = F(v - (1 << 24) if v >> 23 else v) * F(2.0**-24)
    return out


def relate(p, g, d, o):
    """Guess, class and mirror of every element."""
    with np.errstate(all="ignore"):
        x = p / d - o
        x = np.where(np.abs(x) < F(LIMIT - 1), x, F(0))
        a = np.rint(x)
        f = x - a
        place = np.rint(np.abs(f) * F(14)).astype(np.int64)
        m = (p - g) / d
        size = sum((np.abs(m) >= F(t)).astype(np.int64) for t in (0.0625, 0.25, 1.0))
        mirror = (place > 0) & (f < 0) | (place == 0) & (size > 0) & (m < 0)
        move = np.where(mirror == (m < 0), 3 + size, 3 - size)
    return a.astype(np.int64), 7 * place + move, mirror


def levels(freqs, leaf, lanes, b, n, cols, known):
    """The differences of a block's levels, not mirrored back."""
    stream = lanes_rans(freqs, lanes, b.take(b.varint()))
    take, rest, at = next(stream), b.rest(), 0
    bits = np.unpackbits(np.frombuffer(bytes(rest) + bytes(8), np.uint8), bitorder="little")
    parent, top = known is not None, 15 if known is not None else 27
    period = -(-32 // cols) * cols
    kept = period <= 65536 and 2 * period <= n
    lately, columns, met = 0, np.zeros(period if kept else 0, np.int64), 0
    out = np.zeros(n, np.int64)
    for first in range(0, n, 32):
        v = np.full(32, lately)
        if kept:
            here = (first + np.arange(32)) % period
            columns[met : min(first + 32, period)] = lately
            met = max(met, min(first + 32, period))
            v = (lately + columns[here]) // 2
        step = np.zeros(32, np.int64)
        edges = [8 << (j // 2) if j % 2 == 0 else 12 << (j // 2) for j in range(top)]
        for edge in edges:
            step += v >= edge
        far = np.zeros(32, np.int64)
        for i in range(min(32, n - first)):
            raw = 56 * step[i] + known[first + i] if parent else step[i]
            s = take(first + i, leaf[raw])
            least, width = (int(q[0]) for q in classes(np.array([(s + 1) // 2]), 2))
            magnitude = least + sum(int(bits[at + j]) << j for j in range(width))
            at += width
            far[i] = min(magnitude, 255)
            out[first + i] = magnitude if s % 2 else -magnitude
        lately = (lately + 8 * int(far.sum())) // 2
        if kept:
            columns[here] += 16 * far - columns[here] // 16
    if next(stream, None) is not None or (at + 7) // 8 != len(rest):
        raise ValueError("bad block")
    return out


def moves(freqs, count, lanes, b, n):
    """The differences of a block's levels (scheme 16)."""
    out = np.zeros(n, np.int64)
    if not count:
        if len(b.rest()):
            raise ValueError("bad block")
        return out
    stream = lanes_rans(freqs, lanes, b.take(b.varint()))
    take, rest, at = next(stream), b.rest(), 0
    bits = np.unpackbits(np.frombuffer(bytes(rest) + bytes(8), np.uint8), bitorder="little")
    group = [take(i, 0) for i in range(-(-n // 128))]
    quads = [i for i in range(-(-n // 4)) if group[i // 32]]
    moved = []
    for i, quad in enumerate(quads):
        mask = take(i, group[quad // 32])
        moved += [4 * quad + j for j in range(4) if mask >> j & 1]
    if moved and moved[-1] >= n:
        raise ValueError("a move past the end")
    for i, p in enumerate(moved):
        s = take(i, count + group[p // 128])
        least, width = (int(q[0]) for q in classes(np.array([(s + 1) // 2]), 2))
        magnitude = least + sum(int(bits[at + j]) << j for j in range(width))
        at += width
        out[p] = magnitude if s % 2 else -magnitude
    if next(stream, None) is not None or (at + 7) // 8 != len(rest):
        raise ValueError("bad block")
    return out


def listed(count, freqs):
    """Whether the tables have no symbols that mean nothing."""
    size = [count + 1, *[16] * count, *[256] * count]
    wide = slice(175, 256)  # more than 20 raw bits
    steps = all(f[0] == 0 and not f[wide].any() for f in freqs[1 + count :])
    return steps and all(not f[n:].any() for f, n in zip(freqs, size, strict=True))


def decode(dtype, scheme, c, base, grand, n):
    head = c.num(1)
    step = c.num(2)
    step -= (step >> 15) << 16
    start, cols = c.varint(), c.varint()
    seed = c.num(8) if head & 4 else None
    rows = factors(c, (start + n - 1) // cols - start // cols + 1) if head & 1 else None
    across = factors(c, min(n, cols)) if head & 2 else None
    log = c.num(1)
    leaf, count = (None, c.num(1)) if scheme == 16 else tree(c, (16, 8, 7) if scheme > 7 else (28, 1, 1), 16, 5)
    freqs = [table(c, True) for _ in range(count and 2 * count + 1 if scheme == 16 else count)]
    if scheme == 16 and (count > 15 or (count and not listed(count, freqs))):
        raise ValueError("bad tables")
    at = np.arange(n)
    d = np.full(n, F(2.0 ** (step / 16)), F)
    if rows is not None:
        d = d * rows[(start + at) // cols - start // cols]
    if across is not None:
        d = d * across[at % cols]
    o = np.zeros(n, F) if seed is None else offsets(seed, range(start, start + n))
    guess, known, mirror = np.zeros(n, np.int64), None, np.zeros(n, bool)
    if scheme > 7:
        p = widen(dtype, base)
        guess, known, mirror = relate(p, widen(dtype, grand) if scheme == 10 else p, d, o)
    q = np.zeros(n, np.int64)
    for a, z, b in blocks(c, n, log):
        if scheme == 16:
            q[a:z] = moves(freqs, count, head >> 3, b, z - a)
            continue
        q[a:z] = levels(freqs, leaf, head >> 3, b, z - a, cols, None if known is None else known[a:z])
    q = guess + np.where(mirror & (scheme != 16), -q, q)
    if (np.abs(q) >= LIMIT).any():
        raise ValueError("level out of range")
    return narrow(dtype, (q.astype(F) + o) * d)
