"""Write the backward records of one step: tap its calls, add up the shares of gradients, and record each sum."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

from attrs import define, field
from probe_format import jsonio
from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events, lost
from probe_format.schema import path_text
from probe_format.values import ValuePath

from probe_runtime.describe.leaf import Leaf
from probe_runtime.describe.placement import Placement

from .alarm import Alarm
from .calls import Call
from .event_stream import EventStream
from .gradients import Autograd, Emit, Found, Gradients, GradientTexts, OfInputs, OfOutputs
from .plan import Plan
from .thread_state import ThreadState

Grads = Sequence[Any]
#: A view that was written in place: its path among the outputs, its index among the inputs (None if it is no input),
#: and its parts of the whole tensor's gradient as an output and as an input.
CutView = tuple[ValuePath, int | None, Any, Any]
#: Held while the passes or the sums of a tap change.
_lock = threading.RLock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


@define(eq=False)
class BackwardRecords:
    """Tap calls and write the gradients that arrive. Safe to use from the framework's threads.

    files: takes a record's name and returns whether its tensors are written to files.
    alarm: looks for gradients that are not finite, where `on_non_finite` asks for that.
    """

    _plan: Plan
    _stream: EventStream
    _leaf: Leaf
    _thread: ThreadState
    _gradients: Gradients
    _files: Callable[[str], bool]
    alarm: Alarm | None = None
    _wants: dict[str, bool] = field(init=False)
    _kept: Any = field(init=False)
    _handles: list[Any] = field(factory=list)
    _taps: list[GradientTap] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        keep, shows = self._plan.keep, not self._plan.structure
        self._wants = {"i": keep.backward_input and shows, "o": keep.backward_output and shows}
        self._kept = None if shows else events.STRUCTURE

    def attach(self, call: Call, edges: Any, outputs: Found) -> None:
        """Tap the graph between the inputs of a call, as ``edges`` has them from its entry, and its outputs."""
        self._handles += self._gradients.attach(
            edges, outputs, self._taps.append, partial(BackwardRecords._back, self, call)
        )

    @property
    def may_come(self) -> bool:
        """Return whether a backward pass may come: a call had a graph for it, or no calls are tapped."""
        return bool(self._taps) or not any(self._wants.values())

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
        of_outputs: OfOutputs,
        of_inputs: OfInputs,
        partial_sum: bool,
        waiting: Sequence[events.Slot],
        texts: GradientTexts,
    ) -> None:
        """Record gradients of one call.

        number: the backward pass among those of the call, from 0.
        of_outputs, of_inputs: as in `gradients.OfOutputs`, `gradients.OfInputs`.
        partial_sum: whether the gradients of inputs lack a share.
        waiting: the slots that this pass has yet to fill, with its first gradients.
        texts: the gradients that this call of a hook has described before.
        """
        stream = self._stream
        if not stream.alive or call.key in stream.off:
            return
        thread = self._thread
        thread.inside += 1
        try:
            plan = self._plan
            parent = call.parent and call.parent[1]
            record = "" if plan.structure else call.backward + (f".pass{number}" if number else "")
            files = not plan.structure and (plan.files or (plan.tensor_list and self._files(call.backward)))
            slots: list[events.Slot] = []
            values: list[bytes] = []
            wants = self._wants
            if of_outputs and wants["i"]:
                placement = Placement(record, "input", files, label="input")
                for path, g in of_outputs:
                    slots += (("i", *path),)
                    values += (self._described(call, placement, g, path, texts),)
            if of_inputs and wants["o"]:
                placement = Placement(record, "output", files, label="output")
                for paths, g in of_inputs:
                    for path in paths:
                        slots += (("o", *path),)
                        values += (self._described(call, placement, g, path, texts, paths),)
            stream.append(
                events.back(
                    call.backward,
                    number,
                    parent,
                    form=call.form,
                    slots=slots,
                    values=values,
                    waiting=self._awaited(waiting) if waiting else (),
                    partial=partial_sum,
                    kept=self._kept,
                )
            )
            if self.alarm is not None:
                self.alarm.gradients(call, record, slots, values)
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except unsignalled(Exception) as e:
            stream.fault(call.key, "its gradients", e)
        finally:
            thread.inside -= 1

    def _awaited(self, slots: Sequence[events.Slot]) -> Sequence[events.Slot]:
        """Return the slots, all yet to be filled, without those whose gradients are not recorded."""
        found = [slot for slot in slots if self._wants[str(slot[0])]]
        self._stream.waiting |= bool(found)
        return found

    def _described(
        self,
        call: Call,
        placement: Placement,
        g: Any,
        path: ValuePath,
        texts: GradientTexts,
        places: Sequence[ValuePath] = (),
    ) -> bytes:
        """Describe one gradient; a fault costs this one alone, and its slot says so.

        places: every path that its input has in the arguments: the gradient is written at each, and names the others.
        """
        if id(g) in texts and not placement.wants_file:
            _, text = texts[id(g)]
            self._leaf.count()
        else:
            try:
                text = self._leaf.tensor(placement, g, path)
            except OSError:
                raise  # a full disk
            except unsignalled(Exception) as e:
                self._stream.fault(call.key, "a gradient", e)
                return lost(f"gradient: {error_text(e)[:200]}")
            if not placement.wants_file:  # else it names the file of this record
                texts[id(g)] = g, text
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
    outputs: the path of each output whose gradient comes; empty where all gradients of a pass come at once.
    untold, leaking: what `gradients.untold` returns for the call; with the inputs that another thread may have used.
    passes: the framework's number of each backward pass that ran -> its number from 0.
    count: how many passes ran.
    sums: (number of the pass, index of an input) -> how many shares have arrived, and their sum.
    told: the passes for which the slots that wait for gradients were told.

    Each call has a tap for as long as its graph lives, so a tap has few objects for Python's garbage collector.
    """

    autograd: Autograd
    emit: Emit
    paths: Sequence[Sequence[ValuePath]]
    need: dict[int, int] | list[int]
    outputs: Sequence[ValuePath] = ()
    untold: Container[Any] = ()
    leaking: bool = False
    passes: dict[int, int] = field(factory=dict)
    count: int = 0
    sums: dict[tuple[int, int], tuple[int, Any]] | None = None
    told: tuple[int, ...] = ()

    def fire(
        self,
        grad_inputs: Grads,
        grad_outputs: Grads,
        made: Sequence[tuple[int, ValuePath]],
        through: Sequence[tuple[int, int]] = (),
        consumed: Sequence[tuple[int, int]] = (),
        views: Sequence[CutView] = (),
        texts: GradientTexts | None = None,
    ) -> None:
        """Take the gradients of one node that ran in a backward pass.

        grad_inputs: the gradients of its inputs, one for each edge.
        grad_outputs: the gradients of its outputs; None where there was none.
        made: (output number, path) of the outputs that it made.
        through: (output number, index of an input) that it passes on untouched.
        consumed: (edge number, index) of the inputs that it uses.
        views: its outputs or inputs that are views written in place.
        texts: the gradients that this call of the hook has described before.
        """
        passes, need = self.passes, self.need
        current = self.autograd.current_pass()
        if current not in passes:
            with _lock:  # another thread may come first
                is_new = current not in passes
                passes[current] = self.count if is_new else passes[current]
                self.count += is_new
        number = passes[current]
        of_outputs: OfOutputs = []
        of_inputs: OfInputs = []
        for nr, path in made:
            g = grad_outputs[nr]
            if g is not None:
                of_outputs += ((path, g if path not in self.untold else self.autograd.untold(g)),)
        for i, index in consumed:
            g = grad_inputs[i]
            if need[index] != 1 or self.untold:
                self._arrived(number, index, g, of_inputs)
            elif g is not None:
                of_inputs += ((self.paths[index], g),)
        for nr, index in through:
            self._arrived(number, index, grad_outputs[nr], of_inputs)
        if views:
            self._add_views(number, views, of_outputs, of_inputs)
        if of_outputs or of_inputs:
            told = not self.outputs or number in self.told
            waiting = () if told else self._waiting(number, of_outputs, of_inputs)
            short = self.leaking and bool(of_inputs)
            self.emit(number, of_outputs, of_inputs, short, waiting, {} if texts is None else texts)

    def _add_views(
        self, number: int, views: Sequence[CutView], of_outputs: OfOutputs, of_inputs: OfInputs
    ) -> None:
        for path, index, made, used in views:
            if made is not None:
                of_outputs.append((path, made))
            if index is not None:
                self._arrived(number, index, used, of_inputs)

    def _waiting(self, number: int, of_outputs: OfOutputs, of_inputs: OfInputs) -> Sequence[events.Slot]:
        """Return the slots of this call that are not among the first gradients of a pass."""
        self.told += (number,)
        here = {("i", *path) for path, _ in of_outputs}
        here |= {("o", *path) for paths, _ in of_inputs for path in paths}
        need = self.need
        used = need if isinstance(need, dict) else [index for index, count in enumerate(need) if count]
        wanted = [("i", *path) for path in self.outputs]
        wanted += [("o", *path) for index in used for path in self.paths[index]]
        return [slot for slot in wanted if slot not in here]

    def leftovers(self) -> None:
        """Emit, marked partial, the sums that lack a share because a pass did not reach every consumer."""
        with _lock:
            waiting, self.sums = self.sums or {}, None
        for (number, index), (_, total) in sorted(waiting.items(), key=lambda item: item[0]):
            if total is not None:
                self.emit(number, [], [self._input(index, total)], True, (), {})

    def _arrived(self, number: int, index: int, g: Any, out: OfInputs) -> None:
        if self.need[index] == 1:
            total = g
        else:
            with _lock:
                sums = self.sums = {} if self.sums is None else self.sums
                count, total = sums.pop((number, index), (0, None))
                count += 1
                total = g if total is None else total if g is None else self.autograd.add(total, g)
                if count < self.need[index]:
                    sums[number, index] = (count, total)
                    return
        if total is not None:
            out.append(self._input(index, total))

    def _input(self, index: int, total: Any) -> tuple[Sequence[ValuePath], Any]:
        """Return the gradient of an input as `OfInputs` has it."""
        return self.paths[index], total if index not in self.untold else self.autograd.untold(total)
