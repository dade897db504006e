"""Format a dump as text, or those of its records that are chosen: a tree by module, with shapes and norms."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from probe_format.excerpts import brief, cut, text
from probe_format.jsonio import dumps
from probe_format.names import ModuleName, ParamsGradName, parsed
from probe_format.own_code import FRAMEWORKS, OWN_MODULES
from probe_format.read.dump import Rank
from probe_format.read.record import Record
from probe_format.read.tensor import Tensor
from probe_format.schema.form import path_text
from probe_format.schema.report import Report
from probe_format.schema.tensor_objects import others, why_lost
from probe_format.values import ValuePath, plain


@frozen
class Shown:
    """Select what `summary` and `tree` show.

    filter: only records with this in their name.
    label: only records of calls with this label.
    level: only modules (``L0``) or only API calls (``L1``).
    depth: levels of nesting, None for all.
    bad: only records with a value that is not finite.
    brief: names without their tensors.
    stack: with the caller's line.
    full: with max and min, and with arguments that are not tensors.
    """

    filter: str = ""
    label: str | None = None
    level: Literal["L0", "L1"] | None = None
    depth: int | None = None
    bad: bool = False
    brief: bool = False
    stack: bool = False
    full: bool = False

    def takes(self, record: Record) -> bool:
        """Return whether a record is shown for itself, rather than only as the parent of one that is."""
        return (
            self.takes_name(record.name)
            and (self.label is None or record.label == self.label)
            and (not self.bad or any(tensor.non_finite for tensor in record.tensors))
        )

    def takes_name(self, name: str) -> bool:
        """Return whether the name alone allows the record to be shown."""
        level = "L0" if isinstance(parsed(name), ModuleName | ParamsGradName) else "L1"
        return self.filter in name and self.level in (None, level)


INDENT = "  "
_WIDTH = 28
_LONGEST = 200


def _record_lines(record: Record, indent: str, view: Shown) -> Iterator[str]:
    tensors = record.tensors
    bad = any(tensor.non_finite for tensor in tensors)
    yield f"{indent}{record.name}{_marks(record)}{'  NOT FINITE' if bad and view.brief else ''}"
    yield from _caller_line(record.stack, indent, view)
    if view.brief:
        return
    for tensor in tensors:
        yield f"{indent}{INDENT}{_full(tensor) if view.full else _tensor(tensor)}"
    lost = record.rank.lost.of(record.name)
    for loss in lost:
        yield f"{indent}{INDENT}{loss.slot or 'value':<{_WIDTH}} {'lost':<{_WIDTH}} {text(loss.why)}"
    if view.full:
        for keys, leaf in others(record.json):
            mark = len(keys) == 1  # of the record, not a part of it
            if not mark and not why_lost(leaf):
                yield f"{indent}{INDENT}{_scalar(keys, leaf)}"


def _caller_line(stack: tuple[str, ...], indent: str, view: Shown) -> Iterator[str]:
    if view.stack and stack:
        # The innermost frame outside the framework and Probe, also in an installed model package.
        frame = next((frame for frame in stack if not _MACHINERY.match(frame)), stack[0])
        yield f"{indent}{INDENT}@ {' '.join(frame.split())}"


_MACHINERY = re.compile(
    r"File (?:[^,]*/)?(?:"
    rf"(?:site|dist)-packages/(?:{'|'.join((*FRAMEWORKS, *OWN_MODULES))})/"
    r"|lib/python3\.\d+/(?:contextlib|functools|threading)\.py)"
)


def _marks(record: Record) -> str:
    values = record.json if isinstance(record.json, dict) else {}
    keys = ("incomplete", "in_backward", "recompute", "is_recompute", "partial")
    found = [key for key in keys if values.get(key)]
    found += [f"{key} {values[key]}" for key in ("raised", "label") if isinstance(values.get(key), str)]
    if lost := record.rank.lost.of(record.name):
        found.append(f"{len(lost)} lost")
    return f"  [{', '.join(found)}]" if found else ""


def _scalar(path: ValuePath, leaf: Any) -> str:
    """Format a value that is not a tensor on one line: its path, type and value, or why it has no value."""
    kind, value = "None", leaf
    if isinstance(leaf, dict):
        kind = str(leaf.get("type", ""))
        value = plain(leaf) if "value" in leaf else {k: v for k, v in leaf.items() if k != "type"}
        if "unsupported" in leaf:
            value = f"not recorded: {text(leaf['unsupported'])}"
    try:
        words = value if isinstance(value, str) else dumps(value).decode()
    except (TypeError, ValueError, RecursionError):  # damaged: nested deeper than any writer does
        words = brief(value)
    shown = "" if leaf is None else cut(" ".join(words.split()), _LONGEST + 3)
    return f"{path_text(path) or 'value':<{_WIDTH}} {kind:<{_WIDTH}} {shown}".rstrip()


def _tensor(tensor: Tensor) -> str:
    """Format a tensor on one line for comparing: shape, mean and norm to six digits, checksum if any."""
    numbers = f"mean {_number(tensor.mean):<13} norm {_number(tensor.norm)}"
    return _line(tensor, numbers if tensor.checksum is None or tensor.norm is not None else "")


def _full(tensor: Tensor) -> str:
    keys = (("max", tensor.max), ("min", tensor.min), ("mean", tensor.mean), ("norm", tensor.norm))
    numbers = [f"{key} {'-' if value is None else value}" for key, value in keys]
    grad = [] if tensor.requires_grad is None else [f"requires_grad {str(tensor.requires_grad).lower()}"]
    file = tensor.json.get("data_name")
    return _line(tensor, "  ".join([*numbers, *grad, *([f"file {text(file)}"] if file else [])]))


def _line(tensor: Tensor, numbers: str) -> str:
    shape = ",".join(map(str, tensor.shape))
    kind = f"{tensor.dtype.removeprefix('torch.')}[{shape}]"
    parts = [f"{tensor.slot or 'value':<{_WIDTH}} {kind:<{_WIDTH}} {numbers}".rstrip()]
    if tensor.checksum is not None:
        parts.append(f"checksum {tensor.checksum}")
    if isinstance(tensor.json.get("unsupported"), str):
        parts.append(f"no numbers: {tensor.json['unsupported']}")
    if tensor.shared_with:
        parts.append(f"one sum with {', '.join(tensor.shared_with)}")
    if tensor.non_finite:
        parts.append(f"NOT FINITE: {tensor.non_finite}")
    return "  ".join(parts)


def _number(value: float | int | bool | None) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)


_DEEPEST = 100
#: How many labels a rank's first lines name.
_LABELS = 10


def heading(rank: Rank) -> str:
    """Return one line: step and rank, what made the dump, and how the run ended."""
    header = rank.header
    amount = f"{len(rank.records)} records"
    if not len(rank.records) and rank.construct.parents:
        amount = f"{len(rank.construct.parents)} nodes, no values"
    facts = [text(header[key]) for key in ("framework", "level", "task") if header.get(key) is not None]
    state = "interrupted: run 'probe recover'" if rank.source == "journal" and not rank.is_empty else ""
    if not state and rank.report is not None:
        state = rank.report.state
    return f"{rank.label}: {', '.join([*facts, amount, *([state] if state else [])])}"


def summary(rank: Rank) -> Iterator[str]:
    """Yield what is lost, and the report's lines: counts, what was not seen, largest norms, first non-finite value."""
    if rank.lost:
        yield str(rank.lost)
    if labels := rank.labels:
        more = f", and {len(labels) - _LABELS} more" if len(labels) > _LABELS else ""
        yield f"labels: {', '.join(map(text, labels[:_LABELS]))}{more}"
    for item in rank.faults:
        yield f"fault: {text(item.get('where'))}: {text(item.get('message'))} ({text(item.get('count'))} times)"
    if rank.report is not None:
        yield from _report_lines(rank.report)


