"""Find the Cells around an operator, and the lines of the user's program that made it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probe_format.names import Direction, ModuleName

from probe_kernel.graph.model import Operator

_DEF = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")


def cells_of(full_name: str, direction: Direction, root: str = "") -> Iterator[str]:
    """Yield the nodes of the Cells around an operator, outermost first, from its scope.

    ``Default/network-WithLossCell/conv1-Conv2d/Conv2D-op0`` is in ``Cell.network.WithLossCell.forward.0`` and
    ``Cell.network.conv1.Conv2d.forward.0``. The scope does not contain the call's number, so it is always 0.

    root: the Cell that is left out with those around it; empty to keep all.
    """
    path: list[str] = []
    for scope in full_name.split("/")[:-1]:
        name, dash, cls = scope.rpartition("-")
        if not dash or not name or not cls.isidentifier():
            continue
        path.append(name)
        whole = ".".join(path)
        if root and not whole.startswith(f"{root}."):
            continue
        yield str(ModuleName("Cell", whole.removeprefix(f"{root}.") if root else whole, cls, direction, 0))


def stack_of(operator: Operator) -> Iterator[str]:
    """Return the lines as in stack.json, innermost first."""
    function = "<module>"
    out = []
    for frame in operator.frames:
        if found := _DEF.match(frame.text):
            function = found[1]
        elif not frame.text.lstrip().startswith("@"):
            out.append(f"File {frame.file}, line {frame.line}, in {function}, \n {frame.text.strip()}")
    return reversed(out)
