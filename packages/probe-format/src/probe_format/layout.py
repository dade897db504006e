"""Locate a dump's files: ``<dump_path>/step<N>/rank<R>/``, or ``.../rank/`` when not distributed.

Promise: msprobe 26.2 reads our dumps, and we read its dumps. Never is a name, folder or key of msprobe's used for
something else: what is Probe's own has a key or file beside them. Held by tests/interop,
tests/mindspore/test_msprobe.py.
"""

import os
import re
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from attrs import frozen

DUMP = "dump.json"
STACK = "stack.json"
CONSTRUCT = "construct.json"
DEBUG = "debug.json"
REPORT = "report.json"
JOURNAL = "records.journal"
TENSORS = "dump_tensor_data"
ERRORS = "dump_error_info.log"
WATCH = "watch"
ROWS = ".rows"
SMALLEST_TABLES = 1 << 17
"""Bytes that the tables of a rank of a step may take, however few its JSON files do (config.md, `max_bytes`)."""

#: Patterns of folder names: a step with its number, and a rank with its number if it has one.
STEP_DIR = re.compile(r"step(\d+)", re.ASCII)
RANK_DIR = re.compile(r"rank(\d*)|proc\d+", re.ASCII)
Mode = Literal["graph", "pynative"]
#: The directories between a dump path and its steps, where MindSpore runs in both of its modes.
MODES: tuple[Mode, ...] = ("graph", "pynative")


@frozen
class StepDir:
    """Describe a ``step<N>`` directory.

    mode: ``graph`` or ``pynative``, MindSpore's folder above it, if any.
    """

    step: int
    path: Path
    mode: Mode | None = None


def rank_dir(dump_path: Path, step: int, rank: int | None) -> Path:
    """Return the directory of one step of one process; ``rank`` is None when not distributed."""
    return dump_path / f"step{step}" / ("rank" if rank is None else f"rank{rank}")


def watch_file(dump_path: Path, rank: int | None) -> Path:
    """Return the file that task `watch` writes for a process; ``rank`` is None when not distributed."""
    return dump_path / WATCH / f"rank{'' if rank is None else rank}{ROWS}"


def dump_path_of(directory: Path) -> Path:
    """Return the dump path above a rank's directory; the user chose it, and it may be a link."""
    step = directory.parent
    return step.parent if STEP_DIR.fullmatch(step.name) else step


def is_dump_dir(path: Path) -> bool:
    """Return whether ``path`` itself holds a dump: its documents, or only a journal (of a killed run)."""
    return any((path / name).is_file() for name in (DUMP, DEBUG, JOURNAL))


def find_steps(path: Path) -> tuple[StepDir, ...]:
    """Return a dump path's step directories, by mode and number; also those in ``graph`` and ``pynative``.

    A step directory itself counts as one; a path that does not exist has none.
    """
    own = STEP_DIR.fullmatch(path.name)
    parents: list[tuple[Path, Mode | None]] = [(path, mode_of(path)), *((path / m, m) for m in MODES)]
    found = [step for parent, mode in parents for step in _steps_in(parent, mode)]
    if not found and own and path.is_dir():
        return (StepDir(int(own[1]), path, mode_of(path.parent)),)
    return tuple(sorted(found, key=lambda s: (s.mode or "", s.step, s.path.name)))


def mode_of(path: Path) -> Mode | None:
    """Return the mode that gives a folder its name, None for any other folder."""
    return next((m for m in MODES if path.name == m), None)


def _steps_in(parent: Path, mode: Mode | None) -> Iterator[StepDir]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in list(os.scandir(parent)):
            if (match := STEP_DIR.fullmatch(entry.name)) and entry.is_dir():
                yield StepDir(int(match[1]), Path(entry.path), mode)


def existing_dump(dump_path: Path, rank: int | None, steps: Container[int] = ()) -> tuple[Path, ...]:
    """Return the directories with earlier data into which a dump of this process would write.

    rank: of this process; None when not distributed.
    steps: those to be dumped; empty means any.
    """
    wanted = (each for each in find_steps(dump_path) if not steps or each.step in steps)
    targets = ((rank_dir(dump_path, each.step, rank), each.path) for each in wanted)
    return tuple(target for target, step in targets if target.parent == step and holds_data(target))


def holds_data(path: Path) -> bool:
    """Return whether a rank's directory has anything in it, with which a dump into it would mix."""
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
