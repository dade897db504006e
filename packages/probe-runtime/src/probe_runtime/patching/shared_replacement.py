"""Keep attributes replaced as long as at least one holder needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["Held", "HeldPatches"]

Replace = Callable[[Any, str, Callable[[Any], Any]], None]


class HeldPatches:
    """Replace attributes for holders that may overlap: the first puts them in place, the last takes them away.

    install: called at the first hold with ``replace(owner, name, make)``, where ``make(original)`` returns the
        replacement; a name that the owner does not have is left alone.
    restored: called when everything is back.
    """

    def __init__(
        self, install: Callable[[Replace], None], restored: Callable[[], None] = lambda: None
    ) -> None:
        self._install = install
        self._restored = restored
        self._lock = threading.Lock()
        self._holders = 0
        self._put: list[tuple[Any, str, Any, bool, Any]] = []

    @property
    def active(self) -> bool:
        """Return whether there is a holder. A replacement that other code has wrapped meanwhile stays longer."""
        return self._holders > 0

    def hold(self) -> Held:
        """Put the replacements in place, unless they are already. Return what lets go of them."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                try:
                    self._install(self._replace)
                except BaseException:
                    self._holders = 0
                    self._restore()
                    raise
        return Held(self._release)

    def _release(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._restore()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        inherited = name not in vars(owner)
        ours = make(original)
        setattr(owner, name, ours)
        self._put.append((owner, name, original, inherited, ours))

    def _restore(self) -> None:
        while self._put:
            owner, name, original, inherited, ours = self._put.pop()
            # Other code (a dump of Probe) may have wrapped ours, and will put it back later: then it stays.
            if vars(owner).get(name) is ours:
                if inherited:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._restored()


class Held:
    """One holder of replacements. `undo`, or leaving the ``with`` block, lets go of them; more calls do nothing."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def undo(self) -> None:
        """Let go of the replacements; more calls do nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()
