"""Find the folders of the ranks in a dump, and tell of which rank, step and mode each one is (spec/layout.md).

The mode is that of MindSpore, graph or pynative. Where a path is no dump, an error says why, and what may be meant.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from probe_format import layout
from probe_format.errors import FormatError
from probe_format.plain_files import read_file
from probe_format.suggest import nearest

_BESIDE = (layout.STACK, layout.CONSTRUCT, layout.REPORT, layout.JOURNAL)


def find(path: Path) -> tuple[list[Path], Path | None]:
    """Return the folders of the ranks at or below ``path``, by step, then rank, and the file if ``path`` is one.

    Raises FormatError when there are none.
    """
    path = Path(os.path.abspath(path))  # a later chdir must not move what is read later
    if path.is_file():
        _check_file(path)
        return [path.parent], path
    if not path.is_dir():
        raise FormatError(f"{path} does not exist.{_near(path)}")
    found = list(_inside_only(path))
    if not found and (steps := layout.find_steps(path)):
        raise FormatError(f"{steps[0].path} holds nothing: the run ended before it wrote any record.")
    if not found:
        why = "it has no step folders, no rank folders and no dump.json"
        raise FormatError(f"{path} is not a dump: {why}.{_inside(path)}")
    return found, None


def _check_file(path: Path) -> None:
    """Raise FormatError when the file is not a dump; a damaged dump passes."""
    if path.name in (layout.DUMP, layout.DEBUG):
        return
    if path.name in _BESIDE:
        raise FormatError(f"{path} is a part of a dump: give its folder, {path.parent}.")
    if path.suffix != ".json" or b'"data"' not in read_file(path):
        raise FormatError(f"{path} is not a dump: give a folder, a dump.json or a debug.json.")


def _inside_only(path: Path) -> Iterator[Path]:
    """Yield the ranks below ``path``. Raises FormatError when a link leads out of it."""
    root = os.path.realpath(path)
    for mode in layout.MODES:
        _check_inside(path / mode, root)
    for step in layout.find_steps(path):
        _check_inside(step.path, root)
    for folder in _below(path):
        _check_inside(folder, root)
        yield folder


def _check_inside(path: Path, root: str) -> None:
    real = os.path.realpath(path)
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        what = f"{path} is a link that leads out of the dump, to {real}"
        raise FormatError(f"{what}. Give that path itself to read it.")


def _below(path: Path) -> Iterator[Path]:
    is_rank = layout.STEP_DIR.fullmatch(path.parent.name) and _is_rank(path)
    if is_rank or layout.is_dump_dir(path) or (path / layout.REPORT).is_file():
        yield path
        return
    for step in layout.find_steps(path):
        yield from sorted(filter(_is_rank, step.path.iterdir()), key=lambda each: (_number(each), each.name))


def _is_rank(path: Path) -> bool:
    """Return whether a folder within that of a step is a rank's: it has such a name, and anything in it."""
    return bool(layout.RANK_DIR.fullmatch(path.name)) and path.is_dir() and any(path.iterdir())


def _number(path: Path) -> int:
    rank = layout.RANK_DIR.fullmatch(path.name)
    return int(rank[1]) if rank and rank[1] else -1


def place_of(path: Path) -> tuple[int | None, int | None, layout.Mode | None]:
    """Return the rank, the step and the mode of a rank's folder.

    Rank and step are None where the folders' names do not contain them. The mode is ``graph`` or ``pynative`` where
    the step's folder is in one of that name, and PyTorch did not write it; else None.
    """
    step, number = layout.STEP_DIR.fullmatch(path.parent.name), _number(path)
    mode = layout.mode_of(path.parent.parent) if step else None
    if mode is not None and _is_of_torch(path):  # the dump_path itself has that name
        mode = None
    return None if number < 0 else number, int(step[1]) if step else None, mode


_FRAMEWORK = re.compile(rb'"framework": ?"([^"]*)"')
_TORCH = re.compile(rb'"(?:type|dtype)": ?"torch\.')
#: How much of a file is read for its framework, which is in its header; msprobe 1 has it in the types of tensors alone.
_HEAD = 1 << 16


def _is_of_torch(path: Path) -> bool:
    """Return whether the files in a rank's folder say that PyTorch made them: it has no modes."""
    for name in (layout.DUMP, layout.DEBUG, layout.JOURNAL, layout.REPORT):
        with contextlib.suppress(OSError), (path / name).open("rb") as file:
            head = file.read(_HEAD)
            named = _FRAMEWORK.search(head)
            if named or _TORCH.search(head):
                return named is None or named[1] == b"pytorch"
    return False


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    near = nearest(path.name, [child.name for child in path.parent.iterdir()], 1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""


def _inside(path: Path) -> str:
    """Return a hint that names the dumps one or two levels down, or the commands that read its watch files."""
    if (path / layout.WATCH).is_dir():
        return " It has watch files: 'probe trend', 'probe watch' and 'probe export' read them."
    try:
        children = [child for child in sorted(path.iterdir()) if child.is_dir()][:100]
        children += [below for child in children for below in sorted(child.iterdir()) if below.is_dir()][:100]
    except OSError:
        return ""
    found = [str(child) for child in children if any(_below(child))]
    return f" There are dumps in it: {', '.join(found[:3])}." if found else ""
