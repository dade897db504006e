"""Align two sequences: find the pairs of equal keys that keep the order of both."""

import bisect
import difflib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

Keys = Sequence[Hashable]


def aligned(a: Keys, b: Keys) -> Iterator[tuple[int, int]]:
    """Yield (index in ``a``, index in ``b``) of equal keys, both ascending: most of the longest such list.

    What both have only once divides the sequences first, so that long ones with few differences take linear time.
    """
    todo = [(0, len(a), 0, len(b))]
    while todo:
        i, iend, j, jend = todo.pop()
        while i < iend and j < jend and a[i] == b[j]:
            yield i, j
            i, j = i + 1, j + 1
        tail = 0
        while i < iend - tail and j < jend - tail and a[iend - 1 - tail] == b[jend - 1 - tail]:
            tail += 1
        stop, jstop = iend - tail, jend - tail
        if i < stop and j < jstop:
            anchors = _anchors(a, b, i, stop, j, jstop)
            if anchors:
                edges = [(i, j), *((x + 1, y + 1) for x, y in anchors)]
                ends = [*anchors, (stop, jstop)]
                # In reverse, because the list is taken from its end; the pairs themselves come in any order.
                for (x, y), (xend, yend) in zip(reversed(edges), reversed(ends), strict=True):
                    if x < xend and y < yend:
                        todo.append((x, xend, y, yend))
                yield from anchors
            else:
                matcher = difflib.SequenceMatcher(None, a[i:stop], b[j:jstop], autojunk=False)
                for block in matcher.get_matching_blocks():
                    yield from ((i + block.a + k, j + block.b + k) for k in range(block.size))
        yield from ((stop + k, jstop + k) for k in range(tail))


def _anchors(a: Keys, b: Keys, i: int, iend: int, j: int, jend: int) -> list[tuple[int, int]]:
    """Return the longest ascending list of pairs of keys that both parts have exactly once."""
    once, counts = Counter(a[i:iend]), Counter(b[j:jend])
    also = {key: index for index, key in enumerate(b[j:jend], j)}
    return _ascending([(x, also[key]) for x, key in enumerate(a[i:iend], i) if once[key] == counts[key] == 1])


def _ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the list, which ascends in the first number, that also ascends in the second."""
    ends: list[int] = []  # the smallest second number that a list of each length can end in
    at: list[int] = []
    before: list[int] = []
    for n, (_, y) in enumerate(pairs):
        k = bisect.bisect_left(ends, y)
        before.append(at[k - 1] if k else -1)
        if k == len(ends):
            ends.append(y)
            at.append(n)
        else:
            ends[k], at[k] = y, n
    found = []
    n = at[-1] if at else -1
    while n >= 0:
        found.append(pairs[n])
        n = before[n]
    return found[::-1]
