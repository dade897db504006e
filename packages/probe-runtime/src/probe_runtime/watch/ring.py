"""Keep the last steps that a process has written, and remove those before (`keep: {last: K}`)."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from probe_format.excerpts import error_text, unsignalled
from probe_format.write import discard

from probe_runtime.notice import Notices

#: The folders of a step, which this process has written, each with its device and inode: another folder under its
#: name is somebody else's.
_Written = dict[Path, tuple[int, int]]


class Ring:
    """The steps of one process that stay. It knows those that it was told of, and removes no others; never raises.

    last: how many steps stay.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self._steps: deque[tuple[int, _Written]] = deque()
        self._pid = os.getpid()
        self._notices = Notices()

    def ended(self, directories: Iterable[Path], number: int = 0) -> None:
        """Take a step that has ended, and remove the one that is too many by now.

        directories: the rank folders of the step, which this process has made; a step without one does not count.
        number: the number of the step.
        """
        if os.getpid() != self._pid:  # a fork()ed child has a copy of the ring, but none of the steps
            return
        step = {each: found for each in directories if (found := _inode(each)) is not None}
        if step and step not in [held for _, held in self._steps]:
            self._steps.append((number, step))
        while len(self._steps) > self.last:
            self._remove_first()

    def shrink(self) -> Path | None:
        """Remove the first step before its time, and return its folder; None where there is none."""
        return self._remove_first() if self._steps and os.getpid() == self._pid else None

    def _remove_first(self) -> Path:
        _, step = self._steps.popleft()
        for directory, inode in step.items():
            try:
                discard(directory, inode)
            except unsignalled(Exception) as error:
                self._notices.tell(
                    f"{directory} cannot be removed, and stays: {error_text(error)}. So may later steps that keep "
                    "would remove.",
                    "a step that stays",
                )
        return next(iter(step))

    @property
    def folders(self) -> set[Path]:
        """Return the folders of the steps that stay for now."""
        return {directory for _, step in self._steps for directory in step}

    @property
    def held(self) -> tuple[int, ...]:
        """Return the numbers of the steps that stay for now."""
        return tuple(number for number, _ in self._steps)

    def let_stay(self, last: int) -> tuple[int, ...]:
        """Keep the steps up to the number ``last`` for good; return the numbers of those that the ring held."""
        staying = tuple(number for number in self.held if number <= last)
        self._steps = deque(each for each in self._steps if each[0] > last)
        return staying


def _inode(directory: Path) -> tuple[int, int] | None:
    try:
        state = os.stat(directory, follow_symlinks=False)
    except OSError:
        return None
    return state.st_dev, state.st_ino
