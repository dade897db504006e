"""Evaluate graphs in a process of their own, so that nothing that happens to them happens to the run.

It has weights of its own, which are given to it each time, and it is the first to end where memory does. What goes
there and comes back lies in files: a message between the processes is a few bytes long, so neither waits for the other
to read.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import mmap
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
import numpy as np
from attrs import define, evolve, field, frozen

from probe_mindspore.tensors.tensor_view import TensorView, view_of

#: How long an evaluation may take, beyond four times what compiling the graph took, in seconds.
PATIENCE = 30.0
_ALIGNED = 64  # bytes, as MindSpore's own memory is
_START = 300.0  # until the process has imported MindSpore
_READY = 0
_CONTEXT = (
    "device_target",
    "device_id",
    "deterministic",
    "jit_level",
    "memory_optimize_level",
    "runtime_num_threads",
)
_OF_RANK = ("RANK_", "MS_ROLE", "MS_WORKER", "MS_SCHED", "MS_NODE", "OMPI_", "MS_COMPILER_CACHE")


class ReplayError(Exception):
    """Report that a graph could not be evaluated beside the run."""


@frozen
class Evaluation:
    """Stand for an evaluation that has begun.

    number, ticket: of the graph, and its own.
    values: the ticket under which its values lie.
    kept: the values, as they were then.
    """

    number: int
    ticket: int
    values: int
    kept: Mapping[str, Any]


@define(eq=False)
class ReplayProcess:
    """Evaluate graphs in another process, which begins with the first of them. Safe to use from many threads."""

    _process: subprocess.Popen[bytes] | None = None
    _pipe: Connection | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _sent: set[int] = field(factory=set)
    _answers: dict[int, str] = field(factory=dict)
    _tickets: Iterator[int] = field(factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(factory=threading.RLock)

    def begin(self, number: int, model: bytes, values: Mapping[str, Any]) -> Evaluation:
        """Begin to evaluate a graph; `end` gives the result.

        number: that of the graph, which is compiled once.
        values: "arguments": tensors, nests of them and numbers; "parameters": name -> tensor; "written": the names of
            those to give back.
        """
        with self._lock:
            pipe, folder = self._begun()
            if number not in self._sent:
                (folder / f"{number}.mindir").write_bytes(model)
                self._sent.add(number)
            plain = {
                "arguments": [_portable(t) for t in values["arguments"]],
                "parameters": {name: _portable(t) for name, t in values["parameters"].items()},
                "written": values["written"],
            }
            ticket = next(self._tickets)
            path = folder / f"{ticket}.values"
            _write(path, plain)
            pipe.send((ticket, number, ticket))
            return Evaluation(
                number, ticket, ticket, _read(path)
            )  # the run may write to the tensors themselves

    def again(self, one: Evaluation) -> Evaluation:
        """Evaluate the same graph on the same values once more."""
        with self._lock:
            assert self._pipe is not None
            ticket = next(self._tickets)
            self._pipe.send((ticket, one.number, one.values))
            return evolve(one, ticket=ticket)

    def end(
        self, one: Evaluation, patience: float
    ) -> tuple[list[TensorView], list[TensorView], dict[str, TensorView]]:
        """Return (the graph's outputs, the further ones, the Parameters afterwards).

        Raises ReplayError when it fails, or takes longer than ``patience`` seconds; then the process ends.
        """
        failed = False
        with self._lock:
            try:
                while not {_READY, one.ticket} <= self._answers.keys():
                    limit = patience if _READY in self._answers else _START
                    if self._pipe is None or not self._pipe.poll(limit):
                        raise ReplayError(f"it took longer than {limit:.0f} s")
                    ticket, error = self._pipe.recv()
                    self._answers[ticket] = error
                if error := self._answers.pop(one.ticket):
                    failed = True
                    raise ReplayError(error)
                assert self._folder is not None
                results = Path(self._folder.name) / f"{one.ticket}.results"
                found = _read(results)
                results.unlink()
                return found  # type: ignore[no-any-return]
            except (EOFError, OSError) as e:
                self.stop()
                raise ReplayError("its process ended, as it does where memory does") from e
            except ReplayError:
                if not failed:
                    self.stop()
                raise

    def forget(self, one: Evaluation) -> None:
        """Remove the values of an evaluation that is not made again."""
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
            environment = {k: v for k, v in os.environ.items() if not k.startswith(_OF_RANK)} | {
                "PYTHONPATH": path
            }
            self._folder = tempfile.TemporaryDirectory(prefix="probe-replay-", ignore_cleanup_errors=True)
            context = {name: _setting(name) for name in _CONTEXT}
            (Path(self._folder.name) / "context").write_bytes(pickle.dumps((context, ms.get_seed())))
            command = [sys.executable, "-m", __name__, str(there.fileno()), self._folder.name]
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


def _write(path: Path, value: Any) -> None:
    """Write a value to a file, with the elements of its arrays as they lie in memory."""
    with path.open("wb") as file:
        places: list[tuple[int, int]] = []

        def put(elements: pickle.PickleBuffer) -> None:
            file.write(bytes(-file.tell() % _ALIGNED))
            places.append((file.tell(), elements.raw().nbytes))
            file.write(elements.raw())

        rest = pickle.dumps(value, 5, buffer_callback=put)
        end = file.tell()
        pickle.dump((rest, places), file)
        file.write(end.to_bytes(8, "little"))


def _read(path: Path) -> Any:
    """Return the value of a file. Its arrays are the file itself, mapped: what is written to them stays here."""
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    rest, places = pickle.loads(whole[int.from_bytes(whole[-8:], "little") :])
    return pickle.loads(rest, buffers=[whole[at : at + size] for at, size in places])


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


def _argument(value: Any) -> Any:
    """Return what a graph is called with: all that is no tensor is mutable, else it would be a constant."""
    return _tensor(value) if isinstance(value, TensorView) else ms.mutable(_nest(value))


def _nest(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_nest, value))
    if isinstance(value, dict):
        return {key: _nest(one) for key, one in value.items()}
    return _tensor(value) if isinstance(value, TensorView) else value


def _tensor(view: TensorView) -> Any:
    """Return a tensor with these elements."""
    data = view.data
    if view.narrow == "bfloat16" and data is not None:
        return ms.Tensor((data.astype(np.uint32) << np.uint32(16)).view(np.float32), ms.bfloat16)
    return ms.Tensor(data)


def _views(value: Any) -> list[TensorView]:
    if isinstance(value, ms.Tensor):
        return [view_of(value)]
    return [view for one in value for view in _views(one)] if isinstance(value, list | tuple) else []


def _evaluate(
    graphs: dict[int, Any], folder: Path, number: int, values: Mapping[str, Any]
) -> tuple[Any, ...]:
    given = {name: _tensor(view) for name, view in values["parameters"].items()}
    if number not in graphs:
        own = {name: ms.Parameter(t, name=name) for name, t in given.items()}
        graphs[number] = ms.nn.GraphCell(ms.load(str(folder / f"{number}.mindir")), params_init=own)
    cell = graphs[number]
    parameters = {p.name: p for p in cell.get_parameters()}
    for name, p in parameters.items():
        if name in given:
            p.set_data(given[name])
    out = cell(*map(_argument, values["arguments"]))
    further = [view for one in out[1:] for view in _views(one)]
    return _views(out[0]), further, {name: view_of(parameters[name]) for name in values["written"]}


def serve(pipe: Connection, folder: Path) -> None:
    """Evaluate what is asked for until the other side is gone."""
    ctypes.CDLL(None).prctl(1, 9)  # it ends with the run
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    context, seed = pickle.loads((folder / "context").read_bytes())
    ms.set_context(mode=ms.GRAPH_MODE)
    for name, value in context.items():
        with contextlib.suppress(Exception):
            if value is not None:
                ms.set_context(**{name: value})
    if seed is not None:
        ms.set_seed(seed)
    graphs: dict[int, Any] = {}
    pipe.send((_READY, ""))
    while True:
        try:
            ticket, number, given = pipe.recv()
        except (EOFError, OSError):
            return
        error = ""
        try:
            values = _read(folder / f"{given}.values")
            _write(folder / f"{ticket}.results", _evaluate(graphs, folder, number, values))
        except Exception as e:
            error = f"{type(e).__name__}: {e}"[:2000]
        pipe.send((ticket, error))


#: That of this process.
replay_process = ReplayProcess()
atexit.register(replay_process.stop)

if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Path(sys.argv[2]))
