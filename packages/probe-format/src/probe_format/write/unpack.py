"""Make the files of the tensors in packs (spec/layout.md, 2.3), for those who read files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from probe_format import layout
from probe_format.errors import DamagedError, FormatError
from probe_format.read.dump import Rank
from probe_format.safe_files import Folder
from probe_format.tensors.pack import Entry, opened

_PIECE = 1 << 20


def unpack_rank(rank: Rank) -> tuple[int, list[str]]:
    """Make a file of each tensor in a rank's packs, hard links of equal ones, and remove the packs.

    Returns how many, and what is wrong with those of which no file was made; then the packs stay. Each file is whole
    before it takes its name, and the packs go last: it can be ended and run again.

    Raises FormatError where a run may still append to the packs, OSError when a file cannot be written.
    """
    if rank.packed and rank.source == "journal":
        path = rank.path / layout.JOURNAL
        raise FormatError(
            f"{path} is of a run that goes on or was killed. Run 'probe recover' when it has ended."
        )
    damaged: list[str] = []
    firsts: dict[tuple[Path, int], str] = {}
    with Folder(rank.tensor_folder, layout.dump_path_of(rank.path)) as folder:
        for name, entry in rank.packed.items():
            first = firsts.setdefault((entry.path, entry.start), name)
            try:
                if first == name or not _linked(first, name, folder):
                    entry.check()
                    folder.replace(name, _pieces(entry))
            except DamagedError as error:
                damaged.append(str(error))
        for pack in () if damaged else {entry.path.name for entry in rank.packed.values()}:
            folder.remove(pack)
    return len(rank.packed) - len(damaged), damaged


def _linked(first: str, name: str, folder: Folder) -> bool:
    """Return whether a file has got a second name."""
    with suppress(OSError):
        folder.remove(name)
        os.link(first, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
        return True
    return False  # there are no links here


def _pieces(entry: Entry) -> Iterator[bytes]:
    with opened(entry) as file:
        while piece := file.read(_PIECE):
            yield piece
