"""Remember the model that start() was given last, without keeping it alive, for a start() without a model."""

import weakref
from typing import Any

from attrs import define, field


@define
class LastModel:
    """Hold a model, or a list or tuple of models, and keep none of them alive: its memory is the user's."""

    _kind: type = object
    _refs: list[weakref.ref[Any]] = field(factory=list)

    def note(self, model: Any) -> None:
        """Remember this model, in the form in which it was given, in place of the one before."""
        self._kind = next((kind for kind in (list, tuple) if isinstance(model, kind)), object)
        try:
            self._refs = [weakref.ref(one) for one in (model if self._kind is not object else [model])]
        except TypeError:  # of a class without weak references
            self._refs = []

    def get(self) -> Any:
        """Return the model; None if there is none, or if any part of it is gone."""
        models = [ref() for ref in self._refs]
        if not models or any(model is None for model in models):
            return None
        return models[0] if self._kind is object else self._kind(models)
