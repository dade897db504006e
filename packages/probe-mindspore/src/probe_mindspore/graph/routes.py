"""Choose how messages get from a compiled graph to the host: by host callbacks, or by files of the device."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import mindspore
from attrs import frozen
from probe_runtime.patching import Held

from .file_messages import CallCounter, FileCall, Spool
from .gradient_callback import GradientCall
from .host_callback import Callback, HostCall, Message, on_fault

#: Whose methods get the messages of taps, by the names of a `Route`; the last one listens.
_listener: list[Any] = []


def _to(name: str) -> Callback:
    def hand_over(message: Message) -> int | None:
        for listener in _listener[-1:]:
            answer: int | None = getattr(listener, name)(message)
            return answer
        return None  # no listener: a graph that was compiled in an earlier step

    return hand_over


def listen(listener: Any) -> Held:
    """Send messages to ``listener`` until undone. It has a method of the name of each of a route's taps."""
    _listener.append(listener)
    on_fault.append(listener.fault)

    def stop() -> None:
        _listener.remove(listener)
        on_fault.remove(listener.fault)

    return Held(stop)


@frozen(eq=False)
class Route:
    """Hold the Cells that taps call to send messages, whose ``extra`` is the id of the Cell or parameter.

    key: part of the keys of graphs that are compiled with these.
    enter, leave, parameter: Cells like `HostCall`.
    of_input, of_output: Cells like `GradientCall`; ``place`` is the number of the tensor in the nest.
    spool: collects messages sent by files; None where messages come while the graph runs.
    """

    key: str
    enter: Any
    leave: Any
    of_input: Any
    of_output: Any
    parameter: Any
    spool: Spool | None = None


Call = Callable[[Callback], Any]


def _route(key: str, enter: Call, call: Call, back: Call, spool: Spool | None = None) -> Route:
    of_input, of_output = (GradientCall(_to(name), back) for name in ("of_input", "of_output"))
    return Route(
        key, enter(_to("enter")), call(_to("leave")), of_input, of_output, back(_to("parameter")), spool
    )


@cache
def by_callbacks() -> Route:
    """Return the route for the CPU, where the graph calls Python."""
    return _route("", HostCall, HostCall, HostCall)


@cache
def by_files(folder: Path, dump: Any = None) -> Route:
    """Return the route for a device that can only write files.

    folder: where to write them.
    dump: the operator that writes one; None for MindSpore's TensorDump.
    """
    call = partial(FileCall, folder, dump)
    enter, back = partial(call, counter=CallCounter()), partial(call, late=True)
    return _route(str(folder), enter, call, back, Spool(folder))


def route_for(folder: Path) -> Route:
    """Return the route for MindSpore's current device.

    folder: where to write files, if the route needs any.
    """
    if mindspore.get_context("device_target") == "CPU":
        return by_callbacks()
    return by_files(folder)
