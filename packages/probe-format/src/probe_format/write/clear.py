"""Remove a dump as the configuration asks: an earlier one (key `overwrite`), or a step not kept (`keep`)."""

import contextlib
import errno
import os
import re
from pathlib import Path

from probe_format.layout import CONSTRUCT, DEBUG, DUMP, ERRORS, JOURNAL, REPORT, STACK, TENSORS, dump_path_of
from probe_format.safe_files import Folder

from .claim import held_report

_OWN = {DUMP, STACK, CONSTRUCT, DEBUG, REPORT, JOURNAL, ERRORS}
_REMOVED = ".removed-"  # before the name of a rank's folder: no reader takes it for a rank's then


def clear(directory: Path) -> None:
    """Remove an earlier dump: its own files only, so that no stale tensor file stays.

    Raises OSError when the directory, or its dump_tensor_data, is a link: Probe makes no dump behind one.
    """
    is_tensor = re.compile(r".*\.(pt|npy|pack)", re.DOTALL).fullmatch
    for path, wanted in ((directory / TENSORS, is_tensor), (directory, _OWN.__contains__)):
        with Folder(path, dump_path_of(directory)) as folder, contextlib.suppress(FileNotFoundError):
            for name in filter(wanted, os.listdir(folder.fd)):
                folder.remove(name)


def discard(directory: Path, inode: tuple[int, int]) -> None:
    """Remove the folder of a rank in a step, with the dump in it, and that of the step where nothing else is in it.

    It is renamed first, so that a reader finds all of it or nothing whenever the process ends (spec/layout.md). Where
    it has files of somebody else, it stays, with these.

    inode: the folder's device and inode: nothing is done where another folder has its name by now.

    Raises OSError when it cannot be removed.
    """
    step = Folder(directory.parent, dump_path_of(directory))
    removed = directory.with_name(f"{_REMOVED}{directory.name}")
    with step, contextlib.suppress(FileNotFoundError):
        found = os.stat(directory.name, dir_fd=step.fd, follow_symlinks=False)
        if (found.st_dev, found.st_ino) != inode:
            return
        _empty(removed, step)  # what a killed process may have left
        with held_report(directory):
            os.rename(directory.name, removed.name, src_dir_fd=step.fd, dst_dir_fd=step.fd)
        if not _empty(removed, step):
            os.rename(removed.name, directory.name, src_dir_fd=step.fd, dst_dir_fd=step.fd)
        elif step.path.parent == dump_path_of(directory):
            with contextlib.suppress(OSError):  # other ranks are in it
                os.rmdir(step.path)


def _empty(directory: Path, above: Folder) -> bool:
    """Remove a dump and its folder, if it is there. Return whether it is gone: no file of somebody else was in it."""
    try:
        clear(directory)
        with contextlib.suppress(FileNotFoundError), Folder(directory, above.path) as folder:
            os.rmdir(TENSORS, dir_fd=folder.fd)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(directory.name, dir_fd=above.fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
