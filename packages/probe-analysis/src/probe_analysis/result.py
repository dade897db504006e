"""Define how the results of commands (diff, nan, ranks, ...) are shown: the class that they have in common.

A result shows itself as a sentence, a table in a notebook, a pandas frame, and the document of spec/results.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any, ClassVar

from probe_format.errors import UsageError
from probe_format.excerpts import cut
from probe_format.jsonio import finite
from probe_format.terminal import printable

VERSION = "1.0"
"""Of spec/results.md."""
#: Characters of a result as text, and rows of its table in a notebook.
_LONGEST, _ROWS = 300, 20
#: The place of no call.
_NOWHERE: dict[str, Any] = {"run": None, "call": None, "line": "", "modules": []}


class Framed:
    """Show a result by its sentence, in a notebook by its first rows, and to programs as spec/results.md says.

    columns: what `rows` has, separated by blanks. skipped: the label of each rank that cannot be read -> why.
    """

    __slots__ = ()
    columns: ClassVar[str]
    skipped: Mapping[str, str]

    @property
    def state(self) -> str:
        """Return the result in a word or two."""
        raise NotImplementedError

    @property
    def sentence(self) -> str:
        """Return the result in words."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what else there is to say."""
        return ()

    def blamed(self) -> Iterator[tuple[str, str, Any]]:
        """Yield what is blamed, what the sentence names first: a word, a sentence, and the `Call` or None."""
        return iter(())

    def rows(self) -> Iterator[Sequence[Any]]:
        """Yield all of it, in the order that the command shows."""
        raise NotImplementedError

    @classmethod
    def row(cls, cells: Iterable[Any]) -> dict[str, Any]:
        """Return one of the rows with its columns. cells: what `rows` yields."""
        return dict(zip(cls.columns.split(), cells, strict=True))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the notes, and what was skipped."""
        return *self.notes, *(f"{label} is skipped: {why}" for label, why in self.skipped.items())

    def document(self, command: str) -> dict[str, Any]:
        """Return the result as spec/results.md has it."""
        causes = []
        for cause, said, call in self.blamed():
            causes.append({"cause": cause, "sentence": said, **(_NOWHERE if call is None else call.place)})
        place = {key: (causes or [_NOWHERE])[0][key] for key in _NOWHERE}
        verdict = {"state": self.state, "sentence": self.sentence, **place}
        rows = [self.row(map(_strict, cells)) for cells in self.rows()]
        head = {"version": VERSION, "command": command, "verdict": verdict, "causes": causes}
        return head | {"notes": self.notes, "skipped": self.skipped, "rows": rows}

    def frame(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``. Raises UsageError without pandas."""
        try:
            import pandas
        except ImportError:
            how = "Install it with: pip install 'probe-analysis[pandas]'."
            raise UsageError(f"A frame needs pandas, which is not installed here. {how}") from None
        return pandas.DataFrame.from_records(list(self.rows()), columns=self.columns.split())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {cut(printable(self.sentence), _LONGEST)}>"

    def _repr_html_(self) -> str:
        said = f"<p>{escape(cut(self.sentence, _LONGEST))}</p>"
        with suppress(UsageError):  # without pandas the sentence alone
            frame = self.frame()
            said += frame.head(_ROWS).to_html()
            said += f"<p>{len(frame) - _ROWS} more rows: frame()</p>" if len(frame) > _ROWS else ""
        return printable(said)


def _strict(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value
