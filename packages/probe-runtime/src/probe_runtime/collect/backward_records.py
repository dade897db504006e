"""Write the backward records of one step: tap its calls and record the gradients that arrive there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from probe_format import jsonio
from probe_format.excerpts import error_text
from probe_format.journal import events, lost
from probe_format.schema import path_text
from probe_format.values import ValuePath

from probe_runtime.describe.leaf import Leaf, Placement

from .call import Call
from .event_stream import EventStream
from .gradients import Gradients, GradientTap, Moment
from .plan import Plan
from .thread_state import ThreadState

__all__ = ["BackwardRecords"]

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
    ) -> None:
        """Begin with no taps. files: takes a record's name and returns whether its tensors are written to files."""
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
