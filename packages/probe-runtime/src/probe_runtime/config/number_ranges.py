"""Parse numbers of steps, ranks and tokens: ``[1, "4-6"]`` is 1, 4, 5 and 6, and ``"0-9/4"`` 0, 4 and 8."""

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Set
from itertools import chain
from typing import TypeGuard

from probe_format.errors import Problem, UsageError
from probe_format.excerpts import brief

_RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*(?:/\s*(\d+)\s*)?", re.ASCII)
_NUMBER = re.compile(r"\s*\d+\s*", re.ASCII)
_NEGATIVE = re.compile(r"\s*-\s*\d+\s*", re.ASCII)
_NEARLY_RANGE = re.compile(
    r"\s*(\d+)\s*(?:-+>?|:|\.\.+|~|to|–|—)\s*(\d+)\s*(?:(?:/+|:|,|%|by|step|every)\s*(\d+)\s*)?",  # noqa: RUF001
    re.ASCII,
)
_NO_ENDS = re.compile(r"\s*(?:\*|every)?\s*[/%]?\s*(\d+)\s*", re.ASCII)
# A range with more numbers than this is taken for a typing error.
_MOST = 1_000_000


class Numbers(Set[int]):
    """A set of numbers, kept as the ranges in it and never written out. It iterates in order.

    runs: the ranges of numbers without a gap, which ascend.
    """

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        """Make it of ranges that ascend; those that touch each other become one."""
        runs: list[range] = []
        self._strided: list[range] = []
        for each in sorted({each for each in ranges if each}, key=lambda each: each.start):
            if len(each) > 1 and each.step > 1:
                self._strided.append(each)
            elif runs and each.start <= runs[-1].stop:
                runs[-1] = range(runs[-1].start, max(runs[-1].stop, each[-1] + 1))
            else:
                runs.append(range(each.start, each[-1] + 1))
        self.runs = runs

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self.runs, number, key=lambda run: run.start)
        return (at > 0 and number in self.runs[at - 1]) or any(number in each for each in self._strided)

    def __iter__(self) -> Iterator[int]:
        before = -1
        for number in heapq.merge(chain.from_iterable(self.runs), *self._strided):
            if number != before:
                yield number
            before = number

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._strided else sum(map(len, self.runs))

    def __bool__(self) -> bool:
        return bool(self.runs or self._strided)

    def __hash__(self) -> int:
        return hash((self.last, next(iter(self), None)))

    def __repr__(self) -> str:
        return f"Numbers({[*self.runs, *self._strided]})"

    @property
    def last(self) -> int | None:
        """Return the highest number, None where there is none."""
        return max((each[-1] for each in (*self.runs[-1:], *self._strided)), default=None)


def parse_numbers(value: object, where: str) -> tuple[Numbers, tuple[Problem, ...]]:
    """Return the numbers, and every problem.

    value: a list of ints, ``"3"``, ``"4-6"`` (both ends included) or ``"0-100/5"`` (from 0 on, every 5th), or one of
        these alone.
    where: the key path, for problems.
    """
    if isinstance(value, Numbers):
        return value, ()
    items = value if isinstance(value, list | tuple) else [value]
    alone = not isinstance(value, list | tuple)
    ranges: set[range] = set()
    problems = []
    for i, item in enumerate(items):
        found = _parse_item(item)
        if isinstance(found, range):
            ranges.add(found)
        else:
            problems.append(Problem(where if alone else f"{where}[{i}]", *found))
    if sum(map(len, ranges)) > _MOST:
        what = f"it has over {_MOST:,} numbers."
        problems.append(Problem(where, what, "Write fewer; to take all, leave the key out."))
        ranges.clear()
    return Numbers(ranges), tuple(problems)


