"""Check single options of a dump; each check is one as the runtime's keys have (`probe_runtime.config.Check`)."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from probe_format.errors import Problem
from probe_format.suggest import did_you_mean
from probe_runtime.config import Check, Checked

from probe_kernel.read.statistics import CATEGORIES

from .kernel_patterns import parse_kernel

STATISTICS = (*(name for name in CATEGORIES if name != "sha1"), "hash")
"""The thirteen statistics. hash may also be written ``hash:md5`` or ``hash:sha1`` (since MindSpore 2.7.1)."""
_WRITTEN = (*STATISTICS, "hash:md5", "hash:sha1")
_MEANT = {
    "mean": "avg", "average": "avg", "norm": "l2norm", "l2": "l2norm", "sha1": "hash:sha1",
    "nan": "nan count",
}  # fmt: skip


def as_check(problems: Callable[[Any, str], Iterator[Problem]]) -> Check:
    """Make a check of what yields the problems of a value; the value is kept as it is."""
    return lambda value, where: (value, tuple(problems(value, where)))


def number(*options: int) -> Check:
    listed = f"Write {' or '.join(map(str, options))}."
    return as_check(lambda value, where: _unless(
        type(value) is int and value in options, where, f"{value!r} is not known.", listed
    ))  # fmt: skip


def whole(least: int) -> Check:
    what = f"is not a whole number from {least} up."
    return as_check(lambda value, where: _unless(
        type(value) is int and value >= least, where, f"{value!r} {what}", "Write e.g. 100."
    ))  # fmt: skip


def _unless(right: bool, where: str, what: str, remedy: str) -> Iterator[Problem]:
    if not right:
        yield Problem(where, what, remedy)


@as_check
def folder(path: Any, where: str) -> Iterator[Problem]:
    """Check for the folder of a dump; where: the option, or the variable that it comes from."""
    if not isinstance(path, str):
        yield Problem(where, f"{path!r} is a {type(path).__name__}, not a path.", 'Write e.g. "/data/dump".')
        return
    absolute = path if path.startswith("/") else os.path.abspath(path) if where == "path" else "/data/dump"
    clean = re.sub(r"[^A-Za-z0-9_/-]", "_", absolute)
    if path != absolute:
        yield Problem(where, f"{path!r} is not absolute.", f'Write "{clean}".')
    if odd := sorted(set(re.findall(r"[^A-Za-z0-9_/-]", path))):
        what = f"{path!r} has {' '.join(map(repr, odd))}; MindSpore takes only letters, digits, '-', '_' and '/'."
        yield Problem(where, what, f'Write e.g. "{clean}".')
    if os.path.exists(path) and not os.path.isdir(path):
        yield Problem(where, f"{path} is a file.", "Give a folder; it need not exist.")


@as_check
def net_name(name: Any, where: str) -> Iterator[Problem]:
    if not isinstance(name, str) or not name:
        yield Problem(where, f"{name!r} is not a name.", 'Write e.g. "ResNet50".')
    elif (clean := re.sub(r"[^A-Za-z0-9_-]", "_", name)) != name:
        yield Problem(where, f"{name!r} may hold letters, digits, '-' and '_' only.", f'Write "{clean}".')


def kernels(given: Any, where: str) -> Checked:
    """Check for patterns of kernels, which are kept parsed."""
    given = given if isinstance(given, tuple) else (given,)
    found = [parse_kernel(one, f"{where}[{i}]") for i, one in enumerate(given)]
    wrong = [one for one in found if isinstance(one, Problem)]
    return tuple(one for one in found if not isinstance(one, Problem)), (*wrong, *_twice(where, given))


@as_check
def devices(given: Any, where: str) -> Iterator[Problem]:
    if not isinstance(given, tuple):
        yield Problem(where, f"{given!r} is not a list of numbers.", "Write e.g. [0, 1].")
    elif not given:
        yield Problem(where, "is empty, so no device would dump.", "Leave it out to take 0 to 7.")
    else:
        for i, device in enumerate(given):
            if type(device) is not int or device < 0:
                yield Problem(f"{where}[{i}]", f"{device!r} is not a device number.", "Write e.g. 0.")
        yield from _twice(where, given)


@as_check
def statistics(given: Any, where: str) -> Iterator[Problem]:
    if not isinstance(given, tuple):
        yield Problem(where, f"{given!r} is not a list.", 'Write e.g. ["max", "min"].')
    elif not given:
        what = "is empty, so there would be no statistics."
        yield Problem(where, what, "Leave it out to take max, min and l2norm.")
    else:
        yield from _twice(where, given)
        for i, name in enumerate(given):
            text = name.lower().replace("_", " ").strip() if isinstance(name, str) else ""
            if name in _WRITTEN:
                continue
            if text in _WRITTEN or text in _MEANT:
                hint = f'Write "{_MEANT.get(text, text)}".'
            else:
                hint = did_you_mean(text, _WRITTEN) or f"There are {', '.join(STATISTICS)}."
            yield Problem(f"{where}[{i}]", f"{name!r} is not a statistic.", hint)


def _twice(where: str, items: Sequence[Any]) -> Iterator[Problem]:
    for i, item in enumerate(items):
        if item in items[:i]:
            yield Problem(f"{where}[{i}]", f"{item!r} is there twice.", "Keep one.")
