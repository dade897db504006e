"""Say which steps and ranks of an earlier dump a run with `overwrite` did not reach, so that they are still there."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from attrs import define, field
from probe_format.layout import RANK_DIR, existing_dump, find_steps, holds_data

from .notice import notice

#: When this process began, nearly.
_BEGAN = time.time()


@define(eq=False)
class EarlierDump:
    """Hold the directories with data that were there before the run, and that it has not written.

    world_size: returns the number of processes of the run; None when not distributed, or not known.
    """

    world_size: Callable[[], int | None]
    _left: dict[Path, set[Path]] = field(factory=dict)

    def reach(self, base: Path, directory: Path, rank: int | None) -> None:
        """Take note that the run writes a directory.

        base: the folder of its steps.
        rank: of this process; None when not distributed.
        """
        if base not in self._left:
            self._left[base] = set()
            # Where another process writes this rank's directories, they are of this run.
            if not directory.name.startswith("proc"):
                with suppress(OSError):  # of a folder that cannot be listed nothing is told
                    found = (*existing_dump(base, rank), *self._of_other_ranks(base, rank))
                    self._left[base].update(filter(_is_earlier, found))
        self._left[base].discard(directory)

    def _of_other_ranks(self, base: Path, rank: int | None) -> Iterator[Path]:
        """Yield the directories of ranks that the run does not have: its first process tells of them."""
        processes = self.world_size() or (0 if rank is None else math.inf)
        for step in find_steps(base) if not rank else ():
            for path in step.path.iterdir() if step.path.parent == base else ():
                name = RANK_DIR.fullmatch(path.name)
                number = name[1] if name else None
                if (int(number) >= processes) if number else (number == "" and rank is not None):
                    yield path

    def tell(self) -> None:
        """Tell the user what is left of it, once."""
        left = sorted(path for some in self._left.values() for path in some if holds_data(path))
        self._left.clear()
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            names = ", ".join(f"{path.parent.name}/{path.name}" for path in left[:3])
            notice(
                f"Probe: {left[0].parent.parent} still has {names}{more} of an earlier dump, which this run did not "
                "reach. Commands take them for its own: remove them."
            )


def _is_earlier(path: Path) -> bool:
    """Return whether a directory was last written before this process began: another debugger of it may have."""
    with suppress(OSError):
        return path.stat().st_mtime < _BEGAN
    return False
