"""Write the backward records of one step: tap its calls, add up the shares of gradients, and record each sum."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field
from probe_format import jsonio
from probe_format.excerpts import error_text
from probe_format.journal import events, lost
from probe_format.schema import path_text
from probe_format.values import ValuePath

from probe_runtime.describe.leaf import Leaf
from probe_runtime.describe.placement import Placement

from .alarm import Alarm
from .calls import Call
from .event_stream import EventStream
from .gradients import Autograd, Emit, Gradients, Moment, View
from .plan import Plan
from .thread_state import ThreadState

Grads = Sequence[Any]
Found = Sequence[tuple[ValuePath, Any]]


class BackwardRecords:
    """Tap calls and write the gradients that arrive. Safe to use from the framework's threads."""

    def __init__(
        self,
        plan: Plan,
        stream: EventStream,
        leaf: Leaf,
        thread: ThreadState,
        gradients: Gradients,
        files: Callable[[str], bool],
        alarm: Alarm | None = None,
    ) -> None:
        """Begin with no taps.

        files: takes a record's name and returns whether its tensors are written to files.
        alarm: looks at the gradients, where somebody is to.
        """
        self.alarm = alarm
        self._plan = plan
        self._stream = stream
        self._leaf = leaf
        self._thread = thread
        self._gradients = gradients
        self._files = files
        self._handles: list[Any] = []
        self._taps: list[GradientTap] = []

    def attach(self, call: Call, edges: Any, outputs: Found) -> None:
        """Tap the graph between the inputs of a call, as ``edges`` has them from its entry, and its outputs."""
        self._handles += self._gradients.attach(edges, outputs, self._taps.append, partial(self._back, call))

    def leftovers(self) -> None:
        """Write the sums of gradients that lack a share when the step ends."""
        with self._leaf.aside():
            for tap in self._taps:
                tap.leftovers()

    def release(self) -> None:
        """Remove every hook from the graph."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._taps.clear()

    def _back(
        self,
        call: Call,
        number: int,
        of_outputs: list[tuple[ValuePath, Any]],
        of_inputs: list[tuple[Sequence[ValuePath], Any]],
        partial_sum: bool,
        waiting: Sequence[events.Slot],
        moment: Moment,
    ) -> None:
        """Record gradients of one call.

        number: the backward pass among those of the call, from 0.
        of_outputs, of_inputs: the gradients with their paths, of inputs with every path.
        partial_sum: whether the gradients of inputs lack a share.
        waiting: the slots that this pass has yet to fill, with its first gradients.
        moment: the gradients of this call of a hook that were described before.
        """
        stream = self._stream
        if not stream.alive or call.key in stream.off:
            return
        thread = self._thread
        thread.inside += 1
        try:
            plan = self._plan
            parent = call.parent and call.parent[1]
            if plan.structure:
                stream.append(events.back(call.backward, number, parent, kept=events.STRUCTURE))
                return
            record = call.backward if number == 0 else f"{call.backward}.pass{number}"
            files = plan.files or (plan.tensor_list and self._files(call.backward))
            slots: list[events.Slot] = []
            values: list[bytes] = []
            keep = plan.keep
            if keep.backward_input and of_outputs:
                placement = Placement(record, "input", files, label="input")
                for path, g in of_outputs:
                    slots += (("i", *path),)
                    values += (self._described(call, placement, g, path, moment),)
            if keep.backward_output and of_inputs:
                placement = Placement(record, "output", files, label="output")
                for paths, g in of_inputs:
                    for path in paths:
                        slots += (("o", *path),)
                        values += (self._described(call, placement, g, path, moment, paths),)
            if waiting:
                stream.waiting = True
                kept = {"i": keep.backward_input, "o": keep.backward_output}
                waiting = [slot for slot in waiting if kept[str(slot[0])]]
            stream.append(
                events.back(
                    call.backward,
                    number,
                    parent,
                    form=call.form,
                    slots=slots,
                    values=values,
                    waiting=waiting,
                    partial=partial_sum,
                )
            )
            if self.alarm is not None:
                self.alarm.gradients(call, record, slots, values)
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except Exception as e:
            stream.fault(call.key, "its gradients", e)
        finally:
            thread.inside -= 1

    def _described(
        self,
        call: Call,
        placement: Placement,
        g: Any,
        path: ValuePath,
        moment: Moment,
        places: Sequence[ValuePath] = (),
    ) -> bytes:
        """Describe one gradient; a fault costs this one alone, and its slot says so.

        places: every argument that its input is: it is written at each of them, and names the others.
        """
        if id(g) in moment and not placement.wants_file:
            _, text = moment[id(g)]
            self._leaf.count()
        else:
            try:
                text = self._leaf.tensor(placement, g, path)
            except OSError:
                raise  # a full disk
            except Exception as e:
                self._stream.fault(call.key, "a gradient", e)
                return lost(f"gradient: {error_text(e)[:200]}")
            if not placement.wants_file:  # else it names the file of this record
                moment[id(g)] = g, text
        if len(places) > 1:
            others = [path_text(("output", *p)) for p in places if p != path]
            text = text[:-1] + b',"shared_with":' + jsonio.dumps(others) + b"}"
        return text


@define
class GradientTap:
    """Collect what the hooks of one call see, and emit each gradient once it is whole.

    Hooks run in threads of the framework.

    autograd: what the framework's autograd provides.
    emit: takes the gradients that are whole.
    paths: for each different input, every path that it has in the arguments.
    need: for each different input, how many shares its gradient has.
    outputs: the path of each output whose gradient comes, where not all comes at once; else nothing.
    untold, leaking: what `untold` returns of the call.
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
    untold: Container[Any] = ()
    leaking: bool = False
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
                of_outputs += ((path, g if path not in self.untold else self.autograd.untold(g)),)
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
            waiting: Sequence[events.Slot] = ()
            if self.outputs and number not in self.told:
                self.told.add(number)
                waiting = self._waiting(of_outputs, of_inputs)
            short = self.leaking and bool(of_inputs)
            self.emit(number, of_outputs, of_inputs, short, waiting, {} if moment is None else moment)

    def _waiting(
        self, of_outputs: list[tuple[ValuePath, Any]], of_inputs: list[tuple[Sequence[ValuePath], Any]]
    ) -> list[events.Slot]:
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
            out.append(
                (self.paths[index], total if index not in self.untold else self.autograd.untold(total))
            )
