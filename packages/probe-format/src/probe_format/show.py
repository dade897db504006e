"""A dump as text: its records as a tree by module, with shapes and norms (the command ``probe show``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from attrs import frozen

from .errors import FormatError
from .names import ModuleName, ParamsGradName, is_name, parse_name
from .read import Rank, Record, Tensor

__all__ = ["View", "heading", "summary", "tree"]

_INDENT = "  "
_WIDTH = 28


@frozen
class View:
    """What to show.

    text: only records with this in their name. level: only modules (``L0``) or only API calls (``L1``).
    depth: levels of nesting, None for all. bad: only records that hold something not finite. brief: names
    without their tensors. stack: with the caller's line.
    """

    text: str = ""
    level: Literal["L0", "L1"] | None = None
    depth: int | None = None
    bad: bool = False
    brief: bool = False
    stack: bool = False

    def takes(self, record: Record) -> bool:
        """Whether a record is shown in its own right, rather than as the parent of one."""
        if self.text not in record.name:
            return False
        if self.level is not None and self.level != _level(record.name):
            return False
        return not self.bad or any(tensor.non_finite for tensor in record.tensors)


def heading(rank: Rank) -> str:
    """One line: which step and rank, what made the dump, how it ended."""
    header = rank.header
    facts = [str(header[key]) for key in ("framework", "level", "task") if header.get(key) is not None]
    state = "interrupted: run 'probe recover'" if rank.source == "journal" else ""
    if not state and rank.report is not None:
        state = rank.report.state
    where = "/".join(rank.path.parts[-2:])
    return f"{where}: {', '.join([*facts, f'{len(rank.records)} records', *([state] if state else [])])}"


def summary(rank: Rank) -> Iterator[str]:
    """What the report says: counts, what was not seen, the largest norms, the first non-finite value."""
    report = rank.report
    if report is None:
        return
    for what, table in report.counts.items():
        if table:
            yield f"{what}: " + ", ".join(f"{count} {key}" for key, count in table.items())
    for item in report.not_seen:
        yield f"not seen: {item.get('what')} ({item.get('why')})"
    for item in report.unmatched:
        near = ", ".join(map(str, item.get("nearest") or ()))
        yield f"matched nothing: {item.get('filter')} {item.get('value')!r}" + (
            f"; nearest: {near}" if near else ""
        )
    for item in report.faults:
        yield f"fault: {item.get('where')}: {item.get('message')} ({item.get('count')} times)"
    for name, norm in report.norms:
        yield f"norm {norm:.6g}: {name}"
    if report.first_non_finite is not None:
        first = report.first_non_finite
        where = ".".join(str(part) for part in (first.get("record"), first.get("slot")) if part)
        yield f"first non-finite value: {where} ({first.get('why')})"


def tree(rank: Rank, view: View | None = None) -> Iterator[str]:
    """The lines of the tree. Nodes without a record are shown where something below them is."""
    view = view or View()
    records = rank.records
    children, parents = _family(rank)
    wanted = {record.name for record in records if view.takes(record)}
    shown = set(wanted)
    for name in wanted:
        above = parents.get(name)
        while above is not None and above not in shown:
            shown.add(above)
            above = parents.get(above)
    todo = [(name, 0) for name in reversed(children[None])]
    while todo:
        name, depth = todo.pop()
        if name not in shown:
            continue
        indent = _INDENT * depth
        below = [child for child in children.get(name, ()) if child in shown]
        if name not in wanted:
            yield indent + name
        else:
            yield from _lines(records[name], indent, view)
        if view.depth is not None and depth + 1 >= view.depth:
            if below:
                yield f"{indent}{_INDENT}... {len(below)} inside"
            continue
        todo.extend((child, depth + 1) for child in reversed(below))


def _family(rank: Rank) -> tuple[dict[str | None, list[str]], dict[str, str | None]]:
    """Children and parent of each node and record, also of the records that construct.json does not have."""
    nodes = rank.construct.parents
    parents = {name: parent if parent in nodes else None for name, parent in nodes.items()}
    for name in rank.records.names:
        if name not in parents:
            parents[name] = _owner(name, nodes)
    for name in _unreachable(parents):
        parents[name] = None
    children: dict[str | None, list[str]] = {None: []}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    return children, parents


def _unreachable(parents: dict[str, str | None]) -> list[str]:
    """The first node of each circle in a damaged construct.json: cutting there lets all be reached."""
    done: set[str] = set()
    cut: list[str] = []
    for name in parents:
        trail: set[str] = set()
        node: str | None = name
        while node is not None and node not in done and node not in trail:
            trail.add(node)
            node = parents[node]
        if node in trail and node is not None:
            cut.append(node)
        done |= trail
    return cut


def _owner(name: str, nodes: Any) -> str | None:
    """The module call that parameter gradients are shown under: the first."""
    parsed = parse_name(name) if is_name(name) else None
    if isinstance(parsed, ParamsGradName):
        first = str(ModuleName(parsed.prefix, parsed.path, parsed.cls, "forward", 0))
        return first if first in nodes else None
    return None


def _level(name: str) -> str:
    parsed = parse_name(name) if is_name(name) else None
    return "L0" if isinstance(parsed, ModuleName | ParamsGradName) else "L1"


def _lines(record: Record, indent: str, view: View) -> Iterator[str]:
    tensors = record.tensors
    bad = any(tensor.non_finite for tensor in tensors)
    yield f"{indent}{record.name}{_marks(record.json)}{'  NOT FINITE' if bad and view.brief else ''}"
    if view.stack and record.stack:
        yield f"{indent}{_INDENT}@ {_caller(record.stack)}"
    if not view.brief:
        for tensor in tensors:
            yield f"{indent}{_INDENT}{_tensor(tensor)}"


def _caller(stack: tuple[str, ...]) -> str:
    """The innermost frame that is not inside an installed package."""
    own = [frame for frame in stack if "site-packages" not in frame and "dist-packages" not in frame]
    return " ".join((own or stack)[0].split())


def _marks(record: Any) -> str:
    if not isinstance(record, dict):
        return ""
    found = [
        key
        for key in ("incomplete", "in_backward", "recompute", "is_recompute", "partial")
        if record.get(key)
    ]
    if isinstance(record.get("raised"), str):
        found.append(f"raised {record['raised']}")
    return f"  [{', '.join(found)}]" if found else ""


def _tensor(tensor: Tensor) -> str:
    try:
        shape = ",".join(map(str, tensor.shape))
    except FormatError:
        shape = "?"
    kind = f"{tensor.dtype.removeprefix('torch.')}[{shape}]"
    parts = [f"{tensor.slot or 'value':<{_WIDTH}} {kind:<{_WIDTH}} norm {_number(tensor.norm)}"]
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
