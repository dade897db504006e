"""Runs that are killed: a server process that forks them, and what they said before they died."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
from documents import rank_dir, strict, write_config

LAST = frozenset({"stepped", "closed"})  #: what a run says last


@attrs.frozen
class Server:
    """The process that forks the runs."""

    process: subprocess.Popen[str]
    said: tuple[int, int]

    def launch(self, pause: int = 0, **request: str) -> int:
        """The pid of a new run, which stops itself (SIGSTOP) after its line number `pause`, if it has one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({**request, "pause": pause, "said": self.said[1]}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@attrs.frozen
class Lines:
    """Lines as they come through the pipe, read unbuffered."""

    fd: int
    seen: list[str] = attrs.field(factory=list)
    rest: bytearray = attrs.field(factory=bytearray)

    def wait(self, count: int) -> None:
        """Until `count` lines have come (or the run's last). The first come when the framework is imported."""
        deadline = time.monotonic() + 300
        while len(self.seen) < count and not LAST.intersection(self.seen[-1:]):
            assert time.monotonic() < deadline, f"the run is stuck after {self.seen[-3:]}"
            select.select([self.fd], [], [], 1.0)
            self.drain()

    def drain(self) -> None:
        """Everything that is in the pipe now."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self.rest.extend(data)
        *whole, last = self.rest.split(b"\n")
        self.seen.extend(line.decode() for line in whole)
        self.rest[:] = last


@contextmanager
def serving(program: Path, **env: str) -> Iterator[Server]:
    """Start a server (see tests/torch/killed.py for what it does), and end it."""
    said = os.pipe()
    os.set_blocking(said[0], False)
    os.set_inheritable(said[1], True)
    path = os.pathsep.join([*(p for p in sys.path if p), str(program.parent)])
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[said[1]],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env},
    )
    try:
        yield Server(process, said)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
        os.close(said[0])
        os.close(said[1])


def until(pid: int, states: str) -> None:
    """Wait until a process is in one of the states of /proc, or is no more: nobody reaps it but the server."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in states:
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.0005)
    raise AssertionError(f"process {pid} is in none of the states {states!r} after a minute")


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    until(pid, "ZX")


def unkilled(server: Server, folder: Path, **keys: Any) -> tuple[list[str], dict[str, Any]]:
    """What a run says when nobody kills it, and its records."""
    lines = Lines(server.said[0])
    pid = server.launch(config=str(write_config(folder, **keys)))
    lines.wait(10**6)
    gone(pid)
    lines.drain()
    assert lines.seen[-1] == "stepped"
    return lines.seen, strict(rank_dir(folder / "dump") / "dump.json")["data"]


def killed(server: Server, folder: Path, after: int, delay: float | None = None, **keys: Any) -> list[str]:
    """Kill a run `delay` seconds after its line number `after` (None: right there); every line that it said."""
    return kill(server, after, delay, config=str(write_config(folder, **keys)))


def kill(server: Server, after: int, delay: float | None = None, **request: str) -> list[str]:
    """Do so with a run that the request describes.

    The run stops itself at that line, all its threads with it, and goes on when this process is there to kill it:
    else a run on a busy machine would be over before its killer came.
    """
    lines = Lines(server.said[0])
    pid = server.launch(after, **request)
    lines.wait(after)
    until(pid, "TZX")
    with suppress(ProcessLookupError):  # it may have ended
        if delay is not None:
            os.kill(pid, signal.SIGCONT)
            end = time.monotonic() + delay
            while time.monotonic() < end:  # who sleeps may be woken late
                pass
        os.kill(pid, signal.SIGKILL)
    gone(pid)
    lines.drain()
    return lines.seen


def names(said: list[str]) -> list[str]:
    return [line for line in said if "." in line]
