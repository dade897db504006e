"""Recognise the text of records that an earlier rank has too, but for their numbers and process groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from probe_format.jsonio import loads
from probe_format.statistics import WHOLE

if TYPE_CHECKING:
    from .compact_run import RecordForm

#: What `loads` takes for a float, or for no number at all.
_FLOAT = rb"(-?[0-9]++[.eE][-+0-9eE]*+)"
#: The four floats of a tensor.
FLOATS_IN_TEXT = re.compile(b",".join(b'"%b":%b' % (key.encode(), _FLOAT) for key in WHOLE))
GROUP = re.compile(rb'"group_ranks":\[[\d,]*\](?:,"group_id":"[^"\\]*")?')
#: What stands before the first of them, and before each of the others.
_FIRST, *_KEYS = (b'"%b":' % key.encode() for key in WHOLE)
#: What floats are written with, and four without that.
_IN_FLOATS = b"0123456789.eE+-"
_BETWEEN = b"".join(b",%b" % key for key in _KEYS).translate(None, _IN_FLOATS)
#: How many records more than those of the first rank are read one by one.
_MOST_ODD = 8

#: The forms of records, None of one that is to be read by itself; record -> its group; and the floats of the others.
Recognised = tuple[list["RecordForm | None"], Mapping[int, bytes], Any]


def pieces_of(text: bytes) -> list[bytes]:
    """Return the text of records, cut before the four floats of each tensor."""
    return text.split(_FIRST)


@frozen(eq=False)
class Pattern:
    """Hold records that follow one another, a line each.

    tails: what each piece holds behind its floats, without groups. floats: whether it has any.
    record: in which each piece begins, and where the last one ends. grouped: the pieces with groups in them.
    groups: record -> how many groups it has. forms: None of a record that is always to be read by itself.
    """

    tails: Sequence[bytes]
    floats: Sequence[bool]
    record: Sequence[int]
    grouped: Sequence[int]
    groups: Mapping[int, int]
    forms: Sequence[RecordForm | None]

    @classmethod
    def of(cls, text: bytes, forms: Sequence[RecordForm | None]) -> Pattern:
        pieces = pieces_of(text)
        found = [FLOATS_IN_TEXT.match(_FIRST + piece) for piece in pieces]
        ends = [four.end() - len(_FIRST) if four else 0 for four in found]
        record = [*accumulate((piece.count(b"\n") for piece in pieces), initial=0)]
        tensors = [0] * len(forms)
        for n, end in zip(record, ends, strict=False):
            tensors[n] += end > 0
        counts = [(len(WHOLE) * n, 0) for n in tensors]
        whole = [x if x and x.counts == own else None for x, own in zip(forms, counts, strict=True)]
        return cls(
            [GROUP.sub(b"", piece[end:]) for piece, end in zip(pieces, ends, strict=True)],
            [end > 0 for end in ends],
            record,
            [n for n, piece in enumerate(pieces) if GROUP.search(piece)],
            {n: len(own) for n, line in enumerate(text.split(b"\n")) if (own := GROUP.findall(line))},
            whole,
        )

    def read(self, pieces: Sequence[bytes]) -> Recognised | None:
        """Return what is in the records of a text; None where they are others. pieces: its pieces."""
        if len(pieces) != len(self.tails):
            return None
        plain, groups = [*pieces], dict[int, list[bytes]]()
        for n in self.grouped:
            for at, line in enumerate(pieces[n].split(b"\n"), self.record[n]):
                groups.setdefault(at, []).extend(GROUP.findall(line))
            plain[n] = GROUP.sub(b"", pieces[n])
        heads = [*map(bytes.removesuffix, plain, self.tails)]
        odd = {at for at, many in self.groups.items() if len(groups[at]) != many or len({*groups[at]}) > 1}
        for n in self._misfits(plain, heads):
            if pieces[n].count(b"\n") != self.record[n + 1] - self.record[n]:
                return None
            odd.update(range(self.record[n], self.record[n + 1] + 1))
        forms = [None if n in odd else form for n, form in enumerate(self.forms)]
        if forms.count(None) > self.forms.count(None) + _MOST_ODD:
            return None
        told = [yes and forms[n] is not None for yes, n in zip(self.floats, self.record, strict=False)]
        numbers = _numbers([*compress(heads, told)])
        own = {at: groups[at][0] for at in self.groups if at not in odd}
        return None if numbers is None else (forms, own, numbers)

    def _misfits(self, pieces: Sequence[bytes], heads: Sequence[bytes]) -> Iterator[int]:
        """Yield the pieces that end otherwise, or hold more. heads: what stands before their tails."""
        for n, (piece, head, has) in enumerate(zip(pieces, heads, self.floats, strict=True)):
            if len(head) == len(piece) if has else piece != self.tails[n]:
                yield n


def _numbers(heads: Sequence[bytes]) -> Any:
    """Return all floats; None where something else is among them. Equal tensors are parsed once."""
    places = {head: n for n, head in enumerate(dict.fromkeys(heads))}
    text = b",".join(places)
    if text.translate(None, _IN_FLOATS) != b",".join([_BETWEEN] * len(places)):
        return None
    for key in _KEYS:
        text = text.replace(key, b"")
    try:
        floats = loads(b"[%b]" % text)
    except ValueError:
        return None
    if len(floats) != len(WHOLE) * len(places) or {*map(type, floats)} - {float}:
        return None
    return np.array(floats, "d").reshape(-1, len(WHOLE))[[places[head] for head in heads]].ravel()
