"""Commands of ``probe`` that other packages add, such as ``probe kernel``.

A package adds one by an entry point in the group ``probe.commands``: the command's name, and a function that takes
the words after the name and returns the exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

__all__ = ["added_commands", "describe", "run_added"]

#: Commands of packages of ours -> what to install for them.
_OURS = {"kernel": "probe-kernel"}


def added_commands() -> dict[str, EntryPoint]:
    """Return the commands of the installed packages, by name."""
    return {entry.name: entry for entry in entry_points(group="probe.commands")}


def describe(entry: EntryPoint) -> str:
    """Return a line for ``probe --help``, without loading the command: what its package says of itself."""
    if entry.dist is None:
        return entry.value
    summary = (entry.dist.metadata["Summary"] or "").rstrip(".")
    return f"{summary[:1].lower()}{summary[1:]} (package {entry.dist.name})".lstrip()


def run_added(name: str, words: Sequence[str]) -> int | None:
    """Run the command ``name`` and return its exit code; return None where no package has such a command.

    A command of a package of ours that is not installed ends with code 1, and with what to install on stderr.
    """
    entry = added_commands().get(name)
    if entry is not None:
        try:
            run = entry.load()
        except ModuleNotFoundError as error:  # only where the very package is gone: else it is a fault inside
            if error.name is None or error.name.partition(".")[0] != entry.module.partition(".")[0]:
                raise
        else:
            code: int = run(words)
            return code
    package = entry.dist.name if entry is not None and entry.dist is not None else _OURS.get(name)
    if package is None:
        return None
    print(f"probe {name}: not installed here. Install it with: pip install {package}", file=sys.stderr)
    return 1
