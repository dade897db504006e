"""Find the folders of a tree that hold kernel files, and read rank, net, graph, iteration and step from their paths."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from attrs import frozen
from probe_format.errors import FormatError
from probe_format.suggest import nearest

from .file_name import is_file_name
from .statistic_csv import STATISTIC

Layout = Literal["mindspore", "constants", "msprobe", "torch", "o2", "ge", "async", "acl", "folder"]
"""The form of a tree of folders: one of `_FORMS`, or ``folder`` where the path has none of these forms."""

#: The forms, in the order in which they are tried.
_FORMS: dict[Layout, str] = {
    "mindspore": "rank_{rank}/{net}/{graph}/{iteration}",
    "constants": "rank_{rank}/{net}/{graph}/constants",
    "msprobe": "rank_?{rank}?/{time}/step_?{step}(?:/{nets})?",
    "torch": "step_?{step}(?:/rank_?{rank}?)?/{time}/{device}(?:/{net}/{graph}/{iteration})?",
    "o2": "{step}/{time}/{device}/{net}/{graph}/{iteration}",
    "ge": "{time}/{device}/{net}/{graph}/{iteration}",
    "async": r"{device}/{net}_graph_\d+/{graph}/{iteration}",  # MindSpore 1.5
    "acl": "{time}/{device}",
}
_PARTS = {
    **{key: rf"(?P<{key}>\d+)" for key in ("rank", "graph", "iteration", "step", "device")},
    "net": "(?P<net>[^/]+)",
    "nets": "(?P<net>.+)",
    "time": r"(?P<time>\d{8,20})",
}
_PATTERNS = {layout: re.compile(f"(?:.*/)?{form.format(**_PARTS)}") for layout, form in _FORMS.items()}
#: Lines "file,true name" for files whose name would have been too long.
MAPPING = "mapping.csv"
_OWN = frozenset({STATISTIC, MAPPING})
_SKIP = frozenset({"graphs", "execution_order", ".dump_metadata", "dump_tensor_data", "__pycache__"})
_AUXILIARY = re.compile(
    r"acl_dump_\d+\.json|aclinit\.json|kernel_config\w*\.json|kernel_\w*(?:dump|check)\.json|data_dump\.json"
    r"|\.tmp.*|\..*\.tmp|dump\.json|construct\.json|stack\.json|report\.json"
)


@frozen
class KernelFolder:
    """Locate one folder with kernel files. A field is None where the path does not have it.

    layout: the form of the tree that it was found in.
    rank: the rank, or in trees of devices the device.
    graph: the number of the graph; of O2, GE and ACL trees the model's id.
    iteration: of the graph.
    step: of the user's training loop.
    time: when the dump began, in digits.
    """

    path: Path
    layout: Layout
    rank: int | None = None
    net: str | None = None
    graph: int | None = None
    iteration: int | None = None
    step: int | None = None
    time: str | None = None

    @property
    def in_rank(self) -> bool:
        """Return whether a folder around it is that of one rank, as in MindSpore's tree."""
        return self.layout in ("mindspore", "constants")

    @property
    def rank_path(self) -> Path:
        """Return the folder that would hold ``graphs``: rank_R in MindSpore's tree, this one in others."""
        return self.path.parents[2] if self.in_rank else self.path

    @property
    def number(self) -> int | None:
        """Return the step if the path has one, else the iteration."""
        return self.step if self.step is not None else self.iteration

    @property
    def label(self) -> str:
        """Return the folder in words: ``rank 0, Net, graph 0, iteration 3``."""
        found = {key: getattr(self, key) for key in ("rank", "step", "net", "graph", "iteration")}
        words = [v if key == "net" else f"{key} {v}" for key, v in found.items() if v is not None]
        words += ["constants"] if self.layout == "constants" else []
        return ", ".join(words) or self.path.name


def find(path: Path) -> list[KernelFolder]:
    """Return every folder with kernel files at or below ``path``, by rank, net, graph and number.

    Raises FormatError when there is no such folder, and names similar ones.
    """
    path = Path(os.path.abspath(path))
    if path.is_file():
        path = path.parent
    if not path.is_dir():
        near = nearest(path.name, [p.name for p in path.parent.iterdir()], 1) if path.parent.is_dir() else ()
        hint = f" Did you mean {path.parent / near[0]}?" if near else ""
        raise FormatError(f"{path} does not exist.{hint}")
    found = [folder for found in walk(path, _SKIP) if (folder := _kernel_folder(*found)) is not None]
    if not found:
        raise FormatError(
            f"{path} has no kernel dump in it: no folder like rank_0/net/0/0, no statistic.csv, and no file like "
            "'Conv2D.Default_Conv2D-op0.0.0.1623124369613540.output.0.DefaultFormat.Float32.npy'. If the run is "
            "over, the requested kernels or iterations may not have run."
        )
    return sorted(found, key=_order)


def _order(folder: KernelFolder) -> tuple[int, str, int, int, str]:
    rank, graph, number = (-1 if n is None else n for n in (folder.rank, folder.graph, folder.number))
    return (rank, folder.net or "", graph, number, str(folder.path))


def _kernel_folder(folder: Path, below: list[str], files: list[str]) -> KernelFolder | None:
    ours = any(name in _OWN or is_file_name(name) for name in files)
    text = folder.as_posix()
    for layout, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(text):
            # Many folders have a date for a name: they count only with kernel files in them. A rank_0/net/0/0
            # counts also when it is empty, or has only unknown files.
            sure = layout not in ("acl", "torch", "msprobe") and (bool(files) or not below)
            if not ours and not sure:
                return None
            parts = ((key, part) for key, part in match.groupdict().items() if part)
            found: dict[str, Any] = {k: part if k in ("net", "time") else int(part) for k, part in parts}
            device = found.pop("device", None)
            return KernelFolder(folder, layout, **{"rank": device, **found})
    return KernelFolder(folder, "folder") if ours else None


def is_auxiliary(name: str) -> bool:
    """Return whether a file is one that dumpers and Probe write beside the tensors, without a tensor in it."""
    return _AUXILIARY.fullmatch(name) is not None


def is_beside(path: Path) -> bool:
    """Return whether a file above the iterations belongs there; ``path`` is relative to the rank's folder."""
    return path.parts[0] in _SKIP or is_auxiliary(path.name)


def walk(top: Path, leave_out: Collection[str] = ()) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder at or below ``top`` in order, with the names of the folders and files in it.

    leave_out: names of folders that are not entered.

    A folder that several links lead to is yielded once, so that a link to a folder around it does not loop. Raises
    OSError when a folder cannot be opened: its files must not be missing without a message.
    """
    seen: set[tuple[int, int]] = set()
    for folder, below, files in os.walk(top, onerror=_refuse, followlinks=True):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:
            below.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        below[:] = sorted(name for name in below if name not in leave_out)
        yield Path(folder), below, sorted(files)


def _refuse(error: OSError) -> None:
    raise error
