"""Programs of Python as `python WORDS` runs them, each in a fork of one process that has imported a framework.

To import torch takes 3 seconds of a core, MindSpore 7; a fork takes none. What must begin with a new interpreter (its
options, what imports what) is started by hand. `python forks.py SOCKET [MODULE ...]` is the process that forks, until
its standard input ends; SOCKET is a descriptor.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from types import ModuleType
from typing import IO, Any, NoReturn

import stand_in
from probe_runtime.auto import script

__all__ = ["Fork", "Forks", "free_port"]

#: Seconds that a program may take.
PATIENCE = 600


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Fork:
    """A program that runs. stdin, stdout, stderr: files here, of one that is talked to."""

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def __init__(self, told: IO[str]) -> None:
        self._told = told
        self.pid = int(told.readline())
        self.code: int | None = None

    def wait(self) -> int:
        """Wait for its end, and return its exit code as subprocess has it. One that hangs is killed, and fails."""
        if self.code is None:
            if not select.select([self._told], [], [], PATIENCE)[0]:
                self.kill()
                raise TimeoutError(f"process {self.pid} did not end within {PATIENCE} seconds")
            self.code = int(self._told.readline())
            self._told.close()
        return self.code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self, text: str = "") -> tuple[str, str]:
        """Say a last thing, and return what it says until it ends, on stdout and in all on stderr."""
        if not self.stdin.closed:
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.write(text)
        self.wait()
        self.stderr.seek(0)
        return self.stdout.read(), self.stderr.read()


class Forks:
    """What forks: it begins with the first program, and ends with this process."""

    def __init__(self, *modules: str) -> None:
        """modules: imported before."""
        self._modules = modules
        self._address = ""

    def start(
        self, *words: str, stdin: int, stdout: int, stderr: int, cwd: Path | None = None, **env: str
    ) -> Fork:
        """Fork a program.

        words: as python takes them: a script, ``-c`` code or ``-m`` module, with arguments. stdin, stdout, stderr:
        descriptors. env: added to this process's, which it has as it is now.
        """
        request = {"words": words, "env": {**os.environ, **env}, "cwd": str(cwd or os.getcwd())}
        return Fork(stand_in.ask(self._begun(), request, [stdin, stdout, stderr]))

    def run(self, *words: str, ends: int | None = 0, **about: Any) -> subprocess.CompletedProcess[str]:
        """As subprocess.run does it with captured text. ends: the exit code that it must have, None for any."""
        with open(os.devnull) as none, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            descriptors = {"stdin": none.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            code = self.start(*words, **descriptors, **about).wait()
            said = [(file.seek(0), file.read())[1] for file in (out, err)]
        assert ends is None or code == ends, f"exit code {code}\n{said[1][-4000:]}"
        return subprocess.CompletedProcess(words, code, *said)

    def talk(self, *words: str, **about: Any) -> Fork:
        """Fork a program with pipes to its stdin and from its stdout."""
        (given, gives), (had, has) = os.pipe(), os.pipe()
        stderr = TemporaryFile("w+")  # noqa: SIM115 - the fork's
        fork = self.start(*words, stdin=given, stdout=has, stderr=stderr.fileno(), **about)
        os.close(given)
        os.close(has)
        fork.stdin, fork.stdout, fork.stderr = os.fdopen(gives, "w"), os.fdopen(had), stderr
        return fork

    def together(self, *words: str, each: Iterable[dict[str, str]], **about: Any) -> None:
        """Run a program once for each of some environments, all at the same time, as torchrun and msrun do."""
        with open(os.devnull) as none, TemporaryFile("w+") as said:
            runs = [
                self.start(
                    *words, stdin=none.fileno(), stdout=said.fileno(), stderr=said.fileno(), **about, **env
                )
                for env in each
            ]
            for run in runs:
                if run.wait():  # the others may wait for it
                    for other in runs:
                        other.kill()
            said.seek(0)
            codes = [run.code for run in runs]
            assert not any(codes), f"exit codes {codes}\n{said.read()[-4000:]}"

    def commands(self, folder: Path) -> None:
        """Write what stands for these in a shell: scripts, `probe` and torch's launcher are forked, others real."""
        folder.mkdir(exist_ok=True)
        for name in ("python", *stand_in.PROGRAMS):
            real = str(Path(sys.executable).with_name(name))
            words = [sys.executable, "-ISE", stand_in.__file__, self._begun(), real]
            (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (folder / name).chmod(0o755)

    def _begun(self) -> str:
        """Return where the process that forks listens."""
        if not self._address:
            folder, own = mkdtemp(), os.getpid()
            self._address = f"{folder}/asked"
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listening.bind(self._address)
            listening.listen(64)
            path = os.pathsep.join(p for p in sys.path if p)
            process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno()), *self._modules],
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
            )
            listening.close()

            def end() -> None:
                if os.getpid() == own:  # a child that ends as this process does has neither of them
                    process.communicate()
                    shutil.rmtree(folder)

            atexit.register(end)
        return self._address


def _interpret(words: list[str]) -> None:
    """Do what the interpreter does with its words."""
    if words[0] == "-c":
        main = sys.modules["__main__"] = ModuleType("__main__")
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), main.__dict__)
    elif words[0] == "-m":
        script.run(script.module(words[1]), words[2:])
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        script.run(script.script(words[0]), words[1:])


def _become(request: dict[str, Any]) -> NoReturn:
    """Be that program, to its end."""
    for name, *how in (("stdin", "r"), ("stdout", "w"), ("stderr", "w", 1)):  # those here knew other files
        setattr(
            sys, name, os.fdopen(getattr(sys, name).fileno(), *how, errors="backslashreplace", closefd=False)
        )
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    code = 0
    try:
        _interpret(request["words"])
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without clearing all modules of this process, which takes longer than most runs


def _keep(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Fork the program and say how it ends."""
    *ends, tells = descriptors
    child = os.fork()
    if child == 0:
        os.close(tells)
        for number, end in enumerate(ends):
            os.dup2(end, number)
            os.close(end)
        _become(request)
    for end in ends:
        os.close(end)
    os.write(tells, f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    with suppress(BrokenPipeError):  # nobody wants to know
        os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def main() -> None:
    """Import, and fork a keeper and its program for each request."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # the children need not look at what is here
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        with listening.accept()[0] as asking:
            asked, descriptors, _, _ = socket.recv_fds(asking, 1 << 20, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            listening.close()
            _keep(json.loads(asked), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main()
