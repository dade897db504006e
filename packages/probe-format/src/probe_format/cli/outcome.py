"""Turn what ends a command early into a message and an exit code, in the same way for every command of ``probe``."""

from __future__ import annotations

from collections.abc import Callable

from probe_format.errors import ProbeError
from probe_format.terminal import tell


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
