"""Reads mdl segments (docs/format-segments.md) with numpy and zstandard. Shares no code with mdl; slow and plain."""

from __future__ import annotations

import numpy as np
import zstandard

# Float dtypes: bytes of a number, exponent bits, head bits.
SHAPES = {1: (8, 11, 16), 2: (4, 8, 16), 3: (2, 5, 16), 4: (2, 8, 16), 5: (1, 4, 8), 6: (1, 5, 8)}
SIZES = [1, 8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 8, 8]  # bytes of a number, by dtype code (complex: 8)


class Cursor:
    def __init__(self, data):
        self.d, self.i = memoryview(data), 0

    def take(self, n):
        if n > len(self.d) - self.i:
            raise ValueError("truncated")
        self.i += n
        return self.d[self.i - n : self.i]

    def num(self, n):
        return int.from_bytes(self.take(n), "little")

    def varint(self):
        v = s = 0
        while True:
            b = self.num(1)
            v |= (b & 127) << s
            s += 7
            if b < 128:
                return v

    def rest(self):
        return self.take(len(self.d) - self.i)


def bits_at(data, start, width):
    """Fields of `width[i]` bits starting at bit `start[i]`, least significant bit first, as uint64."""
    stream = np.unpackbits(np.frombuffer(bytes(data) + bytes(16), np.uint8), bitorder="little")
    out = np.zeros(len(start), np.uint64)
    for j in range(int(width.max(initial=0))):
        out |= np.where(j < width, stream[np.minimum(start + j, len(stream) - 1)], 0).astype(np.uint64) << np.uint64(j)
    return out


