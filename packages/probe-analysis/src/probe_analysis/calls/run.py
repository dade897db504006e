"""Open a dump as runs (each is one rank of one step), and each run as its calls, in order.

A call tells what was called, where it was made, what it got, and what it gave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from attrs import define, fields_dict, frozen
from probe_format import Dump, Rank, Record
from probe_format import open as open_dump
from probe_format.errors import FormatError
from probe_format.names import (
    ApiName,
    ModuleName,
    ParamsGradName,
    parse_debug_name,
    parse_name,
    with_direction,
)  # fmt: skip
from probe_format.schema import Parts, parts_of

from .tabled import opened as opened_tables

Kind = Literal["module", "api", "parameters_grad", "optimizer_grad", "debug"]
GRADIENTS: tuple[Kind, ...] = ("parameters_grad", "optimizer_grad")
"""The kinds of records that hold gradients of parameters, as they arrived and as an optimizer got them."""


@define(eq=False)  # not frozen, as there is one of each record
class Call:
    """Hold one record of a run.

    what: the API's or the class's name, as ``linear`` or ``Linear``.
    path: the qualified name of the module; for an API call that of the module around it, empty at the top.
    count: how many records of the same key came before.
    parent: the name of the module call around it; None at the top.
    order: its place among the records of the rank, which is the order of completion.
    """

    name: str
    kind: Kind
    backward: bool
    what: str
    path: str
    count: int
    parent: str | None
    order: int
    rank: Rank

    def of(self, rank: Rank) -> Call:
        """Return the same call as another rank made it."""
        parts = self.name, self.kind, self.backward, self.what, self.path, self.count, self.parent, self.order
        return Call(*parts, rank)

    @property
    def record(self) -> Record:
        """Return the record, read anew from the file: a dump may be larger than the memory."""
        return self.rank.records[self.name]

    def read(self) -> Parts:
        """Return its tensors and its other arguments. Raises DamagedError when its line is not valid JSON."""
        return parts_of(self.record.json)

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the module calls around it, innermost first."""
        return self.rank.construct.ancestors(self.name)

    @property
    def stack(self) -> tuple[str, ...]:
        """Return where it was made, innermost frame first, each in one line; a backward call has its forward's."""
        found = self.rank.stack.of(self.name)
        if not found and self.backward:
            found = self.rank.stack.of(with_direction(self.name, "forward"))
        return _in_lines(tuple(found))

    @property
    def line(self) -> str:
        """Return the line of the model's code that made it, ``File a.py, line 3, in f, x = g(x)``; empty if unknown.

        It is the innermost frame outside of the framework and of Probe, where one is there.
        """
        frames = self.stack
        return next(filter(is_own, frames), frames[0] if frames else "")

    @property
    def place(self) -> dict[str, Any]:
        """Return where it was made, as spec/results.md has it."""
        where = {"run": self.rank.label, "call": self.name}
        return where | {"line": self.line, "modules": list(self.modules)}

    def role(self, slot: str) -> str:
        """Return what an input is to the function, as ``weight``; empty where that is not known."""
        return "" if self.kind != "api" or self.backward else _role(self.what, slot)


#: Function -> the roles of its arguments, in their order; empty for an argument without one.
_BATCH_NORM = ("", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_ROLES = {
    **dict.fromkeys(("linear", "dense", "conv1d", "conv2d", "conv3d"), ("", "weight", "bias")),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), ("", "weight", "bias")),
    **dict.fromkeys(("layer_norm", "group_norm"), ("", "", "weight", "bias", "eps")),
    "rms_norm": ("", "", "weight", "eps"),
    **dict.fromkeys(("batch_norm", "instance_norm"), _BATCH_NORM),
    **dict.fromkeys(("embedding", "embedding_bag", "prelu"), ("", "weight")),
    **dict.fromkeys(("dropout", "dropout2d", "alpha_dropout"), ("", "p", "training")),
}


@lru_cache(maxsize=4096)
def _role(what: str, slot: str) -> str:
    kind, _, place = slot.partition(".")
    if kind == "input_kwargs":
        return place if any(place in roles for roles in _ROLES.values()) else ""
    roles = _ROLES.get(what.lower(), ())
    return roles[int(place)] if place.isdigit() and int(place) < len(roles) else ""


class AtCall:
    """Tell where the call of a finding was made; nothing where the finding has no call."""

    __slots__ = ()
    call: Call | None

    @property
    def line(self) -> str:
        return "" if self.call is None else self.call.line

    @property
    def modules(self) -> tuple[str, ...]:
        return () if self.call is None else self.call.modules

    @property
    def where(self) -> tuple[str, ...]:
        return *((f"  {self.line}",) if self.line else ()), *(f"  inside {module}" for module in self.modules)


@lru_cache(maxsize=1024)
def _in_lines(frames: tuple[str, ...]) -> tuple[str, ...]:
    """Return each frame in one line. Many calls share a stack."""
    return tuple(" ".join(frame.split()) for frame in frames)


