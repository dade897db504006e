"""Make a folder of results appear whole under its name, or not at all."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from probe_format.errors import UsageError

from .columns import SCHEMA_VERSION

MARKER = "_probe_export.json"
"""The file that says that a folder is an export. Engines pass over names that begin with ``_``."""


@contextlib.contextmanager
def whole_folder(to: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder beside ``to`` that becomes ``to`` in the end; what fails leaves ``to`` as it was.

    overwrite: replace an earlier export. Nothing else is ever replaced.
    Raises UsageError when something is in the way.
    """
    to = Path(os.path.realpath(to))
    _check(to, overwrite=overwrite)
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name[:200]}.{os.urandom(4).hex()}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        _replace(temporary, to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def leftovers(to: Path) -> list[Path]:
    """Return what exports of this name left beside it when they were killed, or are writing just now."""
    to = Path(os.path.realpath(to))
    form = re.compile(rf"\.{re.escape(to.name[:200])}\.[0-9a-f]{{8}}\.(?:tmp|old)")
    if not to.parent.is_dir():
        return []
    return sorted(path for path in to.parent.iterdir() if form.fullmatch(path.name) and path.is_dir())


def _check(to: Path, *, overwrite: bool) -> None:
    if not os.path.lexists(to) or (to.is_dir() and not any(to.iterdir())):
        return
    if not (to / MARKER).is_file():
        raise UsageError(f"{to} is there already and is no export, so it is not replaced. Give another name.")
    if not overwrite:
        raise UsageError(f"{to} holds an export already. Give another name, or --overwrite to replace it.")


def _replace(temporary: Path, to: Path) -> None:
    if not os.path.lexists(to) or not any(to.iterdir()):
        os.rename(temporary, to)
        return
    earlier = temporary.with_name(temporary.name.removesuffix(".tmp") + ".old")
    os.rename(to, earlier)
    try:
        os.rename(temporary, to)
    except OSError:
        os.rename(earlier, to)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def mark(folder: Path, form: str, content: Mapping[str, Any]) -> None:
    """Write the file that says that a folder is an export, of what, and what is in it."""
    document = {"schema_version": SCHEMA_VERSION, "form": form, **content}
    (folder / MARKER).write_text(json.dumps(document, indent=1) + "\n", "utf-8")
