"""Put wrappers in place of a framework's functions for a while, and the original objects back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from threading import get_ident
from types import ModuleType
from typing import Any

from attrs import define, field
from probe_format.errors import UsageError
from probe_format.excerpts import brief
from probe_format.suggest import nearest

from .early_bindings import EarlyBindings, Originals, Scan, find_in_modules, find_in_namespaces, last_import
from .importer import Importer
from .kept import KeptCopies, functions_of
from .lookup import Listed, Wrap, custom_place, go_down, is_function, name_of
from .meanwhile import others_noted
from .places import Holder, Item, Place, Stood
from .registry import PlaceTable, lock
from .stale_references import Own
from .switch import Label, Switch, Tap

_REGISTERING = "while a function was registered"


class Prepared:
    """What is replaced for one list of functions, made ready once per process.

    listed: the places of the listed names.
    guests: places that are replaced along with the listed ones, and whose calls are not recorded.
    originals: what stands in for which function; the first place of a function counts (F.conv2d, not torch.conv2d).
    owners: the ids of the namespaces of the modules that own the places.
    """

    def __init__(self, listed: Listed, guests: Callable[[], list[Place]], scan: Scan) -> None:
        """Prepare nothing yet. scan: the modules that are searched for names bound early."""
        self.listed = listed
        self.scan = scan
        self.early = EarlyBindings(scan)
        self.guests: list[Place] = []
        self.table = PlaceTable(())
        self.originals: Originals = Own()
        self.owners: set[int] = set()
        self._find_guests = guests
        self._imported: Any = None

    def update(self) -> None:
        """Bring the places up to date with the modules imported by now, and with what other code has put there."""
        changed = False
        if (imported := last_import()) != self._imported:
            self._imported = imported
            self.listed.look_up()
            self.guests = self._find_guests()
            places = _once_each(chain(self.listed.places, self.guests))
            changed = places != self.table.places
            if changed:
                self.table = PlaceTable(places)
        if self.table.check() or changed:
            self.originals = _originals(chain(self.guests, self.listed.places))
            self.owners = _namespaces_of(self.table.places)


@define(eq=False)
class Patches:
    """Send every call of a listed function of one framework through `tap`, while applied.

    tap: the function that gets the calls (`switch.Tap`).
    switch: where the framework's wrappers find the tap.
    prepared: the places of the listed names.
    wrap: makes the wrapper of a registered function.
    namespaces: takes a model and returns the attributes of each of its modules.
    prepare: called before anything is replaced.
    in_models: takes models and returns more places, which come and go with the models.

    A context manager; `apply` and `undo` nest. Patched are the listed names, where they are public; every name that
    another module bound to the same function before (`from torch import relu`); and in the models given to `apply` the
    attributes that hold one (`self.act = F.relu`). `undo` puts everything back, also when `apply` fails half-way.
    Only one can be applied in a process: applying another raises UsageError.
    """

    tap: Tap
    _switch: Switch
    _prepared: Prepared
    _wrap: Wrap
    _namespaces: Callable[[Any], Iterable[dict[str, Any]]]
    _prepare: Callable[[], None] = lambda: None
    _in_models: Callable[[Sequence[Any]], list[Place]] = lambda models: []
    _depth: int = 0
    _suspensions: list[int] = field(factory=list)  # the thread of each
    _custom: list[Place] = field(factory=list)  # of registered functions
    _tables: list[PlaceTable] = field(factory=list)  # of all that are replaced while applied
    # The places in which the user has put something while applied.
    _taken: list[Place] = field(factory=list)
    _early: list[Holder] = field(factory=list)
    _models: tuple[Any, ...] = ()
    _of_models: list[Place] = field(factory=list)
    _kept: KeptCopies = field(factory=KeptCopies)
    _searched: Any = None
    _importer: Importer = field(init=False)

    def __attrs_post_init__(self) -> None:
        # With the originals in place: modules keep what they import for longer than a dump lasts.
        self._importer = Importer(lambda name: self.suspended(f"while {name} was imported"))

    @property
    def missing(self) -> dict[str, str]:
        """Return the listed names that are not patched, and why.

        {"torch.align_tensors": "this torch has no such function"}.
        """
        return self._prepared.listed.missing

    @property
    def applied(self) -> bool:
        """Return whether the patches are between `apply` and `undo`."""
        return self._depth > 0

    def apply(self, *models: Any) -> None:
        """Put the wrappers in place.

        models: searched for attributes that hold one of the functions.

        Raises UsageError when other patches are applied in this process.
        """
        with lock:
            if self._switch.holder not in (None, self):
                raise UsageError(
                    "another debugger is collecting in this process; stop() it before starting this one"
                )
            self._depth += 1
            if self._depth > 1:
                return
            self._switch.holder = self
            try:
                self._models, self._kept, self._taken = models, KeptCopies(), []
                self._of_models = self._in_models(models)
                self._find()
                self._kept.note(self._prepared.table.functions)
                self._kept.note(functions_of(chain(self._custom, self._of_models)))
                if not self._suspensions:
                    self._install()
                self._importer.add()
            except BaseException:
                self.undo()
                raise

    def undo(self) -> None:
        """Put the originals back; without effect when nothing is applied."""
        with lock:
            if self._depth > 1:
                self._depth -= 1
            elif self._depth:
                self._depth = 0
                self._switch.holder = None
                self._importer.remove()
                self._uninstall()
                self._take_back()
                self._models, self._of_models, self._early, self._tables = (), [], [], []

    def __enter__(self) -> Patches:
        self.apply()
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()

    @contextmanager
    def suspended(self, what: str = "while a graph was compiled") -> Iterator[None]:
        """Put the originals back within this region, for every thread; nothing is recorded there.

        For what looks functions up by name or identity (torch.jit.script, an import). To keep the calls of one
        thread out of the dump use `muted`: it costs nothing and does not affect other threads.

        what: what is done, for the report if other threads run meanwhile.
        """
        here = get_ident()
        inner = not self._depth or here in self._suspensions
        with nullcontext() if inner else others_noted(what):
            with lock:
                self._suspensions.append(here)
                if len(self._suspensions) == 1 and self._depth:
                    self._uninstall()
            try:
                yield
            finally:
                with lock:
                    self._suspensions.remove(here)
                    if not self._suspensions and self._depth:
                        if last_import() != self._searched:
                            with self._kept.tables_change():
                                self._find()
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
        with lock, self.suspended(_REGISTERING):
            with self._kept.tables_change():
                self._prepared.update()
            self._custom = [p for p in self._custom if not _is_at(p, owner, name)]
            label = self._label(prefix or name_of(module), name, getattr(owner, name))
            self._custom.append(custom_place(owner, name, label, self._wrap))
            self._kept.note(functions_of(self._custom[-1:]))
            self._searched = None  # the names bound to it are not found yet

    def remove(self, module: Any, api_name: str) -> None:
        """Undo `add`; a listed function stays recorded. Raises UsageError when the name was not added."""
        _check_names("restore_custom_api", module, api_name)
        owner, name = go_down(module, api_name)
        with lock:
            kept = [p for p in self._custom if not _is_at(p, owner, name)]
            if len(kept) == len(self._custom):
                known = ", ".join(f"{name_of(p.owner)}.{p.name}" for p in self._custom) or "none"
                raise UsageError(f"{name_of(module)}.{api_name} was not registered; registered are: {known}")
            with self.suspended(_REGISTERING):
                self._custom, self._searched = kept, None

    def register_those_of(self, other: Patches) -> None:
        """Record the functions registered with other patches of this framework. Does nothing while applied."""
        if not self.applied:
            self._custom, self._searched = list(other._custom), None

    def _label(self, prefix: str, name: str, function: Any) -> Label:
        """Return the label of a registered function; a listed one keeps its kind under the new name."""
        listed = self._prepared.listed.places
        known = next((p.label for p in listed if p.now.original is function and p.label is not None), None)
        return Label(prefix, name) if known is None else Label(prefix, name, known.composite, known.kind)

    def _find(self) -> None:
        """Find all that is to be replaced. Nothing may be replaced meanwhile."""
        prepared = self._prepared
        prepared.update()
        self._searched = last_import()
        originals, own = prepared.originals, PlaceTable([*self._of_models, *self._custom])
        own.check()
        self._tables = [prepared.table, own]
        early: list[Holder] = []
        if self._custom:  # a registered name wins over the listed one
            registered = {(id(p.owner), p.name): p for p in self._custom}
            own_or_listed = [registered.get((id(p.owner), p.name), p) for p in prepared.table.places]
            self._tables[0] = PlaceTable([p for p in own_or_listed if p not in self._custom])
            custom = _originals(self._custom)
            # A function goes by the first of its names, which may be a listed one.
            first = _originals([*prepared.guests, *own_or_listed])
            custom = Own(
                {which: s for which, s in custom.items() if first.get(which, s).replacement is s.replacement}
            )
            early = find_in_modules(custom, prepared.scan)
            originals = Own({**originals, **custom})
        early += prepared.early.find(prepared.originals)
        early += find_in_namespaces(originals, chain.from_iterable(map(self._namespaces, self._models)))
        # In a module that owns patched functions (a device's package, a user's module with registered ones) only the
        # listed names are patched.
        owners = prepared.owners | _namespaces_of(self._custom)
        self._early = [each for each in early if not (isinstance(each, Item) and id(each.holder) in owners)]

    def _install(self) -> None:
        self._prepare()
        self._switch.tap = self.tap
        for table in self._tables:
            table.put(self._kept, self._taken)
        for found in self._early:
            found.put()

    def _uninstall(self) -> None:
        # The tap goes first: a wrapper that another thread has just looked up then calls the original.
        self._switch.tap = None
        for found in self._early:
            found.take_back()
        self._taken = [each for table in self._tables for each in table.take_back()]

    def _take_back(self) -> None:
        """Put the original wherever a wrapper is held that user code got while it was in place."""
        places = [each for table in self._tables for each in table.places]
        kept = self._kept.give_back(places)
        if kept or self._switch.strays:
            self._switch.strays = self._kept.strays(places, self._switch.strays)
        held = (*kept, *(each.stood for each in self._switch.strays))
        back = Own({id(s.replacement): Stood(None, None, s.replacement, s.original) for s in held})
        if back:
            namespaces = chain.from_iterable(map(self._namespaces, self._models))
            in_modules = find_in_modules(back, self._prepared.scan)
            for found in (*in_modules, *find_in_namespaces(back, namespaces)):
                found.put()


def _once_each(places: Iterable[Place]) -> list[Place]:
    """Return the first place of each name of each owner."""
    found: dict[tuple[int, str], Place] = {}
    for place in places:
        found.setdefault((id(place.owner), place.name), place)
    return list(found.values())


def _namespaces_of(places: Iterable[Place]) -> set[int]:
    """Return the ids of the namespaces of the modules that own places."""
    return {id(vars(place.owner)) for place in places if isinstance(place.owner, ModuleType)}


def _is_at(place: Place, owner: Any, name: str) -> bool:
    return place.owner is owner and place.name == name


def _originals(places: Iterable[Place]) -> Originals:
    found: dict[int, Stood] = Own()
    for place in places:
        for stood in place.stood:
            found.setdefault(id(stood.original), stood)
    return found


def _check_names(call: str, module: object, api_name: object) -> None:
    """Raise UsageError where a function is named in a way that cannot be looked up."""
    if isinstance(module, str):
        raise UsageError(f"{call} wants the module itself, not its name: write {call}({module}, ...).")
    if not isinstance(api_name, str) or not api_name:
        raise UsageError(
            f"{call} wants the function's name as a text, such as 'matmul'; got {brief(api_name)}."
        )
