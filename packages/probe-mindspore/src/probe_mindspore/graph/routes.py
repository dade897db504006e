"""Make the Cells by which taps in compiled graphs send messages, and hand these messages to the present listener."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from attrs import frozen
from probe_runtime.patching import Held

from .gradient_callback import GradientCall
from .host_callback import Callback, HostCall, Message, on_fault

#: Objects with a method for each kind of message, named as the Cells of a `Route`; the last object gets the messages.
_listener: list[Any] = []


def _to(name: str) -> Callback:
    def hand_over(message: Message) -> int | None:
        for listener in _listener[-1:]:
            answer: int | None = getattr(listener, name)(message)
            return answer
        return None

    return hand_over


def listen(listener: Any) -> Held:
    """Send messages to ``listener``, which has a method of the name of each Cell, until the result is undone."""
    _listener.append(listener)
    on_fault.append(listener.fault)

    def stop() -> None:
        _listener.remove(listener)
        on_fault.remove(listener.fault)

    return Held(stop)


@frozen(eq=False)
class Route:
    """Hold the Cells that taps call to send messages, whose ``extra`` is the id of the Cell or parameter.

    enter, leave, parameter: Cells like `HostCall`.
    of_input, of_output: Cells like `GradientCall`; ``place`` is the number of the tensor in the nest.
    names: the number of each Cell in messages -> its name here.
    """

    enter: Any
    leave: Any
    of_input: Any
    of_output: Any
    parameter: Any
    names: Mapping[int, str]


@cache
def route() -> Route:
    """Return the route, which is one for all graphs."""
    calls = {name: HostCall(_to(name)) for name in ("enter", "leave", "parameter")}
    gradients = {name: GradientCall(_to(name)) for name in ("of_input", "of_output")}
    names = {call.site: name for name, call in calls.items()}
    names |= {call.bprop_cell.call.site: name for name, call in gradients.items()}
    return Route(**calls, **gradients, names=names)
