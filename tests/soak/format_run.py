"""Two steps written through probe-format alone, by a program whose system calls fail (forked_runs.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from forked_runs import serve
from probe_format.journal import events
from probe_format.write import RankWriter

HEADER = {
    "task": "statistics",
    "level": "L1",
    "framework": "pytorch",
    "dump_data_dir": None,
    "format_version": "1.0",
    "tool": "test",
}


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Write four calls a step, and what they raise, to stderr."""
    for step in range(2):
        writer = None
        try:
            writer = RankWriter(folder / "dump" / f"step{step}" / "rank", HEADER, late=mode == "late")
            for number in range(4):
                name = f"Functional.relu.{number}.forward"
                value = b'[{"type":"int","value":%d}]' % number
                writer.append(events.enter(name, None, "aw", (value, b"{}")))
                writer.append(events.exit(name, output=value))
                say(f"{step} {name}")
            writer.finish(final=True)
            say(f"{step} whole")
        except OSError as error:
            print(f"{folder}: {error}", file=sys.stderr)
            if writer is not None:
                writer.break_off(str(error))
        if writer is not None:
            writer.close()
    return b"written"


if __name__ == "__main__":
    serve(run, "late", "early")
