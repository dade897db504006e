"""Wait for the gradients of saved tensors, and record each as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.excerpts import error_text
from probe_format.journal import events, lost
from probe_format.values import ValuePath
from probe_runtime.describe import RunError

from .described_values import DescribedValues

__all__ = ["AwaitedGradients"]


@define(eq=False)
class AwaitedGradients:
    """The gradients that one step waits for. Safe to use from many threads.

    values: describes them, and has the journal.
    enter, leave: around the recording of each, so that the end of the step waits for it (`SavedStep.enter`).
    count: how many tensors have had no gradient yet.
    """

    values: DescribedValues
    enter: Callable[[], bool]
    leave: Callable[[], None]
    count: int = 0
    _watches: list[Callable[[], None]] = field(factory=list)
    _lock: threading.RLock = field(factory=threading.RLock)

    def watch(self, record: str, path: ValuePath, tensor: Any) -> None:
        """Record the gradients of a tensor from now on.

        record: the name of their record.
        path: of the tensor in the value that was saved.
        """
        try:
            undo = self.values.leaf_of(tensor).watch(tensor, partial(self._arrived, _Slot(record, path)))
        except Exception as error:
            self.values.journal.fault(f"waiting for {record}", error)
            return
        if undo is not None:
            with self._lock:
                self._watches.append(undo)
                self.count += 1

    def release(self) -> None:
        """Wait for nothing more."""
        with self._lock:
            watches, self._watches = self._watches, []
        for undo in watches:
            undo()

    def _arrived(self, slot: _Slot, gradient: Any) -> None:
        """Record the gradient of one backward pass. gradient: None where the pass brought none."""
        journal = self.values.journal
        if not journal.alive or gradient is None or not self.enter():
            return
        try:
            number = slot.passes
            slot.passes += 1
            if number == 0:
                with self._lock:
                    self.count -= 1
            place = self.values.place(slot.record, wants_file=number == 0)
            try:
                value = self.values.describe_gradient(place, gradient, slot.path, later=number > 0)
                journal.append(events.grad(slot.record, slot.path, value, number))
            except Exception as error:
                self.values.remove_files(place)
                journal.lost(f"gradient {slot.record}", error)
                if number == 0:  # it came, and must not read as one that did not
                    why = lost(f"gradient: {error_text(error)[:200]}")
                    journal.append_at_last(events.grad(slot.record, slot.path, why))
        except RunError as found:
            raise found.error from found
        finally:
            self.leave()


@define
class _Slot:
    """A place in a gradient record.

    path: of the tensor in the value that was saved.
    passes: how many gradients have come there.
    """

    record: str
    path: ValuePath
    passes: int = 0
