"""Keep the rows of a step (of records, calls and stacks) in memory and in order, the older ones compressed.

There may be millions. As they are read, rows that came under the same name become one.
"""

import marshal
import zlib
from array import array
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from attrs import define, field

Row = tuple[str, Any]

#: Rows of more bytes on average hold values, and are not compressed: that takes long and gains little. Whoever adds
#: them limits how many there are.
_LIGHT = 256
#: How many values of a list may stay as they are.
_OPEN = 128


@define
class Packed:
    """Hold a list of plain Python values; the older ones are compressed, as rows that follow each other are alike."""

    _open: list[Any] = field(factory=list)
    _pages: list[tuple[bool, bytes]] = field(factory=list)

    def add(self, row: Any) -> None:
        self._open.append(row)
        if len(self._open) > _OPEN:
            self.close(self._open)
            self._open = []

    def close(self, rows: list[Any]) -> None:
        """Add rows that are compressed at once."""
        text = marshal.dumps(rows)
        values = len(text) > _LIGHT * len(rows)
        self._pages.append((values, text if values else zlib.compress(text, 1)))

    def pages(self) -> Iterator[list[Any]]:
        for values, text in self._pages:
            yield marshal.loads(text if values else zlib.decompress(text))
        if self._open:
            yield self._open


@define
class PackedRows:
    """A dict of rows by name, of which the older ones are packed.

    A row that is packed can't be changed any more: what comes later under its name is a row of its own, and `rows`
    joins the two.

    rows_open: the newer rows, in their order: whoever works on a row finds it here.
    joined: takes a name and its rows, in their order, and returns one.
    moves: takes a name and returns whether its joined row has the place of the last of its rows, not of the first.
    """

    joined: Callable[[str, list[Any]], Any]
    moves: Callable[[str], bool] = lambda name: False
    most: int = 8192
    rows_open: dict[str, Any] = field(factory=dict)
    _packed: Packed = field(factory=Packed)
    _hashes: "array[int]" = field(factory=lambda: array("q"))

    def pack(self, ready: Callable[[str], bool] = lambda name: True) -> None:
        """Pack the older half of the rows. ready: whether a row can be; one that is still changed often cannot."""
        rows = self.rows_open
        old = [row for row in islice(rows.items(), self.most // 2) if ready(row[0])]
        gone = {name for name, _ in old}
        self.rows_open = {name: row for name, row in rows.items() if name not in gone}
        self._packed.close(old)
        self._hashes.extend([hash(name) for name in gone])

    def rows(self) -> Iterator[Row]:
        """Yield all rows by name, in their order."""
        if not self._hashes:
            yield from self.rows_open.items()
            return
        parts = self._parts()
        for name, row in self._all():
            if name not in parts:
                yield name, row
                continue
            of_name = parts[name]
            if of_name and row == of_name[-1 if self.moves(name) else 0]:
                yield name, self.joined(name, of_name)
                parts[name] = []

    def _all(self) -> Iterator[Row]:
        return chain(chain.from_iterable(self._packed.pages()), self.rows_open.items())

    def _parts(self) -> dict[str, list[Any]]:
        """Return the rows of each name that has several, in their order."""
        newer = np.fromiter(map(hash, self.rows_open), np.int64, len(self.rows_open))
        hashes = np.sort(np.concatenate([np.frombuffer(self._hashes, np.int64), newer]))
        twice = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        found: dict[str, list[Any]] = {}
        if twice:
            for name, row in self._all():
                if hash(name) in twice:
                    found.setdefault(name, []).append(row)
        return {name: rows for name, rows in found.items() if len(rows) > 1}
