"""Tables for people that are Markdown as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

__all__ = ["gathered", "keep", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [head, rule, *rows]
    )


def keep(file: Path, about: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write what `page` makes a section of. about: the text above the table."""
    file.write_text(json.dumps({"about": about, "head": head, "rows": rows}, indent=1) + "\n")


def gathered(
    head: Sequence[str], cases: Iterable[tuple[str, str]], rows_of: Callable[[str, str], list[list[str]]]
) -> list[list[str]]:
    """Return the rows of all cases, and print those of each as they come. rows_of: measures one case."""
    rows = []
    for case in cases:
        print(f"{', '.join(case)} ...", file=sys.stderr, flush=True)
        found = rows_of(*case)
        print(table(head, found), flush=True)
        rows += found
    return rows
