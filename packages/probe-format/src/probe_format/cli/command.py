"""Choose a command and a part of a dump, and end with a message and an exit code, the same for every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from probe_format.errors import ProbeError
from probe_format.suggest import did_you_mean
from probe_format.terminal import tell


def refuse_unknown(parser: argparse.ArgumentParser, words: Sequence[str], names: Iterable[str]) -> None:
    """End the process with code 2 where the first word should be a command and is none. names: of the commands."""
    known = list(dict.fromkeys(names))
    if words and not words[0].startswith("-") and words[0] not in known:
        hint = did_you_mean(words[0], known) or f"There are {', '.join(known)}."
        parser.error(f"there is no command {words[0]!r}. {hint}")


def add_step(parser: argparse.ArgumentParser, what: str = "only this step") -> None:
    """Add the option ``--step N``."""
    parser.add_argument("--step", type=whole_number, metavar="N", help=what)


def add_rank(parser: argparse.ArgumentParser, what: str = "only this rank") -> None:
    """Add the option ``--rank N``."""
    parser.add_argument("--rank", type=whole_number, metavar="N", help=what)


def whole_number(text: str) -> int:
    """Return a number from 0 up, as the type of an argument. Raises ArgumentTypeError when it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def exit_code(command: str, work: Callable[[], int], failed: int = 1) -> int:
    """Run a command and return its exit code: its own, or 130 after Ctrl-C.

    command: its name, for the message: ``show``, ``kernel convert``.
    work: does it, and returns its code.
    failed: the code where a dump or file cannot be read.

    Raises BrokenPipeError, after which ``probe`` itself ends quietly.
    """
    try:
        return work()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        tell(f"probe {command}: stopped.")
        return 130
    except MemoryError:
        tell(f"probe {command}: there is not enough memory for this. A single step or rank may fit.")
        return failed
    except (ProbeError, OSError) as error:
        tell(*f"probe {command}: {error}".split("\n"))
        return failed
