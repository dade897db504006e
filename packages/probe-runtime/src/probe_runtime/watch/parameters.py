"""Name the parameters of models, and keep none of them alive."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import define, field


@define(eq=False)
class ParameterNames:
    """Know the (layer, name) of each parameter of some models; of one that several modules share, the first.

    models_in: takes what the user gave as the model, and returns the models in it.
    named: yields (path, parameter) of each parameter of a model, more than once where several modules share it.
    """

    models_in: Callable[[Any], Iterable[Any]]
    named: Callable[[Any], Iterable[tuple[str, Any]]]
    # Each with what its paths begin with.
    _models: dict[int, tuple[weakref.ref[Any], str]] = field(factory=dict)
    _names: dict[int, tuple[weakref.ref[Any], tuple[str, str]]] = field(factory=dict)

    def add(self, model: Any) -> bool:
        """Take a model, or a list of models; return whether one is new."""
        known = [ref() for ref, _ in self._models.values()]
        fresh = [(i, one) for i, one in enumerate(self.models_in(model)) if not any(one is k for k in known)]
        for i, one in fresh:
            self._models[id(one)] = weakref.ref(one), "" if one is model else f"{i}."
        if fresh:
            self._look()
        return bool(fresh)

    def of(self, parameters: list[Any]) -> list[tuple[str, str] | None]:
        """Return the name of each; None for one that no model has."""
        found = [self._known(p) for p in parameters]
        if None in found:
            self._look()  # it may have come since
            found = [self._known(p) for p in parameters]
        return found

    def all(self) -> dict[str, Any]:
        """Return name -> parameter, each parameter once."""
        named = {id(p): (path, p) for path, p in reversed(list(self._all()))}
        return dict(reversed(named.values()))

    def _known(self, p: Any) -> tuple[str, str] | None:
        ref, name = self._names.get(id(p), (None, None))
        return name if ref is not None and ref() is p else None

    def _look(self) -> None:
        self._names.clear()
        for path, p in self._all():
            layer, _, name = path.rpartition(".")
            self._names.setdefault(id(p), (weakref.ref(p), (layer, name)))

    def _all(self) -> Iterator[tuple[str, Any]]:
        for ref, prefix in self._models.values():
            model = ref()
            for path, p in () if model is None else self.named(model):
                yield prefix + path, p
