"""Name the Cells of a model (level L0), and catch their calls.

No hook is put on a Cell: MindSpore ignores forward hooks of Cells that define ``bprop``, and its backward hooks
insert nodes that change the bits of the run. Instead `nn.Cell.__call__` is replaced while collecting, so that
copies, pickles, compilations and the user's own hooks find the Cells unchanged.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from attrs import define, field, frozen
from probe_runtime.collect import (
    AnyModuleTable,
    TrackedModule,
    TrackedParameter,
    models_of,
    tracked_parameters,
)
from probe_runtime.patching import Held, Nested, bound_elsewhere, listening, place

from probe_mindspore.module_kind import CELLS, ModuleKind, late_torch

from .gradients import OWN, WHY_NO_BEGINNING, begins

Model = Any  # a Cell, or a list or tuple of them
#: called with (entry, cell, args, kwargs, the original __call__)
OnCall = Callable[[TrackedModule, Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]
#: called with (cell, args); returns what is to be called at the end of the call
Begins = Callable[[Any, tuple[Any, ...]], Callable[[], None] | None]

_OWN_CALL = "no call was seen, of a class with a __call__ of its own"
_TRACED = (
    'inside a compiled graph, if it was called: a function under @jit(capture_mode="trace") holds it, and what is '
    "traced is seen from outside only"
)


def models_in(model: object, module_kind: ModuleKind = CELLS) -> tuple[Any, ...]:
    """Return the model, or the models of a list or tuple; () for None. Raises UsageError when it is neither."""
    late = late_torch(module_kind)
    more = f" Note: {late}." if late else ""
    return models_of(model, module_kind.module_class, module_kind.noun, more)


@define
class CellTable(AnyModuleTable):
    """Hold every Cell whose calls are recorded, by id.

    A step may have two parts, one for PyNative calls and one for compiled graphs, each with its own table.

    module_kind: which modules are recorded.
    part: which Cells this table reports when they had no call: None for all; "graph" for Cells inside of jitted
        Cells; "pynative" for Cells outside of them. A Cell may be in both places; the outermost jitted Cells are.
    compiled: the jitted Cells by path.
    elsewhere: the Cells that only the other part reports when they had no call, by record name; their calls are
        recorded here all the same.
    in_graphs: the record names of Cells that ran in a compiled graph in this step; shared by both parts.
    uncalled: the reason to report for a Cell without calls.
    traced: the ids of Cells that a traced function can call; shared by both parts.
    """

    module_kind: ModuleKind = CELLS
    part: Literal["graph", "pynative"] | None = None
    compiled: dict[str, Any] = field(factory=dict)
    elsewhere: dict[str, TrackedModule] = field(factory=dict)
    in_graphs: set[str] = field(factory=set)
    uncalled: str = "not called in this step"
    traced: set[int] = field(factory=set)

    @property
    def prefix(self) -> str:
        return self.module_kind.prefix

    @property
    def registry(self) -> str:
        return self.module_kind.registry

    @property
    def parameter_registry(self) -> str:
        return self.module_kind.parameter_registry

    def roots_of(self, model: Model) -> tuple[Any, ...]:
        return models_in(model, self.module_kind)

    def is_module(self, kind: type) -> bool:
        return issubclass(kind, self.module_kind.module_class) and not issubclass(
            kind, self.module_kind.optimizers
        )

    def _add_one(self, model: Any, prefix: str) -> None:
        module_kind = self.module_kind
        outside: list[str] = []
        here = None if self.part is None else _reached(model)[self.part]
        for path, cell in module_kind.walk(model):
            if not path:
                self._note_own(prefix, [name for name, _ in module_kind.parameters(model)])
                if _is_jitted(cell):
                    self.compiled[prefix.rstrip(".")] = cell
                continue
            if isinstance(cell, module_kind.optimizers) and not _below(path, outside):
                outside.append(path)
                self.not_seen[f"{prefix}{path}"] = "an optimizer is no part of the model"
            if _below(path, outside):
                self.passed[id(cell)] = cell
                continue
            if _is_jitted(cell):
                self.compiled.setdefault(f"{prefix}{path}", cell)
            made = TrackedModule(f"{module_kind.prefix}.{prefix}{path}.{type(cell).__name__}", cell)
            entry = self.entries.setdefault(id(cell), made)
            if here is None or id(cell) in here:
                self.elsewhere.pop(entry.base, None)  # another model may have it too
            elif entry is made:
                self.elsewhere[entry.base] = entry

    def _walk(self, model: Any) -> Iterable[tuple[str, Any]]:
        return self.module_kind.walk(model)

    def parameters(self) -> list[TrackedParameter]:
        """Return every trained parameter of the tracked Cells once, with all its owners."""
        return tracked_parameters(self.entries.values(), self._trained)

    @property
    def has_graphs(self) -> bool:
        """Return whether any Cell's records are in the part of the step for compiled graphs."""
        return bool(self.in_graphs or self.elsewhere)

    def is_in_graph(self, base: str) -> bool:
        """Return whether the records of this Cell are in the part of the step for compiled graphs."""
        return base in self.in_graphs or (base in self.elsewhere and not self.elsewhere[base].called)

    def _trained(self, cell: Any) -> Iterator[tuple[str, Any]]:
        return ((name, p) for name, p in self.module_kind.parameters(cell) if p.requires_grad)

    def never_called(self) -> Iterable[tuple[str, str]]:
        inside = tuple(f"{self.module_kind.prefix}.{path}." if path else "" for path in self.compiled)
        for entry in self.entries.values():
            if entry.called or not entry.base or isinstance(entry.module, self.module_kind.containers):
                continue
            if entry.base in self.elsewhere:
                continue
            compiled = entry.base in self.in_graphs or (inside and entry.base.startswith(inside))
            own = all(
                type(entry.module).__call__ is not each.__call__ for each in self.module_kind.patched_classes
            )
            why = _OWN_CALL if own else _TRACED if id(entry.module) in self.traced else self.uncalled
            yield entry.base, "inside a compiled graph" if compiled else why

    def add_traced(self, cell: Any) -> None:
        """Note that a traced function can call this Cell, and so the Cells inside it."""
        if id(cell) not in self.traced:
            self.traced.update(id(one) for _, one in self.module_kind.walk(cell))


