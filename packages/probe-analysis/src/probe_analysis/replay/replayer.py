"""Define what a framework's package does to replay calls, and find the package by its entry point."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy.typing as npt
from probe_format.errors import FormatError, UsageError
from probe_format.values import ValuePath

Array = npt.NDArray[Any]
Arrays = Mapping[ValuePath, Array]
#: Takes tensors of the framework, calls a function with them, and returns each result under its path in the record.
Body = Callable[[Sequence[Any]], Mapping[ValuePath, Any]]


class Replayer(Protocol):
    """Replay a framework's calls. Each method raises ProbeError with the reason where it cannot."""

    def function(self, prefix: str, api: str) -> Callable[..., Any]:
        """Return the function that records name so; it must be in the framework's list of functions."""

    def argument(self, leaf: Mapping[str, Any]) -> Any:
        """Return an argument that is a value of the framework's, as a dtype; floating-point ones are float64."""

    def run(
        self, body: Body, inputs: Sequence[Array], wanted: Sequence[int], given: Arrays
    ) -> tuple[Arrays, Sequence[Array | None]]:
        """Return what ``body`` makes on the CPU of the inputs, and the gradients of some of them.

        wanted: the indexes of the inputs whose gradients are wanted.
        given: the gradients of the results, by their places; without any there are no gradients.
        """


#: What a header calls a framework -> its entry point in `probe.frameworks`.
_ENTRIES = {"pytorch": "torch", "mindspore": "mindspore"}


@cache
def replayer_of(framework: str) -> Replayer:
    """Return what replays the calls of a framework.

    Raises FormatError where nothing does, UsageError where its package is not installed.
    """
    name = _ENTRIES.get(framework)
    if name is None:
        what = f"calls of {framework}" if framework else "a dump that names no framework"
        raise FormatError(f"{what} cannot be replayed; those of PyTorch and MindSpore can.")
    try:
        entry = next(iter(entry_points(group="probe.frameworks", name=name)), None)
        if entry is None:
            raise ModuleNotFoundError("it is not installed")
        found: Replayer = entry.load().replayer()
    except ImportError as error:
        package = f"probe-{name}"
        raise UsageError(
            f"Calls of {framework} are replayed by {package}, which cannot be imported here ({error}). "
            f"Install it: pip install {package}"
        ) from error
    return found
