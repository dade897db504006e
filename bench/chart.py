"""The step ratios as a picture: two bars for each kind of dump, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import attrs

__all__ = ["Bars", "picture"]

_LEFT, _WIDTH, _ROW, _BAR = 170, 520, 44, 14
_COLOURS = {"Probe": "#2a78b5", "msprobe": "#b9b9b9"}
_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 40)


@attrs.frozen
class Bars:
    """One row. label: of the dump. ratios: tool -> how many times as long as a plain step a dumped one takes."""

    label: str
    ratios: dict[str, float]


def picture(title: str, rows: Sequence[Bars]) -> str:
    """An SVG. Bars begin at 1, a plain step; below that (noise) there is none."""
    top = max(max(row.ratios.values()) for row in rows)
    end = next((t for t in _TICKS if t >= top), top)
    height = 96 + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 70} {height}" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="13" fill="#333">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="16" y="24" font-size="15">{escape(title)}</text>',
        *_legend(),
    ]
    for tick in (t for t in _TICKS if t <= end):
        x = _LEFT + _length(tick, end)
        parts.append(f'<path d="M{x:.1f} 62V{height - 28}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle" fill="#777">{tick:g}x</text>')
    for i, row in enumerate(rows):
        y = 68 + i * _ROW
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 19}" text-anchor="end">{escape(row.label)}</text>')
        for j, (tool, ratio) in enumerate(row.ratios.items()):
            parts += _bar(y + j * (_BAR + 2), _length(ratio, end), _COLOURS[tool], f"{ratio:.2f}")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    out, x = [], _LEFT
    for tool, colour in _COLOURS.items():
        out.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="49">{tool}</text>')
        x += 90
    return out


def _length(ratio: float, end: float) -> float:
    return _WIDTH * math.log(max(1.0, ratio)) / math.log(end) if end > 1 else 0.0


def _bar(y: float, length: float, colour: str, text: str) -> list[str]:
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{max(1.0, length):.1f}" height="{_BAR}" fill="{colour}"/>',
        f'<text x="{_LEFT + length + 6:.1f}" y="{y + 12}" font-size="12">{text}</text>',
    ]
