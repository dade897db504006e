"""Format a dump as text: its records as a tree by module, with shapes and norms (the command ``probe show``)."""

from collections.abc import Iterator

from probe_format.excerpts import brief, text
from probe_format.read.dump import Rank

from .record_text import INDENT, View, caller_line, record_lines

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
    report = rank.report
    if report is None:
        return
    for what, table in report.counts.items():
        if table:
            yield f"{what}: " + ", ".join(f"{count} {key}" for key, count in table.items())
    for item in report.not_seen:
        yield f"not seen: {text(item.get('what'))} ({text(item.get('why'))})"
    for item in report.unmatched:
        nearest = item.get("nearest")
        near = ", ".join(map(text, nearest if isinstance(nearest, list) else ()))
        yield f"matched nothing: {text(item.get('filter'))} {brief(item.get('value'))}" + (
            f"; nearest: {near}" if near else ""
        )
    largest = {norm: name for name, norm in reversed(report.norms)}  # one tensor can have several slots
    for norm, name in reversed(largest.items()):
        yield f"norm {norm:.6g}: {name}"
    if report.first_non_finite is not None:
        first = report.first_non_finite
        where = ".".join(text(part) for part in (first.get("record"), first.get("slot")) if part)
        yield f"first non-finite value: {where} ({text(first.get('why'))})"


def tree(rank: Rank, view: View | None = None) -> Iterator[str]:
    """Yield the lines of the tree. Nodes without a record are shown where something below them is."""
    view = view or View()
    records = rank.records
    parents = rank.construct.with_records(records.names, "forward")
    children: dict[str | None, list[str]] = {None: []}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    if len(records):
        wanted = {record.name for record in records if view.takes(record)}
    else:  # task structure writes construct.json and no records
        wanted = {name for name in parents if view.takes_name(name) and not (view.bad or view.label)}
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
        indent = INDENT * min(depth, _DEEPEST)  # else a deep tree's indentation fills the disk
        below = [child for child in children.get(name, ()) if child in shown]
        if name not in wanted:
            yield indent + name
        elif len(records):
            yield from record_lines(records[name], indent, view)
        else:
            yield indent + name
            yield from caller_line(rank.stack.of(name), indent, view)
        if view.depth is not None and depth + 1 >= view.depth:
            if below:
                yield f"{indent}{INDENT}... {len(below)} inside"
            continue
        todo.extend((child, depth + 1) for child in reversed(below))
