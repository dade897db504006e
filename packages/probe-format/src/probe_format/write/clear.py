"""Remove an earlier dump where the user asked for it (`overwrite`)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from probe_format.layout import CONSTRUCT, DEBUG, DUMP, ERRORS, JOURNAL, REPORT, STACK, TENSORS, dump_path_of
from probe_format.safe_files import Folder

_OWN = {DUMP, STACK, CONSTRUCT, DEBUG, REPORT, JOURNAL, ERRORS}


def clear(directory: Path) -> None:
    """Remove an earlier dump: its own files only, so that no stale tensor file stays.

    Raises OSError when the directory, or its dump_tensor_data, is a link: Probe makes no dump behind one.
    """
    for path, wanted in ((directory / TENSORS, _is_tensor_file), (directory, _OWN.__contains__)):
        folder = Folder(path, dump_path_of(directory))
        with contextlib.suppress(FileNotFoundError):
            for name in filter(wanted, os.listdir(folder.fd)):
                folder.remove(name)
        folder.close()


def _is_tensor_file(name: str) -> bool:
    return name.endswith((".pt", ".npy"))
