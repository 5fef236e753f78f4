"""Report about a GPU: what was checked, every figure beside its target and beside a plain copy."""

from __future__ import annotations

import re
import socket
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# What is wanted: figure, field, limit, whether more is better, how to say it.
TARGETS: list[tuple[str, str, float, bool, str]] = [
    ("quantise pass over f32", "fraction", 0.70, True, "of the copy's bandwidth, kernels"),
    ("histogram of f32", "fraction", 0.50, True, "of the copy's bandwidth, kernels"),
    ("bf16, encode", "kernel_gbps", 250, True, "GB/s, kernels"),
    ("bf16, encode", "wall_gbps", 250, True, "GB/s, whole call"),
    ("bf16, decode", "kernel_gbps", 400, True, "GB/s, kernels"),
    ("bf16, decode", "wall_gbps", 400, True, "GB/s, whole call"),
    ("bf16, encode", "ratio", 1.50, True, "ratio"),
    ("commit", "released_ms", 15, False, "ms until the caller's tensors are free"),
    ("commit", "done_ms", 60, False, "ms until all is encoded"),
    ("tokens, batch 1", "of_plain", 0.85, True, "of bf16's tokens a second"),
    ("tokens, batch 32", "of_plain", 0.95, True, "of bf16's tokens a second"),
    ("tokens, batch 1", "memory", 0.69, False, "of bf16's bytes"),
    ("training", "of_plain", 0.80, True, "of LOMO's steps a second"),
    ("training", "memory", 0.78, False, "of LOMO's peak"),
]


def slug(name: str) -> str:
    """A device's name for a file: `NVIDIA H100 80GB HBM3` is `h100-80gb-hbm3`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(w for w in words if w not in ("nvidia", "tesla")) or "unknown"


def clean(text: str, known: Iterable[Path] = ()) -> str:
    """Text without paths of this machine, or its name."""
    for path in sorted(map(str, known), key=len, reverse=True):
        text = text.replace(path + "/", "").replace(path, ".")
    text = re.sub(r"(?<![\w.:/])/(?:[\w.+@-]+/)+([\w.+@-]*)", r"\1", text)
    host = socket.gethostname()
    return re.sub(rf"\b{re.escape(host)}\b", "this machine", text) if len(host) > 3 else text


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def prose(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 130) + "\n"


def number(value: Any) -> str:
    if not isinstance(value, int | float) or value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 0.01 else f"{value:.2f}"


def targets(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target, what was measured, and whether that is enough; none where nothing was measured."""
    figures = {f["name"]: f for f in data.get("figures", [])}
    if "commit" in data:
        figures["commit"] = data["commit"]
    figures.update({w["name"]: w for w in data.get("weights", [])})
    rows = []
    for name, key, limit, more, unit in TARGETS:
        value = figures.get(name, {}).get(key)
        met = None if value is None else value >= limit if more else value <= limit
        rows.append({"figure": name, "of": unit, "target": limit, "more": more, "measured": value, "met": met})
    return rows


def document(data: dict[str, Any]) -> str:
    """The whole page."""
    device, kit = data["device"], data["kit"]
    parts = [
        f"# The engine on an {device['name']}\n",
        prose(
            f"""Checked and measured by `{data["command"]}` at {kit.get("commit", "an unknown commit")}, driver
            {device["driver"]}, {device["memory"]} of memory, {data["cores"]} processor cores, {data["date"]}.
            [gpu.md](gpu.md) says what is measured and how."""
        ),
        "## Checks\n",
        table(
            ["check", "result", "seconds"],
            [[c["name"] + remark(c), c["result"], c["seconds"]] for c in data.get("checks", [])],
        ),
        *failures(data),
    ]
    if "figures" in data or data.get("weights"):
        words = {True: "yes", False: "**no**", None: "not measured"}
        rows = [
            [
                f"{t['figure']}, {t['of']}",
                ("at least " if t["more"] else "at most ") + number(t["target"]),
                number(t["measured"]),
                words[t["met"]],
            ]
            for t in targets(data)
        ]
        parts += ["## Targets\n", table(["figure", "wanted", "measured", "met"], rows)]
    if "figures" in data:
        parts += figures(data)
    if data.get("weights"):
        parts += weights(data["weights"])
    if "commit" in data:
        parts += commit(data["commit"])
    if data.get("peers"):
        parts += peers(data)
    return "\n".join(parts)


def remark(check: dict[str, Any]) -> str:
    short = check["remark"].splitlines()[0][:120] if check["remark"] and check["result"] != "failed" else ""
    return f" ({short})" if short else ""


def failures(data: dict[str, Any]) -> list[str]:
    failed = [c for c in data.get("checks", []) if c["result"] == "failed"]
    return [f"What {c['name']} said last:\n\n```\n{c['remark']}\n```\n" for c in failed]


def figures(data: dict[str, Any]) -> list[str]:
    """All figures, and the kernels that take most of each."""
    rows = [
        [
            f["name"],
            number(f["kernel_gbps"]),
            number(f["wall_gbps"]),
            number(f["copy_gbps"]),
            number(f["fraction"]),
            number(f["ratio"]),
            f["runs"],
        ]
        for f in data["figures"]
    ]
    header = ["figure", "kernels, GB/s", "call, GB/s", "copy, GB/s", "of the copy", "ratio", "runs"]
    size = data["figures"][0]["bytes"] / (1 << 20)
    explained = f"""Tensors of {size:,.0f} MiB (engine: four times that). GB/s are bytes of the tensor over the
        median time: of all kernels, by events; of the whole call, by the clock, with decisions on the host and
        everything on the bus. The copy is one of as many bytes inside the device's memory just before, bytes read and
        written. "Of the copy" is the bytes that cannot but be read and written (compressed ones not counted) over the
        kernels' time, as part of the copy's bandwidth. Kernels of the engine's own calls run side by side: their
        times add up to more than the clock's."""
    hot = [[f["name"], ", ".join(hottest(f["kernels"]))] for f in data["figures"] if f["kernels"]]
    return [
        "## Figures\n",
        table(header, rows),
        prose(explained),
        "## Where the time goes\n",
        table(["figure", "kernels: ms, launches"], hot),
    ]


def hottest(kernels: list[dict[str, Any]]) -> list[str]:
    return [f"{k['name']} {number(k['ms'])}, {k['launches']}" for k in kernels[:4]]


def commit(found: dict[str, Any]) -> list[str]:
    rows = [[s["name"], number(s["ms"])] for s in found["stages"]]
    rows += [
        ["**the caller's tensors are free**", number(found["released_ms"])],
        ["**all is encoded**", number(found["done_ms"])],
        ["besides: hashing the reconstructions", number(found["hash_ms"])],
    ]
    text = f"""{found["parameters"]:,} parameters in {found["tensors"]} f32 tensors, 32 bins, against the
        last commit; ratio {number(found["ratio"])}; medians of {found["runs"]} runs. Weights and the last commit are
        on the device, encodings end on the host. Nothing is written to a disk. Memory for reconstructions is kept
        from commit to commit."""
    hot = f"Most time, streams side by side: {'; '.join(hottest(found['kernels']))}."
    return ["## A lossy commit\n", table(["stage", "ms"], rows), prose(text), prose(hot)]


def weights(found: list[dict[str, Any]]) -> list[str]:
    """Models whose weights stay compressed, beside plain ones."""
    keys = ("plain", "compressed", "of_plain", "memory")
    rows = [[w["name"], *(number(w.get(k)) for k in keys), w.get("missing", "")[:120]] for w in found]
    header = ["what", "bf16, a second", "compressed, a second", "of bf16", "memory of bf16's", "remark"]
    text = """Decoder layers of normal bf16 weights, exact (`tests/gpu/weights.py` says which): tokens a second from
        CUDA graphs, the weights' bytes; steps of training a second, each weight updated in its backward pass, and the
        device's peak."""
    return ["## Compressed weights\n", table(header, rows), prose(text)]


def peers(data: dict[str, Any]) -> list[str]:
    """Each beside what mdl takes for a tensor as long (whole calls, by the clock), where the two can be compared."""
    ours = {f["name"]: f["wall_ms"] for f in data.get("figures", [])}
    if "commit" in data:
        ours["commit"] = data["commit"]["done_ms"]
    rows = []
    for p in data["peers"]:
        if "missing" in p:
            rows.append([p["name"], "-", "-", "-", "-", f"missing: {p['missing'].splitlines()[-1][:120]}"])
            continue
        beside = p.get("beside", "")
        note = f"{p['note']}; beside: {beside}"
        cells = [p["ms"], ours.get(beside), p["gbps"], p.get("ratio")]
        rows.append([p["name"], *map(number, cells), note])
    return ["## Peers, in the same run\n", table(["peer", "ms", "mdl, ms", "GB/s", "ratio", "remark"], rows)]
