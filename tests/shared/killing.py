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


@attrs.frozen
class Server:
    """The process that forks the runs."""

    process: subprocess.Popen[str]
    said: tuple[int, int]

    def launch(self, config: Path) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"config": str(config), "said": self.said[1]}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@attrs.frozen
class Lines:
    """Lines as they come through the pipe, read unbuffered."""

    fd: int
    seen: list[str] = attrs.field(factory=list)
    rest: bytearray = attrs.field(factory=bytearray)

    def wait(self, count: int) -> None:
        """Until `count` lines have come (or the run's last)."""
        deadline = time.monotonic() + 60
        while len(self.seen) < count and "stepped" not in self.seen:
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


def gone(pid: int) -> None:
    """Wait until a killed process, which nobody reaps but the server, is no more."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/stat")
        try:
            if status.read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.0005)


def unkilled(server: Server, folder: Path, **keys: Any) -> tuple[list[str], dict[str, Any]]:
    """What a run says when nobody kills it, and its records."""
    lines = Lines(server.said[0])
    pid = server.launch(write_config(folder, **keys))
    lines.wait(10**6)
    gone(pid)
    lines.drain()
    assert lines.seen[-1] == "stepped"
    return lines.seen, strict(rank_dir(folder / "dump") / "dump.json")["data"]


def killed(server: Server, folder: Path, after: int, delay: float, **keys: Any) -> list[str]:
    """Kill a run `delay` seconds after its line number `after`; every line that it said."""
    lines = Lines(server.said[0])
    pid = server.launch(write_config(folder, **keys))
    lines.wait(after)
    time.sleep(delay)
    with suppress(ProcessLookupError):  # it may have ended
        os.kill(pid, signal.SIGKILL)
    gone(pid)
    lines.drain()
    return lines.seen


def names(said: list[str]) -> list[str]:
    return [line for line in said if "." in line]


def without_files(value: Any) -> Any:
    """A record less what depends on when the background writer was stopped."""
    if isinstance(value, dict):
        return {k: without_files(v) for k, v in value.items() if k not in ("data_name", "lost")}
    return [without_files(v) for v in value] if isinstance(value, list) else value
