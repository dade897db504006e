"""Processes that make one step at a time, in turns: they share the machine's state of the minute, never the CPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Answer", "Worker", "started"]

Answer = dict[str, Any]


@attrs.frozen
class Worker:
    """A process that makes steps on demand: an order a line to its input, JSON a line from its output."""

    process: subprocess.Popen[str]

    def step(self, order: str) -> Answer:
        """Make one step; what it took."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.process.args!r} ended with status {self.process.wait()}; its output is above."
            )
        answer: Answer = json.loads(line)
        return answer


@contextmanager
def started(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[Worker]:
    """Start one; it ends with the block. What it prints to standard error goes to ``log``."""
    with open(log, "w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            yield Worker(process)
        finally:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it ended by an error of its own, which is on its way
                process.stdin.close()
            process.wait(60)
