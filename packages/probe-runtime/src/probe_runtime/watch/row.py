"""Gather the norms that are found in one step, say which are not finite, and write them as a row of the watch file.

That is the file of task `watch`, which records norms in every step, and no calls. Each framework's package computes
the norms.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import define, field, frozen
from probe_format.watch import ABSENT, KINDS, Column, Kind, WatchWriter

#: Part that `non_finite` names -> the kinds of numbers that it looks at: first that in which bad values begin.
_LOOKED_AT: dict[str, tuple[Kind, ...]] = {
    "": ("activations", *(kind for kind in KINDS if kind != "activations")),
    "forward": ("activations",),
    "gradients": ("gradients",),
}


@frozen(eq=False)
class Norms:
    """Hold the norms of some tensors.

    values: float64, one for each tensor; `ABSENT` where nobody can read it.
    bad: place of a tensor -> how many elements are NaN, and how many infinite, where it is not finite.
    """

    values: np.ndarray
    bad: Mapping[int, tuple[int, int]]


@define(eq=False)
class Columns:
    """Number the columns of a run in the order in which they are met."""

    known: list[Column] = field(factory=list)
    _numbers: dict[Column, int] = field(factory=dict)

    def number(self, column: Column) -> int:
        """Return the number of a column, which is its own for the whole run."""
        found = self._numbers.get(column)
        if found is None:
            found = self._numbers[column] = len(self.known)
            self.known.append(column)
        return found


@define(eq=False)
class WatchedRow:
    """Hold the numbers of the step that runs.

    updates: how many updates it has had.
    skipped: how many updates a loss scaler skipped.
    unread: the numbers of the columns whose tensors nobody can read.
    """

    columns: Columns
    updates: int = 0
    skipped: int = 0
    unread: set[int] = field(factory=set)
    _values: np.ndarray = field(factory=lambda: np.full(0, ABSENT))
    _bad: dict[int, tuple[int, int]] = field(factory=dict)

    def put(self, numbers: Sequence[int], norms: Norms, *, largest: bool = False) -> None:
        """Keep norms under the numbers of their columns, in place of earlier ones.

        largest: where there is an earlier one, keep the larger of the two, and the larger counts.
        """
        at = np.asarray(numbers, np.intp)
        self.unread.update(at[norms.values < 0.0].tolist())
        if len(self._values) < len(self.columns.known):
            more = np.full(len(self.columns.known) - len(self._values), ABSENT)
            self._values = np.concatenate([self._values, more])
        if largest:
            self._values[at] = np.maximum(self._values[at], norms.values)  # NaN wins
        else:
            self._values[at] = norms.values
            for number in self._bad.keys() & set(numbers) if self._bad else ():
                del self._bad[number]
        for place, counts in norms.bad.items():
            before = self._bad.get(numbers[place], (0, 0)) if largest else (0, 0)
            self._bad[numbers[place]] = max(before[0], counts[0]), max(before[1], counts[1])

    def norms(self, kind: Kind) -> list[float]:
        """Return the norms of a kind that the step has."""
        pairs = zip(self.columns.known, self._values.tolist(), strict=False)  # columns may have come since
        return [norm for column, norm in pairs if column.kind == kind and not norm < 0.0]

    def not_finite(self, part: str) -> str | None:
        """Return in words which numbers are not finite; None where all are.

        part: forward (outputs), gradients, or empty for all. An infinite output may be a mask's, and does not count.
        """
        order, found = _LOOKED_AT[part], []
        for number in np.flatnonzero(~np.isfinite(self._values)).tolist():
            column, (nan, infinite) = self.columns.known[number], self._bad.get(number, (0, 0))
            is_mask = column.kind == "activations" and not np.isnan(self._values[number])
            if column.kind in order and not is_mask:
                counts = f"{nan} NaN and {infinite} infinite of {column.elements}"
                found.append((order.index(column.kind), f"{column.kind} of {column.name}: {counts} values"))
        if not found:
            return None
        _, first = min(found, key=lambda each: each[0])
        return first + (f"; {len(found) - 1} more tensors are not finite" if found[1:] else "")

    def write(self, file: WatchWriter, step: int) -> None:
        """Write the row. Raises OSError when it cannot be written."""
        self.put((), Norms(np.zeros(0), {}))
        file.columns(self.columns.known)
        file.row(step, self._values, self._bad, self.skipped)
