"""Write a killed run's JSON files from its journal (spec/journal.md), and make a file of each tensor in a rank's
packs (spec/layout.md, 2.3).
"""

import functools
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from attrs import evolve, frozen

from probe_format import layout
from probe_format.errors import DamagedError, FormatError, TooLargeError
from probe_format.journal.reading import read_journal
from probe_format.plain_files import in_memory, is_file, refuse_link
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


def unpack_rank(rank: Rank) -> tuple[int, list[str]]:
    """Make a file of each tensor in a rank's packs, hard links where contents are equal, and remove the packs.

    Return how many files were made, and what is wrong with the rest: entries that were changed, tensors of records
    that are neither in a pack nor a file, records that cannot be read, and packs with bytes between their entries
    that are no entry. Where anything is wrong, the packs stay. An entry that a kill left torn at a pack's end is lost
    with the pack: no record has it.

    Each file is whole before it takes its name, and the packs are removed last: this can be killed and run again.

    Raises FormatError where a run may still append to the packs, OSError when a file cannot be written.
    """
    rank = evolve(rank, file=None)  # the packs hold what all its documents name
    path = rank.path / layout.JOURNAL
    if path.is_file() and (rank.source == "journal" or (rank.report and rank.report.state == "open")):
        if not rank.packed:
            return 0, []
        raise FormatError(
            f"{path} is of a run that goes on or was killed. Run 'probe recover' when it has ended."
        )
    from probe_format.tensors.pack import has_gap, packs  # only here: no other command needs them

    there = packs(rank.tensor_folder)
    if not there:
        return 0, []
    damaged = [f"{pack} has bytes between its entries that are none." for pack in there if has_gap(pack)]
    wanted = _wanted(rank, damaged)
    made = 0
    firsts: dict[tuple[Path, int], str] = {}
    with Folder(rank.tensor_folder, layout.dump_path_of(rank.path)) as folder:
        for name, entry in rank.packed.items():
            place, crc = (entry.path, entry.start), wanted.get(name)
            try:
                is_same = place in firsts and crc in (None, f"{entry.crc:08x}")
                if not (is_same and _linked(firsts[place], name, folder)):
                    entry.check(crc)
                    folder.replace(name, entry.pieces())
                    firsts[place] = name
                made += 1
            except DamagedError as error:
                damaged.append(str(error))
        for pack in () if damaged else there:
            folder.remove(pack.name)
    return made, damaged


def _wanted(rank: Rank, damaged: list[str]) -> dict[str, Any]:
    """Return the ``data_crc32`` of the records' tensor files by their names. Adds to ``damaged`` what is missing."""
    found: dict[str, Any] = {}
    for record in rank.records:
        try:
            for tensor in record.tensors:
                place = tensor.place
                if place is None:
                    continue
                found[place.name] = tensor.json.get("data_crc32")
                if isinstance(place, Path) and not is_file(place):
                    damaged.append(f"{tensor.name}: its file {place} is missing, and no pack has it whole.")
        except FormatError as error:
            damaged.append(str(error))
    return found


def _linked(first: str, name: str, folder: Folder) -> bool:
    with suppress(OSError):
        folder.remove(name)
        os.link(first, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
        return True
    return False  # there are no links here
