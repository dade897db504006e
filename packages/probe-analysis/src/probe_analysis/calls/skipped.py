"""Read each run of a dump by itself, in processes or on Dask; leave out what cannot be read, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter, or_
from typing import Any, Protocol, TypeVar

from probe_format.errors import FormatError

from .engine import Engine
from .run import Progress


class Readable(Protocol):
    """Be read alone: a run, or a pair of runs that are compared."""

    @property
    def label(self) -> str: ...
    def forget(self) -> None: ...


Q = TypeVar("Q", bound=Readable)
R = TypeVar("R")


class Skipped(dict[str, str]):
    """Map the label of each rank that is left out to the reason.

    first: the first error.
    """

    first: FormatError | None = None

    def leave(self, label: str, error: FormatError) -> None:
        """Leave a rank out, because reading it raised this error."""
        self.first = self.first or error
        self[label] = str(error)

    def unless(self, read: object) -> None:
        """Raise the first error where nothing was read. read: what was."""
        if not read and self.first is not None:
            raise self.first

    def read(
        self,
        work: Callable[[Q, dict[Any, Any]], R],
        parts: Sequence[Sequence[tuple[int, Q]]],
        engine: Engine,
        progress: Progress | None,
    ) -> Iterator[R]:
        """Yield the result of each run that can be read, in the order of the runs' numbers, and leave out the others.

        This is the engine's plan of each command that asks each run alone: the results of a part are a dict, and two
        dicts are merged.

        work: makes the result of a run, which must be small; its second argument is kept from run to run of a part.
        parts: runs and their numbers; the runs of a part are read one after the other.
        """

        def done(n: int, of: int) -> None:
            assert progress is not None
            progress(parts[n * len(parts) // of - 1][-1][1].label, n, of)

        found = engine(partial(_read, work), parts, or_, None if progress is None else done)
        labels = {n: run.label for part in parts for n, run in part}
        for n, what in sorted(found.items(), key=itemgetter(0)):
            if isinstance(what, FormatError):
                self.leave(labels[n], what)
            else:
                yield what


def _read(
    work: Callable[[Q, dict[Any, Any]], R], part: Sequence[tuple[int, Q]]
) -> Mapping[int, R | FormatError]:
    """Return number -> the run's result, or why it cannot be read, for a part. Two runs are in memory at a time."""
    found, known = dict[int, R | FormatError](), dict[Any, Any]()
    for (n, run), last in zip(part, (None, *part), strict=False):
        try:
            found[n] = work(run, known)
        except FormatError as error:
            found[n] = error.with_traceback(None)
        if last is not None:
            last[1].forget()
    part[-1][1].forget()
    return found
