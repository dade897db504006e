"""Run in the process that `ReplayProcess` starts: evaluate graphs on the values that come from the run, and send back
their outputs and the messages of their taps.
"""

import contextlib
import ctypes
import itertools
import pickle
import sys
from collections.abc import Container, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from attrs import define, field
from mindspore.ops.operations._pyfunc_registry import add_pyfunc
from mindspore.train.mind_ir_pb2 import ModelProto

from probe_mindspore.graph.replay_process import READY, Evaluated, ReplayError
from probe_mindspore.graph.value_files import read_values, write_values
from probe_mindspore.patching.compile_hook import API
from probe_mindspore.tensors.tensor_view import TensorView, view_of, views_of

_NOT_TAKEN = -1  # what a stand-in gives by itself
#: Numbers of the graphs that MindSpore looks for in its cache; the next one's number is part of its name there.
_compiled: Iterator[int] = itertools.count()


def _argument(value: Any) -> Any:
    """Return an argument for a graph. All that is no tensor is made mutable; else it would be a constant."""
    return _tensor(value) if isinstance(value, TensorView) else ms.mutable(_nest(value))


def _nest(value: Any) -> Any:
    if isinstance(value, dict):  # in a compiled graph it is the tuple of its values
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return type(value)(map(_nest, value))
    return _tensor(value) if isinstance(value, TensorView) else value


def _tensor(view: TensorView) -> Any:
    """Return a tensor with these elements."""
    data = view.data
    if view.narrow == "bfloat16" and data is not None:
        return ms.Tensor((data.astype(np.uint32) << np.uint32(16)).view(np.float32), ms.bfloat16)
    return ms.Tensor(data)


@define(eq=False)
class _Straight:
    """Hold a graph in one piece, with further outputs, whose types MindSpore has to infer."""

    model: Path
    _cell: Any = None

    def evaluated(self, parameters: Mapping[str, Any], values: Mapping[str, Any]) -> Evaluated:
        """Return what the graph gives for these values. values: as in `ReplayProcess.begin`."""
        if self._cell is None:
            own = {name: ms.Parameter(t, name=name) for name, t in parameters.items()}
            self._cell = ms.nn.GraphCell(ms.load(str(self.model)), params_init=own)
        own = {p.name: p for p in self._cell.get_parameters()}
        for name in own.keys() & parameters:
            own[name].set_data(parameters[name])
        out = self._cell(*map(_argument, values["arguments"]))
        written = {name: view_of(own[name]) for name in values["written"]}
        return Evaluated(views_of(out[0]), views_of(out[1:]), written, [])


class _CellStandIn(ms.nn.Cell):  # type: ignore[misc]
    """Stand for a graph that MindSpore takes from its compile cache."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        for i, (name, value) in enumerate(parameters.items()):
            setattr(self, f"p{i}", ms.Parameter(value, name=name))

    def construct(self, *args: Any) -> Any:
        return _NOT_TAKEN


@define(eq=False)
class _Messages:
    """Take the messages of taps. The taps of all graphs call the same function, so this serves one run at a time.

    sent: the fields of a `PlannedMessage` for each.
    """

    sent: list[tuple[Any, ...]] = field(factory=list)
    _sites: Container[int] = ()

    def begin(self, sites: Container[int]) -> None:
        """Begin anew. sites: of the messages whose values are wanted."""
        self.sent, self._sites = [], sites

    def take(self, *arrays: Any) -> Any:
        """Keep a message; see `host_callback`."""
        site, layout, extra, place = map(int, arrays[0])
        token = int(arrays[1][0])
        values = [np.array(a) if site in self._sites else None for a in arrays[2:]]
        self.sent.append((site, layout, extra, place, token - 1 if token else None, tuple(values)))
        return np.array([len(self.sent)], np.int32)


_messages = _Messages()


@define(eq=False)
class _Branching:
    """Hold a graph with branches or loops, whose taps send messages.

    MindSpore gets it by way of its compile cache, and makes it ready to run as it is: `mindspore.load` infers its types
    anew, and never ends where a loop's gradients are taken in it (2.7.0 and 2.10.0).
    """

    model: Path
    _cell: Any = None
    _own: dict[str, Any] = field(factory=dict)

    def evaluated(self, parameters: Mapping[str, Any], values: Mapping[str, Any]) -> Evaluated:
        """Return what the graph gives for these values. values: as in `ReplayProcess.begin`."""
        _messages.begin(values["sites"])
        first = self._cell is None
        if first:
            self._cell = self._compiled(parameters)
        for name, t in self._own.items():  # it has no Parameters of its own, but their elements
            _fill(t, parameters[name])
        if first:
            ms.set_context(enable_compile_cache=True)
        try:
            out = self._cell(*map(_argument, values["arguments"]))
        finally:
            ms.set_context(enable_compile_cache=False)  # each graph that is looked for there is counted
        ms.runtime.synchronize()
        if isinstance(out, int):
            raise ReplayError("MindSpore did not take it from its compile cache")
        executor = API._cell_graph_executor._graph_executor
        self._own = executor.get_params(next(iter(self._cell.compile_cache)))
        written = {name: view_of(self._own.get(name, t)) for name, t in parameters.items()}
        return Evaluated(views_of(out), [], written, _messages.sent)

    def _compiled(self, parameters: Mapping[str, Any]) -> Any:
        for one in ModelProto.FromString(self.model.read_bytes()).primitives:
            for a in one.attribute:
                if one.op_type == "Custom" and a.name == "fn_id":  # of the function that its taps call
                    add_pyfunc(a.i, _messages.take)
        cache = self.model.parent / "rank_0" / "graph_cache"
        cache.mkdir(parents=True, exist_ok=True)
        self.model.rename(cache / f"compile_cache_{next(_compiled)}.mindir")
        return _CellStandIn(parameters)


def _fill(tensor: Any, other: Any) -> None:
    """Copy the elements of another tensor into a tensor's own memory."""
    elements = view_of(other).data
    if elements is None or not tensor.data_ptr():
        raise ReplayError("the memory of a Parameter was not found")
    ctypes.memmove(tensor.data_ptr(), elements.tobytes(), elements.nbytes)


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
    ms.set_context(compile_cache_path=str(folder))
    API.entry_script_path = None  # whose imports MindSpore would read
    graphs: dict[int, _Straight | _Branching] = {}
    pipe.send((READY, ""))
    while True:
        try:
            ticket, number, given = pipe.recv()
        except (EOFError, OSError):
            return
        error = ""
        try:
            values = read_values(folder / f"{given}.values")
            if number not in graphs:
                graphs[number] = (_Straight if values["sites"] is None else _Branching)(
                    folder / f"{number}.mindir"
                )
            parameters = {name: _tensor(view) for name, view in values["parameters"].items()}
            found = graphs[number].evaluated(parameters, values)
            write_values(folder / f"{ticket}.results", found)
        except Exception as e:
            error = f"{type(e).__name__}: {e}"[:2000]
        pipe.send((ticket, error))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Path(sys.argv[2]))
