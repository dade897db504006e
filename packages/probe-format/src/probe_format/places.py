"""Where the ranks of a dump are: every layout that Probe and msprobe use (spec/layout.md)."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from attrs import frozen

from .errors import FormatError

__all__ = ["Place", "find", "is_rank_dir"]

_STEP = re.compile(r"step([0-9]+)")
_RANK = re.compile(r"rank([0-9]*)|proc[0-9]+")
_FILES = ("dump.json", "debug.json", "records.journal", "report.json")
_HALVES = ("graph", "pynative")  # msprobe's folders for MindSpore's two modes


@frozen
class Place:
    """One rank folder. ``step`` and ``rank`` are None where the names do not tell."""

    path: Path
    step_path: Path
    step: int | None = None
    rank: int | None = None
    file: Path | None = None


def is_rank_dir(path: Path) -> bool:
    """Whether a folder holds the files of one rank."""
    return any((path / name).is_file() for name in _FILES)


def find(path: Path) -> list[Place]:
    """The ranks at or below ``path``, by step, then rank. Raises FormatError when there are none."""
    if path.is_file():
        return [_place(path.parent, path)]
    if not path.is_dir():
        raise FormatError(f"{path} does not exist.{_near(path)}")
    found = _below(path)
    if not found:
        raise FormatError(
            f"{path} is not a dump: it has no step folders, no rank folders and no dump.json.{_inside(path)}"
        )
    return found


def _below(path: Path) -> list[Place]:
    if is_rank_dir(path):
        return [_place(path)]
    ranks = _folders(path, _RANK)
    if ranks:
        return [_place(rank) for rank in ranks]
    parents = [path, *(path / half for half in _HALVES)]
    steps = [step for parent in parents if parent.is_dir() for step in _folders(parent, _STEP)]
    return [_place(rank) for step in steps for rank in _folders(step, _RANK)]


def _place(rank: Path, file: Path | None = None) -> Place:
    # Path(".") has no name of its own to tell the rank by.
    named = rank.resolve()
    step = _STEP.fullmatch(named.parent.name)
    found = _RANK.fullmatch(named.name)
    number = int(found[1]) if found and found[1] else None
    return Place(rank, rank.parent if step else rank, int(step[1]) if step else None, number, file)


def _folders(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    found = [
        (int(match[1] or -1) if match.re.groups and match[1] is not None else -1, child.name, child)
        for child in path.iterdir()
        if (match := pattern.fullmatch(child.name)) and child.is_dir()
    ]
    return [child for _, _, child in sorted(found)]


def _near(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return ""
    near = difflib.get_close_matches(path.name, [child.name for child in parent.iterdir()], n=1)
    return f" Did you mean {parent / near[0]}?" if near else ""


def _inside(path: Path) -> str:
    """The dumps one or two levels down, for somebody who pointed too high."""
    try:
        children = [child for child in sorted(path.iterdir()) if child.is_dir()][:100]
        children += [below for child in children for below in sorted(child.iterdir()) if below.is_dir()][:100]
    except OSError:
        return ""
    found = [str(child) for child in children if _below(child)]
    return f" There are dumps in it: {', '.join(found[:3])}." if found else ""
