"""Compare many pairs of calls at once, where two records can differ in floats of their tensors alone: most pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, field, frozen
from probe_format.schema import writes_into

from probe_analysis.calls.compact_run import RecordForm
from probe_analysis.compare.estimates import SIDES, Column, Told

_OUT = SIDES.index("out")


@frozen(eq=False, repr=False)
class InFloats:
    """Hold how the records of some pairs of calls differ.

    plain: pair -> whether it was compared: its records have one form, and their numbers are finite.
    other: pair -> whether its records differ.
    ends: 0, and for each pair the row of the columns where its tensors end.
    columns: what `Told.add` takes, for the tensors that differ and count, in the order of their pairs and sides.
    """

    plain: Sequence[bool]
    other: Sequence[bool]
    ends: Sequence[int]
    columns: tuple[Column, Column, Column, Column]

    def add_to(self, told: Told, first: int, last: int) -> Sequence[slice]:
        """Add the tensors of the pairs from ``first`` up to ``last``; return the rows of each."""
        rows = slice(self.ends[first], self.ends[last])
        begin = told.add(*(column[rows] for column in self.columns)) - rows.start
        return [slice(begin + self.ends[n], begin + self.ends[n + 1]) for n in range(first, last)]


@define(eq=False, repr=False)
class FloatRecords:
    """Compare records by their floats.

    told: gives each size of a tensor a number. _kinds: form -> side, number of the size, and place of each tensor.
    """

    told: Told
    _kinds: dict[RecordForm | None, Column] = field(factory=lambda: {None: np.empty((0, 3), int)})

    def compare(
        self, names: Sequence[str], forms: Sequence[RecordForm | None], ones: Column, twos: Column
    ) -> InFloats:
        """Compare the records of pairs of calls.

        names: of the first call of each pair. forms: the form of both records of each pair; None for a pair that is
        compared by itself. ones, twos: Max, Min, Mean and Norm of the tensors of all pairs with a form, (tensors, 4).
        """
        kinds, pairs = [self._kinds_of(form) for form in forms], len(forms)
        (side, size, number), of = np.concatenate(kinds).T, np.repeat(np.arange(pairs), [*map(len, kinds)])
        with np.errstate(all="ignore"):
            finite = np.bincount(of, ~np.isfinite(ones + twos).all(axis=1), pairs) == 0
        differs = (ones != twos).any(axis=1)
        made, counts = np.bincount(of, differs & (side == _OUT), pairs) > 0, differs.copy()
        # What a call wrote over may have been memory of `torch.empty`.
        for row in np.flatnonzero(differs & ~made[of]).tolist():
            form = forms[of[row]]
            assert form is not None
            counts[row] = not writes_into(names[of[row]], form.tensors[number[row]][0])
        rows = np.flatnonzero(counts)
        rows = rows[np.argsort(of[rows] * len(SIDES) + side[rows], kind="stable")]
        return InFloats(
            [form is not None and fine for form, fine in zip(forms, finite.tolist(), strict=True)],
            (np.bincount(of, differs, pairs) > 0).tolist(),
            [0, *np.cumsum(np.bincount(of[rows], minlength=pairs)).tolist()],
            (side[rows], size[rows], np.hstack((ones[rows], twos[rows])), number[rows]),
        )

    def _kinds_of(self, form: RecordForm | None) -> Column:
        found = self._kinds.get(form)
        if found is None:
            assert form is not None and form.sizes is not None
            sizes = map(self.told.numbered, form.sizes)
            each = [*zip(form.sides, sizes, range(len(form.sizes)), strict=True)]
            self._kinds[form] = found = np.array(each, int).reshape(-1, 3)
        return found
