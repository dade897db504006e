"""Lines over a logarithmic axis, as an SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["curve"]

_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 60, 520, 220
_COLOURS = ("#2a78b5", "#c4622d", "#4b8f4b", "#8a5aa8")


def curve(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return the picture of lines of (x, y) points; x grows by powers of ten, y begins at 0."""
    xs = [math.log10(x) for points in lines.values() for x, _ in points]
    top = max(1e-9, max(y for points in lines.values() for _, y in points)) * 1.1
    low, high = min(xs), max(max(xs), min(xs) + 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low) / (high - low)
        return _LEFT + _WIDTH * across, _TOP + _HEIGHT * (1 - max(0.0, y) / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 60} {_TOP + _HEIGHT + 40}" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="13" fill="#333">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="16" y="24" font-size="15">{escape(title)}</text>',
    ]
    for i in range(5):
        value = top * i / 4
        _, y = at(10**low, value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#e4e4e4"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#777">{value:.3g}</text>'
        )
    for x in sorted({x for points in lines.values() for x, _ in points}):
        across, _ = at(x, 0)
        where = f'x="{across:.1f}" y="{_TOP + _HEIGHT + 22}"'
        parts.append(f'<text {where} text-anchor="middle" fill="#777">{x:,.0f}</text>')
    wide = 60 + 7 * max(map(len, lines))  # of the longest name
    for i, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(x, y) for x, y in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{_LEFT + wide * i}" y="36" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + wide * i + 18}" y="47">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
