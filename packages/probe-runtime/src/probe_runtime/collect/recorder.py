"""Write the records of calls as journal events: their arguments, results and gradients.

A fault of Probe costs the value or the record that it happened in; the call itself goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from probe_format.excerpts import error_text
from probe_format.journal import events
from probe_format.values import ValueEncoder, ValuePath
from probe_format.write import Coverage

from probe_runtime.describe.leaf import Leaf, Placement
from probe_runtime.select.filters import NameFilter

from .backward_records import BackwardRecords
from .call import Call, slots
from .callsite import FrameTable
from .decision import Decision
from .event_stream import EventStream
from .gradients import Gradients
from .plan import Plan
from .recompute import Counters
from .thread_state import ThreadState

__all__ = ["Recorder"]

Json = Any
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Recorder:
    """Write the records of one step's calls. Safe to use from many threads."""

    def __init__(
        self,
        plan: Plan,
        stream: EventStream,
        leaf: Leaf,
        coverage: Coverage,
        names: NameFilter,
        gradients: Gradients,
        parameters: Callable[[Any], Iterable[tuple[str, Any]]],
    ) -> None:
        """Begin a step.

        parameters: takes a module and returns its own (name, parameter) pairs, for its forward record.
        """
        self.plan = plan
        self.stream = stream
        self.coverage = coverage
        self.thread = ThreadState()
        self.decision = Decision(plan, stream, coverage, names, self.thread)
        self.counters = Counters()
        self.backward = BackwardRecords(plan, stream, leaf, self.thread, gradients, self.decision.files)
        self._append = stream.append
        self._leaf = leaf
        self._names = names
        self._gradients = gradients
        self._current_pass = gradients.current_pass
        self._parameters = parameters
        self._frames = FrameTable()

    # -- a call, from its begin to its end ------------------------------------------------------------

    def begin(self, key: str, args: Args, kwargs: Kwargs, module: Any = None) -> Call | None:
        """Number a call of ``key`` and record its arguments. Return None when a fault prevents that.

        module: the module that is called; None for a function.
        """
        if key in self.stream.off:
            self.coverage.add("left_out", f"{key}: switched off after {self.plan.max_faults} faults")
            return None
        counted = kind = "calls" if module is None else "modules"
        try:
            number, redo = self.counters.number(key)
            counted = f"recomputed {kind}" if redo else kind
            if module is None:
                names = f"{key}.{number}.forward", f"{key}.{number}.backward"
            else:
                names = f"{key}.forward.{number}", f"{key}.backward.{number}"
            call = self.decision.call(key, *names, redo, counted)
            if call.recorded:
                self._enter(call, args, kwargs, module, counted)
        except Exception as e:
            self.stream.fault(key, "its inputs", e)
            self.coverage.outcome(counted, "failed", kind)
            return None
        try:
            self._leaf.flush_numbers()
        except Exception as e:
            self.stream.fault(key, "numbers that were waited for", e)
        return call

    def end(self, call: Call, out: Any) -> None:
        """Record what a call returned and tap its gradients. Never raises."""
        try:
            self._names.leave(call.name)
            if call.recorded:
                self._exit(call, out)
        except Exception as e:
            self.stream.fault(call.key, "its output", e)
            self._append(events.exit(call.name, raised=f"Probe: {error_text(e)}"))

    def raised(self, call: Call, error: BaseException) -> None:
        """Record that the call raised ``error``; its record has no output. Never raises."""
        try:
            self._names.leave(call.name)
            if call.recorded and not call.redo:
                what = error_text(error).strip().split("\n")[0][:500]
                self._append(events.exit(call.name, raised=what))
        except Exception as e:
            self.stream.fault(call.key, "its exception", e)

    def cut(self, call: Call, why: str) -> None:
        """Record that the call's result will not be seen, and why."""
        self._names.leave(call.name)
        self._append(events.exit(call.name, raised=f"Probe: {why}"))

    # -- inside ---------------------------------------------------------------------------------------

    def _enter(self, call: Call, args: Args, kwargs: Kwargs, module: Any, counted: str) -> None:
        """Record the beginning of a call. counted: the kind of call that it is counted as."""
        plan = self.plan
        if self.backward.arrived:
            self._fresh()
        stack = self._stack_id() if plan.stacks and call.forward and not call.redo else None
        show = plan.keep.input and call.forward and not plan.structure
        again = "recompute." if call.redo else ""
        positional = Placement(call.name, "input", call.keep_files, show, f"{again}input_args")
        named = Placement(call.name, "kwargs", call.keep_files, show, f"{again}input_kwargs")
        tree = self._tree(positional)
        call.arguments = [tree.describe(value, (i,)) for i, value in enumerate(args)]
        tree = self._tree(named)
        call.keywords = {key: tree.describe(value, (key,)) for key, value in kwargs.items()}
        if plan.keep.backward:
            call.places = {key: len(args) + i for i, key in enumerate(kwargs)}
            inputs = [*positional.found, *((call.place(p), t) for p, t in named.found)]
            with self._leaf.aside():
                call.edges = self._gradients.enter(inputs, len(args))
        parameters = None
        if (
            module is not None
            and plan.keep.parameters
            and call.forward
            and not plan.structure
            and not call.redo
        ):
            placement = Placement(call.name, "parameters", call.keep_files, label="parameters")
            with self._leaf.aside():
                parameters = {
                    name: self._leaf.tensor(placement, p, (name,)) for name, p in self._parameters(module)
                }
        parent = call.parent and call.parent[0]
        if call.redo and not call.forward:
            self.coverage.outcome(counted, "recorded")
            return
        written = self.coverage.written.get(counted) or self.coverage.count(counted)
        if call.redo:
            given = (call.arguments, call.keywords) if show else ([], {})
            self._append(events.redo(call.name, *given), written)
        elif not call.forward:
            self._append(events.enter(call.name, parent, kept=events.NODE), written)
        elif plan.structure:
            self._append(events.enter(call.name, parent, stack=stack, kept=events.STRUCTURE), written)
        else:
            event = events.enter(
                call.name,
                parent,
                stack=stack,
                arguments=call.arguments if show else None,
                keywords=call.keywords if show else None,
                parameters=parameters,
                extra={"in_backward": True} if self._current_pass() != -1 else None,
            )
            self._append(event, written)

    def _fresh(self) -> None:
        """Share nothing seen before a backward pass: it may reduce gradients in place, which Python does not see."""
        if self._current_pass() == -1:
            self.backward.arrived = False
            self._leaf.invalidate()

    def _exit(self, call: Call, out: Any) -> None:
        plan = self.plan
        show = plan.keep.output and call.forward and not plan.structure
        placement = Placement(
            call.name, "output", call.keep_files, show, "recompute.output" if call.redo else "output"
        )
        tree = self._tree(placement)
        described = tree.output(out)
        forms = None
        edges = call.edges
        hooked = False
        if edges is not None:
            with self._leaf.aside():
                hooked = self._gradients.flows(placement.found)
        if call.redo and hooked:
            replay = self.counters.segments.replay
            hooked = (
                replay is None or replay.segment.reentrant
            )  # otherwise gradients flow through the graph of the first run
        if hooked and not self.decision.gradients(call):
            hooked = False
        outputs: Sequence[tuple[ValuePath, Any]] = placement.found
        if hooked:
            fields = isinstance(described, dict)
            if fields:
                outputs = [((0, *path), t) for path, t in placement.found]
            gi = slots([described] if fields else described)
            go = slots([*call.arguments, *call.keywords.values()])
            keep = plan.keep
            forms = [gi if keep.backward_input else None, go if keep.backward_output else None]
        ended = events.redone if call.redo else events.exit
        self._append(ended(call.name, output=described if placement.show else None, gradients=forms))
        # The hooks keep the call alive: it must not keep the graph alive, which owns the hooks.
        call.edges = call.arguments = call.keywords = None
        if hooked:
            with self._leaf.aside():
                self.backward.attach(call, edges, outputs)
        self._leaf.flush_numbers()

    def _tree(self, placement: Placement) -> ValueEncoder:
        return ValueEncoder(
            partial(self._leaf.leaf, placement), self._note_unsupported if placement.show else _ignore
        )

    def _note_unsupported(self, reason: str) -> None:
        self.coverage.add("unsupported", f"value: {reason}")

    def _stack_id(self) -> int:
        number, new, frames = self._frames.intern()
        if new:
            self._append(events.frames(number, frames))
        return number


def _ignore(reason: str) -> None:
    """Ignore the reason: the value is not described."""