def _parse_item(item: object) -> range | tuple[str, str]:
    """Return the numbers of one item, or what is wrong with it and what to write."""
    if isinstance(item, bool):
        return f"{str(item).lower()} is a bool, not a number.", f"Write {int(item)}?"
    if isinstance(item, int):
        return range(item, item + 1) if item >= 0 else _negative(item)
    if not isinstance(item, str):
        whole = isinstance(item, float) and item.is_integer()
        fix = f"Write {item:.0f}." if whole else f"Write {_EXAMPLES}."
        return f"{brief(item)} is a {type(item).__name__}, not a whole number or a range.", fix
    if len(item) > 40:  # also keeps the text below the limit of int(), 4300 digits
        return f"{item[:20] + '...'!r} is neither a number nor a range.", f"Write {_EXAMPLES}."
    if _NUMBER.fullmatch(item):
        return range(int(item), int(item) + 1)
    if _NEGATIVE.fullmatch(item):
        return _negative(item.strip())
    if match := _RANGE.fullmatch(item):
        return _range(item, int(match[1]), int(match[2]), match[3])
    if match := _NEARLY_RANGE.fullmatch(item):
        stride = f"/{match[3]}" if match[3] else ""
        return f"{item!r} is not a range.", f'Did you mean "{match[1]}-{match[2]}{stride}"?'
    if match := _NO_ENDS.fullmatch(item):
        return f"{item!r} has no ends.", f'Write e.g. "0-100000/{match[1]}".'
    return f"{item!r} is neither a number nor a range.", f"Write {_EXAMPLES}."


_EXAMPLES = 'e.g. 3, "4-6", or "0-100/5" for every 5th'


def _range(item: str, first: int, last: int, every: str | None) -> range | tuple[str, str]:
    stride, rest = (1, "") if every is None else (int(every), f"/{every}")
    if stride == 0:
        return f"{item!r} takes every 0th number.", f'Write "{first}-{last}/1", or a higher number.'
    if last < first:
        return f"the range {item!r} ends before it begins.", f'Write "{last}-{first}{rest}".'
    count = (last - first) // stride + 1  # as len(), which takes no more than a machine word
    if count > _MOST:
        what = f"the range {item!r} has {count} numbers, more than {_MOST}."
        return what, "Write a shorter one; to take all, leave the key out."
    return range(first, last + 1, stride)


def _negative(item: object) -> tuple[str, str]:
    return f"{brief(item)} is negative.", "Numbers begin at 0; to take all, leave the key out."


def compact(numbers: Iterable[int]) -> list[int | str]:
    """Return a list of numbers and ranges that `parse_numbers` reads as these numbers: ``[1, "4-6"]``."""
    runs = Numbers(range(n, n + 1) for n in numbers).runs
    return [run.start if len(run) == 1 else f"{run.start}-{run[-1]}" for run in runs]


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number from 0 up; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_rank_id(value: object, before: int | None = None) -> int | None:
    """Return the number of ``start(rank_id=3)``; None stays what was given before.

    Raises UsageError when it is not a whole number from 0 up.
    """
    if value is None:
        return before
    if not is_whole(value):
        raise UsageError(f"rank_id must be a whole number from 0 on, not {brief(value)}.")
    return value


def parse_token_range(value: object) -> tuple[int, int] | None:
    """Return the numbers of ``start(token_range=[first, last])``; None stays None.

    Raises UsageError when they are not two whole numbers from 0 up, in order.
    """
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UsageError(
            f"token_range must be two numbers, [first, last], not {brief(value)}. Write e.g. [1, 3]."
        )
    for n in value:
        if not is_whole(n):
            raise UsageError(
                f"token_range {brief(value)}: {brief(n)} is not a whole number from 0 on. Write e.g. [1, 3]."
            )
    first, last = value
    if last < first:
        raise UsageError(f"token_range {value!r} ends before it begins. Write [{last}, {first}].")
    return first, last


def parse_init_step(value: object) -> int:
    """Return the step of ``set_init_step(step)``. Raises UsageError when it is not a whole number from 0 up."""
    if not is_whole(value):
        raise UsageError(f"set_init_step wants a whole number from 0 up; got {brief(value)}.")
    return value
