"""Count what an export writes and leaves out, and pass its progress on."""

from collections import Counter
from collections.abc import Iterator

from attrs import define, field

from probe_analysis.calls.run import Progress, Run

from .rows import Rows, rows_of

_AMOUNTS = ("runs", "records", "tensors", "arguments", "left_out", "too_large", "watched")


@define(eq=False)
class Count:
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

    def rows(self, run: Run) -> Iterator[Rows]:
        """Yield the rows of each call of a run that the filter lets through.

        Raises FormatError, before the first, when the files of the run are damaged.
        """
        total = len(run.calls)
        _ = run.rank.stack  # which is damaged now, or never
        if run.rank.source == "journal":
            self.killed.append(run.label)
        if run.rank.lost:
            self.lost.append(f"{run.label}: {run.rank.lost}")
        for n, call in enumerate(run.calls):
            if self.progress is not None and n % 256 == 0:
                self.progress(run.label, n, total)
            if self.filter not in call.name:
                self.amounts["left_out"] += 1
                continue
            found = rows_of(run, call)
            self.amounts.update(records=1, tensors=len(found.tensors), arguments=len(found.arguments))
            if "error" in found.record:
                self.errors.append((f"{run.label} {call.name}", found.record["error"]))
            yield found

    def end(self, run: Run) -> str | None:
        """Count a run that was written; return, and note, why it may lack records, None where nothing says so."""
        self.amounts["runs"] += 1
        journal = run.rank.journal
        if journal is None or journal.state != "damaged":
            return None
        why = f"its journal is damaged, so records may be missing ({journal.detail})"
        self.errors.append((run.label, why))
        return why
