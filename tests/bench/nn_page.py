"""docs/benchmarks/nn.md out of the numbers of nn_bench.py."""

from __future__ import annotations

import datetime
import textwrap
from typing import Any

import torch
from report import ROOT, machine

SHORT = (
    "A training step decodes a weight twice and encodes it once; encoding is a quarter as fast as decoding "
    "(`cargo run --release -p mdl-codec --example compressed_bench`), so it is most of what a step takes longer. With "
    "more threads the rest of a step gets shorter and this less so: weights of fewer than 2^17 elements are coded by "
    "one. Moments in 8 or 4 bits are decoded and encoded twice each step. For one token decoding is most of the time: "
    "memory is what is saved, no time, as long as torch's product with plain weights comes from a cache; and tiles are "
    "smaller than a whole weight, not faster here. A thread alone writes 33 MB more slowly than two threads half of "
    "it each, so that the first row's decoding alone is slow, and what is inside, in cache, looks as fast. By two "
    "threads the decode inside a layer ran at 0.73, 0.79 and 0.81 of the codec's speed in three more runs: each tile "
    "costs a region of OpenMP and a product; tiles twice as large gave 0.77, 0.82 and 0.89, and are 8 MB for each "
    "thread, more than its share of most caches. Lossy weights lose updates that are smaller than half a step of the "
    "mantissa."
)


def write(numbers: dict[str, Any], steps: int) -> None:
    """Writes docs/benchmarks/nn.md; ``steps`` are those of `lossy`'s trainings."""
    numbers["steps"] = steps
    where = machine()
    lines = [
        "# Compressed weights in memory: `mdl.nn`", "",
        f"Measured by `tests/bench/nn_bench.py` at {where['commit']} on {where['cores']} cores of {where['cpu']}, "
        f"torch {torch.__version__.split('+')[0]}, {datetime.date.today()}, a release wheel, nothing else running. "
        "Torch has one thread where no other number is said. What is measured, and how, is said in the script.", "",
    ]  # fmt: skip
    sections = {"memory": _memory, "train": _train, "lossy": _lossy, "inference": _inference, "codec": _codec}
    for piece, write in sections.items():
        if piece in numbers:
            lines += [*write(numbers), ""]
    lines += ["## What falls short", "", SHORT]
    wrapped = [line if line.startswith("|") else textwrap.fill(line, 118) for line in lines]
    (ROOT / "docs" / "benchmarks" / "nn.md").write_text("\n".join(wrapped).rstrip() + "\n")


def _memory(numbers: dict[str, Any]) -> list[str]:
    found = numbers["memory"]
    any_way = next(iter(found.values()))
    weights, largest = any_way["weights"], any_way["largest"]
    lines = [
        "## Training: peak bytes", "",
        f"GPT of {weights / 2e6:.1f} M bf16 weights ({weights / 1e6:.1f} MB, the largest 1/{weights / largest:.0f}), "
        "all live bytes of the process:", "",
        "| way | at rest, MB | peak, MB | of LOMO | of AdamW |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    lomo, adamw = found["LOMO, SGD, plain"]["peak"], found["AdamW, plain"]["peak"]
    for way, n in found.items():
        lines.append(
            f"| {way} | {n['resting'] / 1e6:.1f} | {n['peak'] / 1e6:.1f} | {n['peak'] / lomo:.2f} "
            f"| {n['peak'] / adamw:.2f} |"
        )
    return lines


def _train(numbers: dict[str, Any]) -> list[str]:
    found = numbers["train"]
    counts = list(found)
    lines = ["## Training: time of a step", "", "The same model, 512 tokens; median of 7 interleaved steps.", ""]
    lines.append("| way |" + "".join(f" {n} thread{'s' * (n != '1')}, s | of plain |" for n in counts))
    lines.append("|---|" + "---:|---:|" * len(counts))
    for way in found[counts[0]]:
        plain = "AdamW, plain" if "AdamW" in way else "LOMO, SGD, plain"
        cells = (f" {found[n][way]:.3f} | {found[n][way] / found[n][plain]:.2f} |" for n in counts)
        lines.append(f"| {way} |" + "".join(cells))
    return lines


def _lossy(numbers: dict[str, Any]) -> list[str]:
    found = numbers["lossy"]
    lines = [
        "## Lossy weights", "",
        f"A byte-level GPT (4.3 M weights) trained {numbers['steps']} steps on Python's sources by AdamW, weights kept "
        "in so many bits throughout (blocks of 512):", "",
        "| weights | held-out loss | bytes, of bf16 | step, s |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    lines += [
        f"| {name} | {n['loss']:.3f} | {n['ratio']:.3f} | {n['step']:.3f} |" for name, n in found["training"].items()
    ]
    lines += ["", "The one that was trained lossless, its weights then in so many bits (a byte is a token):", ""]
    lines += ["| weights, block | perplexity | bytes, of bf16 | 64 tokens, ms |", "|---|---:|---:|---:|"]
    for name, n in found["blocks"].items():
        label = name.split(",")[0] if name.startswith(("plain", "lossless")) else name
        lines.append(f"| {label} | {n['perplexity']:.3f} | {n['ratio']:.3f} | {1e3 * n['time']:.2f} |")
    return lines


def _inference(numbers: dict[str, Any]) -> list[str]:
    found = dict(numbers["inference"])
    one = found.pop("layers")
    lines = [
        "## Inference: MiniLM in bf16", "",
        f"{found['plain']['dense'] / 1e6:.1f} MB plain, loaded from a repository by `mdl.nn.load`. Score: mean "
        "reciprocal rank of the right docstring among 150 (`minilm_eval.py`), higher is better. Beside the bytes there "
        f"is one buffer of {found['lossless']['buffer'] / 1e6:.1f} MB.", "",
        "| weights | outputs bit-identical | resident, of bf16 | score | 1 token, ms | 32 tokens, ms |",
        "|---|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, n in found.items():
        lines.append(
            f"| {name} | {'yes' if n['same'] else 'no'} | {n['ratio']:.3f} | {n['score']:.3f} "
            f"| {1e3 * n['token']:.2f} | {1e3 * n['line']:.2f} |"
        )
    lines += [
        "", f"A layer of 4096 x 4096 in bf16 ({one.pop('ratio'):.3f} of its bytes), one token, ms. The last column is "
        "the speed of the decode inside (the layer's time less that of torch on plain weights) by the codec's own.",
        "",
        "| threads | plain | decoded in tiles | decoded whole | decoding alone | GB/s | inside |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for threads, n in one.items():
        inside = n["decode"] / (n["layer"] - n["plain"])
        cells = " | ".join(f"{1e3 * n[key]:.2f}" for key in ("plain", "layer", "whole", "decode"))
        lines.append(f"| {threads} | {cells} | {4096 * 4096 * 2 / 1e9 / n['decode']:.2f} | {inside:.2f} |")
    return lines


def _codec(numbers: dict[str, Any]) -> list[str]:
    lines = [
        "## Coding alone", "",
        "bf16 of a normal distribution (v: squares of it), one thread, GB of plain bytes a second.", "",
        "| coding | elements | of bf16 | encoding | decoding |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    return lines + ["| " + " | ".join(cells) + " |" for cells in numbers["codec"]]
