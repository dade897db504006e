"""Record what a step has besides calls: regions, parameters' gradients, late numbers, and counts of what was seen.

The calls themselves are recorded by the `Recorder` that a collector holds.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events, lost
from probe_format.names import as_optimizer_gets
from probe_format.write import Coverage

from probe_runtime.describe.leaf import Leaf
from probe_runtime.describe.placement import Placement
from probe_runtime.describe.run_error import RunError
from probe_runtime.patching.patches import Patches
from probe_runtime.select.filters import NameFilter

from . import guard
from .calls import Counters
from .event_stream import EventStream
from .module_table import AnyModuleTable, TrackedParameter
from .recorder import Recorder, Target


class Collector:
    """The state of one step's collection. All its public methods may be called from any thread."""

    def __init__(self, recorder: Recorder, leaf: Leaf, names: NameFilter, module_prefix: str) -> None:
        """Begin a step, and listen for faults. module_prefix: what the keys of modules begin with (``Module.``)."""
        self.recorder = recorder
        self.plan = recorder.plan
        self.thread = recorder.thread
        self.stream: EventStream = recorder.stream
        self.coverage: Coverage = recorder.coverage
        self.segments = recorder.calls.segments
        self.works = recorder.collectives.works
        self._leaf = leaf
        self._names = names
        self._module_prefix = module_prefix
        self._append = self.stream.append
        self._nodes: set[str] = set()
        self.arrivals = Counters()
        """id of a parameter -> counts how often its gradient was recorded in this step."""
        self._steps = Counters()
        self._last_tally: dict[str, Any] = {}
        guard.listen(self.stream)

    @contextmanager
    def tapped(
        self, target: Target, patches: Patches, models: Sequence[Any], regions: AbstractContextManager[None]
    ) -> Iterator[None]:
        """Take the calls of patched functions while open, and note which listed ones are missing.

        target: the tap of ``patches``.
        models: searched for attributes that hold one of the functions.
        regions: a context in which this is told of the regions outside of the model.
        """
        with ExitStack() as stack:
            target.recorder = self.recorder
            stack.callback(target.clear)
            stack.callback(self.works.give_up)
            stack.enter_context(regions)
            patches.apply(*models)
            stack.callback(patches.undo)
            for missing, why in patches.missing.items():
                self.coverage.missing.setdefault(missing, why)
            yield

    # -- what is no call -----------------------------------------------------------------------------

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

    @property
    def has_gradients(self) -> bool:
        """Return whether parameters' gradients are recorded, and came or may still come."""
        return self.plan.parameters_grad and (bool(self.arrivals) or self.recorder.backward.may_come)

    def parameter_gradient(
        self, entry: TrackedParameter, grad: Any, *, seen: bool = True, in_step: bool = False
    ) -> None:
        """Record a gradient of a parameter, under each of its owners.

        seen: whether it was seen as it arrived; else it was found later, and may be what somebody else wrote there.
        in_step: whether an optimizer's step gets it; else it arrived.
        """
        if not self.stream.alive:
            return
        calls = self.recorder.calls
        thread = self.thread
        thread.inside += 1
        try:
            arrival = next((self._steps if in_step else self.arrivals)[id(entry.parameter)])
            for record, name in entry.owners:
                if not calls.parameter_gradients(record):
                    continue
                if in_step:
                    record = as_optimizer_gets(record)
                if arrival:  # gradient accumulation: each arrival is a record of its own, as in msprobe 26
                    record = f"{record}.{arrival}"
                value = self._described(Placement(record, "", calls.files(record)), grad, name)
                if not seen:
                    value = value[:-1] + b',"found_late":true}'
                self._append(events.pgrad(record, name, value))
                if self.recorder.alarm is not None:
                    self.recorder.alarm.parameter(record, name, value)
            if self._leaf.waits:
                self._leaf.flush_numbers()
        except unsignalled(Exception) as e:
            self.stream.fault(entry.owners[0][0], "a parameter's gradient", e)
        finally:
            thread.inside -= 1

    def _described(self, placement: Placement, grad: Any, name: str) -> bytes:
        """Describe a gradient of a parameter; a fault costs this one alone, and its slot says so."""
        try:
            return self._leaf.tensor(placement, grad, (name,))
        except OSError:
            raise  # a full disk
        except unsignalled(Exception) as e:
            self.stream.fault(placement.record, "a parameter's gradient", e)
            return lost(f"gradient: {error_text(e)[:200]}")

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
        except unsignalled(Exception) as e:
            self.stream.fault("the end of the step", "late numbers", e)
        finally:
            self.thread.inside -= 1

    def tally(self, table: AnyModuleTable) -> events.Event | None:
        """Return the event with the counts of what was seen and recorded so far; None if they have not changed.

        Must not run while calls are counted, which `RankWriter.finish` ensures. Appends nothing.
        """
        content = self._coverage(table)
        if content == self._last_tally:
            return None
        self._last_tally = content
        return events.tally(content)

    def _coverage(self, table: AnyModuleTable) -> dict[str, Any]:
        for what, why in table.not_seen.copy().items():
            self.coverage.unseen(what, why)
        content = self.coverage.json()
        for kind in ("seen", "recorded"):
            content["counts"][kind].update(self._leaf.tally)
        content["summary"] = self._leaf.summary.json()
        told = {entry["what"] for entry in content["not_seen"]}  # a better reason than that nobody saw a call
        content["not_seen"] += [{"what": b, "why": why} for b, why in table.never_called() if b not in told]
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

    def seen_names(self) -> Iterator[str]:
        """Yield the name of the first call of every key that was seen, for suggestions."""
        prefix = self._module_prefix
        for key in self.recorder.calls.numbers:
            yield f"{key}.forward.0" if key.startswith(prefix) else f"{key}.0.forward"
