"""Number the calls of a step, and decide what of each is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from attrs import define
from probe_format.journal import events
from probe_format.names import first_forward
from probe_format.write import Coverage

from probe_runtime.select.filters import NameFilter

from .event_stream import EventStream
from .plan import Plan
from .recompute import SegmentState
from .thread_state import ThreadState

#: A file, a number, and the name of the function that is there.
Line = tuple[str, int, str]


@define
class Call:
    """One call under way.

    key: the record names without number and direction; faults are counted by it.
    name: the name of its forward record.
    backward: the name of its backward record.
    counted: the kind of call that it is counted as.
    parent: the (forward name, backward name) of the module or node that it is made in; None at the top.
    recorded: whether anything of it is recorded.
    forward: whether its forward record is kept.
    keep_files: whether its tensors are written to files.
    redo: whether it is recomputed.
    stack: what is known of the stack that it was made from, where that is recorded.
    edges: what the gradient taps remember of its inputs.
    form: the form of its arguments in the backward record; once the call has ended, the forms of that record's
        ``input`` and ``output``.
    given: what the call got, as JSON, where an `Alarm` looks at it.
    line: the user's line that made the call, where an `Alarm` looks at it.
    """

    key: str
    name: str
    backward: str
    counted: str
    parent: tuple[str, str] | None
    recorded: bool
    forward: bool
    keep_files: bool
    redo: bool
    stack: Any = None
    edges: Any = None
    form: Any = None
    given: Any = None
    line: Line | None = None


class Counters(dict[Any, Iterator[int]]):
    """For each key its numbers, from 0; safe to use from many threads."""

    def __missing__(self, key: Any) -> Iterator[int]:
        return self.setdefault(key, itertools.count())


class Calls:
    """Begin calls: by the plan, by `scope` and `list`, and by recomputation. Safe to use from many threads.

    Calls come here only where calls are collected at all; the taps ask that first, as it must cost nothing, of
    `EventStream.on`, `EventStream.off`, `ThreadState.inside` and `ThreadState.quiet`. What is left out is counted with
    its reason.

    selective: whether `scope` or `list` are given.
    segments: the segment or recomputation that each thread is in.
    numbers: the key of everything that was called -> the numbers of its next calls.
    """

    def __init__(
        self, plan: Plan, stream: EventStream, coverage: Coverage, names: NameFilter, thread: ThreadState
    ) -> None:
        self.selective = names.active
        self.segments = SegmentState()
        self.numbers = Counters()
        self._plan = plan
        self._append = stream.append
        self._coverage = coverage
        self._names = names
        self._thread = thread
        self._redone: set[str] = set()
        self._forward = plan.keep.forward or plan.structure

    def go_on(self, others: Calls) -> None:
        """Number calls together with ``others``: share their numbers and segments."""
        self.segments, self.numbers = others.segments, others.numbers

    def begin(self, key: str, *, module: bool) -> Call:
        """Return the call of ``key`` that begins now, with its number and what is recorded of it.

        A recomputed call has the number of its first run, and takes no new one.

        key: the record names without number and direction.
        module: whether the call is a module's.
        """
        segments = self.segments
        replay = segments.replay
        again = number = None if replay is None else replay.number(key)
        if number is None:
            number = next(self.numbers[key])
            if segments.segment is not None:
                segments.segment.numbers.setdefault(key, []).append(number)
        if module:
            name, backward, counted = f"{key}.forward.{number}", f"{key}.backward.{number}", "modules"
        else:
            name, backward, counted = f"{key}.{number}.forward", f"{key}.{number}.backward", "calls"
        redo = again is not None
        if redo:
            counted = f"recomputed {counted}"
        stack = self._thread.stack
        parent = stack[-1] if stack else None
        files = self._plan.files or (self._plan.tensor_list and self.files(name))
        call = Call(key, name, backward, counted, parent, True, self._forward, files and not redo, redo)
        if redo or self.selective:
            self._select(call)
        return call

    def _select(self, call: Call) -> None:
        """Leave out of a call what `scope`, `list` and an earlier recomputation exclude."""
        name, names = call.name, self._names
        if call.redo:
            if name in self._redone:  # where the graph is retained, every backward pass recomputes
                self._coverage.outcome(call.counted, "filtered", "recomputed once more")
                call.recorded = call.forward = False
                return
            self._redone.add(name)
        forward = names.enter(name, [above for above, _ in self._thread.stack] if names.active else ())
        # `scope` and `list` may select backward records alone.
        call.recorded = forward or (names.active and self._plan.keep.backward and names.backward(name))
        call.forward = forward and self._forward
        if not call.recorded:
            self._coverage.outcome(call.counted, "filtered", "scope or list")
            if self._plan.construct and not call.redo:
                self._append(events.enter(name, call.parent and call.parent[0], kept=events.NODE))

    def gradients(self, call: Call) -> bool:
        """Return whether the gradients of a call, which will come, are recorded."""
        if call.redo:
            replay = self.segments.replay
            # Else gradients flow through the graph of the first run.
            if replay is not None and not replay.segment.reentrant:
                return False
        if not self.selective or not call.recorded or self._names.backward(call.name):
            return True
        self._coverage.add("left_out", "gradients of calls outside scope or list")
        return False

    def parameter_gradients(self, record: str) -> bool:
        """Return whether a ``parameters_grad`` record is wanted, which the first call of its module decides."""
        if not self.selective or self._names.backward(first_forward(record)):
            return True
        self._coverage.add("left_out", "parameter gradients of modules outside scope or list")
        return False

    def files(self, name: str) -> bool:
        """Return whether the tensors of a record are written to files."""
        return self._plan.files or (self._plan.tensor_list and self._names.tensors(name))
