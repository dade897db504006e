"""Provide the taps of one step, which patched functions and tracked modules call in place of the original.

A tap makes the call itself, exactly once, and returns its result untouched; before and after, it records the call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from probe_format.excerpts import error_text
from probe_format.journal import events, lost
from probe_format.write import Coverage

from probe_runtime.describe.leaf import Leaf, Placement
from probe_runtime.describe.run_error import RunError
from probe_runtime.select.filters import NameFilter

from . import guard
from .call import Call
from .collectives import Collectives
from .event_stream import EventStream
from .module_table import Table, TrackedModule, TrackedParameter
from .recorder import Args, Kwargs, Recorder

__all__ = ["Collector", "Target"]


class Collector:
    """The state of one step's collection. All its public methods may be called from any thread."""

    def __init__(
        self,
        recorder: Recorder,
        leaf: Leaf,
        names: NameFilter,
        collectives: Collectives,
        module_prefix: str,
    ) -> None:
        """Begin a step, and listen for faults. module_prefix: what the keys of modules begin with (``Module.``)."""
        self.recorder = recorder
        self.plan = recorder.plan
        self.thread = recorder.thread
        self.stream: EventStream = recorder.stream
        self.coverage: Coverage = recorder.coverage
        self.segments = recorder.counters.segments
        self.works = collectives.works
        self._leaf = leaf
        self._names = names
        self._collectives = collectives
        self._prefixes = collectives.prefixes
        self._collective: dict[str, bool] = {}
        self._module_prefix = module_prefix
        self._append = self.stream.append
        self._nodes: set[str] = set()
        self.arrivals: dict[int, Callable[[], int]] = {}
        """id of a parameter -> counts how often its gradient was recorded in this step."""
        self._last_tally: dict[str, Any] = {}
        guard.listen(self.stream)

    # -- the taps -------------------------------------------------------------------------------------

    def api(
        self,
        key: str,
        original: Callable[..., Any],
        args: Args,
        kwargs: Kwargs,
        *,
        composite: bool = False,
        kind: str | None = None,
    ) -> Any:
        """Make a call of a patched function and record it, unless it is made inside another recorded function.

        key: the first two parts of the record's name, ``Functional.relu``.
        original: the function, called with ``args`` and ``kwargs``.
        composite: whether what it calls is recorded as well.
        kind: the key that the list has for it, where the user gave it another.
        """
        kind = kind or key
        thread = self.thread
        if thread.inside or not self.stream.on:
            return original(*args, **kwargs)
        if thread.quiet is not None:
            self.coverage.add("left_out", thread.quiet)
            return original(*args, **kwargs)
        recorder = self.recorder
        began = over = False
        out = None
        thread.inside += 1
        try:
            try:
                collective = self._collective[kind]
            except KeyError:
                collective = self._collective.setdefault(kind, kind.startswith(self._prefixes))
            given = self._collectives.without_buffers(kind, args, kwargs) if collective else (args, kwargs)
            call = recorder.begin(key, *given)
            began = True
            if call is None:
                return original(*args, **kwargs)
            try:
                if composite:
                    thread.inside -= 1
                out = original(*args, **kwargs)
            except BaseException as e:
                recorder.raised(call, e)
                raise
            finally:
                if composite:
                    thread.inside += 1
            over = True
            if collective:
                self._end_collective(call, kind, args, kwargs, out)
            else:
                recorder.end(call, out)
            return out
        except RunError as e:
            raise e.error from e
        except Exception as e:
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
        recorder = self.recorder
        thread.inside += 1
        try:
            call = recorder.begin(entry.base, args, kwargs, module)
        except RunError as e:
            raise e.error from e
        except Exception as e:
            self.stream.fault(entry.base, "a call", e)
            call = None
        finally:
            thread.inside -= 1
        if call is None:
            return original(module, *args, **kwargs)
        stack = thread.stack
        depth = len(stack)
        stack += ((call.name, call.backward),)
        if entry.opaque:
            thread.quiet = "inside module_dump"
        try:
            out = original(module, *args, **kwargs)
        except BaseException as e:
            recorder.raised(call, e)
            raise
        finally:
            del stack[depth:]
            if entry.opaque:
                thread.quiet = None
        thread.inside += 1
        try:
            recorder.end(call, out)
        except RunError as e:
            raise e.error from e
        except Exception as e:
            self.stream.fault(entry.base, "a call", e)
        finally:
            thread.inside -= 1
        return out

    def push(self, node: str) -> None:
        """Begin a region with a node of its own (optimizer, clip_grad)."""
        if self.stream.on and self.plan.construct and node not in self._nodes:
            self._nodes.add(node)
            self._append(events.enter(node, None, kept=events.NODE))
        self.thread.stack.append((node, node))

    def pop(self, node: str) -> None:
        """End a region that `push` began."""
        stack = self.thread.stack
        if (node, node) in stack:
            del stack[len(stack) - 1 - stack[::-1].index((node, node)) :]

    def parameter_gradient(self, entry: TrackedParameter, grad: Any) -> None:
        """Record a gradient of a parameter, under each of its owners."""
        if not self.stream.alive:
            return
        recorder = self.recorder
        decision = recorder.decision
        thread = self.thread
        thread.inside += 1
        try:
            which = id(entry.parameter)
            try:
                arrival = self.arrivals[which]()
            except KeyError:
                arrival = self.arrivals.setdefault(which, itertools.count().__next__)()
            for record, name in entry.owners:
                if decision.selective and not decision.parameter_gradients(record):
                    continue
                if arrival:  # gradient accumulation: each arrival is a record of its own, as in msprobe 26
                    record = f"{record}.{arrival}"
                placement = Placement(record, "", decision.files(record))
                try:
                    value = self._leaf.tensor(placement, grad, (name,))
                except OSError:
                    raise  # a full disk
                except Exception as e:
                    self.stream.fault(record, "a parameter's gradient", e)
                    value = lost(f"gradient: {error_text(e)[:200]}")
                self._append(events.pgrad(record, name, value))
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except Exception as e:
            self.stream.fault(entry.owners[0][0], "a parameter's gradient", e)
        finally:
            thread.inside -= 1

    def _end_collective(self, call: Call, kind: str, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Record the result of a collective: its arguments, at once or when its handle has been waited for."""
        call.edges = None
        values = self._collectives.results(kind, args, kwargs, out)

        def finish(complete: bool) -> None:
            self.thread.inside += 1
            try:
                if complete:
                    self.recorder.end(call, values)
                else:
                    self.recorder.cut(call, "never waited for before stop()")
            finally:
                self.thread.inside -= 1

        if not self.works.add(out, finish):
            self.recorder.end(call, values)

    # -- the end --------------------------------------------------------------------------------------

    def flush_numbers(self, *, final: bool) -> None:
        """Bring the journal up to date: late statistics and, at the end, sums that stayed partial."""
        self.thread.inside += 1
        try:
            if final:
                try:
                    self.recorder.backward.leftovers()
                except RunError as e:
                    self._leaf.met(e.error)  # for the end of the step
            self._leaf.flush()
            if self.stream.waiting and self.recorder.in_backward() == -1:
                self.stream.waiting = False
                self._append(events.over())  # what has not come by now was not on its way
        except Exception as e:
            self.stream.fault("the end of the step", "late numbers", e)
        finally:
            self.thread.inside -= 1

    def tally(self, table: Table) -> events.Event | None:
        """Return the event with the counts of what was seen and recorded so far; None if they have not changed.

        Must not run while calls are counted, which `RankWriter.finish` ensures. Appends nothing.
        """
        content = self._coverage(table)
        if content == self._last_tally:
            return None
        self._last_tally = content
        return events.tally(content)

    def _coverage(self, table: Table) -> dict[str, Any]:
        for what, why in table.not_seen.items():
            self.coverage.unseen(what, why)
        content = self.coverage.json()
        for kind in ("seen", "recorded"):
            content["counts"][kind].update(self._leaf.tally)
        content["summary"] = self._leaf.summary.json()
        content["not_seen"] += [{"what": base, "why": why} for base, why in table.never_called()]
        content["unmatched"] = [
            {"filter": kind, "value": value, "nearest": list(nearest)}
            for kind, value, nearest in self._names.unmatched(self.seen_names())
        ]
        return content

    def release(self) -> None:
        """Remove every hook from the graph, and record nothing after this."""
        self.stream.end()
        guard.stop_listening(self.stream)
        self.recorder.backward.release()

    def seen_names(self) -> list[str]:
        """Return the name of the first call of every key that was seen, for suggestions."""
        prefix = self._module_prefix
        size = len(prefix)
        return [
            f"{key}.forward.0" if key[:size] == prefix else f"{key}.0.forward"
            for key in self.recorder.counters.keys
        ]


class Target:
    """The tap that patched functions keep; ``collector`` is that of the open step, or None."""

    __slots__ = ("collector",)

    def __init__(self) -> None:
        self.collector: Collector | None = None

    def __call__(self, label: Any, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Make the call. label: its ``name`` is the key of the call, its ``kind`` the key of the list (`Label`)."""
        collector = self.collector
        if collector is None or collector.thread.inside:
            return original(*args, **kwargs)
        return collector.api(label.name, original, args, kwargs, composite=label.composite, kind=label.kind)

    def clear(self) -> None:
        """Record no more calls through this target."""
        self.collector = None
