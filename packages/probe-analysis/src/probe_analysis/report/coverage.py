"""Tell what a run holds and what was not seen, from its report.json."""

from __future__ import annotations

from typing import Any

from probe_format.errors import FormatError
from probe_format.excerpts import text

from probe_analysis.calls.run import Run

_FACTS = ("framework", "level", "task", "tool", "format_version", "checksum")
_FAULTS = "Failures of Probe's own"


def coverage_of(run: Run) -> dict[str, Any]:
    """Return what the page says about how a run was recorded; all of it texts.

    sentence: the most important thing first.
    tables: title -> rows of cells.
    """
    header = run.rank.header
    facts = [[key, _words(header[key])] for key in _FACTS if header.get(key) is not None]
    facts.append(["folder", str(run.rank.path)])
    tables: dict[str, list[list[str]]] = {"The run": facts}
    why = "Nothing says what was not seen: the dump has no report.json (msprobe writes none)."
    try:
        report = run.rank.report
    except FormatError as error:
        report, why = None, f"What was not seen is not known: {error}"
    if run.rank.is_empty:
        why = f"{run.rank.lost}."
    elif run.rank.source == "journal":
        why = "The run did not end: what is here was read from its journal, up to where it stopped."
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
