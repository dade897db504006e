"""Find the installed packages that know a framework, by entry points, and tell which framework a class comes from.

The name of an entry point in ``probe.frameworks`` is the top of the modules of the framework's classes (``torch``), its
value the package's module that knows its tensors.
"""

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points


@cache
def frameworks() -> Mapping[str, EntryPoint]:
    """Return the entry points of the packages that are installed, by framework."""
    return {entry.name: entry for entry in entry_points(group="probe.frameworks")}


def packages() -> dict[str, str]:
    """Return the packages that are installed, by the framework that each knows."""
    return {name: entry.module.partition(".")[0] for name, entry in frameworks().items()}


def framework_of(cls: type, more: Collection[str] = ()) -> str | None:
    """Return the framework that a class comes from; None where it is of none that is known.

    One framework may be built on another (the torch that is made of MindSpore's tensors): the one at the bottom has it.

    more: names of frameworks that are known besides those of installed packages.
    """
    tops = [str(ancestor.__module__).partition(".")[0] for ancestor in reversed(cls.__mro__)]
    return next((top for top in tops if top in more or top in frameworks()), None)
