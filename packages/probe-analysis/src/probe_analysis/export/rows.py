"""Make the rows of the exported tables out of the calls of a run, one record at a time, and count them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attrs import define, field, frozen
from probe_format import Record, Tensor
from probe_format.errors import FormatError
from probe_format.names import ApiName, DebugName, ModuleName, ParamsGradName
from probe_format.schema import Stack, is_tensor, path_text, tensors, walk
from probe_format.values import ValuePath, is_leaf

from probe_analysis.calls.run import GRADIENTS, Call, Progress, Run
from probe_analysis.calls.tabled import MARKS

from .columns import argument_cells, json_text, source_cells, tensor_cells

Row = dict[str, Any]


@frozen(eq=False)
class Rows:
    """Hold what becomes of one record.

    shared: the cells that all its rows have.
    tensors, arguments: the other cells of each.
    """

    shared: Row
    tensors: tuple[Row, ...]
    arguments: tuple[Row, ...]
    record: Row


def rows_of(run: Run, call: Call) -> Rows:
    """Return the rows of one call. One that cannot be read has a row of its own that says so."""
    record = call.record
    shared: Row = {"run": run.label, "record": call.name, "call_order": call.order, "kind": call.kind}
    shared |= {"module": call.path or None, "parent": call.parent, **_named(record)}
    shared |= source_cells(call.line)
    own: Row = {"modules": list(call.modules) or None, "stack": "\n".join(call.stack) or None}
    try:
        found = record.json
    except FormatError as error:
        return Rows(shared, (), (), {**own, "tensors": 0, "arguments": 0, "error": str(error)})
    scalars: Row = {}  # what the record says of itself: its keys that hold no arguments and no results
    if call.kind in ("module", "api") and isinstance(found, dict):
        scalars = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
    tensors: list[Row] = []
    arguments: list[Row] = []
    for keys, value in leaves(found):
        if len(keys) == 1 and keys[0] in scalars:
            continue
        row = {**_place(keys, call), "slot_order": len(tensors) + len(arguments)}
        if is_tensor(value):
            tensors.append({**row, **tensor_cells(value), "file": _file(Tensor(record, keys, value))})
        else:
            arguments.append({**row, **argument_cells(value)})
    known = {key: scalars.pop(key) for key, kind in MARKS.items() if isinstance(scalars.get(key), kind)}
    own |= {"tensors": len(tensors), "arguments": len(arguments), **known}
    if scalars:
        own["extra"] = json_text(scalars)
    return Rows(shared, tuple(tensors), tuple(arguments), own)


def _named(record: Record) -> Row:
    try:
        name = record.parsed
    except FormatError:
        return {}
    if not isinstance(name, ApiName | ModuleName | ParamsGradName):
        return {"call_number": name.count} if isinstance(name, DebugName) else {}
    own = {"api": name.api} if isinstance(name, ApiName) else {"class": name.cls}
    direction = "backward" if isinstance(name, ParamsGradName) else name.direction
    return {"prefix": name.prefix, **own, "call_number": name.count or 0, "direction": direction}


def _file(tensor: Tensor) -> str | None:
    """Return the path of a tensor's file; None where it has none, or where its name leads out of the dump."""
    try:
        path = tensor.file
    except FormatError:
        return None
    return None if path is None else str(path.absolute())


#: The first key of a slot -> the role of what stands there.
_ROLES = {"input": "input", "output": "output"}
_ROLES |= {"input_args": "input", "input_kwargs": "kwarg", "parameters": "parameter", "buffers": "parameter"}


def _place(keys: ValuePath, call: Call) -> Row:
    """Return the cells that say where a value stands. keys: its place in the record, as ``("input_args", 0)``."""
    found: Row = {"slot": path_text(keys)}
    if call.kind == "debug":
        return {**found, "role": "saved", "path": path_text(keys)}
    found |= {"gradient": call.backward, "recompute": False}
    if call.kind in GRADIENTS:
        return {**found, "role": "gradient", "path": path_text(keys[:1])}
    if call.backward:
        found["backward_pass"] = 0
    if keys[:1] == ("recompute",):
        found["recompute"] = True
        keys = keys[1:]
    elif keys[:1] == ("later_passes",) and len(keys) > 1 and isinstance(keys[1], int):
        found["backward_pass"] = keys[1] + 1
        keys = keys[2:]
    role = _ROLES.get(str(keys[0])) if keys else None
    return {**found, "role": role or "other", "path": path_text(keys[1:] if role else keys)}


def leaves(record: Any) -> Iterator[tuple[ValuePath, Any]]:
    """Yield every value below a record with its place, in document order.

    A part of the record that is empty (``"input_args": []``) is no value, an empty list among its arguments is one.
    """
    for path, node in walk(record, is_leaf):
        if len(path) > 1 or not isinstance(node, list | dict) or node:
            yield path, node
            if isinstance(node, dict) and not is_tensor(node):  # it may carry a tensor: torch's P2POp does
                yield from (((*path, *below), tensor) for below, tensor in tensors(node))


_AMOUNTS = ("runs", "records", "tensors", "arguments", "left_out", "too_large", "watched", "unsaved")


@define(eq=False)
class ExportCount:
    """Hold how much was written, and what could not be read.

    filter: only records with this text in their names are written.
    progress: called with (label, records written, records in all).
    amounts, killed, lost, errors: as in `Exported`.
    """

    filter: str
    progress: Progress | None
    amounts: Counter[str] = field(factory=lambda: Counter(dict.fromkeys(_AMOUNTS, 0)))
    killed: list[str] = field(factory=list)
    lost: list[str] = field(factory=list)
    errors: list[tuple[str, str]] = field(factory=list)

    def calls(self, run: Run) -> Iterator[Call]:
        """Yield each call of a run that the filter lets through.

        Raises FormatError, before the first, when the files of the run are damaged.
        """
        total = len(run.calls)
        if run.rank.source == "journal":
            self.killed.append(run.label)
        if run.rank.lost:
            self.lost.append(f"{run.label}: {run.rank.lost}")
        for n, call in enumerate(run.calls):
            if self.progress is not None and n % 256 == 0:
                self.progress(run.label, n, total)
            if self.filter in call.name:
                yield call
            else:
                self.amounts["left_out"] += 1

    def rows(self, run: Run) -> Iterator[Rows]:
        """Yield the rows of each call; without the lines where it was made where these cannot be read.

        run: a copy of the caller's, whose rank has no stacks then. Raises like `calls`.
        """
        try:
            _ = run.rank.stack
        except FormatError as error:
            vars(run.rank)["stack"] = Stack()
            self.errors.append((run.label, f"its records are exported without their stacks: {error}"))
        for call in self.calls(run):
            found = rows_of(run, call)
            self.amounts.update(records=1, tensors=len(found.tensors), arguments=len(found.arguments))
            if "error" in found.record:
                self.errors.append((f"{run.label} {call.name}", found.record["error"]))
            yield found

    def end(self, run: Run) -> str | None:
        """Count a run that was written; return, and note, why it may lack something, None where nothing says so."""
        self.amounts["runs"] += 1
        journal = run.rank.journal
        if journal is not None and journal.state == "damaged":
            why = f"its journal is damaged, so records may be missing ({journal.detail})"
            self.errors.append((run.label, why))
        return next((why for label, why in self.errors if label == run.label), None)
