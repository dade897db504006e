"""Assemble documents from events (spec/journal.md), with the same code for writing and for recovery.

Pure: takes the events in their order, gives the content of dump.json, stack.json, construct.json and what
the report needs. It never fails on events that a kill cut short; what is missing is marked in the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from probe_format.names import with_direction

from .construct_tree import closed
from .events import EVENTS, FORWARD_PARTS, GRADIENT_PARTS, NODE, STRUCTURE
from .late_parts import LateParts
from .value_paths import Room, blank_slots, get, put

__all__ = ["Assembly", "Documents", "assemble"]

#: The note in the tensor object of a gradient that arrived more than once.
_NUMBERS = (
    *("Max", "Min", "Mean", "Norm", "md5", "unsupported", "zero_count"),
    *("nan_count", "posinf_count", "neginf_count", "finite_max", "finite_min"),
)


@frozen
class Documents:
    """Hold the content of one rank's files.

    header: the top-level keys of dump.json without ``data``.
    data: record name -> record, in completion order.
    stack: the grouped layout.
    construct: node -> parent or None.
    coverage: the last tally, or {}.
    faults: one per kind, with its count.
    """

    header: dict[str, Any]
    data: dict[str, Any]
    stack: dict[str, list[list[str]]]
    construct: dict[str, str | None]
    coverage: dict[str, Any]
    faults: list[dict[str, Any]]


def assemble(events: Iterable[Mapping[str, Any]], room: int | None = None) -> Documents:
    """Build the documents from events in journal order. Unknown kinds of event are skipped.

    room: how many empty slots events from a file may ask for.
    Raises ValueError, TypeError, KeyError, IndexError, AttributeError or RecursionError when the form of an
    event is not the specification's.
    """
    state = Assembly(room=None if room is None else Room(room))
    for event in events:
        state.take(event)
    state.cut_short()
    return state.documents()


@define
class Assembly:
    """Build the documents one event after the other. Takes over the events' values."""

    header: dict[str, Any] = field(factory=dict)
    data: dict[str, Any] = field(factory=dict)
    construct: dict[str, str | None] = field(factory=dict)
    frames: dict[int, list[str]] = field(factory=dict)
    grouped: dict[int, list[str]] = field(factory=dict)
    skeletons: dict[str, list[Any]] = field(factory=dict)
    passes: dict[str, dict[Any, dict[str, Any]]] = field(factory=dict)
    open_calls: set[str] = field(factory=set)
    redone: dict[str, dict[str, Any]] = field(factory=dict)
    late: LateParts = field(factory=LateParts)
    coverage: dict[str, Any] = field(factory=dict)
    faults: dict[tuple[str, str], int] = field(factory=dict)
    room: Room | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Add the next event to the documents."""
        handler = _HANDLERS.get(event["k"])
        if handler is not None:
            handler(self, event)

    def on_head(self, e: Mapping[str, Any]) -> None:
        self.header = dict(e["header"])
        self.late.expected = bool(self.header.get("deferred"))

    def on_frames(self, e: Mapping[str, Any]) -> None:
        self.frames[e["i"]] = e["f"]

    def on_enter(self, e: Mapping[str, Any]) -> None:
        name = e["n"]
        self.construct[name] = e.get("u")
        kept = e.get("r")
        if kept == NODE:
            return
        if e.get("s") is not None:
            self.grouped.setdefault(e["s"], []).append(name)
        if kept == STRUCTURE:
            return
        record: dict[str, Any] = {}
        for key, short in FORWARD_PARTS.items():
            if short in e:
                record[key] = self.late.remember(e[short])
        record.update(e.get("x", {}))
        self.data[name] = record
        self.open_calls.add(name)

    def on_exit(self, e: Mapping[str, Any]) -> None:
        name = e["n"]
        if "g" in e:
            self.skeletons[name] = e["g"]
        record = self.data.pop(name, None)
        if record is None:
            return
        if name in self.open_calls:
            self.open_calls.remove(name)
            if record.pop("incomplete", None):
                del record["output"]
        parameters = record.pop("parameters", None)
        done = {key: record.pop(key) for key in ("input_args", "input_kwargs") if key in record}
        if "o" in e:
            done["output"] = self.late.remember(e["o"])
        if parameters is not None:
            done["parameters"] = parameters
        done.update(record)
        if "e" in e:
            done["output"] = []
            done["raised"] = e["e"]
        self.data[name] = done

    def on_back(self, e: Mapping[str, Any]) -> None:
        name = e["n"]
        if name not in self.construct:
            self.construct[name] = e.get("u")
        if e.get("r") == STRUCTURE:
            return
        record = self.data.pop(name, None)
        if record is None:
            record = self._blank(name)
            self.passes[name] = {e.get("t"): record}
        by_pass = self.passes[name]
        target = by_pass.get(e.get("t"))
        if target is None:
            target = by_pass[e.get("t")] = self._blank(name)
            record.setdefault("later_passes", []).append(target)
        for key, short in GRADIENT_PARTS.items():
            for path, value in e.get(short, ()):
                target.setdefault(key, [])
                put(target[key], path, self.late.remember(value), self.room)
        if e.get("partial"):
            target["partial"] = True
        self.data[name] = record

    def _blank(self, name: str) -> dict[str, Any]:
        forward = with_direction(name, "forward")
        skeleton = self.skeletons.get(forward)
        if skeleton is None:
            return {"input": [], "output": []}
        # None: data_mode filters this side out, and the key is absent.
        keys = zip(("input", "output"), skeleton, strict=False)
        return {key: blank_slots(shape, self.room) for key, shape in keys if shape is not None}

    def on_pgrad(self, e: Mapping[str, Any]) -> None:
        record = self.data.setdefault(e["n"], {})
        record.setdefault(e["q"], []).append(self.late.remember(e["v"]))

    def on_redo(self, e: Mapping[str, Any]) -> None:
        again = {
            "input_args": self.late.remember(e.get("a", [])),
            "input_kwargs": self.late.remember(e.get("w", {})),
        }
        self.redone[e["n"]] = again
        if e["n"] in self.data:
            self.data[e["n"]]["recompute"] = again

    def on_redone(self, e: Mapping[str, Any]) -> None:
        if "g" in e:  # a reentrant checkpoint: the first run had no gradients, the recompute has
            self.skeletons[e["n"]] = e["g"]
        if "o" in e and e["n"] in self.redone:
            self.redone[e["n"]]["output"] = self.late.remember(e["o"])

    def on_stat(self, e: Mapping[str, Any]) -> None:
        for ref, numbers in e["r"]:
            self.late.numbers(ref, numbers)

    def on_file(self, e: Mapping[str, Any]) -> None:
        for ref in e["r"]:
            self.late.file(ref)

    def on_save(self, e: Mapping[str, Any]) -> None:
        self.data[e["n"]] = self.late.remember(e["v"])
        if "g" in e:
            name, shape = e["g"]
            self.data[name] = shape

    def on_grad(self, e: Mapping[str, Any]) -> None:
        name, path = e["n"], e["p"]
        before = get(self.data.get(name), path)
        if isinstance(before, dict) and "dtype" in before:  # one more backward pass through the same graph
            again = {key: value for key, value in e["v"].items() if key in _NUMBERS}
            before.setdefault("later_passes", []).append(again)
        elif path:
            put(self.data.setdefault(name, []), path, self.late.remember(e["v"]), self.room)
        else:
            self.data[name] = self.late.remember(e["v"])

    def on_fault(self, e: Mapping[str, Any]) -> None:
        key = (e["w"], e["m"])
        self.faults[key] = self.faults.get(key, 0) + 1

    def on_tally(self, e: Mapping[str, Any]) -> None:
        self.coverage = dict(e["d"])

    def cut_short(self) -> None:
        """Mark the calls that have not returned, and the tensors that are still incomplete.

        Events that complete them later remove the marks.
        """
        for name in self.open_calls:
            record = self.data[name]
            record["output"] = []
            record["incomplete"] = True
        self.late.cut_short()

    def documents(self) -> Documents:
        """Return the documents as they are now; more events may follow."""
        header = {key: value for key, value in self.header.items() if key != "deferred"}
        stack = {str(i): [names, self.frames.get(s, [])] for i, (s, names) in enumerate(self.grouped.items())}
        faults = [{"where": w, "message": m, "count": n} for (w, m), n in self.faults.items()]
        return Documents(header, self.data, stack, closed(self.construct), self.coverage, faults)


_HANDLERS = {kind: getattr(Assembly, f"on_{kind}") for kind in EVENTS}