def table(c, exact):
    first, last, at, values = c.num(1), c.num(1), 0, np.zeros(256, np.int64)
    bits = int.from_bytes(c.d[c.i : c.i + 512], "little")

    def get(n):
        nonlocal at
        at += n
        return bits >> (at - n) & ((1 << n) - 1)

    while first <= last:
        n = get(4)
        if n == 0:
            first += get(4) + 1
            continue
        values[first] = (1 << (n - 1) | get(n - 1)) if exact else n
        first += 1
    c.take((at + 7) // 8)
    return values


def rans(freqs, stream, n, ctx):
    freqs = np.array(freqs)
    symbol = np.array([np.repeat(np.arange(256), f) for f in freqs])
    start = np.cumsum(freqs, 1) - freqs
    x = np.frombuffer(stream[-128:], "<u4").astype(np.int64)
    words = np.frombuffer(stream[:-128], "<u2").astype(np.int64)[::-1]
    out, at = np.zeros(n, np.int64), 0
    for i in range(0, n, 32):
        m = min(32, n - i)
        c, y = ctx[i : i + m], x[:m]
        s = symbol[c, y & 4095]
        y = freqs[c, s] * (y >> 12) + (y & 4095) - start[c, s]
        need = np.flatnonzero(y < 65536)
        y[need] = y[need] << 16 | words[at : at + len(need)]
        at += len(need)
        x[:m] = y
        out[i : i + m] = s
    if at != len(words) or (x != 65536).any():
        raise ValueError("bad rANS stream")
    return out


def huffman(lens, data, n):
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    codes, at, code, out = {}, 0, 0, []
    for l in range(1, 13):
        code <<= 1
        for s in np.flatnonzero(lens == l):
            codes[l, code] = s
            code += 1
    for _ in range(n):
        v = l = 0
        while (l, v) not in codes:
            v = v << 1 | int(bits[at])
            l += 1
            at += 1
        out.append(codes[l, v])
    return np.array(out, np.int64)


def plane_header(c):
    tag = c.num(1)
    return tag, c.num(1) if tag == 1 else table(c, tag == 2) if tag > 1 else None


def plane(c, coder, n):
    tag, t = coder
    if tag == 0:
        return np.frombuffer(c.take(n), np.uint8).astype(np.int64)
    if tag == 1:
        return np.full(n, t, np.int64)
    data = c.take(c.num(4))
    return rans([t], data, n, np.zeros(n, np.int64)) if tag == 2 else huffman(t, data, n)


def blocks(c, n, log):
    count = -(-n >> log)
    sizes = [c.num(4) for _ in range(count - 1)]
    for b in range(count):
        yield b << log, min(n, (b + 1) << log), Cursor(c.take(sizes[b]) if b < count - 1 else c.rest())


def bitplanes(c, n, lo, hi):
    w = np.frombuffer(c.take(-(-n // 32) * (hi - lo) * 4), np.uint8).reshape(-1, hi - lo, 4)
    b = np.unpackbits(w, axis=2, bitorder="little").astype(np.uint64)
    return sum(((b[:, j] << np.uint64(lo + j)).ravel()[:n] for j in range(hi - lo)), np.zeros(n, np.uint64))


def planes(dtype, c, n):
    size, log, k = SIZES[dtype], c.num(1), c.num(1)
    out = np.zeros((n, size), np.uint8)
    low, mode, e, head, lo = size, 1, 0, 0, 1
    if k != 255:
        size, e, head = SHAPES[dtype]
        low = size - head // 8
        mode = c.num(1)
        lo = c.num(2) if e + k > 8 else 1
    count = (k != 255) + (low if mode else int(low > 0))
    coders = [plane_header(c) for _ in range(count)]
    for a, z, b in blocks(c, n, log):
        m, rest = z - a, list(coders)
        if k != 255:
            listed, at = {}, -1
            for _ in range(b.varint() if e + k > 8 else 0):
                at += b.varint() + 1
                listed[at] = b.num(2)
            s = plane(b, rest.pop(0), m)
            key = np.where(s == 0, 0, s + lo - 1)
            for at, v in listed.items():
                key[at] = v
            below = head - e - k - 1
            field = bitplanes(b, m, 0, below + 1).astype(np.int64)
            h = field >> below << (head - 1) | key << below | field & ((1 << below) - 1)
            out[a:z, low:] = h.astype("<u2").view(np.uint8).reshape(m, 2)[:, : size - low]
        if mode == 0 and low:
            for g, t in enumerate(plane(b, rest[0], -(-m // 128))):
                p, q = a + g * 128, min(z, a + g * 128 + 128)
                v = (
                    bitplanes(b, q - p, int(t), 8 * low).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :low]
                    if t
                    else np.frombuffer(b.take((q - p) * low), np.uint8).reshape(-1, low)
                )
                out[p:q, :low] = v
        for j, coder in enumerate(rest if mode else []):
            out[a:z, j] = plane(b, coder, m)
    return out.tobytes()


def classes(s, t):
    raw = np.maximum((s >> t) - 1, 0)
    return np.where(s >> t < 2, s, (1 << t) | s & ((1 << t) - 1)).astype(np.uint64) << raw.astype(np.uint64), raw


def apply(dtype, old, symbols, mags):
    """The numbers that lie `mags` from `old`, away from zero for odd symbols."""
    w, isf = 8 * SIZES[dtype], dtype in SHAPES
    top, ones = np.uint64(1 << (w - 1)), np.uint64((1 << w) - 1)
    neg = (old & top != 0) & isf
    mono = lambda v: np.where((v & top != 0) & isf, v ^ (top - np.uint64(1)), v)
    minus = (symbols % 2 == 0) ^ neg
    return mono((mono(old) + np.where(minus, np.uint64(0) - mags, mags)) & ones)


def lanes_rans(freqs, log, stream):
    """Yields a function that decodes symbol i of a part in a context, from 2^log lanes; then checks the end."""
    lanes = {0: 1, 2: 4, 5: 32}[log]
    freqs = np.array(freqs)
    symbol = [np.repeat(np.arange(256), f).tolist() for f in freqs]
    start = (np.cumsum(freqs, 1) - freqs).tolist()
    freqs = freqs.tolist()
    x = np.frombuffer(stream[len(stream) - 4 * lanes :], "<u4").tolist()
    words = np.frombuffer(stream[: len(stream) - 4 * lanes], "<u2").tolist()

    def take(i, c):
        slot = x[i % lanes] & 4095
        s = symbol[c][slot]
        y = freqs[c][s] * (x[i % lanes] >> 12) + slot - start[c][s]
        x[i % lanes] = y << 16 | words.pop() if y < 65536 else y
        return s

    yield take
    if words or any(v != 65536 for v in x):
        raise ValueError("bad rANS stream")


def tree(c, axes, leaves, width):
    """The leaf of every raw context."""
    bits, at, count = int.from_bytes(c.d[c.i : c.i + 64], "little"), 0, 0
    out = np.zeros(axes, np.int64)

    def get(n):
        nonlocal at
        at += n
        return bits >> (at - n) & ((1 << n) - 1)

    stack = [tuple((0, n) for n in axes)]
    while stack:
        part = stack.pop()
        if not get(1):
            out[tuple(slice(*r) for r in part)] = count
            count += 1
            continue
        axis, threshold = get(2), get(width)
        (lo, hi) = part[axis]
        if not lo < threshold < hi:
            raise ValueError("bad tree")
        sides = [(*part[:axis], r, *part[axis + 1 :]) for r in ((threshold, hi), (lo, threshold))]
        stack += sides
    c.take((at + 7) // 8)
    if count > leaves:
        raise ValueError("bad tree")
    return out.ravel(), count


def delta(dtype, c, base, n):
    log, t, count = c.num(1), c.num(1), c.num(1)
    firsts = [0, *c.take(count - 1)]
    freqs = [table(c, True) for _ in range(count)]
    out, ctx = base.copy(), np.zeros(n, np.int64)
    if dtype in SHAPES:
        size, e, _head = SHAPES[dtype]
        x = (base >> np.uint64(8 * size - 1 - e)).astype(np.int64) & ((1 << e) - 1)
        x = np.clip(x - 896, 0, 255) if dtype == 1 else x
        ctx = np.searchsorted(firsts, x, "right") - 1
    for a, z, b in blocks(c, n, log):
        s = rans(freqs, b.take(b.num(4)), z - a, ctx[a:z])
        least, raw = classes((s + 1) // 2, t)
        out[a:z] = apply(dtype, base[a:z], s, least + bits_at(b.rest(), np.cumsum(raw) - raw, raw))
    return out


def sparse(dtype, c, base, n):
    log, gaps, symbols = c.num(1), plane_header(c), plane_header(c)
    out, t = base.copy(), {8: 1, 4: 2}.get(SIZES[dtype], 3)
    for a, _, b in blocks(c, n, log):
        m = b.varint()
        if not m:
            continue
        g, s = plane(b, gaps, m), plane(b, symbols, m)
        (gl, gr), (sl, sr) = classes(g, 2), classes((s + 1) // 2, t)
        ends = np.cumsum(gr + sr)
        data = b.rest()
        at = a - 1 + np.cumsum(gl.astype(np.int64) + bits_at(data, ends - gr - sr, gr).astype(np.int64) + 1)
        out[at] = apply(dtype, base[at], s, sl + bits_at(data, ends - sr, sr))
    return out


def ordered(dtype, v):
    """Monotone integers, signed."""
    w, isf = np.uint64(8 * SIZES[dtype]), dtype in SHAPES
    top = np.uint64(1) << (w - np.uint64(1))
    m = np.where((v & top != 0) & isf, v ^ (top - np.uint64(1)), v) << (np.uint64(64) - w)
    return m.view(np.int64) >> np.int64(64 - 8 * SIZES[dtype])


def numbers(c, count, size, zero):
    low = np.zeros((count, 8), np.uint8)
    low[:, zero:size] = np.frombuffer(c.take(count * (size - zero)), np.uint8).reshape(count, size - zero)
    return low.view("<u8").ravel()


def palette(dtype, c, base, n):
    size, log, k, zero = SIZES[dtype], c.num(1), c.num(1), c.num(1)
    values = numbers(c, k, size, zero)
    zero, place, firsts = c.num(1), np.zeros(n, np.int64), [0]
    if base is not None:
        m = [int(x) for x in ordered(dtype, values)]
        bounds = np.array([m[i] + (m[i + 1] - m[i] + 1) // 2 for i in range(k - 1)], np.int64)
        place = np.searchsorted(bounds, ordered(dtype, base), "right")
        firsts += c.take(c.num(1) - 1)
    ctx = np.searchsorted(firsts, place, "right") - 1
    freqs, out = [table(c, True) for _ in firsts], np.zeros(n, np.uint64)
    for a, z, b in blocks(c, n, log):
        s = rans(freqs, b.take(b.num(4)), z - a, ctx[a:z])
        out[a:z] = values[(place[a:z] + s) % k]
        out[a:z][s == k] = numbers(b, int((s == k).sum()), size, zero)
    return out


def heads(size, v, dtype):
    """Monotone integers of numbers of `size` bytes; their own inverse."""
    top = 1 << (8 * size - 1)
    return v ^ (top - 1) if dtype in SHAPES and v & top else v


def palette2(dtype, c, base, grand, n):
    size, log, lanes, k, zero = SIZES[dtype], c.num(1), c.num(1), c.num(1), c.num(1)
    values = numbers(c, k, size, zero)
    zero = c.num(1)
    m = [int(x) for x in ordered(dtype, values)]
    bounds = np.array([m[i] + (m[i + 1] - m[i] + 1) // 2 for i in range(k - 1)], np.int64)
    p, g = (np.searchsorted(bounds, ordered(dtype, v), "right") for v in (base, grand))
    kind = np.where(values[p] == base, 0, np.where(values[g] == grand, 1, 2))
    steps = min(k, 64)
    leaf, leaves = tree(c, (steps, 7, 3), 32, 6)
    ctx = leaf[(p * steps // k * 7 + np.clip(p - g, -3, 3) + 3) * 3 + kind]
    freqs = [table(c, True) for _ in range(leaves)]
    if any(f[k] for f in freqs):
        freqs.append(table(c, True))
    out, wide, shift = np.zeros(n, np.uint64), size - zero, 8 * zero
    for a, z, b in blocks(c, n, log):
        stream = lanes_rans(freqs, lanes, b.take(b.varint()))
        take = next(stream)
        s = np.array([take(i, ctx[a + i]) for i in range(z - a)], np.int64)
        out[a:z] = values[(p[a:z] + s) % k]
        apart = np.flatnonzero(s == k)
        t = np.array([take(i, leaves) for i in range(len(apart))], np.int64)
        if next(stream, None) is not None:
            raise ValueError("bad stream")
        least, raw = classes((t + 1) // 2, 1)
        mags = least + bits_at(b.rest(), np.cumsum(raw) - raw, raw)
        for i, symbol, mag in zip(apart, t, mags, strict=True):
            old = int(base[a + i]) >> shift
            minus = (symbol % 2 == 0) != (dtype in SHAPES and old >> (8 * wide - 1) == 1)
            new = heads(wide, old, dtype) + (-int(mag) if minus else int(mag))
            out[a + i] = heads(wide, new % (1 << 8 * wide), dtype) << shift
    return out


def scaled(dtype, base, factor):
    """The base times a factor; what is not finite stays."""
    import lattice

    wide = lattice.widen(dtype, base)
    with np.errstate(over="ignore", invalid="ignore"):
        made = lattice.narrow(dtype, wide * np.float32(factor))
    size = SIZES[dtype]
    kept = [np.frombuffer(b, f"<u{size}") for b in (made, base)]
    return np.where(np.isfinite(wide), *kept).astype(f"<u{size}").tobytes()


def overlay(dtype, scheme, c, base, grand, length):
    size, inner = SIZES[dtype], c.take(c.varint())
    needed = {7: 0, 8: 1, 10: 2, 16: 1}.get(inner[0], 9)
    has_factor, bases = scheme > 13, (0, 1, 2, 1, 2)[scheme - 11]
    out = bytearray(decode(dtype, inner, length, base, grand) if needed <= bases else b"")
    factor = np.frombuffer(c.take(4), "<f4")[0] if has_factor else np.float32(1)
    if not np.isfinite(factor):
        raise ValueError("bad factor")
    bits, runs, end = 1 + has_factor, [], 0
    for _ in range(c.varint()):
        start = end + c.varint()
        word = c.varint()
        end, source = start + (word >> bits), word & (1 << bits) - 1
        if start == end or end * size > len(out) or (source and scheme == 11) or source > 2:
            raise ValueError("bad run")
        runs.append((start * size, end * size, source))
    literal = [(a, z) for a, z, source in runs if not source]
    for a, z, source in runs:
        if source:
            out[a:z] = base[a:z] if source == 1 else scaled(dtype, base[a:z], factor)
    if literal:
        first = c.d[c.i]
        if first > 6 or (first in (3, 4, 6) and scheme == 11):
            raise ValueError("bad scheme of literal elements")
        below = b"".join(base[a:z] for a, z in literal) if base is not None else None
        new = decode(dtype, c.rest(), sum(z - a for a, z in literal), below)
        for a, z in literal:
            out[a:z], new = new[: z - a], new[z - a :]
    if not runs or len(c.rest()):
        raise ValueError("bad overlay")
    return bytes(out)


def decode(dtype, encoded, length, base=None, grand=None):
    """The `length` decoded bytes of a segment; `dtype` is a code, `base` and `grand` are what the scheme needs."""
    c = Cursor(encoded)
    scheme, size = c.num(1), SIZES[dtype]
    if scheme == 0:
        out = bytes(c.rest())
    elif scheme == 1:
        out = zstandard.ZstdDecompressor().decompress(bytes(c.rest()), max_output_size=length)
    elif scheme == 2:
        out = planes(dtype, c, length // size)
    elif scheme in (7, 8, 10, 16):
        import lattice

        out = lattice.decode(dtype, scheme, c, base, grand, length // size)
    elif scheme in (11, 12, 13, 14, 15):
        out = overlay(dtype, scheme, c, base, grand, length)
    elif scheme == 9:
        old = [np.frombuffer(b, f"<u{size}").astype(np.uint64) for b in (base, grand)]
        out = palette2(dtype, c, *old, length // size).astype(f"<u{size}").tobytes()
    else:
        old = None if scheme == 5 else np.frombuffer(base, f"<u{size}").astype(np.uint64)
        read = {3: delta, 4: sparse, 5: palette, 6: palette}[scheme]
        out = read(dtype, c, old, length // size).astype(f"<u{size}").tobytes()
    if len(out) != length:
        raise ValueError("wrong length")
    return out
