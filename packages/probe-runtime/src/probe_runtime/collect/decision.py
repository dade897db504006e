"""Decide whether a call is recorded, and which parts of it."""

from __future__ import annotations

from probe_format.journal import events
from probe_format.names import first_forward
from probe_format.write import Coverage

from probe_runtime.select.filters import NameFilter

from .call import Call
from .event_stream import EventStream
from .plan import Plan
from .thread_state import ThreadState

__all__ = ["Decision"]


class Decision:
    """Decide what of each call is recorded: by the plan, by `scope` and `list`, and by recomputation.

    Calls come here only where calls are collected at all; the taps ask that first, as it must cost nothing, of
    `EventStream.on`, `EventStream.off`, `ThreadState.inside` and `ThreadState.quiet`. What is left out is counted with
    its reason.

    selective: whether `scope` or `list` are given.
    """

    def __init__(
        self, plan: Plan, stream: EventStream, coverage: Coverage, names: NameFilter, thread: ThreadState
    ) -> None:
        self.selective = names.active
        self._plan = plan
        self._append = stream.append
        self._coverage = coverage
        self._names = names
        self._thread = thread
        self._redone: set[str] = set()
        self._forward = plan.keep.forward or plan.structure

    def call(self, key: str, name: str, backward: str, redo: bool, counted: str) -> Call:
        """Return the call that begins now, with what is recorded of it.

        key: the record names without number and direction.
        name: the name of its forward record.
        backward: the name of its backward record.
        redo: whether it is recomputed.
        counted: the kind of call that it is counted as when nothing of it is recorded.
        """
        stack = self._thread.stack
        parent = stack[-1] if stack else None
        if not (redo or self.selective):
            files = self._plan.files or (self._plan.tensor_list and self.files(name))
            return Call(key, name, backward, parent, True, self._forward, None, False, files)
        if redo:
            if name in self._redone:  # where the graph is retained, every backward pass recomputes
                self._coverage.outcome(counted, "filtered", "recomputed once more")
                return Call(key, name, backward, None, False, False, redo=True)
            self._redone.add(name)
        names, keep = self._names, self._plan.keep
        forward = names.enter(name, [above for above, _ in stack] if names.active else ())
        # `scope` and `list` may select backward records alone.
        wanted = forward or (names.active and keep.backward and names.backward(name))
        if not wanted:
            self._coverage.outcome(counted, "filtered", "scope or list")
            if self._plan.construct and not redo:
                self._append(events.enter(name, parent and parent[0], kept=events.NODE))
        return Call(
            key,
            name,
            backward,
            parent,
            wanted,
            forward and self._forward,
            redo=redo,
            keep_files=not redo and self.files(name),
        )

    def gradients(self, call: Call) -> bool:
        """Return whether the gradients of a call are recorded."""
        if not call.recorded or self._names.backward(call.name):
            return True
        self._coverage.add("left_out", "gradients of calls outside scope or list")
        return False

    def parameter_gradients(self, record: str) -> bool:
        """Return whether a ``parameters_grad`` record is wanted, which the first call of its module decides."""
        if self._names.backward(first_forward(record)):
            return True
        self._coverage.add("left_out", "parameter gradients of modules outside scope or list")
        return False

    def files(self, name: str) -> bool:
        """Return whether the tensors of a record are written to files."""
        return self._plan.files or (self._plan.tensor_list and self._names.tensors(name))
