"""Evaluate graphs in a process of their own, so that a crash or an error of one never reaches the run.

That process has its own weights, which are sent to it for each evaluation, and the system ends it first when memory
runs out. Values go there and come back in files: a message between the processes is only a few bytes long, so neither
process waits for the other to read.
"""

import atexit
import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import mindspore as ms
from attrs import define, evolve, field, frozen

from probe_mindspore.tensors.tensor_view import TensorView, view_of

from .value_files import read_values, write_values

#: How long an evaluation may take, beyond four times what compiling the graph took, in seconds.
PATIENCE = 30.0
_START = 300.0  # seconds in which the process must have imported MindSpore
READY = 0  # the ticket of the process's first answer
_CONTEXT = (
    "device_target", "device_id", "deterministic", "jit_level", "memory_optimize_level", "runtime_num_threads",
)  # fmt: skip
_OF_RANK = ("RANK_", "MS_ROLE", "MS_WORKER", "MS_SCHED", "MS_NODE", "OMPI_", "MS_COMPILER_CACHE")


class ReplayError(Exception):
    """Report that a graph could not be evaluated beside the run."""


@frozen
class Evaluation:
    """Stand for an evaluation that has begun.

    number: the graph's number.
    ticket: the evaluation's own number.
    values: the ticket that names the file of its values.
    kept: the values as they were when it began.
    """

    number: int
    ticket: int
    values: int
    kept: Mapping[str, Any]


@frozen
class Evaluated:
    """Hold the result of an evaluation.

    outputs, further: the graph's own outputs, and the further ones.
    written: name of a Parameter -> its value afterwards.
    messages: what taps in the graph sent, each as the fields of a `PlannedMessage`.
    """

    outputs: list[TensorView]
    further: list[TensorView]
    written: dict[str, TensorView]
    messages: list[tuple[Any, ...]]


@define(eq=False)
class ReplayProcess:
    """Evaluate graphs in another process, which is started for the first graph. Safe to use from many threads."""

    _process: subprocess.Popen[bytes] | None = None
    _pipe: Connection | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _sent: set[int] = field(factory=set)
    _answers: dict[int, str] = field(factory=dict)
    _tickets: Iterator[int] = field(factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(factory=threading.RLock)

    def begin(self, number: int, model: bytes, values: Mapping[str, Any]) -> Evaluation:
        """Begin to evaluate a graph; `end` gives the result.

        number: the graph's number; a graph is compiled once.
        values: "arguments": tensors, nests of them and numbers; "parameters": name -> tensor; "written": the names of
            the Parameters to give back; "sites": the sites of the messages whose values are given back, None for a
            graph without taps.
        """
        with self._lock:
            pipe, folder = self._begun()
            if number not in self._sent:
                (folder / f"{number}.mindir").write_bytes(model)
                self._sent.add(number)
            plain = {
                **values,
                "arguments": [_portable(t) for t in values["arguments"]],
                "parameters": {name: _portable(t) for name, t in values["parameters"].items()},
            }
            ticket = next(self._tickets)
            path = folder / f"{ticket}.values"
            write_values(path, plain)
            pipe.send((ticket, number, ticket))
            kept = read_values(path)  # the run may write to the tensors themselves
            return Evaluation(number, ticket, ticket, kept)

    def again(self, one: Evaluation) -> Evaluation:
        """Evaluate the same graph on the same values once more."""
        with self._lock:
            assert self._pipe is not None
            ticket = next(self._tickets)
            self._pipe.send((ticket, one.number, one.values))
            return evolve(one, ticket=ticket)

    def end(self, one: Evaluation, patience: float) -> Evaluated:
        """Return the result of an evaluation.

        Raises ReplayError when it fails, or takes longer than ``patience`` seconds; then the process ends.
        """
        with self._lock:
            try:
                while not {READY, one.ticket} <= self._answers.keys():
                    limit = patience if READY in self._answers else _START
                    if self._pipe is None or not self._pipe.poll(limit):
                        self.stop()
                        raise ReplayError(f"it took longer than {limit:.0f} s")
                    ticket, error = self._pipe.recv()
                    self._answers[ticket] = error
                if error := self._answers.pop(one.ticket):
                    raise ReplayError(error)
                assert self._folder is not None
                results = Path(self._folder.name) / f"{one.ticket}.results"
                found: Evaluated = read_values(results)
                results.unlink()
                return found
            except (EOFError, OSError) as e:
                self.stop()
                raise ReplayError("its process ended, as it does where memory does") from e

    def forget(self, one: Evaluation) -> None:
        """Remove the values of an evaluation that will not be made again."""
        if self._folder is not None:
            (Path(self._folder.name) / f"{one.values}.values").unlink(missing_ok=True)

    def stop(self) -> None:
        """End the process; the next graph has a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._pipe is not None:
            self._pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._pipe = self._folder = None
        self._sent.clear()
        self._answers.clear()

    def _begun(self) -> tuple[Connection, Path]:
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        if self._process is None:
            here, there = Pipe()
            path = os.pathsep.join(one or os.getcwd() for one in sys.path)
            environment = {k: v for k, v in os.environ.items() if not k.startswith(_OF_RANK)}
            environment |= {"PYTHONPATH": path, "MS_DEV_FORCE_USE_COMPILE_CACHE": "1"}
            self._folder = tempfile.TemporaryDirectory(prefix="probe-replay-", ignore_cleanup_errors=True)
            context = {name: _setting(name) for name in _CONTEXT}
            (Path(self._folder.name) / "context").write_bytes(pickle.dumps((context, ms.get_seed())))
            program = f"{__package__}.evaluator"
            command = [sys.executable, "-m", program, str(there.fileno()), self._folder.name]
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.name,
                start_new_session=True,
            )
            there.close()
            self._pipe = here
        assert self._pipe is not None and self._folder is not None
        return self._pipe, Path(self._folder.name)


def _setting(name: str) -> Any:
    with contextlib.suppress(Exception):
        return ms.get_context(name)
    return None


def _portable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_portable, value))
    if isinstance(value, dict):
        return {key: _portable(one) for key, one in value.items()}
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    view = view_of(value)
    if view.data is None:
        raise ReplayError(f"a tensor of its arguments cannot be read: {view.reason}")
    return view


#: The one that every copied graph of this process uses.
replay_process = ReplayProcess()
atexit.register(replay_process.stop)
