"""Hold the modules and parameters that are tracked, and the names of their records."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from attrs import define, frozen


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


class Table(Protocol):
    """The modules whose calls are recorded; the framework's package names them.

    entries: id of a module -> the module as it is tracked.
    roots: id of a model that the user gave -> the model.
    not_seen: what cannot be recorded -> why.
    """

    entries: dict[int, TrackedModule]
    roots: dict[int, Any]
    not_seen: dict[str, str]

    def add_model(self, model: Any) -> None:
        """Track what is inside a model or list of models. Raises UsageError when it is something else."""

    def add_named(self, module: Any, name: str) -> None:
        """Track one module under a name of the user's, with nothing inside it."""

    def roots_of(self, model: Any) -> tuple[Any, ...]:
        """Return the models in ``model``: itself, or the items of a list; an empty tuple for None."""

    def never_called(self) -> Iterable[tuple[str, str]]:
        """Return (name, why) of every tracked module that was not called."""


def tracked_parameters(
    entries: Iterable[TrackedModule], own: Callable[[Any], Iterable[tuple[str, Any]]]
) -> list[TrackedParameter]:
    """Return every parameter once, with all its owners (tied weights have several).

    entries: the tracked modules.
    own: takes a module and returns the (name, parameter) pairs that it has itself and whose gradients are wanted.
    """
    found: dict[int, tuple[Any, list[tuple[str, str]]]] = {}
    for entry in entries:
        if not entry.base:
            continue
        for name, p in own(entry.module):
            owner = (f"{entry.base}.parameters_grad", name)
            which = id(p)
            if which in found:
                found[which][1].append(owner)
            else:
                found[which] = p, [owner]
    return [TrackedParameter(p, tuple(owners)) for p, owners in found.values()]


def kind_of(value: object) -> str:
    """Return the type of what was given for a model, in words: "a list of Linear, str"."""
    if isinstance(value, (list, tuple)):
        inside = sorted({type(v).__name__ for v in value}) or ["nothing"]
        return f"a {type(value).__name__} of {', '.join(inside)}"
    return f"a {type(value).__name__}"
