"""Make a file of each tensor in a rank's packs, as msprobe has them, and remove the packs (spec/layout.md, 2.3).

A pack is one file that holds what would be many tensor files.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import evolve

from probe_format import layout
from probe_format.errors import DamagedError, FormatError
from probe_format.plain_files import is_file
from probe_format.read.dump import Rank
from probe_format.safe_files import Folder
from probe_format.tensors.pack import has_gap, packs


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
    there = packs(rank.tensor_folder)
    if not there or rank.is_empty:
        return 0, []
    if path.is_file() and (rank.source == "journal" or (rank.report and rank.report.state == "open")):
        raise FormatError(
            f"{path} is of a run that goes on or was killed. Run 'probe recover' when it has ended."
        )
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
