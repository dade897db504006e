"""Call Python from inside a compiled graph, on the CPU.

`mindspore.ops.Custom` runs a host function as a kernel. Measured (2.7.0 and 2.10.0): it takes a fixed number of inputs,
which it reads from the function's signature; an output with its input's shape fails for bfloat16, so every call here
returns one int32; it has no gradient; without a side effect the compiler merges and drops calls, and with one
(``side_effect_io``) they run in the order of the program.
"""

import inspect
import linecache
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
from attrs import frozen
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: F401 - for the functions that are written out below
from mindspore.ops import operations as P
from probe_format.excerpts import error_text
from probe_runtime.notice import log_once

from .flatten import at_compile_time, flatten, meta
from .value_layouts import rebuild

_MOST = 64


@frozen
class Message:
    """Hold a message from a graph.

    token: the answer to the earlier call that this one belongs to, 0 without one.
    value: the nest that was sent. Its tensors are `TensorView`s whose memory is valid during the callback only.
    extra, place: the numbers given in the graph.
    """

    token: int
    value: Any
    extra: int
    place: int


Callback = Callable[[Message], int | None]

_callbacks: list[Callback] = []
_lock = threading.RLock()


def _warn_once(error: Exception) -> None:
    why = error_text(error)
    log_once("probe_mindspore", f"Probe: a callback from a graph failed ({why}); the run goes on.")


#: The last one is called with each exception of a callback; the graph never gets them.
on_fault: list[Callable[[Exception], None]] = [_warn_once]


def register(callback: Callback) -> int:
    """Return the number by which `deliver` finds this callback. It stays valid, for compiled graphs hold it."""
    with _lock:
        _callbacks.append(callback)
        return len(_callbacks) - 1


def deliver(site: int, layout: int, extra: int, place: int, token: int, arrays: Sequence[Any]) -> int:
    """Call a callback with a message. Return its answer. Never raises: an exception would end the user's run."""
    try:
        with _lock:
            return _callbacks[site](Message(token, rebuild(layout, arrays), extra, place)) or 0
    except Exception as e:
        on_fault[-1](e)
        return 0


def _no_gradients(inputs: int) -> Any:
    """Return the bprop of a call, which is zero: second gradients do not pass through calls.

    It is generated as source, because the compiler reads a function with as many parameters as the operator has inputs.
    """
    names = [f"a{i}" for i in range(inputs)]
    zeros = "".join(f"F.zeros_like({name}), " for name in names)
    here = Path(__file__)  # MindSpore logs an error where there is no such file
    file = f"{here.parent}/{'./' * (inputs + 1)}{here.name}"
    source = f"def bprop({', '.join(names)}, out, dout):\n    return ({zeros})\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    found: dict[str, Any] = {}
    exec(compile(source, file, "exec"), globals(), found)
    return found["bprop"]


@cache
def _operator(inputs: int) -> Any:
    """Return the operator for a number of tensors, besides the two constants that every call has.

    It is made once, as MindSpore never releases a host function.
    """

    def receive(*arrays: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        # int64[4] (see `meta`), int32[1] (the token), then the tensors of the value.
        site, layout, extra, place = (int(i) for i in arrays[0])
        answer = deliver(site, layout, extra, place, int(arrays[1][0]), arrays[2:])
        return np.array([answer], np.int32)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = [inspect.Parameter(f"a{i}", kind) for i in range(inputs + 2)]
    receive.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    bprop = _no_gradients(inputs + 2)
    op = P.Custom(receive, out_shape=(1,), out_dtype=ms.int32, func_type="pyfunc", bprop=bprop)
    op.add_prim_attr("side_effect_io", True)
    return op


@at_compile_time
def _operator_of(inputs: Any) -> Any:
    with _lock:
        return _operator(inputs)


#: The token of a call that belongs to no earlier one: int32[1], zero.
FIRST = Tensor(np.zeros(1, np.int32))


class HostCall(nn.Cell):  # type: ignore[misc]
    """Call a callback from inside a graph: ``token = call(value)``.

    The callback gets a `Message` whenever the graph runs that line. Its answer (an int, else 0) is the token, int32[1],
    to be given to later calls that belong to this one.

    value: any nest of tuples, lists, dicts, tensors and constants. One with more than 64 tensors is replaced by a note.
    token: the token of the call that this one belongs to.
    extra, place: constant ints that are part of the message.
    """

    def __init__(self, callback: Callback) -> None:
        super().__init__(auto_prefix=False)
        self.site = register(callback)
        self.most = _MOST

    def construct(self, value: Any, token: Any = FIRST, extra: int = 0, place: int = 0) -> Any:
        """Send ``value`` to the host. Return the token of the answer, int32[1]."""
        layout, found = flatten(value, ())
        if len(found) > self.most:
            layout, found = flatten("more tensors than one host callback takes", ())
        return _operator_of(len(found))(meta(self.site, layout, extra, place), token, *found)
