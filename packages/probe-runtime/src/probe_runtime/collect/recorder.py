"""Write the records of calls as journal events: their arguments, results and gradients.

A fault of Probe costs the value or the record that it happened in; the call itself goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from probe_format.excerpts import error_text
from probe_format.journal import events
from probe_format.write import Coverage

from probe_runtime.describe.leaf import Leaf, Placement
from probe_runtime.describe.run_error import RunError
from probe_runtime.select.filters import NameFilter

from .backward_records import BackwardRecords
from .call import Call
from .callsite import FrameTable
from .decision import Decision
from .event_stream import EventStream
from .gradients import Gradients
from .parts import Parts, slots
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
        self._parts = Parts(leaf, lambda reason: coverage.add("unsupported", f"value: {reason}"))
        # What the plan decides for every call.
        self._show_input = plan.keep.input and not plan.structure
        self._show_output = plan.keep.output and not plan.structure
        self._show_parameters = plan.keep.parameters and not plan.structure
        self._keep_backward = plan.keep.backward

    # -- a call, from its begin to its end ------------------------------------------------------------

    def begin(self, key: str, args: Args, kwargs: Kwargs, module: Any = None) -> Call | None:
        """Number a call of ``key`` and record its arguments. Return None when a fault prevents that.

        module: the module that is called; None for a function.

        Raises RunError when an error of the run came meanwhile; the call must not be made then.
        """
        if key in self.stream.off:
            self.coverage.add("left_out", f"{key}: switched off after {self.plan.max_faults} faults")
            return None
        counted = kind = "calls" if module is None else "modules"
        try:
            number, redo = self.counters.number(key)
            if redo:
                counted = f"recomputed {kind}"
            if module is None:
                name, backward = f"{key}.{number}.forward", f"{key}.{number}.backward"
            else:
                name, backward = f"{key}.forward.{number}", f"{key}.backward.{number}"
            call = self.decision.call(key, name, backward, redo, counted)
            if call.recorded:
                self._enter(call, args, kwargs, module, counted)
        except Exception as e:
            self.stream.fault(key, "its inputs", e)
            self.coverage.outcome(counted, "failed", kind)
            return None
        try:
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except RunError as e:
            self.raised(call, e.error)
            raise
        except Exception as e:
            self.stream.fault(key, "numbers that were waited for", e)
        return call

    def end(self, call: Call, out: Any) -> None:
        """Record what a call returned and tap its gradients. Raises nothing but RunError."""
        try:
            if self.decision.selective:
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
        plan, parts = self.plan, self._parts
        redo, forward = call.redo, call.forward
        stack = None
        if plan.stacks and forward and not redo:
            stack, new, frames = self._frames.intern()
            if new:
                self._append(events.frames(stack, frames))
        show = self._show_input and forward
        again = "recompute." if redo else ""
        positional = Placement(call.name, "input", call.keep_files, show, f"{again}input_args")
        named = positional
        if kwargs:
            named = Placement(call.name, "kwargs", call.keep_files, show, f"{again}input_kwargs")
        plain = parts.are_plain(args) and (not kwargs or parts.are_plain(kwargs.values()))
        arguments: Any
        keywords: Any = _NOTHING
        parameters = None
        if not plain:
            encoder = parts.encoder(positional)
            arguments = [encoder.describe(value, (i,)) for i, value in enumerate(args)]
            encoder = parts.encoder(named)
            keywords = {key: encoder.describe(value, (key,)) for key, value in kwargs.items()}
            call.form = slots([*arguments, *keywords.values()])
        with self._leaf.aside():
            if plain:
                arguments, call.form = parts.sequence(positional, enumerate(args))
                if kwargs:
                    keywords, form = parts.mapping(named, kwargs)
                    call.form = _both(call.form, form)
            if self._keep_backward:
                inputs = positional.found
                if named is not positional and named.found:
                    places = {key: len(args) + i for i, key in enumerate(kwargs)}
                    inputs = [*inputs, *(((places[str(p[0])], *p[1:]), t) for p, t in named.found)]
                call.edges = self._gradients.enter(inputs, len(args))
            if module is not None and self._show_parameters and forward and not redo:
                placement = Placement(call.name, "parameters", call.keep_files, label="parameters")
                parameters = {}
                for name, p in self._parameters(module):
                    parameters[name] = self._leaf.tensor(placement, p, (name,))
        parent = call.parent and call.parent[0]
        if redo and not forward:
            self.coverage.outcome(counted, "recorded")
            return
        try:
            written = self.coverage.written[counted]
        except KeyError:
            written = self.coverage.count(counted)
        if redo:
            given = (arguments, keywords) if show else ([], {})
            self._append(events.redo(call.name, *given), written)
        elif not forward:
            self._append(events.enter(call.name, parent, kept=events.NODE), written)
        elif plan.structure:
            self._append(events.enter(call.name, parent, stack=stack, kept=events.STRUCTURE), written)
        else:
            event = events.enter(
                call.name,
                parent,
                stack=stack,
                arguments=arguments if show else None,
                keywords=keywords if show else None,
                parameters=parameters,
                extra={"in_backward": True} if self._current_pass() != -1 else None,
            )
            self._append(event, written)

    def _exit(self, call: Call, out: Any) -> None:
        parts = self._parts
        redo = call.redo
        show = self._show_output and call.forward
        placement = Placement(
            call.name, "output", call.keep_files, show, "recompute.output" if redo else "output"
        )
        kind = type(out)
        results = out if kind is tuple or kind is list else (out,)
        plain = kind in parts.plain or parts.are_plain(results)
        described, form, fields = None, None, False
        if not plain:
            described = parts.encoder(placement).output(out)
            fields = isinstance(described, dict)
            form = slots([described] if fields else described)
        forms = None
        edges, hooked = call.edges, False
        with self._leaf.aside():
            if plain:
                described, form = parts.sequence(placement, enumerate(results))
            outputs = placement.found
            if edges is not None:
                hooked = self._gradients.flows(outputs)
                if redo or self.decision.selective:
                    hooked = hooked and self._taps(call)
            if hooked:
                if fields:
                    outputs = [((0, *path), t) for path, t in outputs]
                keep = self.plan.keep
                forms = [form if keep.backward_input else None, call.form if keep.backward_output else None]
            ended = events.redone if redo else events.exit
            self._append(ended(call.name, output=described if show else None, gradients=forms))
            # The hooks keep the call alive: it must not keep the graph alive, which owns the hooks.
            call.edges = call.form = None
            if hooked:
                self.backward.attach(call, edges, outputs)
        if self._leaf.waits:
            self._leaf.flush_numbers()

    def _taps(self, call: Call) -> bool:
        """Return whether the gradients of a call, which will come, are recorded."""
        if call.redo:
            replay = self.counters.segments.replay
            # Else gradients flow through the graph of the first run.
            if replay is not None and not replay.segment.reentrant:
                return False
        return not self.decision.selective or self.decision.gradients(call)


_NOTHING = b"{}"


def _both(first: Any, second: Any) -> Any:
    """Return the form of positional and keyword arguments together."""
    if type(first) is int and type(second) is int:
        return first + second
    lists = ([None] * form if type(form) is int else form for form in (first, second))
    return [item for form in lists for item in form]
