"""Remove an earlier dump where the user asked for it (`overwrite`)."""

from __future__ import annotations

from pathlib import Path

from probe_format.layout import CONSTRUCT, DUMP, ERRORS, JOURNAL, REPORT, STACK, TENSORS, dump_path_of
from probe_format.safe_files import refuse_links

__all__ = ["clear"]


def clear(directory: Path) -> None:
    """Remove an earlier dump: its own files only, so that no stale tensor file stays.

    Raises OSError when the directory, or its dump_tensor_data, is a link: Probe makes no dump behind one.
    """
    refuse_links(directory / TENSORS, dump_path_of(directory))
    for name in (DUMP, STACK, CONSTRUCT, REPORT, JOURNAL, ERRORS):
        (directory / name).unlink(missing_ok=True)
    tensors = directory / TENSORS
    if tensors.is_dir():
        for path in tensors.iterdir():
            if path.suffix in (".pt", ".npy"):
                path.unlink()
