"""Turn what ends a command early into a message and an exit code, in the same way for every command."""

from __future__ import annotations

import sys
from collections.abc import Callable

from probe_format.errors import ProbeError

__all__ = ["exit_code"]


def exit_code(command: str, work: Callable[[], int]) -> int:
    """Run a command and return its exit code: its own, 2 where a dump cannot be read, 130 after Ctrl-C.

    command: its name, for the message.
    """
    try:
        return work()
    except BrokenPipeError:
        raise  # `probe` itself ends quietly then
    except KeyboardInterrupt:
        print(f"probe {command}: stopped.", file=sys.stderr)
        return 130
    except (ProbeError, OSError) as error:
        print(f"probe {command}: {error}", file=sys.stderr)
        return 2
