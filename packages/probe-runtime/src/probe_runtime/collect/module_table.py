"""Hold the modules and parameters that are tracked, and the names of their records."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, islice, repeat
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import UsageError


@define
class TrackedModule:
    """One tracked module.

    base: ``Module.{path}.{class}``; empty for the model whose calls are only counted (token_range).
    module: the module, kept alive so that no other object gets its id.
    opaque: whether nothing inside it is recorded.
    called: whether it was called in this step.
    """

    base: str
    module: Any
    opaque: bool = False
    called: bool = False


@frozen
class TrackedParameter:
    """One parameter.

    parameter: the parameter itself.
    owners: every (record, name) that its gradient is recorded under.
    """

    parameter: Any
    owners: tuple[tuple[str, str], ...]


@define
class AnyModuleTable(ABC):
    """The modules whose calls are recorded; the framework's package finds and names them.

    entries: id of a module -> the module as it is tracked.
    roots: id of a model that the user gave -> the model.
    not_seen: what cannot be recorded -> why.
    """

    entries: dict[int, TrackedModule] = field(factory=dict, kw_only=True)
    roots: dict[int, Any] = field(factory=dict, kw_only=True)
    not_seen: dict[str, str] = field(factory=dict, kw_only=True)

    def add_model(self, model: Any) -> None:
        """Track every module inside a model, or inside each of a list of models (names then begin with its index).

        The model itself has no record of its own, as in msprobe; parameters that it owns directly are listed in
        `not_seen`. Raises UsageError when ``model`` is neither.
        """
        for i, one in enumerate(self.roots_of(model)):
            self.roots[id(one)] = one
            self._add_one(one, "" if one is model else f"{i}.")
        self._note_unregistered()

    def add_named(self, module: Any, name: str) -> None:
        """Track one module under a name of the user's, with nothing inside it (`module_dump`)."""
        base = f"{self.prefix}.{name}.{type(module).__name__}"
        self.entries[id(module)] = TrackedModule(base, module, opaque=True)

    def _note_own(self, prefix: str, own: Sequence[str]) -> None:
        """List parameters of the model itself in `not_seen`. own: their names."""
        if own:
            which = ", ".join(own[:8]) + (f" and {len(own) - 8} more" if len(own) > 8 else "")
            self.not_seen[f"{prefix}parameters of the model itself: {which}"] = (
                "the module given to start() has no record; wrap it, or give its parent, to see them"
            )

    def _note_unregistered(self) -> None:
        """List modules in `not_seen` that a model keeps in plain lists, tuples and dicts alone.

        Where there is none it takes a few calls for all modules together. No code of the user's runs.
        """
        several = len(self.roots) > 1
        models = [(f"model {i}" if several else "the model", m) for i, m in enumerate(self.roots.values())]
        tracked = [*models, *((entry.base, entry.module) for entry in self.entries.values() if entry.base)]
        owns = list(map(object.__getattribute__, [module for _, module in tracked], repeat("__dict__")))
        unknown = self._modules_in(chain.from_iterable(map(dict.values, owns)))
        unknown -= self.entries.keys() | self.roots.keys()
        for (where, _), own in zip(tracked, owns, strict=True) if unknown else ():
            for name, value in list(own.items()):
                if found := self._modules_in([value]) & unknown:
                    self.not_seen[f"{self.prefix}s in the {type(value).__name__} {name} of {where}"] = (
                        f"it holds {len(found)} that are registered nowhere: they, and what is inside them, have no "
                        f"records. Keep them in nn.{self.prefix}List or nn.{self.prefix}Dict"
                    )

    def _modules_in(self, values: Iterable[Any]) -> set[int]:
        """Return the ids of the modules that lie in those of these values that are nests."""
        found: list[Any] = []
        level = list(values)
        for _ in range(_DEEPEST):
            # Without a call: it is asked of thousands, and a class may have no hash.
            nests = [x for x in level if ((kind := type(x)) is dict or kind is list or kind is tuple) and x]
            rows = [one.values() if type(one) is dict else one for one in nests]
            level = list(chain.from_iterable(map(islice, rows, repeat(_MOST))))
            found += level
        kinds = list(map(type, found))
        by_id = dict(zip(map(id, kinds), kinds, strict=True))
        of_modules = {which for which, kind in by_id.items() if self.is_module(kind)}
        return set(compress(map(id, found), map(of_modules.__contains__, map(id, kinds))))

    @property
    @abstractmethod
    def prefix(self) -> str:
        """Return the first part of the names of modules' records."""

    @abstractmethod
    def roots_of(self, model: Any) -> tuple[Any, ...]:
        """Return the models in ``model``: itself, or the items of a list; an empty tuple for None."""

    @abstractmethod
    def is_module(self, kind: type) -> bool:
        """Return whether this is a class of modules as they are tracked."""

    @abstractmethod
    def _add_one(self, model: Any, prefix: str) -> None:
        """Track every module inside a model. prefix: before their paths."""

    @abstractmethod
    def never_called(self) -> Iterable[tuple[str, str]]:
        """Yield (name, why) of every tracked module that was not called while collecting."""


#: How deep nests in a module's attributes are looked into, and at how much of each.
_DEEPEST, _MOST = 3, 1000


def models_of(model: object, kind: type, noun: str, more: str = "") -> tuple[Any, ...]:
    """Return the model, or the models of a list or tuple; () for None. Raises UsageError when it is neither.

    kind: the class of modules.
    noun: what it is called.
    more: what the error says besides.
    """
    if model is None:
        return ()
    if isinstance(model, kind):
        return (model,)
    if isinstance(model, (list, tuple)) and model and all(isinstance(m, kind) for m in model):
        return tuple(model)
    raise UsageError(f"The model must be a {noun}, or a list or tuple of them; got {kind_of(model)}.{more}")


def tracked_parameters(
    entries: Iterable[TrackedModule], own: Callable[[Any], Iterable[tuple[str, Any]]]
) -> list[TrackedParameter]:
    """Return every parameter once, with all its owners (tied weights have several).

    entries: the tracked modules.
    own: takes a module and returns the (name, parameter) pairs that it has itself and whose gradients are wanted.
    """
    found: dict[int, TrackedParameter] = {}
    for entry in entries:
        if not entry.base:
            continue
        record = f"{entry.base}.parameters_grad"
        for name, p in own(entry.module):
            known = found.get(id(p))
            owner = ((record, name),)
            found[id(p)] = TrackedParameter(p, owner if known is None else known.owners + owner)
    return list(found.values())


def kind_of(value: object) -> str:
    """Return the type of what was given for a model, in words: "a list of Linear, str"."""
    if isinstance(value, (list, tuple)):
        inside = sorted({type(v).__name__ for v in value}) or ["nothing"]
        return f"a {type(value).__name__} of {', '.join(inside)}"
    return f"a {type(value).__name__}"
