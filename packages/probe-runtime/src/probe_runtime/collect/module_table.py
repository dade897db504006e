"""Hold the modules and parameters that are recorded, with the names of their records, and list what has no record."""

from abc import ABC, abstractmethod
from collections import OrderedDict
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
    prefixes: id of a model that the user gave -> what stands before the paths in it.
    passed: id of a module that was met and is not tracked, on purpose -> the module.
    lent: ids of the modules that have other tensors in place of their parameters for a call, as `functional_call` puts
        them there.
    """

    entries: dict[int, TrackedModule] = field(factory=dict, kw_only=True)
    roots: dict[int, Any] = field(factory=dict, kw_only=True)
    not_seen: dict[str, str] = field(factory=dict, kw_only=True)
    passed: dict[int, Any] = field(factory=dict, kw_only=True)
    prefixes: dict[int, str] = field(factory=dict, init=False)
    lent: set[int] = field(factory=set, init=False)
    _registered: dict[int, Any] = field(factory=dict, init=False)
    _weights: dict[int, Any] = field(factory=dict, init=False)

    def add_model(self, model: Any) -> None:
        """Track every module inside a model, or inside each of a list of models (names then begin with its index).

        The model itself has no record of its own, as in msprobe; parameters that it owns directly are listed in
        `not_seen`. Raises UsageError when ``model`` is neither.
        """
        for i, one in enumerate(self.roots_of(model)):
            self.roots[id(one)] = one
            self.prefixes[id(one)] = prefix = "" if one is model else f"{i}."
            self._add_one(one, prefix)
        self._registered = self._children()
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
        """List modules in `not_seen` that a model keeps in plain lists, tuples and dicts alone, or does not name.

        Where there are none, this takes a few calls for all modules together. No code of the user's runs.
        """
        several = len(self.roots) > 1
        models = [(f"model {i}" if several else "the model", m) for i, m in enumerate(self.roots.values())]
        tracked = models + [(entry.base, entry.module) for entry in self.entries.values() if entry.base]
        owns = _attributes([module for _, module in tracked])
        unknown = self._modules_in(chain.from_iterable(map(dict.values, owns)))
        unknown -= self.entries.keys() | self.roots.keys() | self.passed.keys()
        for (where, _), own in zip(tracked, owns, strict=True) if unknown else ():
            for name, value in list(own.items()):
                found = self._modules_in([value]) & unknown
                if name == self.registry:
                    why = f"a class's own way to name its modules leaves out: {_LOST}"
                else:
                    kept = f"nn.{self.prefix}List or nn.{self.prefix}Dict"
                    why = f"are registered nowhere: {_LOST}. Keep them in {kept}"
                    found -= self._registered.keys()
                if found:
                    what = f"{self.prefix}s in the {type(value).__name__} {name} of {where}"
                    self.not_seen[what] = f"it holds {len(found)} that {why}"

    def note_changes(self) -> None:
        """List in `not_seen` what came into the models, or left them uncalled, since they were added.

        Where nothing changed, this takes a few calls for all modules together, and no code of the user's runs.
        """
        before = self._registered
        if self._children().keys() == before.keys():
            return
        known = self.entries.keys() | self.roots.keys() | self.passed.keys() | before.keys()
        met = {}
        for which, root in self.roots.items():
            for path, module in self._walk(root):
                met[id(module)] = module
                if id(module) not in known and self.is_module(type(module)):
                    self.passed[id(module)] = module
                    name = f"{self.prefix}.{self.prefixes[which]}{path}.{type(module).__name__}"
                    self.not_seen[f"{name}, built or put there while started"] = (
                        "it is seen from the next step on"
                    )
        left = {e.base for which, e in self.entries.items() if which in before and which not in met}
        for base in left.intersection([base for base, _ in self.never_called()]):
            self.not_seen[base] = "taken out of the model, or replaced, while started; not called until then"

    def _children(self) -> dict[int, Any]:
        """Return id -> module of the modules that are registered in a model, or in a module met below it."""
        met = [
            *self.roots.values(),
            *self.passed.values(),
            *[e.module for e in self.entries.values() if e.base],
        ]
        return _registered_in(met, self.registry)

    def begin(self) -> None:
        """Take the parameters as they are now for those whose gradients are seen."""
        self._weights = self._parameters_now()

    def note_parameters(self, *, have_gradients: bool) -> None:
        """List in `not_seen` the gradients of parameters that were put into tracked modules since `begin`.

        Where none was, this takes a few calls for all modules together, and no code of the user's runs.
        have_gradients: whether gradients came or may come.
        """
        before, self._weights = self._weights, {}  # or it would keep them alive, and a graph that made them
        if not have_gradients or self._parameters_now().keys() <= before.keys():
            return
        for entry in [e for e in self.entries.values() if e.base and id(e.module) not in self.lent]:
            for name, p in _attributes([entry.module])[0][self.parameter_registry].items():
                if id(p) not in before and p is not None and p.requires_grad:
                    self.not_seen[f"{entry.base}.parameters_grad: gradient of {name}"] = (
                        "the parameter was put there while started: it is seen from the next step on"
                    )

    def _parameters_now(self) -> dict[int, Any]:
        return _registered_in([e.module for e in self.entries.values() if e.base], self.parameter_registry)

    def _modules_in(self, values: Iterable[Any]) -> set[int]:
        """Return the ids of the modules inside those values that are lists, tuples or dicts, which may be nested."""
        found: list[Any] = []
        level = list(values)
        for _ in range(_DEEPEST):
            # Without a call: it is asked of thousands, and a class may have no hash.
            rows: list[Any] = [x for x in level if ((kind := type(x)) is list or kind is tuple) and x]
            rows += [x.values() for x in level if ((kind := type(x)) is dict or kind is OrderedDict) and x]
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

    @property
    @abstractmethod
    def registry(self) -> str:
        """Return the name of the attribute in which a module has its child modules."""

    @property
    @abstractmethod
    def parameter_registry(self) -> str:
        """Return the name of the attribute in which a module has its own parameters."""

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
    def _walk(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Yield (path, module) of the model and of every module inside it."""

    @abstractmethod
    def never_called(self) -> Iterable[tuple[str, str]]:
        """Yield (name, why) of every tracked module that was not called while collecting."""


#: How deep lists, tuples and dicts in a module's attributes are searched, and how many items of each.
_DEEPEST, _MOST = 3, 1000
_LOST = "they, and what is inside them, have no records"


def _attributes(modules: Iterable[Any]) -> list[dict[str, Any]]:
    return list(map(object.__getattribute__, modules, repeat("__dict__")))


def _registered_in(modules: Iterable[Any], registry: str) -> dict[int, Any]:
    """Return id -> what these modules have in their registries of this name."""
    tables: Iterable[Any] = map(dict.get, _attributes(modules), repeat(registry))
    # TorchScript's registries are of other classes, and do not change.
    plain = [x for x in tables if (kind := type(x)) is dict or kind is OrderedDict]
    found = list(chain.from_iterable(map(dict.values, plain)))
    return dict(zip(map(id, found), found, strict=True))


def models_of(model: object, kind: type, noun: str, more: str = "") -> tuple[Any, ...]:
    """Return the model, or the models of a list or tuple; () for None. Raises UsageError when it is neither.

    kind: the class of modules.
    noun: what the error calls a module.
    more: what else the error says.
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
