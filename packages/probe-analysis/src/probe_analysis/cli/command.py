"""Declare a command of this package: what its help says, its options, and what it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen
from probe_format.cli import exit_code

from .outcome import patient_output, uncollected


@frozen
class Command:
    """Run ``probe NAME``.

    description, exits: what it does, and what its exit codes say, for the help.
    options: adds its options to the parser.
    run: does it, and returns the exit code.
    """

    name: str
    description: str
    exits: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Return the exit code. argv: the words after ``probe NAME``; those of the process when None."""
        epilog = f"exit codes: {self.exits}"
        parser = argparse.ArgumentParser(f"probe {self.name}", description=self.description, epilog=epilog)
        self.options(parser)
        arguments = parser.parse_args(argv)
        work = partial(uncollected, partial(self.run, arguments))
        with patient_output():
            return exit_code(self.name, work, failed=2)  # 1 means a finding
