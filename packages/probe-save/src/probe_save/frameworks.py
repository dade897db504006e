"""The packages that know a framework's tensors, each loaded when a value of that framework is met.

Each offers (see `SavedLeaf`): ``FRAMEWORK``, the name in the header; ``current_rank()``, the number of this
process or None; ``open_leaf(options, coverage)``, what describes tensors and waits for their gradients.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from probe_format.errors import UsageError
from probe_format.values import Path
from probe_format.write import Coverage

from .place import LeafOptions, Spot

__all__ = ["Home", "MissingPackage", "SavedLeaf", "current_rank", "framework_of", "home"]

#: The top of a class's module -> what describes its instances, and the extra of ours that brings it.
_HOMES = {
    "torch": ("probe_torch.saving", "torch"),
    "torch_npu": ("probe_torch.saving", "torch"),
    "mindspore": ("probe_mindspore.saving", "mindspore"),
}


class MissingPackage(UsageError):
    """A value belongs to a framework whose package is not installed."""


class SavedLeaf(Protocol):
    """What a framework's package does for one step."""

    def leaf(self, spot: Spot, value: Any, path: Path) -> Any:
        """JSON of a value of the framework, else `probe_format.values.UNKNOWN`. Notes tensors in spot.found."""

    def fill_numbers(self, value: Any) -> None:
        """Fill in the numbers of a described value that were still on their way from a device."""

    def watch(self, tensor: Any, arrived: Callable[[Any], None]) -> Callable[[], None] | None:
        """Call ``arrived(gradient)`` for each backward pass through ``tensor``; gives what ends that.

        None where no gradient can come.
        """

    def close(self) -> None:
        """Let go of every tensor."""


class Home(Protocol):
    """A module of `_HOMES`."""

    FRAMEWORK: str

    def current_rank(self) -> int | None:
        """This process's number in a distributed run, else None."""

    def open_leaf(self, options: LeafOptions, coverage: Coverage) -> SavedLeaf:
        """A leaf for one step."""


@lru_cache(maxsize=4096)
def framework_of(cls: type) -> str | None:
    """The framework that a class comes from, itself or by what it derives from; None for any other."""
    tops = [str(ancestor.__module__).partition(".")[0] for ancestor in cls.__mro__]
    if "mindspore" in tops:  # the tensors of a torch that stands on MindSpore (mindtorch) are MindSpore's
        return "mindspore"
    return next((top for top in tops if top in _HOMES), None)


def home(framework: str) -> Home:
    """The package for a framework. Raises MissingPackage, which names the extra to install."""
    module, extra = _HOMES[framework]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            f"save() met a value of {framework}, which needs {module.partition('.')[0].replace('_', '-')}, "
            f"and that cannot be imported here ({error}). Install it: pip install 'probe-save[{extra}]'. "
            "Or save what numpy and Python know: tensor.detach().cpu().numpy()."
        ) from error


def current_rank() -> int | None:
    """This process's number: from a framework that is loaded, else RANK or RANK_ID, as launchers set them."""
    for framework in _HOMES:
        if framework in sys.modules:
            try:
                found = home(framework).current_rank()
            except MissingPackage:
                continue
            if found is not None:
                return found
    return _number("RANK") if _number("RANK") is not None else _number("RANK_ID")


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "").strip()
    # Some schedulers set these to other things; what is no rank is taken as not set.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
