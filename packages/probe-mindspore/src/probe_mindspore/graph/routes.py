"""How messages get from a compiled graph to the host: by a host callback, or by files that the device writes."""

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
    """Where the messages of tapped Cells go. ``extra`` of a message is the id of the Cell (or parameter).

    enter: (args, kwargs, parameters) of a call; gives its number, the token of all that follows. leave: what it
    returned. of_input, of_output: a gradient; ``place`` counts the tensors of the nest.
    parameter: a parameter's gradient.
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
        return None  # nobody listens: the run of a graph that was compiled earlier

    return hand_over


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Messages go to ``listener`` while this is open."""
    _listener.append(listener)
    try:
        yield
    finally:
        _listener.remove(listener)


@frozen(eq=False)
class Route:
    """What the taps of a graph call, and how it comes to the `Listener`.

    enter, leave, parameter: like `HostCall`. of_input, of_output: like `GradientCall`. key: goes into the keys of
    the graphs that are compiled with these. spool: where messages wait until they are collected; None where they
    come while the graph runs.
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
    """The CPU: the graph calls Python."""
    return _route("", HostCall, HostCall, HostCall)


@cache
def by_files(folder: Path, dump: Any = None) -> Route:
    """A device that only writes files. dump: the operator that writes one, else MindSpore's TensorDump."""
    call = partial(FileCall, folder, dump)
    return _route(
        str(folder), partial(call, counter=CallCounter()), call, partial(call, late=True), Spool(folder)
    )


def route_for(folder: Path) -> Route:
    """What the device that MindSpore is set to can do. folder: for files, where it needs some."""
    if mindspore.get_context("device_target") == "CPU":
        return by_callbacks()
    return by_files(folder)
