"""Dump each update of Lightning's `Trainer` as a step, by a callback, for lightning as well as pytorch_lightning."""

import sys
from typing import Any

from probe_torch.debugger import PrecisionDebugger

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ImportError as e:
    raise ImportError(
        "probe_torch.callbacks.lightning needs Lightning: pip install lightning", name=e.name
    ) from e


class ProbeCallback(Callback):  # type: ignore[misc]
    """Call start, stop and step of a debugger around the batches of each update, of which there may be several.

    In manual optimization a step is a batch in which an optimizer has stepped. Validation is in no step.
    Where the trainer goes on from a checkpoint, steps have the numbers of its `global_step`, in manual optimization of
    its batches.
    """

    def __init__(self, debugger: PrecisionDebugger) -> None:
        self._debugger = debugger
        #: The trainer's count before the open step; None where no step is open.
        self._updates: int | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """End a step that an earlier training has left open, and count from where the trainer does."""
        if self._updates is not None:
            self._end()
        seen = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        if first := trainer.global_step if pl_module.automatic_optimization else seen:
            self._debugger.set_init_step(first)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Start collecting, unless an earlier batch of the same update has."""
        if self._updates is None:
            self._updates = trainer.global_step
            self._debugger.start(pl_module)

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Stop collecting and end the step, if there was an update."""
        if trainer.global_step != self._updates:
            self._end()

    def _end(self) -> None:
        self._updates = None
        self._debugger.stop()
        self._debugger.step()
