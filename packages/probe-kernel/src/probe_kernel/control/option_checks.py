"""Check the options of a `KernelDump` one by one, whatever the backend."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from attrs import frozen
from probe_format.errors import Problem
from probe_format.suggest import did_you_mean

from probe_kernel.read.statistics import CATEGORIES

from .description import KernelDump
from .iteration_ranges import Iterations, parse_iterations
from .kernel_patterns import KernelPattern, parse_kernel

__all__ = ["STATISTICS", "Values", "check_values", "choices", "flag", "one_of"]

STATISTICS = (*(name for name in CATEGORIES if name != "sha1"), "hash")
"""The thirteen statistics. hash may also be written ``hash:md5`` or ``hash:sha1`` (since MindSpore 2.7.1)."""
_WRITTEN = (*STATISTICS, "hash:md5", "hash:sha1")
_MEANT = {
    "mean": "avg",
    "norm": "l2norm",
    "average": "avg",
    "sha1": "hash:sha1",
    "l2": "l2norm",
    "nan": "nan count",
}

_FLAGS = ("inputs", "outputs", "trans_flag", "save_kernel_args", "set_dump", "synchronous")
_LEAST = {"overflow_number": 0, "sample_num": 1}


@frozen
class Values:
    """Hold the options that are parsed rather than copied.

    path: where MindSpore will write: the option, else ``debug_dump`` in MS_DIAGNOSTIC_DATA_PATH, else empty.
    """

    path: str
    iterations: Iterations
    kernels: tuple[KernelPattern, ...]


def check_values(dump: KernelDump, environ: Mapping[str, str]) -> tuple[Values, tuple[Problem, ...]]:
    """Return the parsed options of ``dump``, and every problem of a single one; see `option_rules.check`."""
    iterations, problems = parse_iterations(dump.iterations, "iterations")
    patterns = []
    found = list(problems)
    for i, kernel in enumerate(dump.kernels if isinstance(dump.kernels, tuple) else (dump.kernels,)):
        pattern = parse_kernel(kernel, f"kernels[{i}]")
        if isinstance(pattern, Problem):
            found.append(pattern)
        elif pattern in patterns:
            found.append(Problem(f"kernels[{i}]", f"{kernel!r} is there twice.", "Keep one."))
        else:
            patterns.append(pattern)
    path = dump.path if isinstance(dump.path, str) else ""
    if not path and (root := environ.get("MS_DIAGNOSTIC_DATA_PATH")):
        path = f"{root}/debug_dump"
    found += _path(dump.path, path)
    found += _net_name(dump.net_name)
    found += _chosen(dump)
    found += _devices(dump.devices)
    found += _statistics(dump.statistic_category)
    return Values(path, iterations, tuple(patterns)), tuple(found)


def _path(given: Any, path: str) -> Iterator[Problem]:
    """Check where MindSpore will write. given: the option, of which ``path`` was made."""
    if given is not None and not isinstance(given, str):
        yield Problem(
            "path", f"{given!r} is a {type(given).__name__}, not a path.", 'Write e.g. "/data/dump".'
        )
    elif not path:
        what = "is not given, and MS_DIAGNOSTIC_DATA_PATH is not set either."
        yield Problem("path", what, 'Write e.g. path="/data/dump".')
    else:
        where = "path" if given else "MS_DIAGNOSTIC_DATA_PATH"
        absolute = os.path.abspath(path) if given else "/data"
        if not path.startswith("/"):
            yield Problem(where, f"{path!r} is not absolute.", f'Write "{_clean(absolute)}".')
        if odd := sorted(set(re.findall(r"[^A-Za-z0-9_/-]", path))):
            what = f"{path!r} has {' '.join(map(repr, odd))}; MindSpore takes only letters, digits, '-', '_' and '/'."
            yield Problem(
                where, what, f'Write e.g. "{_clean(path if path.startswith("/") else "/data/dump")}".'
            )
        if os.path.exists(path) and not os.path.isdir(path):
            yield Problem(where, f"{path} is a file.", "Give a folder; it need not exist.")


def _clean(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_/-]", "_", path)


def _net_name(name: Any) -> Iterator[Problem]:
    if not isinstance(name, str) or not name:
        yield Problem("net_name", f"{name!r} is not a name.", 'Write e.g. "ResNet50".')
    elif not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        what = f"{name!r} may hold letters, digits, '-' and '_' only."
        yield Problem("net_name", what, f'Write "{clean}".')


def _chosen(dump: KernelDump) -> Iterator[Problem]:
    yield from choices(dump)
    for name in _FLAGS:
        if getattr(dump, name) is not None:
            yield from flag(name, getattr(dump, name))
    for name, least in _LEAST.items():
        value = getattr(dump, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            yield Problem(name, f"{value!r} is not a whole number from {least} up.", "Write e.g. 100.")
    if dump.inputs is False and dump.outputs is False:
        yield Problem("outputs", "neither inputs nor outputs are wanted.", "Leave one of them True.")


def choices(description: Any) -> Iterator[Problem]:
    """Yield the problems of the fields that hold none of the values that their types name."""
    for name, hint in get_type_hints(type(description)).items():
        for each in (hint, *get_args(hint)):
            if get_origin(each) is Literal:
                yield from one_of(name, getattr(description, name), get_args(each))


def one_of(name: str, value: Any, options: Sequence[Any]) -> Iterator[Problem]:
    """Yield the problem of an option that is not None, and not one of ``options``."""
    if value is None or any(value is o or (value == o and type(value) is type(o)) for o in options):
        return
    listed = " or ".join(f'"{o}"' if isinstance(o, str) else str(o) for o in options)
    hint = did_you_mean(value, options) if isinstance(value, str) and isinstance(options[0], str) else ""
    yield Problem(name, f"{value!r} is not known.", f"{hint} Write {listed}.".strip())


def flag(name: str, value: Any) -> Iterator[Problem]:
    """Yield the problem of an option that is not a bool."""
    if not isinstance(value, bool):
        yield Problem(name, f"{value!r} is not a bool.", "Write True or False.")


def _devices(devices: Any) -> Iterator[Problem]:
    if devices is None:
        return
    if not isinstance(devices, Sequence) or isinstance(devices, str):
        yield Problem("devices", f"{devices!r} is not a list of numbers.", "Write e.g. [0, 1].")
        return
    if not devices:
        yield Problem("devices", "is empty, so no device would dump.", "Leave it out to take 0 to 7.")
    for i, device in enumerate(devices):
        if isinstance(device, bool) or not isinstance(device, int) or device < 0:
            yield Problem(f"devices[{i}]", f"{device!r} is not a device number.", "Write e.g. 0.")
        elif device in devices[:i]:
            yield Problem(f"devices[{i}]", f"{device} is there twice.", "Keep one.")


def _statistics(categories: Any) -> Iterator[Problem]:
    if categories is None:
        return
    if not isinstance(categories, tuple):
        yield Problem("statistic_category", f"{categories!r} is not a list.", 'Write e.g. ["max", "min"].')
        return
    if not categories:
        what = "is empty, so there would be no statistics."
        yield Problem("statistic_category", what, "Leave it out to take max, min and l2norm.")
    for i, category in enumerate(categories):
        where = f"statistic_category[{i}]"
        text = category.lower().replace("_", " ").strip() if isinstance(category, str) else ""
        if category in categories[:i]:
            yield Problem(where, f"{category!r} is there twice.", "Keep one.")
        elif category not in _WRITTEN:
            hint = did_you_mean(text, _WRITTEN) or f"There are {', '.join(STATISTICS)}."
            if text in _WRITTEN or text in _MEANT:
                hint = f'Write "{_MEANT.get(text, text)}".'
            yield Problem(where, f"{category!r} is not a statistic.", hint)
