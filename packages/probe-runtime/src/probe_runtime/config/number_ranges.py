"""Parse numbers of steps, ranks and tokens as users write them: ``[1, "4-6"]`` is 1, 4, 5 and 6."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probe_format.errors import Problem, UsageError
from probe_format.excerpts import brief

_RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*", re.ASCII)
_NUMBER = re.compile(r"\s*\d+\s*", re.ASCII)
_NEGATIVE = re.compile(r"\s*-\s*\d+\s*", re.ASCII)
_NEARLY_RANGE = re.compile(r"\s*(\d+)\s*(?:-+>?|:|\.\.+|~|to|–|—)\s*(\d+)\s*", re.ASCII)  # noqa: RUF001
# A range is kept as its numbers; one with more than this is taken for a typing error.
_MOST = 1_000_000


def parse_numbers(value: object, where: str) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """Return sorted numbers without repeats, and every problem.

    value: a list of ints, ``"3"`` or ``"4-6"`` (both ends included), or one of these alone.
    where: the key path, for problems.
    """
    items = value if isinstance(value, list | tuple) else [value]
    alone = not isinstance(value, list | tuple)
    numbers: set[int] = set()
    problems = []
    for i, item in enumerate(items):
        found = _parse_item(item, where if alone else f"{where}[{i}]")
        if isinstance(found, Problem):
            problems.append(found)
        else:
            numbers.update(found)
        if len(numbers) > _MOST:
            what = f"it has over {_MOST:,} numbers."
            problems.append(Problem(where, what, "Write fewer; to take all, leave the key out."))
            break
    return tuple(sorted(numbers)), tuple(problems)


def _parse_item(item: object, where: str) -> Iterable[int] | Problem:
    if isinstance(item, bool):
        return Problem(where, f"{str(item).lower()} is a bool, not a number.", f"Write {int(item)}?")
    if isinstance(item, int):
        return (item,) if item >= 0 else _negative(item, where)
    if not isinstance(item, str):
        whole = isinstance(item, float) and item.is_integer()
        fix = f"Write {item:.0f}." if whole else 'Write e.g. 3 or "4-6".'
        return Problem(
            where, f"{brief(item)} is a {type(item).__name__}, not a whole number or a range.", fix
        )
    if len(item) > 40:  # also keeps the text below the limit of int(), 4300 digits
        return Problem(
            where, f"{item[:20] + '...'!r} is neither a number nor a range.", 'Write e.g. 3 or "4-6".'
        )
    if _NUMBER.fullmatch(item):
        return (int(item),)
    if _NEGATIVE.fullmatch(item):
        return _negative(item.strip(), where)
    if match := _RANGE.fullmatch(item):
        first, last = int(match[1]), int(match[2])
        if last < first:
            return Problem(where, f"the range {item!r} ends before it begins.", f'Write "{last}-{first}".')
        if last - first >= _MOST:
            return Problem(
                where,
                f"the range {item!r} has {last - first + 1} numbers, more than {_MOST}.",
                "Write a shorter one; to take all, leave the key out.",
            )
        return range(first, last + 1)
    if match := _NEARLY_RANGE.fullmatch(item):
        return Problem(where, f"{item!r} is not a range.", f'Write "{match[1]}-{match[2]}".')
    return Problem(where, f"{item!r} is neither a number nor a range.", 'Write e.g. 3 or "4-6".')


def _negative(item: object, where: str) -> Problem:
    return Problem(
        where, f"{brief(item)} is negative.", "Numbers begin at 0; to take all, leave the key out."
    )


def compact(numbers: Iterable[int]) -> list[int | str]:
    """Return the shortest list that `parse_numbers` reads as these numbers: ``[1, "4-6"]``."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return [a if a == b else f"{a}-{b}" for a, b in runs]


def parse_rank_id(value: object, before: int | None = None) -> int | None:
    """Return the number of ``start(rank_id=3)``; None stays what was given before.

    Raises UsageError when it is not a whole number from 0 up.
    """
    if value is None:
        return before
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
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
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise UsageError(
                f"token_range {brief(value)}: {brief(n)} is not a whole number from 0 on. Write e.g. [1, 3]."
            )
    first, last = value
    if last < first:
        raise UsageError(f"token_range {value!r} ends before it begins. Write [{last}, {first}].")
    return first, last


def parse_init_step(value: object) -> int:
    """Return the step of ``set_init_step(step)``. Raises UsageError when it is not a whole number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"set_init_step wants a whole number from 0 up; got {brief(value)}.")
    return value
