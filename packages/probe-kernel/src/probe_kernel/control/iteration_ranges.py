"""Parse the iterations of a kernel dump: ``"0|5-8|100-120"``, ``"all"``, or Python numbers and ranges."""

import re
from collections.abc import Iterable
from typing import Any

from attrs import frozen
from probe_format.errors import Problem

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_NEARLY = re.compile(r"(\d+)(?:-+>?|:|\.\.+|~|to|\u2013|\u2014)(\d+)", re.ASCII)
_MOST = 2**32 - 1  # the dumpers count in 32 bits
_EXAMPLE = 'Write e.g. "0|5-8", [0, range(5, 9)] or "all".'


Span = tuple[int, int]


@frozen
class Iterations:
    """Select iterations, counted from 0.

    spans: first and last of each run, both included; None selects all.
    """

    spans: tuple[Span, ...] | None = None

    def __str__(self) -> str:
        """Return the form that every backend reads: digits, ``-`` and ``|`` without spaces, or ``all``."""
        if self.spans is None:
            return "all"
        return "|".join(str(a) if a == b else f"{a}-{b}" for a, b in self.spans)

    @property
    def all(self) -> bool:
        return self.spans is None


def parse_iterations(value: Any, where: str) -> tuple[Iterations, tuple[Problem, ...]]:
    """Return what ``value`` selects, and every problem with it.

    value: ``"all"``, a string of numbers and ranges joined with ``|``, an int, a ``range``, or a list of these.
    where: the name of the option, for the problems.
    """
    if value == "all":
        return Iterations(), ()
    items: Iterable[Any] = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    found = [each for item in items for each in _item(item, where)]
    spans = [each for each in found if not isinstance(each, Problem)]
    problems = [each for each in found if isinstance(each, Problem)]
    if not spans and not problems:
        problems.append(Problem(where, f"{value!r} selects no iteration.", _EXAMPLE))
    what = f"is beyond {_MOST}, the last number that MindSpore counts to."
    problems += (Problem(where, f"{b} {what}", _EXAMPLE) for _, b in spans if b > _MOST)
    return Iterations(_joined(spans)), tuple(problems)


def _item(item: Any, where: str) -> list[Span | Problem]:
    if isinstance(item, str):
        return [_part("".join(part.split()), item, where) for part in item.split("|")]
    if isinstance(item, bool):
        return [Problem(where, f"{item!r} is a bool, not a number.", f"Write {int(item)}?")]
    if isinstance(item, int):
        return [(item, item) if item >= 0 else _negative(item, where)]
    if not isinstance(item, range):
        return [Problem(where, f"{item!r} is a {type(item).__name__}, not a number or a range.", _EXAMPLE)]
    if item and min(item) < 0:
        return [_negative(min(item), where)]
    if item.step == 1 and item:
        return [(item[0], item[-1])]
    if len(item) > 1_000_000:
        return [Problem(where, f"{item!r} has {len(item)} single numbers.", "Write a range of step 1.")]
    return [(n, n) for n in item]


def _part(text: str, whole: str, where: str) -> Span | Problem:
    """Parse one part of a string, which has no blanks: MindSpore refuses them, though its own document has them."""
    if len(text) > 40:
        return Problem(where, f"{text[:20] + '...'!r} is neither a number nor a range.", _EXAMPLE)
    if match := _RANGE.fullmatch(text):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            what = f"the range {text!r} ends before it begins; MindSpore takes it and dumps nothing."
            return Problem(where, what, f'Write "{last}-{first}".')
        return first, last
    if not text:
        return Problem(where, f"{whole!r} has an empty part.", _EXAMPLE)
    if text == "all":
        return Problem(where, f"{whole!r} mixes all with numbers.", 'Write "all" alone.')
    if match := _NEARLY.fullmatch(text):
        return Problem(where, f"{text!r} is not a range.", f'Write "{match[1]}-{match[2]}".')
    if "," in text:
        return Problem(where, f"{text!r} has a comma.", f'Join with a bar: "{text.replace(",", "|")}".')
    if re.fullmatch(r"-\d+", text):
        return _negative(text, where)
    return Problem(where, f"{text!r} is neither a number nor a range.", _EXAMPLE)


def _negative(item: object, where: str) -> Problem:
    return Problem(where, f"{item} is negative; iterations begin at 0.", _EXAMPLE)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    runs: list[list[int]] = []
    for a, b in sorted(spans):
        if runs and a <= runs[-1][1] + 1:
            runs[-1][1] = max(runs[-1][1], b)
        else:
            runs.append([a, b])
    return tuple((a, b) for a, b in runs)
