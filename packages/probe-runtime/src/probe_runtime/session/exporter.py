"""Have another process write the steps that have ended as tables, while the run goes on (spec/config.md, `export`)."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from attrs import define
from probe_format.excerpts import error_text, unsignalled
from probe_format.safe_files import Descriptor

from probe_runtime.notice import notice

#: Seconds that this process waits at its end for what is left to write.
_PATIENCE = 30.0
_NOW = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
#: How the lines of that process begin; its other lines are of libraries.
_SAYS = "probe export: "


@define(eq=False)
class Exporter:
    """The process that writes the steps of this one, ``probe export --follow``. Nothing here raises, or waits for it.

    It is told of each step, finds at the end what it was not told of, and ends when this process does, in whatever way.

    process: the exporting process, once it is started.
    has_trouble: whether it has reported trouble.
    """

    dump_path: Path
    address: str
    _pid: int = 0
    process: subprocess.Popen[bytes] | None = None
    _line: Descriptor | None = None
    has_trouble: bool = False

    def begin(self, folder: str) -> None:
        """Start the exporting process, unless this one has done so. folder: the name of this one's rank folders."""
        if self._pid == os.getpid():
            return
        self._pid, self.process = os.getpid(), None
        command = [sys.executable, "-W", "ignore", "-P", "-m", "probe_format", "export", str(self.dump_path)]
        command += ["-o", self.address, "--follow", "--folder", folder]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROBE_")}
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._line = Descriptor(ours.detach)
            with theirs:
                theirs.setblocking(True)  # whatever default the run has set
                end = theirs.fileno()
                self.process = subprocess.Popen(
                    command, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True
                )
            self.tell()
        except unsignalled(Exception) as error:
            self._warn(f"nothing is exported: {error_text(error)}")

    def tell(self, *words: bytes) -> bool:
        """Tell the exporting process that folders are whole, and the user what it reports. Return whether it runs.

        words: the folders; a line break where no more come.
        """
        process, line, heard = self.process, self._line, b""
        if process is None or line is None or self._pid != os.getpid():
            return False
        code = process.poll()
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(line.fd)) as end:
            end.setblocking(False)  # whatever default the run has set
            # Where it ended with words unread, one ECONNRESET comes before what it wrote.
            for _ in range(2):
                with contextlib.suppress(OSError):
                    while word := end.recv(1 << 16, _NOW):
                        heard += word
            for word in words:
                end.send(word, _NOW)
        lines = heard.decode("utf-8", "replace").splitlines()
        for text in lines:
            if text.startswith(_SAYS):
                self._warn(text.removeprefix(_SAYS))
        if code and not self.has_trouble:
            self._warn(f"nothing more is exported, its process ended with code {code}. {''.join(lines[-1:])}")
        return code is None

    def close(self) -> None:
        """Tell the exporting process that no more steps come. It writes what is left, also after this one's end."""
        self.tell(b"\n")
        _closed.append(self)

    def linger(self, until: float) -> None:
        """Wait until the exporting process ends, unless it has trouble. until: the latest time, by `monotonic`."""
        process = self.process
        while self.tell() and not self.has_trouble and time.monotonic() < until:
            time.sleep(0.02)
        if process is not None:
            process.returncode = process.returncode or 0  # it is left without a warning of Python's

    def _warn(self, text: str) -> None:
        self.has_trouble = True
        notice(f"Probe: export: {text}")


_closed: list[Exporter] = []


def _linger() -> None:
    until = time.monotonic() + _PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        for each in _closed:
            each.linger(until)


# Debuggers close at exit, too. What is registered first is called last, and they import this.
atexit.register(_linger)
