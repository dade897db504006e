"""Show a result short, as a table in a notebook, and as a pandas frame where pandas is installed."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Any

from probe_format.errors import UsageError
from probe_format.excerpts import cut
from probe_format.terminal import printable

#: Characters of a result as text, and rows of its table in a notebook.
_LONGEST, _ROWS = 300, 20


class Framed:
    """Show a result by its sentence and, in a notebook, the first rows of its frame."""

    __slots__ = ()

    @property
    def sentence(self) -> str:
        """Return the result in words."""
        raise NotImplementedError

    def frame(self) -> Any:
        """Return a ``pandas.DataFrame`` of all of it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {cut(printable(self.sentence), _LONGEST)}>"

    def _repr_html_(self) -> str:
        said = f"<p>{escape(cut(self.sentence, _LONGEST))}</p>"
        with suppress(UsageError):  # without pandas the sentence alone
            frame = self.frame()
            said += frame.head(_ROWS).to_html()
            said += f"<p>{len(frame) - _ROWS} more rows: frame()</p>" if len(frame) > _ROWS else ""
        return printable(said)


def frame_of(columns: str, rows: Iterable[Sequence[Any]]) -> Any:
    """Return the rows as a ``pandas.DataFrame`` with these columns. Raises UsageError without pandas."""
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "A frame needs pandas, which is not installed here. Install it with: pip install 'probe-analysis[pandas]'."
        ) from None
    return pandas.DataFrame.from_records(list(rows), columns=columns.split())
