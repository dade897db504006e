"""Collecting one step: every tap ends here, and every record begins here.

A call is entered, run, and left; what it was given and what it returned are described and appended to the
journal at once. A fault of ours is noted and the call goes on: the user's run never depends on this file.
"""

from __future__ import annotations

import itertools
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from attrs import define, field
from probe_format.callsite import FrameTable
from probe_format.coverage import Coverage
from probe_format.select import Fields, NameFilter
from probe_format.tree import Path, Tree
from torch import nn

from . import gradients
from .collectives import PREFIX, PendingWork, without_buffers
from .modules import ModuleEntry, ModuleTable, ParameterEntry
from .recompute import SegmentState
from .tensors import Slot, TensorLeaf

__all__ = ["Call", "Collector", "Plan"]

Json = Any
_NOTHING: Any = object()


@define
class Plan:
    """What this step collects.

    structure: places and stacks only. files: tensor files for every tensor; tensor_list: for some names.
    construct, stacks: whether those files are wanted.
    """

    keep: Fields
    structure: bool
    files: bool
    tensor_list: bool
    construct: bool
    stacks: bool
    max_faults: int


class _Local(threading.local):
    """Where this thread is: the open modules and nodes, and whether calls are recorded at all."""

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []
        self.inside = 0
        self.quiet: str | None = None


@define
class Call:
    """One call under way.

    key: the record names without number and direction; faults are counted by it. name, backward, parent: of its
    forward and backward records. recorded: whether anything is; forward: whether the forward record is.
    """

    key: str
    name: str
    backward: str
    parent: tuple[str, str] | None
    recorded: bool
    forward: bool
    entry: gradients.Entry | None = None
    redo: bool = False
    keep_files: bool = False
    arguments: Json = None
    keywords: Json = None
    places: dict[str, int] = field(factory=dict)


