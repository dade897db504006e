"""Make a pandas frame of rows, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from probe_format.errors import UsageError

__all__ = ["frame_of"]


def frame_of(columns: str, rows: Iterable[Sequence[Any]]) -> Any:
    """Return the rows as a ``pandas.DataFrame`` with these columns. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "A frame needs pandas, which is not installed here. Install it with: pip install 'probe-analysis[pandas]'."
        ) from None
    return pandas.DataFrame.from_records(list(rows), columns=columns.split())
