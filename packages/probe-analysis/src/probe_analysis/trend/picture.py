"""Draw a trend: as a picture with lines and a map of layers by steps, or as a line of characters in a terminal."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_format.errors import UsageError
from probe_format.terminal import printable

from probe_analysis.whole_file import write_whole

from .series import magnitude
from .trend import Trend

_LINES = 8
_LAYERS = 120


def draw(trend: Trend, path: str | Path) -> None:
    """Write the picture of a trend; the ending of the name is the format: ``.svg``, ``.png``, ``.pdf``, ...

    Left, lines: the series that changed most, on a logarithmic scale; of one step alone, all layers in their order.
    Right, a map of all series in the order of execution. Of several ranks the largest magnitude is shown.
    Raises UsageError when matplotlib is not installed, or cannot write the format; OSError, with
    ``path`` in it, when the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "A picture needs matplotlib, which is not installed here. Install it with: pip install "
            "'probe-analysis[plot]'. The table has a line for each layer without it."
        ) from None
    shown = sorted(trend.series[:_LAYERS], key=lambda series: series.place)
    height = max(4.0, 1.5 + 0.18 * len(shown))
    figure = Figure(figsize=(15, height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    formats = canvas.get_supported_filetypes()
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in formats:
        raise UsageError(f"{path} should end with the format of the picture: .{', .'.join(sorted(formats))}.")
    lines, colours = figure.subplots(1, 2)
    figure.suptitle(f"{trend.quantity}: {trend.statistic} ({trend.rule})", fontsize=10)
    if len(trend.steps) > 1:
        _over_steps(lines, trend)
    else:
        _over_layers(lines, trend)
    _finish(lines, trend)
    _map(figure, colours, trend, shown)
    figure.savefig(drawn := io.BytesIO(), format=ending)
    write_whole(path, drawn.getvalue())


def _over_steps(axes: Any, trend: Trend) -> None:
    for series in trend.series[:_LINES]:
        sizes = [_size(series.of_step(step)) for step in trend.steps]
        axes.plot(trend.steps, sizes, marker=".", label=_shown(series.name))
    axes.set_xlabel("step")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _over_layers(axes: Any, trend: Trend) -> None:
    ordered = sorted(trend.series, key=lambda series: series.place)
    each = [{p.folder: p for p in reversed(series.points)} for series in ordered]
    for folder, point in {name: p for points in each for name, p in points.items()}.items():
        sizes = [_size(points[folder].value if folder in points else None) for points in each]
        axes.plot(range(len(sizes)), sizes, marker=".", label=trend.whose(point) or "all")
    axes.set_xlabel("layer, in the order of execution")


def _finish(axes: Any, trend: Trend) -> None:
    signless = trend.statistic in ("Norm", "magnitude", "rms")
    axes.set_ylabel(trend.statistic if signless else f"{trend.statistic}, absolute")
    if any(size > 0 for line in axes.get_lines() for size in line.get_ydata()):
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _map(figure: Any, axes: Any, trend: Trend, shown: list[Any]) -> None:
    """Colour each series in each step by the logarithm of its magnitude; what is not finite is a cross."""
    sizes = [[_size(series.of_step(step)) for step in trend.steps] for series in shown]
    logs = [[math.log10(size) if size > 0 else math.nan for size in row] for row in sizes]
    image = axes.imshow(logs, aspect="auto", interpolation="nearest", cmap="viridis")
    for y, series in enumerate(shown):
        for x, step in enumerate(trend.steps):
            value = series.of_step(step)
            if value is not None and not math.isfinite(value):
                axes.text(x, y, "x", ha="center", va="center", color="red")
    names = [_shown(name if len(name := series.name) <= 48 else f"…{name[-47:]}") for series in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=6)
    ticks = range(0, len(trend.steps), 1 + len(trend.steps) // 20)
    axes.set_xticks(ticks, [str(trend.steps[i]) for i in ticks], fontsize=7)
    axes.set_xlabel("step")
    more = f" ({len(trend.series) - len(shown)} more are left out)" if len(trend.series) > len(shown) else ""
    axes.set_title(f"all in the order of execution{more}; red x: not finite", fontsize=9)
    figure.colorbar(image, ax=axes, label=f"log10 {trend.statistic}")


def _shown(name: str) -> str:
    """Return a name as matplotlib draws it: its dollars are no formula's, whose errors would end the picture."""
    return printable(name).replace("$", r"\$")


def _size(value: float | None) -> float:
    """Return the magnitude, NaN where there is none that a line can be drawn through."""
    return abs(value) if value is not None and math.isfinite(value) else math.nan


_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-~=+*#"


def sparkline(values: Sequence[float | None], *, plain: bool = False, width: int = 40) -> str:
    """Return a character for each value, higher for larger magnitudes, on a logarithmic scale.

    ``x`` stands for a value that is not finite, a blank for none. Of more values than ``width``, neighbours are drawn
    as one character, by the largest of them.
    plain: use ASCII alone.
    """
    values = _squeezed(values, width)
    sizes = [None if v is None else abs(v) for v in values]
    logs = [math.log(s) for s in sizes if s is not None and math.isfinite(s) and s > 0]
    low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
    marks = _PLAIN if plain else _BLOCKS
    return "".join(_mark(size, low, high, marks) for size in sizes)


def _mark(size: float | None, low: float, high: float, marks: str) -> str:
    if size is None:
        return " "
    if not math.isfinite(size):
        return "x"
    if size == 0.0:
        return marks[0]
    if high - low < 1e-12:
        return marks[len(marks) // 2]
    return marks[round((math.log(size) - low) / (high - low) * (len(marks) - 1))]


def _squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    if len(values) <= width:
        return list(values)
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    parts = (values[a:b] for a, b in itertools.pairwise(edges))
    return [max((v for v in part if v is not None), key=magnitude, default=None) for part in parts]
