"""Note which of the signals that the key `when` names have come, and hand each on to the run's own handler for it.

`when` is the key of the configuration that lists conditions: the steps around one that meets any of them are kept.
That a signal came, such as SIGUSR1, is one of these conditions.
"""

import contextlib
import signal
import threading
from collections.abc import Iterable
from typing import Any

from probe_runtime.notice import notice


class Signals:
    """The signals that came. The run's own handlers are called as before."""

    def __init__(self, names: Iterable[str]) -> None:
        """Take signals of these names from now on."""
        self._names = {getattr(signal, name): name for name in names}
        self._before: dict[int, Any] = {}
        self._came: set[str] = set()
        self._is_handling = False
        self.take_again()
        if len(self._before) < len(self._names):
            notice(
                f"Probe: {', '.join(self._names.values())} cannot be taken outside of the main thread; make the "
                "debugger there."
            )

    def came(self) -> set[str]:
        """Return the names of the signals that came since the last call."""
        came, self._came = self._came, set()
        return came

    def take_again(self) -> None:
        """Take the signals again for which the run has set a handler of its own by now, and hand them on to it."""
        if not self._names or threading.current_thread() is not threading.main_thread():
            return
        for number in self._names:
            if (there := signal.getsignal(number)) != self._handle:
                signal.signal(number, self._handle)
                self._before[number] = there

    def close(self) -> None:
        """Put back the handlers of the run, where nobody else has set another one meanwhile."""
        for number, before in self._before.items():
            if before is not None and signal.getsignal(number) == self._handle:
                with contextlib.suppress(ValueError):  # not in the main thread
                    signal.signal(number, before)
        self._before.clear()

    def _handle(self, number: int, frame: Any) -> None:
        self._came.add(self._names[number])
        before = self._before.get(number)
        if callable(before) and not self._is_handling:  # it may call us in turn
            self._is_handling = True
            try:
                before(number, frame)
            finally:
                self._is_handling = False