def _reached(model: Any) -> dict[str, set[int]]:
    """Return the ids of the Cells that are reached outside of compiled ones ("pynative"), and inside ("graph").

    The outermost compiled ones are both.
    """
    found: dict[str, set[int]] = {"pynative": set(), "graph": set()}
    waiting: list[tuple[Any, str]] = [(model, "pynative")]
    while waiting:
        cell, part = waiting.pop()
        if cell is not None and id(cell) not in found[part]:
            found[part].add(id(cell))
            if _is_jitted(cell) and _is_read(cell):
                part = "graph"
                found[part].add(id(cell))
            waiting += [(inner, part) for inner in cell._cells.values()]
    return found


def _is_jitted(cell: Any) -> bool:
    """Return whether calling this Cell runs a graph compiled by `mindspore.jit`."""
    construct = getattr(cell, "construct", None)
    return bool(getattr(construct, "__wrapped_by_jit__", False))


def is_bytecode(cell: Any) -> bool:
    """Return whether this Cell's construct is under @jit(capture_mode="bytecode")."""
    return "pijit" in _decorated_in(cell)


def _is_read(cell: Any) -> bool:
    """Return whether a jitted Cell is compiled from its source (capture_mode "ast"), which allows taps inside it."""
    file = _decorated_in(cell)
    return "pijit" not in file and "trace" not in file


def _decorated_in(cell: Any) -> str:
    """Return the source file of a Cell's construct: a file of MindSpore's where @jit wraps it."""
    construct = getattr(cell, "construct", None)
    function = getattr(construct, "__func__", construct)
    return str(getattr(getattr(function, "__code__", None), "co_filename", ""))


def has_read_graphs(model: Model, module_kind: ModuleKind) -> bool:
    """Return whether any Cell of the model, or of a list of models, is compiled from its source when called.

    Optimizers, which MindSpore compiles on its own, do not count.
    """
    for one in model if isinstance(model, (list, tuple)) else (model,):
        outside: list[str] = []
        for path, cell in module_kind.walk(one) if isinstance(one, module_kind.module_class) else ():
            if isinstance(cell, module_kind.optimizers):
                outside.append(path)
            elif not _below(path, outside) and _is_jitted(cell) and _is_read(cell):
                return True
    return False


def _below(path: str, outside: Sequence[str]) -> bool:
    return any(path == top or path.startswith(f"{top}.") for top in outside)


def patched_call(table: CellTable, on_call: OnCall, muted: Callable[[], bool]) -> Held:
    """Hand the calls of the table's Cells to ``on_call`` until the result is undone.

    muted: returns whether the calls of this thread are not to be recorded.
    """
    patched, kinds = table.module_kind.patched_classes, [type(e.module) for e in table.entries.values()]
    owners = *patched, *chain.from_iterable(bound_elsewhere(kinds, owner, "__call__") for owner in patched)
    places = [place(owner, "__call__", _calling) for owner in owners]
    return listening(_watching, _CallWatcher(table, on_call, muted), places)


def watched_calls(begins: Begins) -> Held:
    """Call ``begins`` before each call of any Cell, until the result is undone.

    begins: takes the Cell and its arguments, and returns what is to be called when that call is over, if anything.
    """
    return listening(_told, begins, [place(owner, "__call__", _calling) for owner in CELLS.patched_classes])


@frozen(eq=False)
class _CallWatcher:
    table: CellTable
    on_call: OnCall
    muted: Callable[[], bool]
    #: Each watcher has its own, because calls that end in another order than they began (greenlets) stay in it.
    nested: Nested = field(factory=Nested)


class _Telling(threading.local):
    of: Any = None


_watching: list[_CallWatcher] = []
_told: list[Begins] = []
_telling = _Telling()


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _told and _telling.of is not self:
            around, _telling.of = _telling.of, self
            ended: list[Callable[[], None]] = []
            try:
                ended += [over for begins in tuple(_told) if (over := begins(self, args)) is not None]
                return call(self, *args, **kwargs)
            finally:
                _telling.of = around
                for over in ended:
                    over()
        watching = tuple(_watching)
        if not watching or (nested := watching[-1].nested).is_recorded(self, call):
            return original(self, *args, **kwargs)
        run = original
        for watcher in watching:  # a step may have a part for graphs, whose watcher is further out
            entry = watcher.table.entries.get(id(self))
            if entry is not None and not watcher.muted():
                run = functools.partial(_watched, watcher, entry, run)
        if run is original:
            return original(self, *args, **kwargs)
        before, (nested.what, nested.by) = (nested.what, nested.by), (self, call)
        try:
            return run(self, *args, **kwargs)
        finally:
            nested.what, nested.by = before

    return call


def _watched(
    watcher: _CallWatcher,
    entry: TrackedModule,
    original: Callable[..., Any],
    self: Any,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if begins(self) and not OWN and entry.base:
        watcher.table.not_seen[f"the backward records of {entry.base}, where it begins"] = WHY_NO_BEGINNING
    return watcher.on_call(entry, self, args, kwargs, original)
