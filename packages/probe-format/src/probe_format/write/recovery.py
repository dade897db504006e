"""Write a killed run's JSON files from its journal (spec/journal.md)."""

import functools
from pathlib import Path
from typing import Literal

from attrs import evolve, frozen

from probe_format import layout
from probe_format.errors import FormatError, TooLargeError
from probe_format.journal.reading import read_journal
from probe_format.plain_files import in_memory, refuse_link
from probe_format.read.dump import Rank, journal_fold, known_forms, open
from probe_format.safe_files import Folder

from .documents import write_pages


@frozen
class Recovery:
    """Describe the recovery of one rank.

    outcome: ``whole`` (every event that the run had written is in the files now); ``partial`` (the journal
    is damaged: ``detail`` says what is lost); ``nothing`` (there was nothing to do, or nothing to recover from).
    """

    path: Path
    step: int | None
    rank: int | None
    outcome: Literal["whole", "partial", "nothing"]
    detail: str
    records: int = 0
    tensors: int = 0


def recover(path: str | Path) -> tuple[Recovery, ...]:
    """Recover each rank at or below ``path``.

    Writes dump.json, stack.json, construct.json and report.json, each by renaming a complete file. The
    journal stays where it is, so recovering once more gives the same.

    Raises FormatError when there is no dump, or too little memory, OSError when the files cannot be written.
    """
    return tuple(recover_rank(rank) for rank in open(path).ranks)


def recover_rank(rank: Rank) -> Recovery:
    """Recover one rank."""
    try:
        return _recovered(rank)
    except TooLargeError:
        raise
    except FormatError as error:
        return Recovery(rank.path, rank.step, rank.number, "nothing", str(error))


def _recovered(rank: Rank) -> Recovery:
    result = functools.partial(Recovery, rank.path, rank.step, rank.number)
    path = rank.path / layout.JOURNAL
    if not path.is_file():
        ended = "the step ended, or msprobe wrote the dump"
        why = "the run ended before its first record" if rank.is_empty else ended
        return result("nothing", f"There is no journal: {why}.")
    if rank.source == "files" and rank.report is not None and rank.report.state == "complete":
        return result("nothing", "The files are complete and hold everything in the journal.")
    refuse_link(path)
    with in_memory(path):
        contents = read_journal(path)
        pages = journal_fold(contents, rank.path, records=False).pages()
    if contents.is_empty:
        return result("nothing", "The journal holds no record: the run ended before its first one.")
    detail = f"The run was cut off: {contents.detail}." if contents.detail else "The journal is whole."
    outcome: Literal["whole", "partial"] = "whole"
    if contents.state == "damaged":
        detail = f"The journal is damaged, and what was there is lost: {contents.detail}."
        if not contents.events:
            return result("nothing", detail)
        outcome = "partial"
        fault = {"where": layout.JOURNAL, "message": detail, "count": 1}
        pages = evolve(pages, faults=[*pages.faults, fault])
    # The journal's last summary is from the last stop() and lacks later records: it is counted anew.
    coverage = {key: value for key, value in pages.coverage.items() if key != "summary"}
    pages = evolve(pages, coverage=coverage)
    # The files cover the torn tail too: it was read, and holds no event.
    with Folder(rank.path, layout.dump_path_of(rank.path)) as folder, in_memory(path), known_forms(rank.path):
        report = write_pages(folder, pages, state="recovered", journal_bytes=contents.file_bytes)
    return result(outcome, detail, report["records"], report["tensors"])
