"""Check whether a dump can be written to a directory, and say in plain words why not, why a step ended early, and
what is left of that step.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path

from probe_format import layout
from probe_format.excerpts import error_text, from_signal
from probe_format.safe_files import make_folder


class NoRoom(OSError):
    """A limit that the user has set has no room for a write."""


def check_writable(path: Path, need: int = 1 << 20) -> str | None:
    """Return why nothing can be dumped below ``path``, and what to do; None when it can.

    Tries it: makes the directory, and in it a file that is removed again.

    need: bytes that must be free.
    """
    try:
        make_folder(path)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
            file.flush()
        if shutil.disk_usage(path).free < need:
            raise OSError(errno.ENOSPC, "full")
    except OSError as error:
        return explain(error, path)
    return None


def explain(error: OSError, path: Path) -> str:
    """Return one sentence for a failed write below ``path``: what is wrong, and what to do."""
    other = "choose another dump_path"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"dump_path {path}: {_full(error, path)}. Free some space, or {other}."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"dump_path {path}: no permission to write there. Change its permissions, or {other}."
    if error.errno == errno.EROFS:
        return f"dump_path {path}: the file system is read-only. Please {other}."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        where = Path(error.filename or path)
        what = next((p for p in (where, *where.parents) if os.path.exists(p) and not os.path.isdir(p)), where)
        return f"dump_path {path}: {what} is a file, not a directory. Remove it, or {other}."
    if error.errno == errno.ENAMETOOLONG:
        return f"dump_path {path}: the path is too long for this file system. Please {other}."
    if error.errno == errno.ELOOP:
        what = error.filename or path
        return f"dump_path {path}: {what} is a link, and Probe writes through none below it. Remove it, or {other}."
    if error.errno == errno.EMFILE:
        return f"dump_path {path}: this process has too many files open. Raise the limit (ulimit -n)."
    return f"dump_path {path}: {error.strerror or error}. Please {other}."


def reason(error: Exception, path: Path, told: str) -> str:
    """Return one sentence on what ended a step below ``path``: what the machine lacks, a signal, a trace, or a fault.

    told: the fault in words, for whoever mends it.
    """
    if from_signal(error):
        return f"a trace function or a signal's handler raised {error_text(error)}."
    if isinstance(error, OSError):
        return explain(error, path)
    if isinstance(error, MemoryError):
        return "there is not enough memory for it. Record less (list, scope, tensor_list)."
    return f"it is a fault of its own. Please report it: {told}."


def remains(directory: Path) -> str:
    """Return what is left of a step that was ended early, as it is now: a folder may be gone, and all with it."""
    try:
        if (directory / layout.JOURNAL).is_file():
            return f"what was recorded before is readable (`probe recover {directory}`)"
        if layout.is_dump_dir(directory):
            return f"what was recorded before is in {directory}"
    except OSError as error:  # a disk that fails
        return f"whether what was recorded before is readable cannot be told now ({error})"
    return f"{directory} is gone, and with it what was recorded"


def _full(error: OSError, path: Path) -> str:
    if error.errno == errno.EDQUOT:
        return "the disk quota is used up"
    # Many small files also fill a disk: then there are bytes left but no inodes.
    try:
        state = os.statvfs(next(p for p in (path, *path.parents) if p.exists()))
    except OSError:
        return "the disk is full"
    if state.f_files and not state.f_favail and state.f_bavail:
        return "the file system has no room for more files (no inodes left)"
    return f"the disk is full ({_size(state.f_bavail * state.f_frsize)} free)"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} TiB"
