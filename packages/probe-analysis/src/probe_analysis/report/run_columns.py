"""Turn one run into data of the HTML report: its calls as columns of numbers, and how it was recorded as texts.

How it was recorded is told by one sentence and by tables: what Probe did not see, which filters matched nothing,
where Probe itself failed, how many calls there were. This comes from the header of dump.json and from report.json,
or, where the run did not end, from its journal.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import Factory, define, field, frozen
from probe_format.errors import FormatError
from probe_format.excerpts import text

from probe_analysis.calls.run import Call, Progress, Run, is_own

from .facts import Facts, RecordColumns
from .page import Numbering, whole

_KINDS = {"module": 0, "api": 1, "parameters_grad": 2, "optimizer_grad": 2, "debug": 3}
_NO_RECORD = 4
#: The columns of the lines of the tree.
_COLUMNS = ("name", "parent", "backward", "kind", "order", "stack", "note", "arguments", "begin")


@frozen(eq=False)
class TreeLine:
    """Hold a line of the tree.

    call: what was recorded; None for a call that was seen and left out.
    parent: the place of the call around it among the nodes; -1 at the top.
    """

    name: str
    call: Call | None
    parent: int


def _nodes(run: Run) -> list[TreeLine]:
    parents = run.rank.construct.with_records(run.by_name, "backward", "forward")
    places: dict[str | None, int] = {None: -1, **{name: i for i, name in enumerate(parents)}}
    return [TreeLine(name, run.by_name.get(name), places[parent]) for name, parent in parents.items()]


@frozen(eq=False)
class RunColumns:
    """Hold one run as the page has it.

    number: of the run among those of the page. nodes: the lines of its tree. places: name of a line -> its number.
    """

    run: Run
    number: int
    nodes: list[TreeLine]
    places: dict[str, int]
    document: dict[str, Any]


@define(eq=False)
class Writer:
    """Write runs for one page, which share texts, descriptions of tensors, and stacks."""

    texts: Numbering = field(factory=lambda: Numbering({"": 0}))
    facts: Facts = field(default=Factory(lambda self: Facts(self.texts), takes_self=True))
    stacks: list[dict[str, Any]] = field(factory=lambda: [{"frames": [], "own": -1}])
    _stack_numbers: Numbering = field(factory=lambda: Numbering({(): 0}), repr=False)

    def run(self, records: RecordColumns, number: int, dump: int, progress: Progress | None) -> RunColumns:
        """Return a run as columns.

        records: those that were read; the others are read now.
        number: of the run, among those of the page.
        dump: 0 for the first dump, 1 for the second.
        Raises FormatError when a file of the run is damaged; a damaged record alone is said in its place.
        """
        run = records.lookout.run
        nodes = _nodes(run)
        rows = []
        order = array("q")  # the tensors of the columns of records, as they come in the tree
        for i, node in enumerate(nodes):
            call = node.call
            kind, at = (_NO_RECORD, -1) if call is None else (_KINDS[call.kind], call.order)
            backward = ".backward" in node.name if call is None else call.backward
            begin, end, note, argument = records.of(node.name, call)
            name, stack = self.texts[node.name], self._stack(run, node)
            rows.append((name, node.parent, backward, kind, at, stack, note, argument, len(order)))
            order.extend(range(begin, end))
            if progress is not None and i % 512 == 511:
                progress(run.label, i + 1, len(nodes))
        columns: list[Sequence[int]] = [*zip(*rows, strict=True)] or [()] * len(_COLUMNS)
        places = np.asarray(order)
        tensors = (("slot", records.slots), ("side", records.sides), ("fact", records.facts))
        document: dict[str, Any] = {
            "dump": dump,
            "label": run.label,
            "step": run.rank.step,
            "rank": run.rank.number,
            "mode": run.rank.mode,
            **{key: whole(column) for key, column in zip(_COLUMNS, columns, strict=True)},
            **{key: whole(np.asarray(column)[places]) for key, column in tensors},
        }
        document["coverage"] = _coverage_of(run)
        document["begin"] = whole([*columns[-1], len(order)])
        return RunColumns(run, number, nodes, {node.name: i for i, node in enumerate(nodes)}, document)

    def _stack(self, run: Run, node: TreeLine) -> int:
        frames = run.rank.stack.of(node.name) if node.call is None else node.call.stack
        found = self._stack_numbers[frames]
        if found == len(self.stacks):
            own = next((i for i, frame in enumerate(frames) if is_own(frame)), -1)
            plain = [self.texts[" ".join(frame.split())] for frame in frames]
            self.stacks.append({"frames": plain, "own": own})
        return found


_FACTS = ("framework", "level", "task", "tool", "format_version", "checksum")
_FAULTS = "Failures of Probe's own"


def _coverage_of(run: Run) -> dict[str, Any]:
    """Return what the page says about how a run was recorded; all of it texts.

    sentence: the most important thing first.
    tables: title -> rows of cells.
    """
    header = run.rank.header
    facts = [[key, _words(header[key])] for key in _FACTS if header.get(key) is not None]
    facts.append(["folder", str(run.rank.path)])
    tables: dict[str, list[list[str]]] = {"The run": facts}
    report, why = _report_of(run)
    faults = [
        [text(item.get("where")), text(item.get("message")), f"{text(item.get('count'))} times"]
        for item in (run.rank.faults if report is not None or run.rank.source == "journal" else ())
    ]
    if report is None or run.rank.source == "journal":
        tables |= {_FAULTS: faults} if faults else {}
        return {"sentence": why, "tables": tables}
    for key, value in (("state", report.state), ("started", report.started), ("ended", report.ended)):
        if value:
            facts.append([key, value])
    tables["Not seen"] = [[text(item.get("what")), text(item.get("why"))] for item in report.not_seen]
    tables["Filters that matched nothing"] = [
        [text(item.get("filter")), _words(item.get("value")), f"nearest: {_list(item.get('nearest'))}"]
        for item in report.unmatched
    ]
    tables[_FAULTS] = faults
    missing = report.document.get("missing", {})
    tables["Functions that were not watched"] = [[text(what), text(why)] for what, why in missing.items()]
    counts = ((kind, each) for kind, table in report.counts.items() for each in table.items())
    tables["Counts"] = [[kind, what, str(count)] for kind, (what, count) in counts]
    return {"sentence": _sentence(report.counts, tables), "tables": {k: v for k, v in tables.items() if v}}


def _report_of(run: Run) -> tuple[Any, str]:
    """Return what report.json holds, None without one, and why there is none that counts."""
    report, why = None, "Nothing says what was not seen: the dump has no report.json (msprobe writes none)."
    try:
        report = run.rank.report
    except FormatError as error:
        why = f"What was not seen is not known: {error}"
    if run.rank.is_empty:
        why = f"{run.rank.lost}."
    elif run.rank.source == "journal":
        why = "The run did not end: what is here was read from its journal, up to where it stopped."
    return report, why


def _sentence(counts: Any, tables: dict[str, list[list[str]]]) -> str:
    calls = ("calls", "modules")
    seen, recorded = (sum(counts.get(key, {}).get(kind, 0) for kind in calls) for key in ("seen", "recorded"))
    filtered = sum(counts.get("filtered", {}).values())
    parts = [f"{recorded} of {seen} calls that were seen are recorded"]
    if filtered:
        parts.append(f"{filtered} were left out by filters")
    unseen, faults = len(tables["Not seen"]), len(tables[_FAULTS])
    parts.append(f"{unseen} {'thing' if unseen == 1 else 'things'} could not be seen at all")
    if faults:
        parts.append(f"Probe itself failed in {faults} {'place' if faults == 1 else 'places'}")
    return f"{'; '.join(parts)}."


def _words(value: Any) -> str:
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, dict):
        return " ".join(_words(each) for each in value.values())
    return text(value)


def _list(value: Any) -> str:
    return ", ".join(map(text, value)) if isinstance(value, list) and value else "nothing"
