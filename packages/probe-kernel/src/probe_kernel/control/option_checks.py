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

STATISTICS = (*(name for name in CATEGORIES if name != "sha1"), "hash")
"""The thirteen statistics. hash may also be written ``hash:md5`` or ``hash:sha1`` (since MindSpore 2.7.1)."""
_WRITTEN = (*STATISTICS, "hash:md5", "hash:sha1")
_MEANT = {
    "mean": "avg", "average": "avg", "norm": "l2norm", "l2": "l2norm", "sha1": "hash:sha1",
    "nan": "nan count",
}  # fmt: skip
_LEAST = {"overflow_number": 0, "sample_num": 1}


@frozen
class Values:
    """Hold the options that are parsed rather than copied.

    path: of the dump; None where no usable one is given.
    """

    path: str | None
    iterations: Iterations
    kernels: tuple[KernelPattern, ...]


def check_values(dump: KernelDump, environ: Mapping[str, str]) -> tuple[Values, tuple[Problem, ...]]:
    """Return the parsed options of ``dump``, and every problem of a single option.

    environ: the process's variables, for MS_DIAGNOSTIC_DATA_PATH.
    """
    iterations, problems = parse_iterations(dump.iterations, "iterations")
    found = list(problems)
    given = dump.kernels if isinstance(dump.kernels, tuple) else (dump.kernels,)
    patterns = [parse_kernel(kernel, f"kernels[{i}]") for i, kernel in enumerate(given)]
    kernels = tuple(each for each in patterns if not isinstance(each, Problem))
    found += (each for each in patterns if isinstance(each, Problem))
    found += _twice("kernels", given)
    path = dump.path
    if not path and (root := environ.get("MS_DIAGNOSTIC_DATA_PATH")):
        path = f"{root}/debug_dump"
    found += _path(path, "path" if dump.path else "MS_DIAGNOSTIC_DATA_PATH")
    if not isinstance(dump.net_name, str) or not dump.net_name:
        found.append(Problem("net_name", f"{dump.net_name!r} is not a name.", 'Write e.g. "ResNet50".'))
    elif (clean := re.sub(r"[^A-Za-z0-9_-]", "_", dump.net_name)) != dump.net_name:
        what = f"{dump.net_name!r} may hold letters, digits, '-' and '_' only."
        found.append(Problem("net_name", what, f'Write "{clean}".'))
    found += check_types(dump)
    for name, least in _LEAST.items():
        value = getattr(dump, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            what = f"{value!r} is not a whole number from {least} up."
            found.append(Problem(name, what, "Write e.g. 100."))
    if dump.inputs is False and dump.outputs is False:
        found.append(Problem("outputs", "neither inputs nor outputs are wanted.", "Leave one of them True."))
    found += _devices(dump.devices)
    found += _statistics(dump.statistic_category)
    return Values(path if isinstance(path, str) else None, iterations, kernels), tuple(found)


def _path(path: object, where: str) -> Iterator[Problem]:
    if not path:
        what = "is not given, and MS_DIAGNOSTIC_DATA_PATH is not set either."
        yield Problem("path", what, 'Write e.g. path="/data/dump".')
        return
    if not isinstance(path, str):
        what = f"{path!r} is a {type(path).__name__}, not a path."
        yield Problem("path", what, 'Write e.g. "/data/dump".')
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


def check_types(description: object) -> Iterator[Problem]:
    """Yield the problems of the fields that are annotated as one of some literals, or as a bool."""
    for name, hint in get_type_hints(type(description)).items():
        value = getattr(description, name)
        kinds = (hint, *get_args(hint))
        if bool in kinds and type(value) not in kinds:
            yield Problem(name, f"{value!r} is not a bool.", "Write True or False.")
        for kind in kinds:
            if get_origin(kind) is Literal:
                yield from one_of(name, value, get_args(kind))


def one_of(name: str, value: Any, options: Sequence[Any]) -> Iterator[Problem]:
    """Yield the problem of an option that is not None, and not one of ``options``."""
    if value is None or any(value is o or (value == o and type(value) is type(o)) for o in options):
        return
    listed = " or ".join(f'"{o}"' if isinstance(o, str) else str(o) for o in options)
    hint = did_you_mean(value, options) if isinstance(value, str) and isinstance(options[0], str) else ""
    yield Problem(name, f"{value!r} is not known.", f"{hint} Write {listed}.".strip())


def _devices(devices: Any) -> Iterator[Problem]:
    if devices is None:
        return
    if not isinstance(devices, tuple):
        yield Problem("devices", f"{devices!r} is not a list of numbers.", "Write e.g. [0, 1].")
    elif not devices:
        yield Problem("devices", "is empty, so no device would dump.", "Leave it out to take 0 to 7.")
    else:
        for i, device in enumerate(devices):
            if isinstance(device, bool) or not isinstance(device, int) or device < 0:
                yield Problem(f"devices[{i}]", f"{device!r} is not a device number.", "Write e.g. 0.")
        yield from _twice("devices", devices)


def _statistics(categories: Any) -> Iterator[Problem]:
    if categories is None:
        return
    if not isinstance(categories, tuple):
        yield Problem("statistic_category", f"{categories!r} is not a list.", 'Write e.g. ["max", "min"].')
    elif not categories:
        what = "is empty, so there would be no statistics."
        yield Problem("statistic_category", what, "Leave it out to take max, min and l2norm.")
    else:
        yield from _twice("statistic_category", categories)
        for i, category in enumerate(categories):
            if category in _WRITTEN:
                continue
            text = category.lower().replace("_", " ").strip() if isinstance(category, str) else ""
            if text in _WRITTEN or text in _MEANT:
                hint = f'Write "{_MEANT.get(text, text)}".'
            else:
                hint = did_you_mean(text, _WRITTEN) or f"There are {', '.join(STATISTICS)}."
            yield Problem(f"statistic_category[{i}]", f"{category!r} is not a statistic.", hint)


def _twice(name: str, values: Sequence[Any]) -> Iterator[Problem]:
    for i, value in enumerate(values):
        if value in values[:i]:
            yield Problem(f"{name}[{i}]", f"{value!r} is there twice.", "Keep one.")
