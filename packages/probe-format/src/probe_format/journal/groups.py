"""Sort the events of a step by the record that they belong to, as arrays: a step may have millions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

__all__ = ["Groups", "Numbers", "group_of", "groups_of"]

Numbers = npt.NDArray[np.integer[Any]]


@frozen
class Groups:
    """Rows of a table, those with one name together.

    names: one for each group, in rising order.
    rows: the numbers of the rows; those of a group one behind the other, in the order of the table.
    starts, sizes: where the rows of each group begin, and how many they are.
    """

    names: Numbers
    rows: Numbers
    starts: Numbers
    sizes: Numbers

    def first(self, mask: npt.NDArray[np.bool_]) -> Numbers:
        """Return the first row of each group where the mask, in the order of the table, is true; else one too many."""
        found: Numbers = np.minimum.reduceat(
            np.where(mask[self.rows], self.rows, len(self.rows)), self.starts
        )
        return found

    def last(self, mask: npt.NDArray[np.bool_]) -> Numbers:
        """Return the last such row of each group, -1 where there is none."""
        found: Numbers = np.maximum.reduceat(np.where(mask[self.rows], self.rows, -1), self.starts)
        return found

    def of(self, groups: Numbers) -> tuple[list[int], list[int]]:
        """Return the rows of some groups, one group behind the other, and where in them each group ends."""
        sizes = self.sizes[groups]
        ends = np.cumsum(sizes)
        inside = np.arange(ends[-1] if len(ends) else 0)
        return self.rows[
            np.repeat(self.starts[groups] - (ends - sizes), sizes) + inside
        ].tolist(), ends.tolist()


def groups_of(names: Numbers) -> Groups:
    """Return the rows of a table with these names by name."""
    small: type[np.integer[Any]] = np.int32 if len(names) < 1 << 31 else np.int64
    rows: Numbers = np.argsort(names, kind="stable").astype(small)
    ordered = names[rows]
    new = np.ones(len(rows), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    starts: Numbers = np.flatnonzero(new).astype(small)
    return Groups(ordered[starts], rows, starts, np.diff(starts, append=small(len(rows))))


def group_of(groups: Groups, names: Sequence[int]) -> Numbers:
    """Return the group of each name, -1 for a name that has none."""
    wanted = np.array(names, np.int64)
    if not len(groups.names):
        return np.full(len(wanted), -1)
    found = np.minimum(np.searchsorted(groups.names, wanted), len(groups.names) - 1)
    return np.where(groups.names[found] == wanted, found, -1)
