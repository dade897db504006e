"""Say which steps and ranks of an earlier dump are still there, after a run with `overwrite` that did not reach them."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import define, field
from probe_format.layout import RANK_DIR, existing_dump, find_steps, holds_data

from probe_runtime.notice import notice

_BEGAN = time.time()


@define(eq=False)
class EarlierDump:
    """Hold the directories with data that were there before the run, and that it has not written.

    rank: of this process; None when not distributed.
    processes: how many the run has; 0 when not distributed.
    """

    rank: int | None
    processes: int
    _left: dict[Path, set[Path]] = field(factory=dict)

    def reach(self, base: Path, directory: Path) -> None:
        """Take note that the run writes a directory. base: the folder of its steps."""
        if base not in self._left:
            found = (*existing_dump(base, self.rank), *self._of_other_ranks(base))
            # Where another process writes this rank's directories, they are of this run.
            is_own = not directory.name.startswith("proc")
            self._left[base] = {*filter(_is_earlier, found)} if is_own else set()
        self._left[base].discard(directory)

    def _of_other_ranks(self, base: Path) -> Iterator[Path]:
        """Yield the directories of ranks that the run does not have: its first process tells of them."""
        for step in find_steps(base) if not self.rank else ():
            for path in step.path.iterdir() if step.path.parent == base else ():
                name = RANK_DIR.fullmatch(path.name)
                number = name[1] if name else None
                if (int(number) >= self.processes) if number else (number == "" and self.rank is not None):
                    yield path

    def tell(self) -> None:
        """Tell the user what is left of it."""
        left = sorted(path for some in self._left.values() for path in some if holds_data(path))
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            names = ", ".join(f"{path.parent.name}/{path.name}" for path in left[:3])
            notice(
                f"Probe: {left[0].parent.parent} still has {names}{more} of an earlier dump, which this run did not reach. "
                "Commands take them for its own: remove them."
            )


def _is_earlier(path: Path) -> bool:
    """Return whether a directory was last written before this process began: another debugger of it may have."""
    with suppress(OSError):
        return path.stat().st_mtime < _BEGAN
    return False
