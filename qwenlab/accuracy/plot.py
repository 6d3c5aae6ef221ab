"""docs/accuracy.svg: predicted against measured single-stream rates, both axes logarithmic."""

from __future__ import annotations

from html import escape
from math import log10

from qwenlab.accuracy.fit import held_out
from qwenlab.accuracy.reports import Point, points

WIDTH, HEIGHT = 760, 620
LEFT, TOP, SIDE = 70, 40, 500
LOW, HIGH = 12.0, 400.0
TICKS = (15, 20, 30, 50, 70, 100, 150, 200, 300)
COLOURS = {"fitted": "#2a6fbb", "kept from the fit": "#c8542b", "H200": "#3c8d40"}


def plot() -> str:
    """The picture as SVG text."""
    single = [point for point in points() if point.single_stream]
    marks = [_mark(point) for point in sorted(single, key=lambda p: (_group(p), p.machine, p.report, p.corpus))]
    band = "".join(_line(factor, dash) for factor, dash in ((1.0, ""), (1.25, "4 4"), (0.75, "4 4")))
    legend = "".join(
        f'<circle cx="{LEFT + SIDE + 24}" cy="{TOP + 20 + 24 * i}" r="5" fill="{colour}" fill-opacity="0.7"/>'
        f'<text x="{LEFT + SIDE + 36}" y="{TOP + 25 + 24 * i}">{name}</text>'
        for i, (name, colour) in enumerate(COLOURS.items())
    )
    ticks = "".join(_tick(value) for value in TICKS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#888"/>\n'
        f"{ticks}\n{band}\n" + "\n".join(marks) + f"\n{legend}\n"
        f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 48}" text-anchor="middle">measured, tok/s of one stream</text>\n'
        f'<text x="20" y="{TOP + SIDE / 2}" text-anchor="middle" transform="rotate(-90 20 {TOP + SIDE / 2})">'
        "predicted, tok/s</text>\n"
        f'<text x="{LEFT}" y="24">{len(single)} published decode rates; dashed: 25 % off</text>\n</svg>\n'
    )


def _group(point: Point) -> str:
    if point.machine == "h200":
        return "H200"
    return "kept from the fit" if held_out(point.machine) else "fitted"


def _mark(point: Point) -> str:
    predicted = point.predicted()
    title = escape(f"{point.report}, {point.corpus}: {point.value:.1f} measured, {predicted:.1f} predicted")
    x, y = LEFT + _at(point.value), TOP + SIDE - _at(predicted)
    colour = COLOURS[_group(point)]
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.6"><title>{title}</title></circle>'


def _at(value: float) -> float:
    inside = min(max(value, LOW), HIGH)
    return SIDE * log10(inside / LOW) / log10(HIGH / LOW)


def _line(factor: float, dash: str) -> str:
    start, end = LOW * max(1.0, 1 / factor), HIGH * min(1.0, 1 / factor)
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{LEFT + _at(start):.1f}" y1="{TOP + SIDE - _at(start * factor):.1f}" '
        f'x2="{LEFT + _at(end):.1f}" y2="{TOP + SIDE - _at(end * factor):.1f}" stroke="#444"{style}/>'
    )


def _tick(value: float) -> str:
    x, y = LEFT + _at(value), TOP + SIDE - _at(value)
    return (
        f'<line x1="{x:.1f}" y1="{TOP + SIDE}" x2="{x:.1f}" y2="{TOP + SIDE + 5}" stroke="#888"/>'
        f'<text x="{x:.1f}" y="{TOP + SIDE + 20}" text-anchor="middle">{value:g}</text>'
        f'<line x1="{LEFT - 5}" y1="{y:.1f}" x2="{LEFT}" y2="{y:.1f}" stroke="#888"/>'
        f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )
