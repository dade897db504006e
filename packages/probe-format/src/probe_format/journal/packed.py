"""Keep names that are asked for once more, in their order, in a few bytes each: a step may have millions of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from attrs import define, field

__all__ = ["PAGE", "Packed"]

#: More names than so many are compressed together. There may be thousands of columns, one for each stack.
PAGE = 128


@define
class Packed:
    """Hold a column of JSON strings, of which no one has a line break.

    open: the newest ones. Whoever adds some calls `pack` when there are more than `PAGE` of them.
    """

    open: list[bytes] = field(factory=list)
    _pages: list[bytes] = field(factory=list)

    def pack(self) -> None:
        """Compress what is open: names of calls that follow each other differ in a few characters."""
        self._pages.append(zlib.compress(b"\n".join(self.open), 1))
        self.open.clear()

    def pages(self) -> Iterator[list[bytes]]:
        """Yield all names, some at a time."""
        for page in self._pages:
            yield zlib.decompress(page).split(b"\n")
        yield self.open
