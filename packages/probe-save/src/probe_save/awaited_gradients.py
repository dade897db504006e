"""Wait for the gradients of saved tensors, and record each as it comes."""

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events, lost
from probe_format.values import ValuePath
from probe_runtime.describe import RunError

from .described_values import DescribedValues


@define(eq=False)
class AwaitedGradients:
    """The gradients that one step waits for. Safe to use from many threads.

    values: describes them, and has the journal.
    enter, leave: called around the recording of each gradient, so that the end of the step waits for it
        (`SavedStep.enter`).
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

        path: of the tensor in the value that was saved.
        """
        try:
            arrived = partial(self._arrived, record, path, itertools.count())
            undo = self.values.leaf_of(tensor).watch(tensor, arrived)
        except unsignalled(Exception) as error:
            self.values.journal.fault(f"waiting for {record}", error)
            return
        if undo is not None:
            with self._lock:
                self._watches.append(undo)
                self.count += 1

    def release(self) -> None:
        with self._lock:
            watches, self._watches = self._watches, []
        for undo in watches:
            undo()

    def _arrived(self, record: str, path: ValuePath, numbers: Iterator[int], gradient: Any) -> None:
        """Record the gradient of one backward pass.

        numbers: counts the gradients that come for this tensor.
        gradient: None where the pass brought none.
        """
        journal = self.values.journal
        if not journal.alive or gradient is None or not self.enter():
            return
        try:
            number = next(numbers)
            if number == 0:
                with self._lock:
                    self.count -= 1
            place = self.values.place(record, wants_file=number == 0)
            try:
                value = self.values.describe_gradient(place, gradient, path, later=number > 0)
                journal.append(events.grad(record, path, value, number))
            except unsignalled(Exception) as error:
                self.values.remove_files(place)
                journal.lost(f"gradient {record}", error)
                if number == 0:  # it came, and must not read as one that did not
                    why = lost(f"gradient: {error_text(error)[:200]}")
                    journal.append_at_last(events.grad(record, path, why))
        except RunError as found:
            raise found.error from found
        finally:
            self.leave()
