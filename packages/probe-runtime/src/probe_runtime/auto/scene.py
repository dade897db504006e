"""Describe what finding steps needs of a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Scene(Protocol):
    """What trains in this process, as the framework's package sees it."""

    def optimizers(self) -> Sequence[Any]:
        """Return the optimizers that are alive, in the order in which they were made."""

    def models(self) -> Sequence[Any]:
        """Return the models that they train, in that order, without what only wraps them."""

    def root_of(self, module: Any) -> Any:
        """Return the trained model that an outermost call belongs to; None for a loss, a metric, a frozen network."""

    def is_training(self, module: Any, root: Any) -> bool:
        """Return whether a module that is called is in training mode, or its model is."""

    def takes_gradients(self) -> bool:
        """Return whether what is computed now can have gradients."""

    def in_backward(self) -> bool:
        """Return whether this thread is inside a backward pass: a checkpoint's recomputation looks like a forward."""

    def after_backward(self, work: Callable[[], None]) -> None:
        """Do something once the backward pass is over that this thread is in."""

    def steps_taken(self) -> int:
        """Return how many steps the optimizers have taken by their own count; 0 where they do not count."""