def _report_lines(report: Report) -> Iterator[str]:
    for what, table in report.counts.items():
        if table:
            yield f"{what}: " + ", ".join(f"{count} {key}" for key, count in table.items())
    for item in report.not_seen:
        yield f"not seen: {text(item.get('what'))} ({text(item.get('why'))})"
    for item in report.unmatched:
        nearest = item.get("nearest")
        near = ", ".join(map(text, nearest if isinstance(nearest, list) else ()))
        what = f"{text(item.get('filter'))} {brief(item.get('value'))}"
        yield f"matched nothing: {what}" + (f"; nearest: {near}" if near else "")
    if report.export is not None and report.export.get("why"):
        yield f"not exported to {text(report.export.get('to'))}: {text(report.export['why'])}"
    largest = {norm: name for name, norm in reversed(report.norms)}  # one tensor can have several slots
    for norm, name in reversed(largest.items()):
        yield f"norm {norm:.6g}: {name}"
    if report.first_non_finite is not None:
        first = report.first_non_finite
        where = ".".join(text(part) for part in (first.get("record"), first.get("slot")) if part)
        yield f"first non-finite value: {where} ({text(first.get('why'))})"


def _with_those_above(names: set[str], parents: Mapping[str, str | None]) -> set[str]:
    found: set[str] = set()
    for name in names:
        above: str | None = name
        while above is not None and above not in found:
            found.add(above)
            above = parents.get(above)
    return found


def _wanted(rank: Rank, view: Shown, parents: Mapping[str, str | None]) -> set[str]:
    if len(rank.records):
        return {record.name for record in rank.records if view.takes(record)}
    # Task structure writes construct.json and no records.
    return {name for name in parents if view.takes_name(name) and not (view.bad or view.label)}


def tree(rank: Rank, view: Shown | None = None) -> Iterator[str]:
    """Yield the lines of the tree. Nodes without a record are shown where something below them is."""
    view = view or Shown()
    records = rank.records
    parents = rank.construct.with_records(records.names, "forward")
    children: dict[str | None, list[str]] = defaultdict(list)
    for name, parent in parents.items():
        children[parent].append(name)
    wanted = _wanted(rank, view, parents)
    shown = _with_those_above(wanted, parents)
    todo = [(name, 0) for name in reversed(children[None])]
    while todo:
        name, depth = todo.pop()
        if name not in shown:
            continue
        indent = INDENT * min(depth, _DEEPEST)  # else a deep tree's indentation fills the disk
        below = [child for child in children[name] if child in shown]
        if name in wanted and len(records):
            yield from _record_lines(records[name], indent, view)
        else:
            yield indent + name
            yield from _caller_line(rank.stack.of(name) if name in wanted else (), indent, view)
        if view.depth is not None and depth + 1 >= view.depth:
            if below:
                yield f"{indent}{INDENT}... {len(below)} inside"
            continue
        todo.extend((child, depth + 1) for child in reversed(below))
