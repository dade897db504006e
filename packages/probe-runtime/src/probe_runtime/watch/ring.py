"""Keep the last steps that a process has written, and remove those before (`keep: {last: K}`)."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen
from probe_format.excerpts import error_text
from probe_format.write import discard

from probe_runtime.notice import Notices


@frozen
class _Written:
    """A folder that this process has written.

    inode: its device and inode: another folder under its name is somebody else's.
    """

    directory: Path
    inode: tuple[int, int]


class Ring:
    """The steps of one process that stay. It knows those that it was told of, and removes no others; never raises.

    last: how many steps stay.
    """

    def __init__(self, last: int) -> None:
        """Keep nothing yet."""
        self.last = last
        self._steps: deque[tuple[int, list[_Written]]] = deque()
        self._pid = os.getpid()
        self._notices = Notices()

    def ended(self, directories: Iterable[Path], number: int = 0) -> None:
        """Take a step that has ended, and remove the one that is too many by now.

        directories: the rank folders of the step, which this process has made; without one it does not count.
        number: of the step.
        """
        if os.getpid() != self._pid:  # a fork()ed child has a copy of the ring, but none of the steps
            return
        step = [found for each in directories if (found := _found(each)) is not None]
        if step and step not in [held for _, held in self._steps]:
            self._steps.append((number, step))
        while len(self._steps) > self.last:
            self._remove_first()

    def shrink(self) -> Path | None:
        """Remove the first step before its time, and return its folder; None where there is none."""
        return self._remove_first() if self._steps and os.getpid() == self._pid else None

    def _remove_first(self) -> Path:
        _, step = self._steps.popleft()
        for each in step:
            self._remove(each)
        return step[0].directory

    @property
    def folders(self) -> set[Path]:
        """Return the folders of the steps that stay for now."""
        return {each.directory for _, step in self._steps for each in step}

    @property
    def held(self) -> tuple[int, ...]:
        """Return the numbers of the steps that stay for now."""
        return tuple(number for number, _ in self._steps)

    def let_stay(self, last: int) -> tuple[int, ...]:
        """Remove no step up to this number, whatever comes; return which of them it held."""
        staying = tuple(number for number in self.held if number <= last)
        self._steps = deque(each for each in self._steps if each[0] > last)
        return staying

    def _remove(self, written: _Written) -> None:
        try:
            discard(written.directory, written.inode)
        except Exception as error:
            self._notices.tell(
                f"{written.directory} cannot be removed, and stays: {error_text(error)}. So may later steps that keep "
                "would remove.",
                "a step that stays",
            )


def _found(directory: Path) -> _Written | None:
    try:
        state = os.stat(directory, follow_symlinks=False)
    except OSError:
        return None
    return _Written(directory, (state.st_dev, state.st_ino))
