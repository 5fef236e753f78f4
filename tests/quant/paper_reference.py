"""The paper's delta encoder (Inshrinkerator, section 6) in numpy, and a reader of docs/format-paper.md; slow, plain."""

from __future__ import annotations

import numpy as np

KINDS = ["levels", "he", "rle", "pe"]


def on_ring(levels: np.ndarray, bins: int, ring_bins: int) -> np.ndarray:
    """Levels with the pruned and the protected one moved to the end of a ring with more bins."""
    return np.where(levels >= bins, levels.astype(np.int64) - bins + ring_bins, levels)


def cyclic_delta(child: np.ndarray, bins: int, parent: np.ndarray, parent_bins: int) -> np.ndarray:
    ring_bins = max(bins, parent_bins)
    return (on_ring(parent, parent_bins, ring_bins) - on_ring(child, bins, ring_bins)) % (ring_bins + 2)


def rearranged(delta: np.ndarray, places: np.ndarray, size: int) -> list[list[int]]:
    """Algorithm 5, with an empty group for each place that the parent does not use."""
    groups: list[list[int]] = [[] for _ in range(size)]
    for d, p in zip(delta.tolist(), places.tolist(), strict=True):
        groups[p].append(d)
    return groups


def put_back(groups: list[list[int]], places: np.ndarray) -> np.ndarray:
    """Algorithm 6 up to its addition: pops the front of each parent level's group."""
    queues = [iter(g) for g in groups]
    return np.array([next(queues[p]) for p in places.tolist()], np.int64)


def sign_runs(values: list[int]) -> list[int]:
    """Values negated; a run longer than one has its length after it."""
    tokens: list[int] = []
    i = 0
    while i < len(values):
        j = i
        while j < len(values) and values[j] == values[i]:
            j += 1
        tokens.append(-values[i])
        if j - i > 1:
            tokens.append(j - i)
        i = j
    return tokens


class Bits:
    """Bits of a stream, least significant first."""

    def __init__(self, data: bytes) -> None:
        self.bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").tolist()
        self.at = 0

    def bit(self) -> int:
        self.at += 1
        return self.bits[self.at - 1]

    def field(self, width: int) -> int:
        return sum(self.bit() << i for i in range(width))

    def number(self) -> int:
        """An Elias delta code."""
        zeros = 0
        while not self.bit():
            zeros += 1
        n = 1 << zeros | self.field(zeros)
        return 1 << (n - 1) | self.field(n - 1)

    def end(self) -> None:
        rest = self.bits[self.at :]
        assert len(rest) < 8, "the stream does not end here"
        assert not any(rest), "the padding is not zero"


class Block:
    """The table of a block, and its tokens one by one."""

    def __init__(self, bits: Bits) -> None:
        self.source = bits
        distinct = bits.number()
        zigzag = bits.number() - 1
        tokens = [zigzag >> 1 ^ -(zigzag & 1)]
        while len(tokens) < distinct:
            tokens.append(tokens[-1] + bits.number())
        self.codes: dict[tuple[int, int], int] = {}
        self.lone = tokens[0] if distinct == 1 else None
        lengths = [bits.field(5) for _ in tokens] if distinct > 1 else []
        code = at = 0
        for length, token in sorted(zip(lengths, tokens, strict=False)):
            code, at = code << (length - at), length
            self.codes[length, code] = token
            code += 1
        assert code == (1 << at if lengths else 0), "the code is not complete"

    def token(self) -> int:
        if self.lone is not None:
            return self.lone
        code, length = 0, 0
        while (length, code) not in self.codes:
            code, length = code << 1 | self.source.bit(), length + 1
        return self.codes[length, code]

    def runs(self, count: int) -> list[int]:
        values: list[int] = []
        while len(values) < count:
            token = self.token()
            values += [-token] if token <= 0 else [values[-1]] * (token - 1)
        return values


def decoded(
    stream: bytes, count: int, parent: np.ndarray | None = None, parent_bins: int = 0
) -> tuple[np.ndarray, int]:
    """The levels of a stream and their bin count."""
    assert stream[0] == 1, "unknown version"
    kind, bins, bits = KINDS[stream[1]], int.from_bytes(stream[2:4], "little"), Bits(stream[4:])
    if kind == "levels":
        block = Block(bits)
        levels = np.array([block.token() for _ in range(count)])
        bits.end()
        return levels, bins
    ring_bins = max(bins, parent_bins)
    places = on_ring(parent, parent_bins, ring_bins)
    if kind == "pe":
        sizes = np.bincount(places, minlength=ring_bins + 2).tolist()
        delta = put_back([Block(bits).runs(n) if n else [] for n in sizes], places)
    else:
        block = Block(bits)
        delta = np.array(block.runs(count) if kind == "rle" else [block.token() for _ in range(count)])
    bits.end()
    child = (places - delta) % (ring_bins + 2)
    return np.where(child >= ring_bins, child - ring_bins + bins, child), bins
