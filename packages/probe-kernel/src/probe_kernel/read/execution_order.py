"""Read ``execution_order/``: the order in which the nodes of a graph run, and the iterations in which it ran."""

from __future__ import annotations

import re
from pathlib import Path

from probe_format.errors import FormatError
from probe_format.plain_files import read_file

_HEADER = "NodeExecutionOrder-FullNameWithScope"
_NUMBER = re.compile(r"_graph_(\d+)\.")


def read_order(path: Path) -> tuple[str, ...]:
    """Read the full names of the nodes, in order, from a ms_execution_order_graph_N.csv.

    Raises FormatError when the file has no line, or zeros (a full disk leaves such files), OSError when it cannot be
    read.
    """
    text = read_file(path).decode("utf-8-sig", "replace")
    if not text.strip() or "\0" in text:
        raise FormatError(f"{path} should have a header and one node's name a line: it is empty or damaged.")
    lines = [line.strip() for line in text.splitlines()]
    return tuple(line for line in lines if line and line != _HEADER)


def read_history(path: Path) -> tuple[int, ...]:
    """Read the iterations in which the graph ran from a ms_global_execution_order_graph_N.csv.

    Raises FormatError when a line is not a number, OSError when the file cannot be read.
    """
    lines = [line.strip() for line in read_file(path).decode("utf-8-sig", "replace").splitlines()]
    try:
        return tuple(int(line) for line in lines if line)
    except ValueError as error:
        raise FormatError(f"{path} should have one iteration number a line ({error}).") from None


def find_graph_files(folder: Path, stem: str, suffix: str) -> dict[int, Path]:
    """Return the files ``<stem>_graph_<number><suffix>`` of a folder by number; empty without the folder."""
    found = {}
    for path in sorted(folder.glob(f"{stem}_graph_*{suffix}")) if folder.is_dir() else ():
        if path.is_file() and (number := _NUMBER.search(path.name)):
            found[int(number[1])] = path
    return found
