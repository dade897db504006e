"""Remember the model of an earlier start(), for those that give none."""

import weakref
from collections.abc import Callable
from typing import Any

from attrs import define


@define
class LastModel:
    """Hold a model, or a list or tuple of models, and keep none of them alive: its memory is the user's."""

    _find: Callable[[], Any] | None = None

    def note(self, model: Any) -> None:
        """Remember this model, in the form in which it was given, in place of the one before."""
        try:
            if isinstance(model, (list, tuple)):
                kind, refs = type(model), [weakref.ref(one) for one in model]
                self._find = lambda: _all(kind, [ref() for ref in refs])
            else:
                self._find = weakref.ref(model)
        except TypeError:  # of a class without weak references
            self._find = None

    def get(self) -> Any:
        """Return the model; None if there is none, or if any part of it is gone."""
        return None if self._find is None else self._find()


def _all(kind: type, models: list[Any]) -> Any:
    if any(model is None for model in models):
        return None
    return models if issubclass(kind, list) else tuple(models)
