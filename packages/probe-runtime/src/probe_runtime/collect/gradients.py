"""Define what a framework provides to tap gradients, and find the places whose share of a gradient nothing tells."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from attrs import frozen
from probe_format.journal import Slot
from probe_format.values import ValuePath

Found = Sequence[tuple[ValuePath, Any]]
#: Why a gradient has no numbers.
UNTOLD = (
    "the gradient is that of one tensor in several places: the call returns it more than once, or returns an input "
    "beside something else, or another thread made a part of its graph, and nothing tells the share of this place"
)
#: (path, gradient) of outputs.
OfOutputs = list[tuple[ValuePath, Any]]
#: (every path that an input has in the arguments, its gradient).
OfInputs = list[tuple[Sequence[ValuePath], Any]]
#: id of a gradient -> the gradient and its description. Of one call of a hook, in which only Probe's code runs: a
#: gradient that comes there several times is described once.
GradientTexts = dict[int, tuple[Any, bytes]]
#: Called with (pass number counted from 0, gradients of outputs, and of inputs, whether the sums are partial, the slots
#: that this pass has yet to fill: said once, the texts).
Emit = Callable[[int, OfOutputs, OfInputs, bool, Sequence[Slot], GradientTexts], None]


@frozen
class Gradients:
    """Hold how a framework taps the gradients of a call. `enter`, `flows` and `attach` run within `Leaf.aside`.

    enter: takes (inputs, positional) and returns the edges: where the gradients of a call's inputs go; None when
        gradients are off. The first ``positional`` arguments have no keyword.
    attach: takes (edges, outputs, keep, emit), hooks the graph between edges and outputs, and returns the handles (each
        has ``remove``). Calls keep(tap) where sums may be left over.
    flows: takes outputs and returns whether any of them has a gradient.
    current_pass: returns a number for the backward pass that runs in this thread, -1 outside of one.
    """

    enter: Callable[[Found, int], Any]
    attach: Callable[[Any, Found, Callable[[Any], None], Emit], Sequence[Any]]
    flows: Callable[[Found], bool]
    current_pass: Callable[[], int]


@frozen
class Autograd:
    """Hold what a framework's autograd provides.

    current_pass: returns a number for the backward pass that runs in this thread.
    add: takes two gradients and returns their sum in a new tensor outside of the graph. Gradients belong to the run and
        are never written to.
    untold: takes a gradient and returns what a leaf describes as a gradient without numbers, and why (`UNTOLD`).
    """

    current_pass: Callable[[], int]
    add: Callable[[Any, Any], Any]
    untold: Callable[[Any], Any]


def untold(
    places: Mapping[Any, Sequence[ValuePath]], passed_on: Mapping[Any, int], used: Container[int]
) -> tuple[set[Any], bool]:
    """Return the outputs (paths) and inputs (indexes) whose share of a gradient nothing tells.

    Return too whether an input is both used and passed on.

    places: for each different tensor among the outputs, its paths.
    passed_on: the tensors of ``places`` that are an input, untouched -> the index of that input.
    used: the indexes of inputs that the call uses.
    """
    found: set[Any] = set()
    for tensor, paths in places.items():
        beside = tensor in passed_on and len(places) > 1
        if beside or len(paths) > 1:
            found.update(paths)
        if beside and passed_on[tensor] not in used:
            found.add(passed_on[tensor])
    return found, any(index in used for index in passed_on.values())
