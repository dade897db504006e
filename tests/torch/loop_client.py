"""Ask loop_server.py for runs of scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

__all__ = ["Server"]


class Server:
    """Forks a run for each request."""

    def __init__(self, folder: Path, *modules: str) -> None:
        """modules: imported before."""
        self.folder = folder
        command = [sys.executable, str(Path(__file__).parent / "loop_server.py"), str(folder), *modules]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, name: str, *words: str) -> tuple[int, str, str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([name, words]), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return code, (self.folder / f"{name}.out").read_text(), (self.folder / f"{name}.err").read_text()

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
