"""What can go wrong, as types. Every message says what, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

__all__ = ["ConfigError", "DamagedError", "FormatError", "ProbeError", "Problem", "UsageError"]


class ProbeError(Exception):
    """Base of every error that Probe raises on purpose."""


class UsageError(ProbeError):
    """A call that makes no sense at this moment (start twice, L0 without a model, ...)."""


class FormatError(ProbeError):
    """A file is not what its place or name says it is."""


class DamagedError(FormatError):
    """A file was ours and whole once, and is not any more."""


@frozen
class Problem:
    """One thing wrong with the configuration.

    where: a key path (``statistics.summary_mode``) or ``file:line``.
    what: what is wrong with it.
    remedy: what to write instead.
    """

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" {self.remedy}" if self.remedy else "")


class ConfigError(ProbeError):
    """Every problem of a configuration at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        n = len(self.problems)
        head = "The configuration has a problem:" if n == 1 else f"The configuration has {n} problems:"
        super().__init__("\n".join([head, *(f"  - {p}" for p in self.problems)]))