_NOT_THE_MODEL = re.compile(r"(site|dist)-packages/(torch|mindspore|probe_\w+)/|<frozen |<string>")


def is_own(frame: str) -> bool:
    """Return whether a frame is of the user's script or of a model's code, not of the framework or of Probe."""
    return _NOT_THE_MODEL.search(frame) is None


#: A dump, or the path of one.
Source = str | Path | Dump
#: Called with what is read, how much of it was read, and how much there is.
Progress = Callable[[str, int, int], None]


@frozen(slots=False, eq=False)
class Run:
    """Give access to the calls of one rank of one step.

    label: ``step0/rank1``.
    """

    label: str
    rank: Rank

    @property
    def folder(self) -> str:
        """Return the folder of its process, which is the same in each step: ``rank1``, ``proc12``, ``graph/rank``."""
        mode, name = self.rank.mode, self.rank.path.name
        return f"{mode}/{name}" if mode else name

    def forget(self) -> None:
        """Let go of all that was read. It is read again when it is asked for."""
        for each in (self, self.rank):
            for name in vars(each).keys() - fields_dict(type(each)).keys():
                del vars(each)[name]

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Return every record as a call, in the order of completion. Raises FormatError when a file is damaged."""
        rank, parents = self.rank, self.rank.construct.parents
        saved = rank.header.get("level") == "debug"  # msprobe 1.2 writes its names in another form
        counts: dict[tuple[str, str, str, bool], int] = {}
        paths: dict[str, str] = {}
        found = []
        for order, name in enumerate(rank.records.names):
            kind, what, path, backward = _described(name, saved)
            parent = parents.get(name)
            if kind == "api" and parent is not None:
                if parent not in paths:
                    paths[parent] = ".".join(parent.split(".")[1:-3])  # empty for a node that is not a module
                path = paths[parent]
            key = (kind, what, path, backward)
            count = counts.get(key, 0)
            counts[key] = count + 1
            found.append(Call(name, kind, backward, what, path, count, parent, order, rank))
        return tuple(found)

    @cached_property
    def by_name(self) -> dict[str, Call]:
        return {call.name: call for call in self.calls}

    @property
    def framework(self) -> str:
        """Return ``pytorch`` or ``mindspore``; empty where the dump does not say."""
        return str(self.rank.header.get("framework") or "")

    def is_across(self, other: Run) -> bool:
        """Return whether two runs are of two frameworks, as far as both say which."""
        return bool(self.framework and other.framework and self.framework != other.framework)

    @cached_property
    def was_cut(self) -> bool:
        """Return whether the process was killed, or is still running, so that the end of the step is not there."""
        if self.rank.source == "journal" or self.rank.is_empty:
            return True
        try:
            return self.rank.report is not None and self.rank.report.state != "complete"
        except FormatError:
            return False

    @cached_property
    def open(self) -> str | None:
        """Return the name of the last record of parameters' gradients in a run that was cut: it may lack some.

        Empty where there is no such record; None in a run that was not cut.
        """
        gradients = (call.name for call in reversed(self.calls) if call.kind in GRADIENTS)
        return next(gradients, "") if self.was_cut else None

    @property
    def one_slot_per_argument(self) -> bool:
        """Return whether a function's backward record has one gradient for each argument, as Probe's format says.

        msprobe's for PyTorch has them as autograd does: other orders, transposed weights, fewer than the arguments.
        """
        return self.framework != "pytorch" or "format_version" in self.rank.header


def runs_of(dump: Source, *, step: int | None = None, rank: int | None = None) -> Iterator[Run]:
    """Yield the runs of a dump, rank after rank of each step.

    step, rank: only these; None for all.
    Raises FormatError when there is no dump, or it has no such step or rank.
    """
    opened = dump if isinstance(dump, Dump) else opened_tables(Path(dump)) or open_dump(dump)
    chosen = [r for r in opened.ranks if step in (None, r.step) and rank in (None, r.number)]
    if not chosen:
        there = ", ".join(sorted({r.label for r in opened.ranks}))
        asked = " and ".join(f"{what} {n}" for what, n in (("step", step), ("rank", rank)) if n is not None)
        raise FormatError(f"{opened.path} has no {asked}; it has {there}.")
    return (Run(r.label, r) for r in chosen)


def _described(text: str, saved: bool) -> tuple[Kind, str, str, bool]:
    """Return (kind, what, path, whether backward) of a record's name; an unknown name is a saved value's."""
    try:
        name = parse_debug_name(text) if saved else parse_name(text)
    except FormatError:
        return "debug", text, "", False
    if isinstance(name, ModuleName):
        return "module", name.cls, name.path, name.direction == "backward"
    if isinstance(name, ApiName):
        return "api", name.api, "", name.direction == "backward"
    if isinstance(name, ParamsGradName):
        return name.moment, name.cls, name.path, True
    return "debug", str(name), "", False
