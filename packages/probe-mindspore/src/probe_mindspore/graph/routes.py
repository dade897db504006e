"""Choose how messages get from a compiled graph to the host: by host callbacks, or by files of the device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import mindspore
from attrs import frozen

from .file_messages import CallCounter, FileCall, Spool
from .gradient_callback import GradientCall
from .host_callback import Callback, HostCall, Message

__all__ = ["Listener", "Route", "by_callbacks", "by_files", "listen", "route_for"]


@frozen
class Listener:
    """Hold the functions that receive the messages of taps. A message's ``extra`` is the id of the Cell or parameter.

    enter: gets (args, kwargs, parameters) of a call, and returns its number, which is the token of what follows.
    leave: gets what the call returned.
    of_input, of_output: get a gradient; ``place`` is the number of the tensor in the nest.
    parameter: gets a parameter's gradient.
    """

    enter: Callable[[Message], int | None]
    leave: Callable[[Message], int | None]
    of_input: Callable[[Message], int | None]
    of_output: Callable[[Message], int | None]
    parameter: Callable[[Message], int | None]


_listener: list[Listener] = []


def _to(name: str) -> Callback:
    def hand_over(message: Message) -> int | None:
        for listener in _listener[-1:]:
            answer: int | None = getattr(listener, name)(message)
            return answer
        return None  # no listener: a graph that was compiled in an earlier step

    return hand_over


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Send messages to ``listener`` while open."""
    _listener.append(listener)
    try:
        yield
    finally:
        _listener.remove(listener)


@frozen(eq=False)
class Route:
    """Hold the Cells that taps call to send messages to the `Listener`.

    key: part of the keys of graphs that are compiled with these.
    enter, leave, parameter: Cells like `HostCall`.
    of_input, of_output: Cells like `GradientCall`.
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
    return Route(
        key,
        enter(_to("enter")),
        call(_to("leave")),
        GradientCall(_to("of_input"), back),
        GradientCall(_to("of_output"), back),
        back(_to("parameter")),
        spool,
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
    return _route(
        str(folder), partial(call, counter=CallCounter()), call, partial(call, late=True), Spool(folder)
    )


def route_for(folder: Path) -> Route:
    """Return the route for MindSpore's current device.

    folder: where to write files, if the route needs any.
    """
    if mindspore.get_context("device_target") == "CPU":
        return by_callbacks()
    return by_files(folder)
