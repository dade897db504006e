"""Put wrappers in place of a framework's functions for a while, and the original objects back."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import sub
from sys import getrefcount
from types import ModuleType, TracebackType
from typing import Any

from probe_format.errors import UsageError
from probe_format.excerpts import brief
from probe_format.suggest import nearest

from .early_bindings import Replacements, Scan, find_in_modules, find_in_namespaces
from .group import Group, grouped
from .lookup import Wrap, custom_place, go_down, is_function, name_of
from .originals import forget_original, remember_original
from .places import Attribute, Item, Place
from .stale_references import Own, OwnPair, OwnTuple, give_back
from .switch import Label, Switch, Tap

__all__ = ["LookUp", "Patches"]

LookUp = Callable[[], tuple[list[Attribute], dict[str, str]]]
"""Returns the places of the listed names, and the names that have no place, with the reason."""

_lock = threading.RLock()


class Patches:
    """Send every call of a listed function through `tap`, while applied.

    tap: the function that gets the calls (`switch.Tap`).
    missing: listed names that are not patched, and why.

    A context manager; `apply` and `undo` nest. Patched are the listed names, where they are public; every name that
    another module bound to the same function before (`from torch import relu`); and in the models given to `apply` the
    attributes that hold one (`self.act = F.relu`). `undo` puts everything back, also when `apply` fails half-way.
    Only one can be applied in a process: applying another raises UsageError.
    """

    def __init__(
        self,
        tap: Tap,
        switch: Switch,
        look_up: LookUp,
        wrap: Wrap,
        scan: Scan,
        namespaces: Callable[[Any], Iterable[dict[str, Any]]],
        prepare: Callable[[], None] = lambda: None,
        in_models: Callable[[Sequence[Any]], list[Attribute]] = lambda models: [],
    ) -> None:
        """Prepare patches of one framework, which comes in as functions.

        tap: the function that gets the calls.
        switch: where the framework's wrappers find the tap.
        look_up: returns the places of the listed names.
        wrap: makes the wrapper of a registered function.
        scan: the modules that are searched for names bound early.
        namespaces: takes a model and returns the attributes of each of its modules.
        prepare: called before anything is replaced.
        in_models: takes models and returns more places, which come and go with the models.
        """
        self.missing: dict[str, str] = {}
        """Listed names that are not patched, and why: {"torch.align_tensors": "this torch has no such
        function"}."""
        self.tap = tap
        self._switch = switch
        self._look_up = look_up
        self._wrap = wrap
        self._scan = scan
        self._namespaces = namespaces
        self._prepare = prepare
        self._in_models = in_models
        self._depth = 0
        self._suspensions = 0
        self._listed: list[Attribute] = []
        self._planned: list[Group] = []  # all that is listed
        self._groups: list[Group] = []  # without what is registered under another name
        self._custom: list[Attribute] = []
        self._registered: list[tuple[Any, str]] = []
        self._guests: list[Attribute] = []
        self._excluded: list[Attribute] = []
        self._told: list[Callable[[], None]] = []
        self._early: list[Place] = []
        # Of the listed places: id(original) -> both functions, id(replacement) -> both. Kept, as making them each
        # time costs more in garbage collection than everything else that apply does.
        self._forth: Replacements = {}
        self._back: Replacements = {}
        # id(replacement) -> how many references there were before it was in place.
        self._held: dict[int, int] = {}
        self._replacements = OwnTuple()
        self._models: tuple[Any, ...] = ()
        self._of_models: list[Attribute] = []
        self._planned_for: frozenset[str] = frozenset()
        self._scanned: frozenset[str] = frozenset()

    @property
    def applied(self) -> bool:
        """Return whether it is between `apply` and `undo`."""
        return self._depth > 0

    def apply(self, *models: Any) -> None:
        """Put the wrappers in place.

        models: searched for attributes that hold one of the functions.

        Raises UsageError when other patches are applied in this process.
        """
        with _lock:
            if self._switch.holder not in (None, self):
                raise UsageError(
                    "another debugger is collecting in this process; stop() it before starting this one"
                )
            self._depth += 1
            if self._depth > 1:
                return
            self._switch.holder = self
            try:
                self._models, self._scanned, self._early = models, frozenset(), []
                self._plan()
                self._held = self._references()
                self._of_models = self._in_models(models)
                if not self._suspensions:
                    self._install(models)
            except BaseException:
                self.undo()
                raise

    def undo(self) -> None:
        """Put the originals back; without effect when nothing is applied."""
        with _lock:
            if self._depth > 1:
                self._depth -= 1
            elif self._depth:
                self._depth = 0
                self._switch.holder = None
                self._uninstall()
                self._of_models, self._early = [], []
                self._take_back()
                self._forget()
                self._models = ()

    def __enter__(self) -> Patches:
        self.apply()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Put the originals back within this region, for every thread; nothing is recorded there.

        For what looks functions up by name or identity (torch.jit.script, an import). To keep the calls of one
        thread out of the dump use `muted`: it costs nothing and does not affect other threads.
        """
        with _lock:
            self._suspensions += 1
            if self._suspensions == 1 and self._depth:
                self._uninstall()
        try:
            yield
        finally:
            with _lock:
                if self._suspensions == 1 and self._depth and sys.modules.keys() - self._scanned:
                    for told in self._told:  # the originals are in place
                        told()
                self._suspensions -= 1
                if not self._suspensions and self._depth:
                    self._install()

    def add(self, module: Any, api_name: str, prefix: str | None = None) -> None:
        """Also record module.api_name as `prefix`.api_name.

        module: the module or class that has the function.
        api_name: its name; a dotted one leads to an object inside, and is labelled by its last part.
        prefix: the first part of the record's name; the module's own name if not given.

        A listed name is recorded under its new name only, until `remove`; of several registrations of one name the
        last counts. Raises UsageError, with the nearest names, when there is no such function.
        """
        _check_names("register_custom_api", module, api_name)
        if prefix is not None and not (isinstance(prefix, str) and prefix):
            raise UsageError(
                f"register_custom_api: the prefix must be a text such as 'My', not {brief(prefix)}."
            )
        owner, name = go_down(module, api_name)
        if not is_function(owner, name):
            close = nearest(name, [n for n in dir(owner) if is_function(owner, n)])
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise UsageError(f"cannot record {name_of(module)}.{api_name}: there is no such function{hint}")
        with _lock:
            if not self._depth:
                self._plan()
            self._registered.append((owner, name))
            covered = [p for p in (*self._custom, *self._listed) if p.owner is owner and p.name == name]
            self._shrink(covered)
            label = self._label(prefix or name_of(module), name, getattr(owner, name))
            place = custom_place(owner, name, label, self._wrap)
            self._custom = [p for p in self._custom if p not in covered]
            self._custom.append(place)
            self._label_listed()
            self._held = self._references() | self._held
            self._extend([place])

    def remove(self, module: Any, api_name: str) -> None:
        """Undo `add`; a listed function stays recorded. Raises UsageError when the name was not added."""
        _check_names("restore_custom_api", module, api_name)
        owner, name = go_down(module, api_name)
        with _lock:
            kept = [known for known in self._registered if not (known[0] is owner and known[1] == name)]
            if len(kept) == len(self._registered):
                known = ", ".join(f"{name_of(o)}.{n}" for o, n in self._registered) or "none"
                raise UsageError(f"{name_of(module)}.{api_name} was not registered; registered are: {known}")
            self._registered = kept
            gone = [p for p in self._custom if p.owner is owner and p.name == name]
            self._custom = [p for p in self._custom if p not in gone]
            self._shrink(gone)
            self._label_listed()
            self._extend([p for p in self._listed if p.owner is owner and p.name == name])

    def include(self, places: Sequence[Attribute]) -> None:
        """Put other replacements in place whenever the wrappers are, in names bound early too."""
        with _lock:
            for place in places:
                remember_original(place.replacement, place.original)
            self._guests += places
            if self._depth:
                self._held |= _references(_functions_of(places))
            self._extend(places)

    def exclude(self, places: Sequence[Attribute]) -> None:
        """Undo `include`."""
        with _lock:
            self._guests = [p for p in self._guests if p not in places]
            self._shrink(places)
            self._excluded += places
            if not self._depth:
                self._forget()

    @contextmanager
    def telling(self, imported: Callable[[], None]) -> Iterator[None]:
        """Call ``imported`` whenever modules were imported while applied, before the wrappers are in place again."""
        self._told.append(imported)
        try:
            yield
        finally:
            self._told.remove(imported)

    def _label(self, prefix: str, name: str, function: Any) -> Label:
        """Return the label of a registered function; a listed one keeps its kind under the new name."""
        known = next((p.label for p in self._listed if p.original is function and p.label is not None), None)
        return Label(prefix, name) if known is None else Label(prefix, name, known.composite, known.kind)

    def _label_listed(self) -> None:
        """Note the replacement of each listed function; a registered name wins over the listed one."""
        custom = {(id(p.owner), p.name): p for p in self._custom}
        self._forth = _forth([custom.get((id(p.owner), p.name), p) for p in self._listed])
        others = (p for p in self._listed if (id(p.owner), p.name) not in custom)
        self._groups = grouped(others) if custom else self._planned
        self._replacements = OwnTuple(_functions_of(chain(self._listed, self._custom)))

    def _places(self) -> Iterator[Attribute | Group]:
        return chain(self._groups, self._custom, self._of_models, self._guests)

    def _install(self, models: Sequence[Any] = ()) -> None:
        new = sys.modules.keys() - self._scanned
        self._prepare()
        if new:
            self._scanned = frozenset(sys.modules)
        # The first place of a function gives the label: F.conv2d, not torch.conv2d.
        forth = _forth([*self._custom, *self._guests]) | self._forth
        self._early += self._find_early(forth, new, models)
        self._switch.tap = self.tap
        for place in chain(self._places(), self._early):
            place.put()

    def _uninstall(self) -> None:
        # The tap goes first: a wrapper that another thread has just looked up then calls the original.
        self._switch.tap = None
        for place in chain(self._early, self._places()):
            place.restore()

    def _extend(self, places: Sequence[Attribute]) -> None:
        if self._depth and not self._suspensions:
            forth = _forth(places) | {
                k: self._forth[k] for k in (id(p.original) for p in places) if k in self._forth
            }
            early = self._find_early(forth, sys.modules, self._models)
            self._early += early
            for place in chain(places, early):
                place.put()

    def _shrink(self, places: Sequence[Attribute]) -> None:
        gone = {id(p.replacement) for p in places}
        for place in chain(places, (p for p in self._early if id(p.replacement) in gone)):
            place.restore()
        self._early = [p for p in self._early if id(p.replacement) not in gone]

    def _take_back(self) -> None:
        """Put the original wherever a wrapper is held that user code got while it was in place."""
        if self._references() == self._held and not self._switch.strays:
            return  # nobody got one, so that neither modules nor objects have to be searched
        # A name: `act = F.relu`.
        back = _back([*self._custom, *self._guests, *self._excluded]) | self._back
        for place in self._found(back, sys.modules, self._models):
            place.put()
        # All other holders: a module built meanwhile, a closure, a table. One that cannot be changed is looked for
        # once: the next time the reference was there before.
        held = self._gained()
        kept = {id(p.replacement): p for p in chain(self._listed, self._custom) if id(p.replacement) in held}
        if kept:
            give_back(OwnPair((place.replacement, place.original)) for place in kept.values())
            self._switch.strays |= bool(self._gained())

    def _gained(self) -> set[int]:
        """Return the wrappers that are held more often than before they were in place: that gained more than most.

        Where most have lost some, an earlier debugger of the process was collected meanwhile.
        """
        counts = self._references()
        more = list(map(sub, counts.values(), map(self._held.get, counts, counts.values())))
        usual = Counter(more).most_common(1)
        return {which for which, n in zip(counts, more, strict=True) if n > usual[0][0]}

    def _references(self) -> dict[int, int]:
        return _references((*self._replacements, *_functions_of(chain(self._guests, self._excluded))))

    def _forget(self) -> None:
        kept = {id(p.replacement) for p in self._guests}
        for place in self._excluded:
            if id(place.replacement) not in kept:
                forget_original(place.replacement)
        self._excluded = []

    def _find_early(self, forth: Replacements, modules: Iterable[str], models: Sequence[Any]) -> list[Place]:
        """Return the other places where the originals are bound."""
        # In a module that owns patched functions (a device's package, a user's module with registered ones) only the
        # listed names are patched.
        owners = {id(vars(p.owner)) for p in self._places() if isinstance(p.owner, ModuleType)}
        found = self._found(forth, modules, models)
        return [p for p in found if not (isinstance(p, Item) and id(p.holder) in owners)]

    def _found(
        self, replacements: Replacements, modules: Iterable[str], models: Sequence[Any]
    ) -> Iterator[Place]:
        """Yield the places where modules and models hold one of the originals."""
        yield from find_in_modules(replacements, modules, self._scan)
        yield from find_in_namespaces(replacements, chain.from_iterable(map(self._namespaces, models)))

    def _plan(self) -> None:
        """Look up every listed name, unless nothing can have changed since the last time."""
        imported = frozenset(sys.modules)
        if imported == self._planned_for and all(group.is_original() for group in self._planned):
            return
        self._listed, self.missing = self._look_up()
        self._planned = grouped(self._listed)
        self._planned_for, self._back = imported, _back(self._listed)
        self._label_listed()


def _functions_of(places: Iterable[Attribute]) -> list[Any]:
    """Return what user code can get from places: the replacements, and static methods around them."""
    both = ((p.replacement,) if p.stand_in is p.replacement else (p.replacement, p.stand_in) for p in places)
    return list(chain.from_iterable(both))


def _references(functions: Sequence[Any]) -> dict[int, int]:
    """Return how many references there are to each function, by its id."""
    return dict(zip(map(id, functions), map(getrefcount, functions), strict=True))


def _forth(places: Sequence[Place]) -> Replacements:
    return Own({id(p.original): OwnPair((p.original, p.replacement)) for p in reversed(places)})


def _back(places: Sequence[Place]) -> Replacements:
    return Own({id(p.replacement): OwnPair((p.replacement, p.original)) for p in places})


def _check_names(call: str, module: object, api_name: object) -> None:
    """Raise UsageError where a function is named in a way that cannot be looked up."""
    if isinstance(module, str):
        raise UsageError(f"{call} wants the module itself, not its name: write {call}({module}, ...).")
    if not isinstance(api_name, str) or not api_name:
        raise UsageError(
            f"{call} wants the function's name as a text, such as 'matmul'; got {brief(api_name)}."
        )
