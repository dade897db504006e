"""Tap the gradients of a framework, and sum up the shares that arrive at one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen
from probe_format.journal import Slot
from probe_format.values import ValuePath

__all__ = ["Autograd", "Emit", "GradientTap", "Gradients", "Moment", "View"]

Grads = Sequence[Any]
Found = Sequence[tuple[ValuePath, Any]]
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
    """

    current_pass: Callable[[], int]
    add: Callable[[Any, Any], Any]


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


@define
class GradientTap:
    """Collect what the hooks of one call see, and emit each gradient once it is whole.

    Hooks run in threads of the framework.

    autograd: what the framework's autograd provides.
    emit: takes the gradients that are whole.
    paths: for each different input, every path that it has in the arguments.
    need: for each different input, how many shares its gradient has.
    outputs: the path of each output whose gradient comes, where not all comes at once; else nothing.
    passes: the framework's number of each backward pass that ran -> its number from 0.
    count: how many passes that is.
    sums: (number of the pass, index of an input) -> how many shares have arrived, and their sum.
    told: the passes of which the slots that wait were said.
    lock: held while ``passes`` or ``sums`` change.
    """

    autograd: Autograd
    emit: Emit
    paths: Mapping[int, Sequence[ValuePath]] | Sequence[Sequence[ValuePath]]
    need: dict[int, int] | list[int]
    outputs: Sequence[ValuePath] = ()
    passes: dict[int, int] = field(factory=dict)
    count: int = 0
    sums: dict[tuple[int, int], tuple[int, Any]] = field(factory=dict)
    told: set[int] = field(factory=set)
    lock: threading.Lock = field(factory=threading.Lock)

    def fire(
        self,
        grad_inputs: Grads,
        grad_outputs: Grads,
        made: Sequence[tuple[int, ValuePath]],
        through: Sequence[tuple[int, int]] = (),
        consumed: Sequence[tuple[int, int]] = (),
        written: Sequence[View] = (),
        moment: Moment | None = None,
    ) -> None:
        """Take the gradients of one node that ran in a backward pass.

        grad_inputs: the gradients of its inputs, one for each edge.
        grad_outputs: the gradients of its outputs; None where there was none.
        made: (output number, path) of the outputs that it made.
        through: (output number, index of an input) that it passes on untouched.
        consumed: (edge number, index) of the inputs that it uses.
        written: the views that were written in place.
        moment: that of the hook that was called.
        """
        passes, need = self.passes, self.need
        current = self.autograd.current_pass()
        if current not in passes:
            with self.lock:
                if current not in passes:
                    passes[current] = self.count
                    self.count += 1
        number = passes[current]
        of_outputs: list[tuple[ValuePath, Any]] = []
        of_inputs: list[tuple[Sequence[ValuePath], Any]] = []
        for nr, path in made:
            g = grad_outputs[nr]
            if g is not None:
                of_outputs += ((path, g),)
        for nr, index in through:
            self._arrived(number, index, grad_outputs[nr], of_inputs)
        for i, index in consumed:
            g = grad_inputs[i]
            if need[index] != 1:
                self._arrived(number, index, g, of_inputs)
            elif g is not None:
                of_inputs += ((self.paths[index], g),)
        for view in written:
            arrived = view.cut(grad_outputs[0])
            if arrived is not None:
                of_outputs.append((view.path, arrived))
            if view.index is not None:
                self._arrived(number, view.index, view.cut(grad_inputs[0]), of_inputs)
        if of_outputs or of_inputs:
            waiting: Sequence[Slot] = ()
            if self.outputs and number not in self.told:
                self.told.add(number)
                waiting = self._waiting(of_outputs, of_inputs)
            self.emit(number, of_outputs, of_inputs, False, waiting, {} if moment is None else moment)

    def _waiting(
        self, of_outputs: list[tuple[ValuePath, Any]], of_inputs: list[tuple[Sequence[ValuePath], Any]]
    ) -> list[Slot]:
        """Return the slots of this call that are not among the first gradients of a pass."""
        here = {("i", *path) for path, _ in of_outputs} | {
            ("o", *path) for paths, _ in of_inputs for path in paths
        }
        need = self.need
        used = need if isinstance(need, dict) else [index for index, count in enumerate(need) if count]
        wanted = [("i", *path) for path in self.outputs]
        wanted += [("o", *path) for index in used for path in self.paths[index]]
        return [slot for slot in wanted if slot not in here]

    def leftovers(self) -> None:
        """Emit, marked partial, the sums that lack a share because a pass did not reach every consumer."""
        with self.lock:
            waiting, self.sums = self.sums, {}
        for (number, index), (_, total) in sorted(waiting.items(), key=lambda item: item[0]):
            if total is not None:
                self.emit(number, [], [(self.paths[index], total)], True, (), {})

    def _arrived(self, number: int, index: int, g: Any, out: list[tuple[Sequence[ValuePath], Any]]) -> None:
        if self.need[index] == 1:
            total = g
        else:
            with self.lock:
                count, total = self.sums.pop((number, index), (0, None))
                count += 1
                total = g if total is None else total if g is None else self.autograd.add(total, g)
                if count < self.need[index]:
                    self.sums[number, index] = (count, total)
                    return
        if total is not None:
            out.append((self.paths[index], total))
