"""Find which framework a saved value comes from, and load the module that describes its tensors (a `Home`), or say
what to install; ask such modules for this process's rank."""

import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any, Protocol

from probe_format.errors import UsageError
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary
from probe_runtime.describe import Placement, TensorOptions
from probe_runtime.environment import environment_number
from probe_runtime.frameworks import framework_of as found_framework
from probe_runtime.frameworks import frameworks


class MissingPackage(UsageError):
    """Raised for a value of a framework whose package is not installed."""


class SavedLeaf(Protocol):
    """What a framework's package does for one step."""

    @property
    def tally(self) -> dict[str, int]:
        """Return the number of tensors seen so far."""

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the finished JSON of a value of the framework, else `probe_format.values.UNKNOWN`.

        Appends each tensor that can have a gradient to ``placement.found``.
        """

    def fill_numbers(self, value: bytes) -> bytes:
        """Return a described value with the numbers that were still on their way from a device."""

    def watch(self, tensor: Any, arrived: Callable[[Any], None]) -> Callable[[], None] | None:
        """Call ``arrived(gradient)`` for each backward pass through ``tensor``; return a function that ends that.

        Returns None when no gradient can come.
        """

    def close(self) -> None:
        """Release every tensor."""


class Home(Protocol):
    """The module of a package that knows a framework's tensors.

    FRAMEWORK: the framework's name in the header.
    """

    FRAMEWORK: str

    def current_rank(self) -> int | None:
        """Return this process's rank in a distributed run, else None."""

    def world_size(self) -> int | None:
        """Return the number of processes of a distributed run, else None."""

    def open_leaf(
        self, options: TensorOptions, coverage: Coverage, numbers: Iterator[int], summary: Summary
    ) -> SavedLeaf:
        """Return what describes the tensors of one step.

        numbers, summary: as for `probe_runtime.describe.Leaf`.
        """


@cache
def _extras() -> tuple[str, ...]:
    """Return the extras of probe-save, each of which installs the package that knows the framework of that name."""
    try:
        return tuple(metadata("probe-save").get_all("Provides-Extra") or ())
    except PackageNotFoundError:  # it runs from its source
        return ()


def framework_of(cls: type) -> str | None:
    """Return the framework that a class or one of its bases comes from; None for any other."""
    try:
        return _framework_of(cls)
    except TypeError:  # its metaclass gives it no hash
        return found_framework(cls, _extras())


@lru_cache(maxsize=4096)
def _framework_of(cls: type) -> str | None:
    return found_framework(cls, _extras())


def home(framework: str) -> Home:
    """Return the module for a framework. Raises MissingPackage, with what to install, when there is none."""
    entry = frameworks().get(framework)
    try:
        if entry is None:
            raise ModuleNotFoundError("no installed package offers it")
        found: Home = entry.load()
    except ImportError as error:
        package = entry.dist.name if entry and entry.dist else "a package"
        install = ""
        if framework in _extras():
            package, install = f"probe-{framework}", f"Install it: pip install 'probe-save[{framework}]'. "
        raise MissingPackage(
            f"save() met a value of {framework}, which needs {package}, "
            f"and that cannot be imported here ({error}). {install}"
            "Or save what numpy and Python know: tensor.detach().cpu().numpy()."
        ) from error
    return found


def current_rank() -> int | None:
    """Return this process's rank: from a framework that is loaded, else from RANK or RANK_ID; None without any."""
    return _of_run("current_rank", "RANK", "RANK_ID")


def world_size() -> int | None:
    """Return the number of processes of a distributed run, found as the rank is; None where it is not known."""
    return None if current_rank() is None else _of_run("world_size", "WORLD_SIZE", "RANK_SIZE")


def _of_run(question: str, *variables: str) -> int | None:
    """Return what a framework that is loaded answers, else the first of the variables that is set."""
    for framework in dict.fromkeys((*_extras(), *frameworks())):
        if framework in sys.modules:
            try:
                found: int | None = getattr(home(framework), question)()
            except MissingPackage:
                continue
            if found is not None:
                return found
    given = map(environment_number, variables)
    return next((number for number in given if number is not None), None)
