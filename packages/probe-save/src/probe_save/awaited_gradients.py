"""Wait for the gradients of saved tensors, and record each as it comes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.journal import events
from probe_format.values import ValuePath
from probe_runtime.describe import RunError

from .described_values import DescribedValues
from .frameworks import SavedLeaf

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
            leaf, passes = self.values.leaf_of(tensor), itertools.count()
            undo = leaf.watch(tensor, partial(self._arrived, leaf, record, path, passes))
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

    def _arrived(
        self, leaf: SavedLeaf, record: str, path: ValuePath, passes: Iterator[int], gradient: Any
    ) -> None:
        """Record the gradient of one backward pass.

        passes: counts the backward passes; only the first gets a file.
        gradient: None where the pass brought none.
        """
        journal = self.values.journal
        if not journal.alive or gradient is None or not self.enter():
            return
        try:
            first = next(passes) == 0
            placement = self.values.placement(record, wants_file=first)
            value = self.values.describe_gradient(leaf, placement, gradient, path, count=first)
            if first:
                with self._lock:
                    self.count -= 1
            try:
                journal.append(events.grad(record, path, value))
            except Exception:
                self.values.remove_files(value)
                raise
        except RunError as found:
            raise found.error from found
        except Exception as error:
            journal.lost(f"gradient {record}", error)
        finally:
            self.leave()
