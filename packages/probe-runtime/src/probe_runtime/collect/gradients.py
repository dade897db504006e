"""Define what a framework provides to tap gradients, and what arrives at a tap."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen
from probe_format.journal import Slot
from probe_format.values import ValuePath

Found = Sequence[tuple[ValuePath, Any]]
#: Why a gradient has no numbers.
UNTOLD = (
    "the gradient is that of one tensor in several places: the call returns it more than once, or returns an input "
    "beside something else, and nothing tells the share of this place"
)
#: Called with (pass number counted from 0, [(path, gradient of an output)], [(every path that an input has in the
#: arguments, its gradient)], whether the sums are partial, the slots that this pass has yet to fill: said once, the
#: moment).
Emit = Callable[
    [int, list[tuple[ValuePath, Any]], list[tuple[Sequence[ValuePath], Any]], bool, Sequence[Slot], "Moment"],
    None,
]
#: id of a gradient -> the gradient and its description, for those that come in one call of a hook: no code but Probe's
#: runs meanwhile, so that one that comes several times is described once.
Moment = dict[int, tuple[Any, bytes]]


@frozen
class Gradients:
    """A framework's gradient taps. `enter`, `flows` and `attach` are called within `Leaf.aside`.

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
    """What a framework's autograd provides.

    current_pass: returns a number for the backward pass that runs in this thread.
    add: takes two gradients and returns their sum in a new tensor outside of the graph. Gradients belong to the run and
        are never written to.
    untold: takes a gradient and returns what a leaf describes as one without numbers, because of `UNTOLD`.
    """

    current_pass: Callable[[], int]
    add: Callable[[Any, Any], Any]
    untold: Callable[[Any], Any]


class View(Protocol):
    """A part of a tensor that was written in place.

    path: its path among the outputs.
    index: its index among the inputs; None where it is not an input.
    """

    @property
    def path(self) -> ValuePath: ...
    @property
    def index(self) -> int | None: ...
    def cut(self, g: Any) -> Any:
        """Return its part of the gradient ``g`` of the whole tensor; None where ``g`` is None."""


def untold(
    places: Mapping[Any, Sequence[ValuePath]], passed_on: Mapping[Any, int], used: Container[int]
) -> tuple[set[Any], bool]:
    """Return the paths of outputs and the indexes of inputs whose share nothing tells, and whether an input leaks.

    places: for each different tensor among the outputs, its paths.
    passed_on: those of them that are an input, untouched -> its index.
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
