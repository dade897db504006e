"""Define the errors that Probe raises; every message says what is wrong, where, and what to do."""

import re
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from .excerpts import cut
from .terminal import printable

#: Limits of a message about the user's input: characters of one part, problems of one error.
_LONGEST, _MOST = 500, 50


class ProbeError(Exception):
    """Base of every error that Probe raises on purpose."""

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(ProbeError):
    """Raised when a call makes no sense at this moment (start twice, L0 without a model, ...)."""


class NonFiniteError(ProbeError):
    """Raised into the run at the call where values begin that are not finite (`on_non_finite: raise`).

    record: the name of the call's record.
    line: the user's line that made the call, as a stack has it; empty where nobody knows it.
    """

    def __init__(self, text: str, record: str, line: str) -> None:
        super().__init__(text)
        self.record = record
        self.line = line


class FormatError(ProbeError):
    """Raised when a file is not what its place or name says it is."""


class DamagedError(FormatError):
    """Raised when a file was written whole by Probe or msprobe and is not whole any more."""


class TooLargeError(FormatError):
    """Raised when a file does not fit into memory, so that what it is cannot be known here."""


def refuse_other_version(version: Any, where: object) -> None:
    """Raise FormatError for a file of another major version than 1.x, which this version would misread.

    version: as the file has it. What is no version at all is left to the check of the file's form.
    """
    major = re.match(r"[0-9]+(?=\.[0-9])", version) if isinstance(version, str) else None
    if major is not None and int(major[0]) != 1:
        raise FormatError(
            f"{where} is of version {version} of its format, and this Probe reads 1.x. Update Probe."
        )


@frozen
class Problem:
    """Describe one thing that is wrong with the configuration, or with a file of a dump.

    where: a key path (``statistics.summary_mode``), ``file:line``, or a record or slot.
    what: what is wrong with it.
    remedy: what to write instead.
    """

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        what = cut(self.what, _LONGEST) + (f" {cut(self.remedy, _LONGEST)}" if self.remedy else "")
        return f"{cut(self.where, _LONGEST)}: {what}"


class ConfigError(ProbeError):
    """Raised with every problem of a configuration at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        n = len(self.problems)
        head = "The configuration has a problem:" if n == 1 else f"The configuration has {n} problems:"
        more = [f"  ... and {n - _MOST} more."] if n > _MOST else []
        super().__init__("\n".join([head, *(f"  - {p}" for p in self.problems[:_MOST]), *more]))
