"""Make the calls of patched functions and tracked modules, and write their records as journal events.

A tap makes the call itself, exactly once, and returns its result untouched; before and after, it records the call. A
fault of Probe costs the value or the record that it happened in; the call itself goes on.

Promise: looking changes nothing. Never is anything put into the user's graph, a random number drawn, a value of the run
written in place or handed on as another object, or a call made twice or left out. Held by
tests/torch/test_bit_identity.py, tests/mindspore/test_bit_identity.py, tests/save/test_torch.py,
tests/save/test_mindspore.py.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events
from probe_format.names import BETWEEN_RANKS
from probe_format.values import json_key
from probe_format.write import Coverage

from probe_runtime.describe.leaf import Leaf
from probe_runtime.describe.placement import Placement
from probe_runtime.describe.run_error import RunError
from probe_runtime.select.filters import NameFilter

from .alarm import Alarm
from .backward_records import BackwardRecords
from .calls import Call, Calls
from .callsite import FrameTable
from .collectives import Collectives
from .event_stream import EventStream
from .gradients import Found, Gradients
from .module_table import TrackedModule
from .plan import Plan
from .thread_state import ThreadState
from .walk import Part, Walk
from .work_label import current_label

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Recorder:
    """Write the records of one step's calls. All its public methods may be called from any thread."""

    def __init__(
        self,
        plan: Plan,
        stream: EventStream,
        leaf: Leaf,
        coverage: Coverage,
        names: NameFilter,
        gradients: Gradients,
        parameters: Callable[[Any], Iterable[tuple[str, Any]]],
        collectives: Collectives,
    ) -> None:
        """Begin a step.

        parameters: takes a module and returns its own (name, parameter) pairs, for its forward record.
        """
        self.plan = plan
        self.stream = stream
        self.coverage = coverage
        self.thread = ThreadState()
        self.calls = Calls(plan, stream, coverage, names, self.thread)
        self.collectives = collectives
        self.alarm = None if plan.on_non_finite == "record" else Alarm(plan.on_non_finite, self.thread)
        self.backward = BackwardRecords(
            plan, stream, leaf, self.thread, gradients, self.calls.files, self.alarm
        )
        self._append = stream.append
        self._written = coverage.written
        self._leaf = leaf
        self._names = names
        self._gradients = gradients
        self.in_backward = gradients.current_pass
        self._parameters = parameters
        self._frames = FrameTable()
        self._collective = _Collective()
        self._walk = Walk(leaf, lambda reason: coverage.add("unsupported", f"value: {reason}"))
        # What the plan decides for every call.
        self._show_input = plan.keep.input and not plan.structure
        self._show_output = plan.keep.output and not plan.structure
        self._show_parameters = plan.keep.parameters and not plan.structure
        self._keep_backward = plan.keep.backward
        self._kept = events.STRUCTURE if plan.structure else None

    # -- the taps -------------------------------------------------------------------------------------

    def api(self, label: Any, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Make a call of a patched function and record it, unless it is made inside another recorded function.

        label: what it is recorded as (`probe_runtime.patching.Label`).
        original: the function, called with ``args`` and ``kwargs``.
        """
        thread = self.thread
        if thread.inside or not self.stream.on:
            return original(*args, **kwargs)
        if thread.quiet is not None:
            self.coverage.add("left_out", thread.quiet)
            return original(*args, **kwargs)
        key, kind, composite = label.name, label.kind, label.composite
        began = over = False
        out = None
        thread.inside += 1
        try:
            collective = self._collective[kind]
            given = self.collectives.without_buffers(kind, args, kwargs) if collective else (args, kwargs)
            call = self.begin(key, *given)
            began = True
            if call is None:
                return original(*args, **kwargs)
            try:
                thread.inside -= composite
                out = original(*args, **kwargs)
            except BaseException as e:
                self.raised(call, e)
                raise
            finally:
                thread.inside += composite
            over = True
            if collective:
                self._end_collective(call, kind, args, kwargs, out)
            else:
                self.end(call, out)
            return out
        except RunError as e:
            raise e.error from e
        except unsignalled(Exception) as e:
            if began and not over:  # an error of the user's code
                raise
            self.stream.fault(key, "a call", e)
        finally:
            thread.inside -= 1
        return out if over else original(*args, **kwargs)

    def module(
        self, entry: TrackedModule, module: Any, args: Args, kwargs: Kwargs, original: Callable[..., Any]
    ) -> Any:
        """Make a call of a tracked module and record it."""
        thread = self.thread
        if not self.stream.on:
            return original(module, *args, **kwargs)
        if thread.quiet is not None:
            self.coverage.add("left_out", thread.quiet)
            return original(module, *args, **kwargs)
        entry.called = True
        thread.inside += 1
        try:
            call = self.begin(entry.base, args, kwargs, module)
        except RunError as e:
            raise e.error from e
        except unsignalled(Exception) as e:
            self.stream.fault(entry.base, "a call", e)
            call = None
        finally:
            thread.inside -= 1
        if call is None:
            return original(module, *args, **kwargs)
        stack = thread.stack
        depth = len(stack)
        anchor = thread.anchor
        thread.anchor = anchor if call.stack is None else (sys._getframe(), call.stack)
        stack += ((call.name, call.backward),)
        if entry.opaque:
            thread.quiet = "inside module_dump"
        try:
            out = original(module, *args, **kwargs)
        except BaseException as e:
            self.raised(call, e)
            raise
        finally:
            del stack[depth:]
            thread.anchor = anchor
            thread.quiet = None
        thread.inside += 1
        try:
            self.end(call, out)
        except RunError as e:
            raise e.error from e
        except unsignalled(Exception) as e:
            self.stream.fault(entry.base, "a call", e)
        finally:
            thread.inside -= 1
        return out

    # -- a call, from its begin to its end ------------------------------------------------------------

    def begin(self, key: str, args: Args, kwargs: Kwargs, module: Any = None) -> Call | None:
        """Number a call of ``key`` and record its arguments. Return None when a fault prevents that.

        module: the module that is called; None for a function.

        Raises RunError when an error of the run came meanwhile, or what a signal's handler raised: the call must not be
        made then.
        """
        if key in self.stream.off:
            self.coverage.add("left_out", f"{key}: switched off after {self.stream.max_faults} faults")
            return None
        call = None
        try:
            call = self.calls.begin(key, module=module is not None)
            if call.recorded:
                self._enter(call, args, kwargs, module)
        except unsignalled(Exception) as e:
            self.stream.fault(key, "its inputs", e)
            kind = "calls" if module is None else "modules"
            self.coverage.outcome(kind if call is None else call.counted, "failed", kind)
            return None
        except Exception as e:  # a signal's handler raised it
            if call is not None:
                self.raised(call, e)
            raise
        try:
            if self.alarm is not None and call.given is not None:
                self.alarm.entered(call)
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except unsignalled(Exception) as e:
            self.stream.fault(key, "numbers that were waited for", e)
        except (RunError, Exception) as e:
            self.raised(call, e.error if isinstance(e, RunError) else e)
            raise
        return call

    def end(self, call: Call, out: Any) -> None:
        """Record what a call returned and tap its gradients. Raises RunError, and what a signal's handler raises."""
        try:
            if self.calls.selective:
                self._names.leave(call.name)
            if call.recorded:
                self._exit(call, out)
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except unsignalled(Exception) as e:
            self.stream.fault(call.key, "its output", e)
            self._append(events.exit(call.name, raised=f"Probe: {error_text(e)}"))
        except Exception as e:
            self.raised(call, e)
            raise

    def raised(self, call: Call, error: BaseException) -> None:
        """Record that the call raised ``error``; its record has no output. Raises only what a signal's handler does."""
        try:
            self._names.leave(call.name)
            if call.recorded and not call.redo:
                what = error_text(error).strip().split("\n")[0][:500]
                self._append(events.exit(call.name, raised=what))
        except unsignalled(Exception) as e:
            self.stream.fault(call.key, "its exception", e)

    def cut(self, call: Call, why: str) -> None:
        """Record that the call's result will not be seen, and why."""
        self._names.leave(call.name)
        self._append(events.exit(call.name, raised=f"Probe: {why}"))

    def _end_collective(self, call: Call, kind: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Record the result of a collective: its arguments, at once or when its handle has been waited for."""
        call.edges = None
        values = self.collectives.results(kind, args, kwargs, out)

        def finish(complete: bool) -> None:
            self.thread.inside += 1
            try:
                if complete:
                    self.end(call, values)
                else:
                    self.cut(call, "never waited for before stop()")
            finally:
                self.thread.inside -= 1

        if not self.collectives.works.add(out, finish):
            self.end(call, values)

    # -- inside ---------------------------------------------------------------------------------------

    def _enter(self, call: Call, args: Args, kwargs: Kwargs, module: Any) -> None:
        redo, forward = call.redo, call.forward
        first = forward and not redo
        stack = None
        if first and self.plan.stacks:
            # The two innermost frames, this one and that of begin(), are Probe's.
            stack, is_new, frames, call.stack = self._frames.intern(2, self.thread.anchor)
            if is_new:
                self._append(events.frames(stack, frames))
        show = self._show_input and forward
        again = "recompute." if redo else ""
        part = Part(self._walk, call.name, "input", call.keep_files, show, f"{again}input_args")
        arguments, form = part.arguments(args)
        inputs, keywords = part.found, b"{}"
        if kwargs:
            named = Part(self._walk, call.name, "kwargs", call.keep_files, show, f"{again}input_kwargs")
            keywords, more = named.keywords(kwargs)
            form = _both(form, more)
            inputs = [*inputs, *_in_order(named.found, kwargs, len(args))]
        call.form = form
        letters = "aw" if show else ""
        given: tuple[bytes, ...] = (arguments, keywords) if show else ()
        with part.aside:
            if self._keep_backward:
                call.edges = self._gradients.enter(inputs, len(args))
            if module is not None and first and self._show_parameters:
                more, own = self._own(call, module)
                letters, given = letters + more, given + own
        if not first:
            self._enter_again(call, given)
            return
        extra: dict[str, Any] = {}
        if self.in_backward() != -1:
            extra["in_backward"] = True
        if (label := current_label()) is not None:
            extra["label"] = label
        event = events.enter(
            call.name,
            call.parent and call.parent[0],
            letters,
            given,
            stack=stack,
            extra=extra,
            kept=self._kept,
        )
        self._append(event, self._written[call.counted])
        if show and self.alarm is not None:
            call.given = (*given, b"{}")[:3]  # a function has no parameters

    def _enter_again(self, call: Call, given: tuple[bytes, ...]) -> None:
        """Write the begin of a call that is recomputed, or that has no forward record."""
        if not call.redo:
            event = events.enter(call.name, call.parent and call.parent[0], kept=events.NODE)
        elif call.forward:
            event = events.redo(call.name, *(given or (b"[]", b"{}")))
        else:
            self.coverage.outcome(call.counted, "recorded")
            return
        self._append(event, self._written[call.counted])

    def _own(self, call: Call, module: Any) -> tuple[str, tuple[bytes, ...]]:
        """Return the parameters of a module, and the buffers of one that has some, as `events.enter` takes them."""
        parameters = self._named(call, "parameters", self._parameters(module))
        try:
            buffers = module._buffers
        except AttributeError:  # of compiled graphs parameters alone are known
            buffers = None
        if not buffers:
            return "p", (parameters,)
        present = ((name, t) for name, t in buffers.items() if t is not None)
        return "pb", (parameters, self._named(call, "buffers", present))

    def _named(self, call: Call, label: str, own: Iterable[tuple[str, Any]]) -> bytes:
        """Return a module's named tensors as JSON. label: the key of the record under which they stand."""
        placement = Placement(call.name, "parameters", call.keep_files, label=label)
        tensor = self._leaf.tensor
        values = [json_key(name) + tensor(placement, t, (name,)) for name, t in own]
        return b"{%b}" % b",".join(values)

    def _exit(self, call: Call, out: Any) -> None:
        redo = call.redo
        show = self._show_output and call.forward
        label = "recompute.output" if redo else "output"
        part = Part(self._walk, call.name, "output", call.keep_files, show, label)
        described, form, fields = part.results(out)
        outputs, edges = part.found, call.edges
        ended = events.redone if redo else events.exit
        self._append(ended(call.name, output=described if show else None))
        if self.alarm is not None and call.given is not None and show:
            self.alarm.ended(call, described)
        # The hooks keep the call alive: it must not keep the graph alive, which owns the hooks.
        call.edges = None
        if edges is None:
            return
        with part.aside:
            if not self._gradients.flows(outputs) or not self.calls.gradients(call):
                return
            if fields:
                outputs = [((0, *path), t) for path, t in outputs]
            keep = self.plan.keep
            call.form = form if keep.backward_input else None, call.form if keep.backward_output else None
            self.backward.attach(call, edges, outputs)


def _in_order(named: Found, kwargs: Kwargs, count: int) -> Found:
    """Return the tensors in keyword arguments, the keywords numbered on after ``count`` positional arguments."""
    places = {key: count + i for i, key in enumerate(kwargs)}
    return [((places[str.__str__(path[0])], *path[1:]), t) for path, t in named]


class _Collective(dict[str, bool]):
    """A function's kind (`Label`) -> whether it is a collective."""

    def __missing__(self, kind: str) -> bool:
        return self.setdefault(kind, kind.startswith(BETWEEN_RANKS))


class Target:
    """The tap that patched functions keep; ``recorder`` is the recorder of the open step, or None."""

    __slots__ = ("recorder",)

    def __init__(self) -> None:
        self.recorder: Recorder | None = None

    def __call__(self, label: Any, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Make the call, recorded by `Recorder.api` where a step is open."""
        recorder = self.recorder
        return original(*args, **kwargs) if recorder is None else recorder.api(label, original, args, kwargs)

    def clear(self) -> None:
        """Record no more calls through this target."""
        self.recorder = None


def _both(first: Any, second: Any) -> Any:
    """Return the form of positional and keyword arguments together."""
    if type(first) is int and type(second) is int:
        return first + second
    lists = ([None] * form if type(form) is int else form for form in (first, second))
    return [item for form in lists for item in form]
