"""Dump each update of the `Trainer` of Hugging Face's transformers as a step, by a callback."""

from typing import Any

from probe_torch.debugger import PrecisionDebugger

try:
    from transformers import TrainerCallback
except ImportError as e:
    raise ImportError(
        "probe_torch.callbacks.transformers needs transformers: pip install transformers", name=e.name
    ) from e


class ProbeCallback(TrainerCallback):  # type: ignore[misc]
    """Call start, stop and step of a debugger around each update, with all batches whose gradients it accumulates.

    Steps have the numbers of the trainer's `global_step`, also where it goes on from a checkpoint. Evaluation,
    logging and saving are in no step.
    """

    def __init__(self, debugger: PrecisionDebugger) -> None:
        self._debugger = debugger
        self._is_open = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step that an earlier training has left open, and count from where the trainer does."""
        if self._is_open:
            self._debugger.stop()
            self._end()
        self._debugger.set_init_step(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start collecting."""
        self._is_open = True
        self._debugger.start(kwargs["model"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop collecting: the update is made."""
        self._debugger.stop()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step."""
        self._end()

    def _end(self) -> None:
        self._is_open = False
        self._debugger.step()
