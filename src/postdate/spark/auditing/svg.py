"""Plots as SVG that stands in a page by itself: bars, and lines over groups. Pure; no library draws them."""

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _BAR, _LABEL, _NUMBER = 720, 22, 160, 90
_HEIGHT, _LEFT, _BOTTOM, _TOP = 260, 60, 40, 24
_COLOURS = ("#2b6cb0", "#2f855a", "#b7791f", "#c53030", "#6b46c1")
_TICKS = 4
#: Names below the axis, at most, so that they stay apart.
_NAMES = 8
_STYLE = 'font-family="sans-serif" font-size="12"'


def bars(values: Mapping[str, int], marked: frozenset[str] = frozenset()) -> str:
    """A bar for each value, its length by the root of the value, so that one of a million is still seen."""
    most = max([*values.values(), 1]) ** 0.5
    room = _WIDTH - _LABEL - _NUMBER
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y, length = number * _BAR, room * value**0.5 / most
        colour = _COLOURS[3] if name in marked else _COLOURS[0]
        parts.append(
            f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABEL}" y="{y + 3}" width="{length:.1f}" height="{_BAR - 6}" fill="{colour}"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{y + 15}">{value:,}</text>'
        )
    return _svg(len(values) * _BAR + 4, parts)


def lines(names: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A line for each series over named groups, from the least value (or zero) to the most."""
    values = [value for one in series.values() for value in one]
    low, high = min([0.0, *values]), max([*values, 0.0])
    high = high if high > low else low + 1.0
    width, height = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - _TOP

    def x(position: int) -> float:
        return _LEFT + width * (position + 0.5) / max(len(names), 1)

    def y(value: float) -> float:
        return _TOP + height * (high - value) / (high - low)

    parts = []
    for tick in range(_TICKS + 1):
        value = low + (high - low) * tick / _TICKS
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{value:.3g} {escape(unit)}</text>"
        )
    step = -(-len(names) // _NAMES) or 1
    parts += [
        f'<text x="{x(n):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(names[n])}</text>'
        for n in range(0, len(names), step)
    ]
    for number, (name, one) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in enumerate(one))
        dots = "".join(
            f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="2.5" fill="{colour}"/>'
            for n, value in enumerate(one)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}'
            f'<text x="{_LEFT + number * 70}" y="14" fill="{colour}">{escape(name)}</text>'
        )
    return _svg(_HEIGHT, parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" {_STYLE}>{"".join(parts)}</svg>'
    )
