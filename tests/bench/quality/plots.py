"""Small SVG charts, written by hand: lines over training steps, and points of quality against ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#e08e0b", "#5c6b73", "#17a2b8", "#7a4419", "#000000", "#9aa700")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 800, 340, 62, 34, 230, 46


@dataclass(frozen=True)
class Series:
    """One named line (or, without line, group of points) of a chart."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic, and its label."""

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [m * 10.0**p for p in powers for m in (1, 2, 5)]
        else:
            rough = (self.high - self.low) / 6
            unit = 10.0 ** math.floor(math.log10(rough))
            gap = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough)
            marks = [k * gap for k in range(math.ceil(self.low / gap - 1e-9), math.floor(self.high / gap + 1e-9) + 1)]
        return [mark for mark in marks if self.low * (1 - 1e-9) <= mark <= self.high * (1 + 1e-9) or mark == 0]


def x_pixel(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def y_pixel(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)


def chart(
    path: Path,
    title: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    lines: bool = True,
    marks: Sequence[float] = (),
    band: tuple[float, float] | None = None,
) -> None:
    """Writes a chart; `marks` are dashed vertical lines, `band` a shaded range of y."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        '  font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    if band is not None:
        top, low = y_pixel(y, min(band[1], y.high)), y_pixel(y, max(band[0], y.low))
        out.append(f'<rect x="{LEFT}" y="{top:.1f}" width="{right - LEFT}" height="{low - top:.1f}" fill="#dfe9d8"/>')
    for value in y.ticks():
        at = y_pixel(y, value)
        out.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#e3e3e3"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in x.ticks():
        at = x_pixel(x, value)
        out.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    for value in marks:
        at = x_pixel(x, value)
        out.append(f'<path d="M{at:.1f} {TOP}V{bottom}" stroke="#999" stroke-dasharray="3 4"/>')
    out.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#444"/>')
    out.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x.label)}</text>')
    middle = (TOP + bottom) / 2
    out.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y.label)}</text>'
    )
    for index, one in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        places = [(x_pixel(x, a), y_pixel(y, b)) for a, b in one.points]
        if lines:
            joined = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
            out.append(f'<path d="M{joined}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        else:
            out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4.5" fill="{colour}"/>' for a, b in places]
        row = TOP + 14 + 18 * index
        out.append(f'<rect x="{right + 12}" y="{row - 9}" width="12" height="10" fill="{colour}"/>')
        out.append(f'<text x="{right + 30}" y="{row}">{escape(one.name)}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*out, "</svg>"]) + "\n")
