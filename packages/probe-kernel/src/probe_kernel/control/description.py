"""Declare the options of a kernel dump (`KernelDump`): kernels, iterations and values, each with its check."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import attrs
from probe_format.errors import Problem
from probe_format.suggest import did_you_mean
from probe_runtime.config import Check, Checked, ConfigEntry, Findings, choice, declared_keys, flag, key

from probe_kernel.read.statistics import CATEGORIES

from .iteration_ranges import parse_iterations
from .kernel_patterns import parse_kernel

Saved = Literal["tensor", "statistic", "full"]
FileFormat = Literal["npy", "bin"]
Processor = Literal["host", "device"]
Precision = Literal["high", "low"]
DebugMode = Literal[0, 1, 2, 3, 4]


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, one string as a tuple of one, and anything else as it is, for the checks to refuse."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list | tuple | range | set | frozenset) else value


def plain_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


STATISTICS = (*(name for name in CATEGORIES if name != "sha1"), "hash")
"""The thirteen statistics. hash may also be written ``hash:md5`` or ``hash:sha1`` (since MindSpore 2.7.1)."""
_WRITTEN = (*STATISTICS, "hash:md5", "hash:sha1")
_MEANT = {
    "mean": "avg", "average": "avg", "norm": "l2norm", "l2": "l2norm", "sha1": "hash:sha1",
    "nan": "nan count",
}  # fmt: skip


def as_check(problems: Callable[[Any, str], Iterator[Problem]]) -> Check:
    """Make a check of a function that yields the problems of a value. The check keeps the value as it is."""
    return lambda value, where: (value, tuple(problems(value, where)))


def _whole(right: Callable[[int], bool], what: str, remedy: str) -> Check:
    def problems(value: Any, where: str) -> Iterator[Problem]:
        if type(value) is not int or not right(value):
            yield Problem(where, f"{value!r} {what}", remedy)

    return as_check(problems)


def _number(*options: int) -> Check:
    return _whole(options.__contains__, "is not known.", f"Write {' or '.join(map(str, options))}.")


def _at_least(least: int) -> Check:
    return _whole(least.__le__, f"is not a whole number from {least} up.", "Write e.g. 100.")


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
def _net_name(name: Any, where: str) -> Iterator[Problem]:
    if not isinstance(name, str) or not name:
        yield Problem(where, f"{name!r} is not a name.", 'Write e.g. "ResNet50".')
    elif (clean := re.sub(r"[^A-Za-z0-9_-]", "_", name)) != name:
        yield Problem(where, f"{name!r} may hold letters, digits, '-' and '_' only.", f'Write "{clean}".')


def _kernels(given: Any, where: str) -> Checked:
    """Check for patterns of kernels, which are kept parsed."""
    given = given if isinstance(given, tuple) else (given,)
    found = [parse_kernel(one, f"{where}[{i}]") for i, one in enumerate(given)]
    wrong = [one for one in found if isinstance(one, Problem)]
    return tuple(one for one in found if not isinstance(one, Problem)), (*wrong, *_twice(where, given))


@as_check
def _devices(given: Any, where: str) -> Iterator[Problem]:
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
def _statistics(given: Any, where: str) -> Iterator[Problem]:
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


@attrs.frozen(kw_only=True)
class KernelDump:
    """Describe what to dump of the kernels. `probe_kernel.control.control_file` checks it for a chosen backend.

    An option that is None was not given: the backend's default applies, if the backend has the option at all.
    A given option that the backend would ignore is refused.
    """

    path: str | os.PathLike[str] | None = attrs.field(default=None, converter=plain_path)
    """Absolute folder of letters, digits, ``-``, ``_`` and ``/``. None: ``$MS_DIAGNOSTIC_DATA_PATH/debug_dump``."""
    net_name: str = key("Net", "its folder: letters, digits, `-` and `_`", _net_name)
    iterations: str | int | range | Sequence[str | int | range] = key(
        "all", '`"0|5-8|100-120"`, `"all"`, or numbers and ranges; counted from 0', parse_iterations,
        converter=lambda given: tuple(given) if isinstance(given, list | set | frozenset) else given,
    )  # fmt: skip
    kernels: str | Sequence[str] = key(
        (), 'full names, types (`"conv"`) and `"name-regex(...)"`; empty selects every kernel', _kernels,
        converter=as_tuple,
    )  # fmt: skip
    inputs: bool = key(True, "whether to dump inputs", flag)
    outputs: bool = key(True, "whether to dump outputs", flag)
    devices: Sequence[int] | None = key(
        None, "device numbers; None means 0 to 7, MindSpore's own default", _devices,
        converter=lambda given: (given,) if type(given) is int else as_tuple(given),
    )  # fmt: skip
    saved_data: Saved | None = key(None, "tensors, their statistics, or both", choice(*get_args(Saved)))
    statistic_category: str | Sequence[str] | None = key(
        None, "which statistics; None means max, min and l2norm", _statistics, converter=as_tuple
    )
    op_debug_mode: DebugMode = key(
        0, "0: kernels as chosen; 3: only kernels that overflowed; 4: only the inputs of a kernel that failed, "
        "whatever `outputs` says", _number(*get_args(DebugMode)),
    )  # fmt: skip
    overflow_number: int | None = key(
        None,
        "with op_debug_mode 3: how many overflows, in order of time; 0 means all",
        _at_least(0),
    )
    file_format: FileFormat | None = key(None, "of the files", choice(*get_args(FileFormat)))
    trans_flag: bool | None = key(None, "True: in the host's NCHW layout; False: in the device's own", flag)
    stat_calc_mode: Processor | None = key(None, "what computes statistics", choice(*get_args(Processor)))
    device_stat_precision_mode: Precision | None = key(None, "the device's", choice(*get_args(Precision)))
    sample_mode: Literal[0, 1] | None = key(None, "1: samples of tensors", _number(0, 1))
    sample_num: int | None = key(None, "elements in a sample", _at_least(1))
    save_kernel_args: bool | None = key(None, "whether to save the arguments of kernels", flag)
    set_dump: bool = key(False, "dump what `mindspore.set_dump(target)` has marked", flag)
    synchronous: bool | None = key(None, "`enable` of the file: False dumps asynchronously, on Ascend", flag)


def checked(description: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Return the options of a description that were given, as their checks keep them, and every problem."""
    findings = Findings(declared_keys(type(description)))
    values: dict[str, Any] = {}
    for field in attrs.fields(type(description)):
        value = getattr(description, field.name)
        if field.name in findings.keys and (value is not None or field.default is not None):
            values[field.name] = findings.check(ConfigEntry(field.name, value, field.name))
    return values, findings.problems