class Collector:
    """The state of one step's collection. All its public methods may be called from any thread."""

    def __init__(
        self,
        plan: Plan,
        append: Callable[[dict[str, Any]], None],
        leaf: TensorLeaf,
        coverage: Coverage,
        names: NameFilter,
    ) -> None:
        """append: writes one journal event."""
        self.plan = plan
        self.coverage = coverage
        self.segments = SegmentState()
        self.on = False  # calls are recorded
        self.alive = True  # gradients are recorded
        self.broken: str | None = None
        self._write = append
        self._leaf = leaf
        self._names = names
        self._local = _Local()
        self._counters: dict[str, itertools.count[int]] = {}
        self._frames = FrameTable()
        self._handles: list[Any] = []
        self._taps: list[gradients.Tap] = []
        self._fault_counts: dict[str, int] = {}
        self._off: set[str] = set()
        self._nodes: set[str] = set()
        self._arrivals: dict[int, int] = {}
        self._told: dict[str, Any] = {}
        self.works = PendingWork()
        self._after_backward = False
        self._redone: set[str] = set()

    # -- the taps -------------------------------------------------------------------------------------

    def api(
        self,
        key: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        composite: bool = False,
    ) -> Any:
        """The tap of every patched function: records the outermost call, runs it, gives its result.

        key: the first two parts of the record's name, ``Functional.relu``. composite: what it calls is recorded
        as well.
        """
        local = self._local
        if local.inside or not self.on:
            return original(*args, **kwargs)
        if local.quiet is not None:
            self.coverage.add("left_out", local.quiet)
            return original(*args, **kwargs)
        local.inside += 1
        try:
            collective = key.startswith(PREFIX)
            given = without_buffers(key, args, kwargs) if collective else (args, kwargs)
            call = self._begin(key, *given)
            if call is None:
                return original(*args, **kwargs)
            try:
                local.inside -= composite
                out = original(*args, **kwargs)
            except BaseException as e:
                self._raised(call, e)
                raise
            finally:
                local.inside += composite
            if collective:
                self._leaf.forget()  # collectives write without raising the version
                self._end_collective(call, args, kwargs, out)
            else:
                self._end(call, out)
            return out
        finally:
            local.inside -= 1

    def module(
        self,
        entry: ModuleEntry,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        original: Callable[..., Any],
    ) -> Any:
        """The tap of every tracked module's call."""
        local = self._local
        if not self.on:
            return original(module, *args, **kwargs)
        if local.quiet is not None:
            self.coverage.add("left_out", local.quiet)
            return original(module, *args, **kwargs)
        entry.called = True
        local.inside += 1
        try:
            call = self._begin(entry.base, args, kwargs, module)
        finally:
            local.inside -= 1
        if call is None:
            return original(module, *args, **kwargs)
        depth = len(local.stack)
        local.stack.append((call.name, call.backward))
        if entry.opaque:
            local.quiet = "inside module_dump"
        try:
            out = original(module, *args, **kwargs)
        except BaseException as e:
            self._raised(call, e)
            raise
        finally:
            del local.stack[depth:]
            if entry.opaque:
                local.quiet = None
        local.inside += 1
        try:
            self._end(call, out)
        finally:
            local.inside -= 1
        return out

    def push(self, node: str) -> None:
        """A region with a node of its own begins (optimizer, clip_grad)."""
        if self.on and self.plan.construct and node not in self._nodes:
            self._nodes.add(node)
            self._append({"k": "enter", "n": node, "u": None, "r": 0})
        self._local.stack.append((node, node))

    def pop(self, node: str) -> None:
        """The region ends."""
        stack = self._local.stack
        if (node, node) in stack:
            del stack[len(stack) - 1 - stack[::-1].index((node, node)) :]

    def parameter(self, entry: ParameterEntry) -> Callable[[torch.Tensor], None]:
        """A post-accumulate hook for one parameter."""

        def hook(p: torch.Tensor) -> None:
            if self.alive and p.grad is not None:
                self.parameter_gradient(entry, p.grad)

        return hook

    def parameter_gradient(self, entry: ParameterEntry, grad: torch.Tensor) -> None:
        """A gradient has arrived in ``.grad``: file it under every owner."""
        self._after_backward = True
        local = self._local
        local.inside += 1
        try:
            arrival = self._arrivals.get(id(entry.parameter), 0)
            self._arrivals[id(entry.parameter)] = arrival + 1
            for record, name in entry.owners:
                if self._names.active and not self._names.backward(_forward_record(record)):
                    self.coverage.add("left_out", "parameter gradients of modules outside scope or list")
                    continue
                if arrival:  # gradient accumulation: each arrival is a record of its own, as in msprobe 26
                    record = f"{record}.{arrival}"
                slot = Slot(record, "", self._files(record))
                value = self._leaf.tensor(slot, grad, (name,))
                self._append({"k": "pgrad", "n": record, "q": name, "v": value})
            self._leaf.settle()
        except Exception as e:
            self.fault(entry.owners[0][0], "a parameter's gradient", e)
        finally:
            local.inside -= 1

    def arrived(self, entry: ParameterEntry) -> bool:
        """Whether this parameter's gradient was recorded in this step."""
        return id(entry.parameter) in self._arrivals

    # -- one call -------------------------------------------------------------------------------------

    def _begin(
        self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module | None = None
    ) -> Call | None:
        """Number a call of ``key`` and record what it was given; None when nothing of it can be recorded."""
        if key in self._off:
            self.coverage.add("left_out", f"{key}: switched off after {self.plan.max_faults} faults")
            return None
        kind = "calls" if module is None else "modules"
        try:
            number, redo = self._number(key)
            counted = f"recomputed {kind}" if redo else kind
            self.coverage.add("seen", counted)
            if module is None:
                call = self._call(key, f"{key}.{number}.forward", f"{key}.{number}.backward", redo)
            else:
                call = self._call(key, f"{key}.forward.{number}", f"{key}.backward.{number}", redo)
            if call.recorded:
                self._enter(call, args, kwargs, module)
                self.coverage.add("recorded", counted)
            return call
        except Exception as e:
            self.fault(key, "its inputs", e)
            self.coverage.add("failed", kind)
            return None

    def _fresh(self) -> None:
        """After a backward pass, share nothing seen before: DDP and FSDP reduce gradients in place, in C++."""
        if self._after_backward and torch._C._current_graph_task_id() == -1:
            self._after_backward = False
            self._leaf.forget()

    def _number(self, key: str) -> tuple[int, bool]:
        """The number of this call of ``key``, and whether it is a recomputation of that call."""
        replay = self.segments.replay
        if replay is not None:
            known = replay.number(key)
            if known is not None:
                return known, True
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters.setdefault(key, itertools.count())
        number = next(counter)
        segment = self.segments.segment
        if segment is not None:
            segment.numbers.setdefault(key, []).append(number)
        return number, False

    def _call(self, key: str, name: str, backward: str, redo: bool) -> Call:
        stack = self._local.stack
        parent = stack[-1] if stack else None
        if redo:
            if name in self._redone:  # retain_graph: every pass recomputes
                self.coverage.add("filtered", "recomputed once more")
                return Call(key, name, backward, None, False, False, redo=True)
            self._redone.add(name)
        names, keep = self._names, self.plan.keep
        forward = names.enter(name, [above for above, _ in stack] if names.active else ())
        # A selection may be of backward records alone.
        wanted = forward or (names.active and keep.backward and names.backward(name))
        if not wanted:
            self.coverage.add("filtered", "scope or list")
            if self.plan.construct and not redo:
                self._append({"k": "enter", "n": name, "u": parent and parent[0], "r": 0})
        return Call(
            key,
            name,
            backward,
            parent,
            wanted,
            forward and (keep.forward or self.plan.structure),
            redo=redo,
            keep_files=not redo and self._files(name),
        )

    def _files(self, name: str) -> bool:
        return self.plan.files or (self.plan.tensor_list and self._names.tensors(name))

    def _enter(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module | None
    ) -> None:
        plan = self.plan
        self._fresh()
        event: dict[str, Any] = {"k": "enter", "n": call.name, "u": call.parent and call.parent[0]}
        if plan.stacks and call.forward and not call.redo:
            event["s"] = self._stack_id()
        show = plan.keep.input and call.forward and not plan.structure
        again = "recompute." if call.redo else ""
        positional = Slot(call.name, "input", call.keep_files, show, f"{again}input_args")
        named = Slot(call.name, "kwargs", call.keep_files, show, f"{again}input_kwargs")
        tree = self._tree(positional)
        call.arguments = [tree.describe(value, (i,)) for i, value in enumerate(args)]
        tree = self._tree(named)
        call.keywords = {key: tree.describe(value, (key,)) for key, value in kwargs.items()}
        if plan.keep.backward:
            call.places = {key: len(args) + i for i, key in enumerate(kwargs)}
            inputs = [*positional.found, *((self._place(call, p), t) for p, t in named.found)]
            call.entry = gradients.enter(inputs)
        if show:
            event["a"], event["w"] = call.arguments, call.keywords
        if (
            module is not None
            and plan.keep.parameters
            and call.forward
            and not plan.structure
            and not call.redo
        ):
            slot = Slot(call.name, "parameters", call.keep_files, shown="parameters")
            event["p"] = {
                name: self._leaf.tensor(slot, p, (name,))
                for name, p in module._parameters.items()
                if p is not None
            }
        if call.redo:
            event = {"k": "redo", "n": call.name, "a": event.get("a", []), "w": event.get("w", {})}
        elif plan.structure:
            event["r"] = 2
        elif torch._C._current_graph_task_id() != -1:
            event["x"] = {"in_backward": True}
        if call.forward:
            self._append(event)
        elif not call.redo:
            self._append({"k": "enter", "n": call.name, "u": event.get("u"), "r": 0})
        self._leaf.settle()

    def _end(self, call: Call, out: Any) -> None:
        """Record what a call returned and tap its gradients. Never raises."""
        try:
            self._names.leave(call.name)
            if call.recorded:
                self._exit(call, out)
        except Exception as e:
            self.fault(call.key, "its output", e)
            self._append({"k": "exit", "n": call.name, "e": f"Probe: {type(e).__name__}: {e}"})

    def _end_collective(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A collective returns in its arguments, at once or when its Work has been waited for."""
        call.entry = None
        values = [*args, *kwargs.values()]

        def finish(complete: bool) -> None:
            self._local.inside += 1
            try:
                if complete:
                    self._leaf.forget()
                    self._end(call, values)
                else:
                    self._names.leave(call.name)
                    self._append({"k": "exit", "n": call.name, "e": "Probe: never waited for before stop()"})
            finally:
                self._local.inside -= 1

        if not self.works.add(out, finish):
            self._end(call, values)

    def _exit(self, call: Call, out: Any) -> None:
        plan = self.plan
        show = plan.keep.output and call.forward and not plan.structure
        slot = Slot(call.name, "output", call.keep_files, show, "recompute.output" if call.redo else "output")
        tree = self._tree(slot)
        described = tree.output(out)
        event: dict[str, Any] = {"k": "redone" if call.redo else "exit", "n": call.name}
        if slot.show:
            event["o"] = described
        entry = call.entry
        hooked = entry is not None and any(t.requires_grad for _, t in slot.found)
        if call.redo and hooked:
            replay = self.segments.replay
            hooked = (
                replay is None or replay.segment.reentrant
            )  # else the first run's graph is the one that runs
        if call.recorded and hooked and not self._names.backward(call.name):
            self.coverage.add("left_out", "gradients of calls outside scope or list")
            hooked = False
        outputs: Sequence[tuple[Path, torch.Tensor]] = slot.found
        if hooked:
            fields = isinstance(described, dict)
            if fields:
                outputs = [((0, *path), t) for path, t in slot.found]
            gi = _slots([described] if fields else described)
            go = _slots([*call.arguments, *call.keywords.values()])
            keep = plan.keep
            event["g"] = [gi if keep.backward_input else None, go if keep.backward_output else None]
        self._append(event)
        # The hooks keep the call alive: it must not keep the graph alive, which owns the hooks.
        call.entry = call.arguments = call.keywords = None
        if hooked and entry is not None:
            self._handles.extend(
                gradients.attach(entry, outputs, self._taps.append, partial(self._back, call))
            )
        self._leaf.settle()

    def _raised(self, call: Call, error: BaseException) -> None:
        """The call raised: it costs this record its output and nothing else."""
        try:
            self._names.leave(call.name)
            if call.recorded and not call.redo:
                what = f"{type(error).__name__}: {error}".strip().split("\n")[0][:500]
                self._append({"k": "exit", "n": call.name, "e": what})
        except Exception as e:
            self.fault(call.key, "its exception", e)

    def _back(
        self,
        call: Call,
        number: int,
        of_outputs: list[tuple[Path, torch.Tensor]],
        of_inputs: list[tuple[Path, torch.Tensor]],
        partial_sum: bool,
    ) -> None:
        """Gradients of one call, in a backward pass."""
        if not self.alive or call.key in self._off:
            return
        self._after_backward = True
        local = self._local
        local.inside += 1
        try:
            plan = self.plan
            event: dict[str, Any] = {"k": "back", "n": call.backward, "t": number}
            event["u"] = call.parent and call.parent[1]
            if plan.structure:
                event["r"] = 2
                self._append(event)
                return
            record = call.backward if number == 0 else f"{call.backward}.pass{number}"
            if plan.keep.backward_input and of_outputs:
                event["i"] = self._grads(
                    Slot(record, "input", self._files(call.backward), shown="input"), of_outputs
                )
            if plan.keep.backward_output and of_inputs:
                event["o"] = self._grads(
                    Slot(record, "output", self._files(call.backward), shown="output"), of_inputs
                )
            if partial_sum:
                event["partial"] = True
            self._append(event)
            self._leaf.settle()
        except Exception as e:
            self.fault(call.key, "its gradients", e)
        finally:
            local.inside -= 1

    def _grads(self, slot: Slot, found: list[tuple[Path, torch.Tensor]]) -> list[Json]:
        return [[list(path), self._leaf.tensor(slot, g, path)] for path, g in found]

    def _place(self, call: Call, path: Path) -> Path:
        """The slot of a keyword argument: after the positional ones."""
        return (call.places[str(path[0])], *path[1:])

    def _tree(self, slot: Slot) -> Tree:
        return Tree(partial(self._leaf.leaf, slot), self._note_unsupported if slot.show else _ignore)

    def _note_unsupported(self, reason: str) -> None:
        self.coverage.add("unsupported", f"value: {reason}")

    def _stack_id(self) -> int:
        number, new, frames = self._frames.intern()
        if new:
            self._append({"k": "frames", "i": number, "f": list(frames)})
        return number

    # -- faults and the end ---------------------------------------------------------------------------

    def _append(self, event: dict[str, Any]) -> None:
        """Write one event. A disk that takes no more ends the collection, not the run."""
        if not self.alive:
            return
        try:
            self._write(event)
        except OSError as e:
            self.break_off(f"{e}")

    def break_off(self, why: str) -> None:
        """Stop collecting for good; what was written stays readable."""
        self.on = self.alive = False
        if self.broken is None:
            self.broken = why
            warnings.warn(
                f"Probe stopped collecting this step: {why}. The run goes on; everything recorded before this "
                "is readable (`probe recover`).",
                RuntimeWarning,
                stacklevel=2,
            )

    def fault(self, where: str, what: str, error: Exception) -> None:
        """Note a fault of Probe's own while it recorded ``what`` of ``where``; too many switch that place off."""
        if isinstance(error, OSError) and error.errno in (27, 28, 122):  # too large, disk full, quota
            self.break_off(str(error))
            return
        count = self._fault_counts.get(where, 0) + 1
        self._fault_counts[where] = count
        if count >= self.plan.max_faults:
            self._off.add(where)
        what = f"recording {what}: "
        text = (
            "".join(traceback.format_exception(error)) if count == 1 else f"{type(error).__name__}: {error}"
        )
        try:
            self._append({"k": "fault", "w": where, "m": what + text})
        except Exception:
            self.on = self.alive = False

    def settle(self, table: ModuleTable, *, final: bool) -> None:
        """Bring the journal up to date: late statistics, coverage and, at the end, sums that stayed partial."""
        self._local.inside += 1
        try:
            if final:
                for tap in self._taps:
                    tap.leftovers()
            self._leaf.flush()
            content = self._coverage(table)
            if content != self._told:
                self._told = content
                self._append({"k": "tally", "d": content})
        except Exception as e:
            self.fault("the end of the step", "coverage", e)
        finally:
            self._local.inside -= 1

    def _coverage(self, table: ModuleTable) -> dict[str, Any]:
        for what, why in table.not_seen.items():
            self.coverage.unseen(what, why)
        content = self.coverage.json()
        for kind in ("seen", "recorded"):
            content["counts"][kind].update(self._leaf.tally)
        if self._leaf.summary.complete:
            content["summary"] = self._leaf.summary.json()
        content["not_seen"] += [{"what": base, "why": why} for base, why in table.never_called()]
        content["unmatched"] = [
            {"filter": kind, "value": value, "nearest": list(nearest)}
            for kind, value, nearest in self._names.unmatched(self.seen_names())
        ]
        return content

    def release(self) -> None:
        """Take every hook off the graph; nothing is recorded after this."""
        self.on = self.alive = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._taps.clear()

    def seen_names(self) -> list[str]:
        """One name of every kind of call that was seen, for suggestions."""
        return [
            f"{key}.forward.0" if key.startswith("Module.") else f"{key}.0.forward" for key in self._counters
        ]


def _forward_record(parameters_grad: str) -> str:
    """The first forward record of the module whose parameters_grad record this is."""
    return parameters_grad.removesuffix(".parameters_grad") + ".forward.0"


def _ignore(reason: str) -> None:
    """What is not shown needs no note."""


def _slots(described: Any) -> Any:
    """The skeleton of a backward record: the number of slots, or nested nulls where arguments are nested."""
    shape = [_nulls(item) for item in described]
    return len(shape) if all(item is None for item in shape) else shape


def _nulls(described: Any) -> Any:
    if isinstance(described, list):
        return [_nulls(item) for item in described] or None
    if isinstance(described, dict) and not ("type" in described and isinstance(described["type"], str)):
        return {key: _nulls(item) for key, item in described.items()} or None
    return None
