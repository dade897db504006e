"""Give calls that inspect, copy or pickle a function the answers that they would get without Probe."""

import copy
import functools
import io
import multiprocessing.reduction
import pickle
from typing import Any

from .pickles import PICKLER, dumping, dumping_to_file, forking_dumping, loading, naming
from .places import Function, Place, original_of, originals_by_id
from .registry import place
from .switch import Switch, muted


def guards(module: type) -> list[Place]:
    """Return the places that hide the wrappers from introspection.

    - pickle and multiprocessing find each function, original or wrapper, under its name;
    - copies and unpickled objects hold originals, never a wrapper that would outlive the dump;
    - what all of them call is not recorded.

    module: the class of modules (nn.Module, nn.Cell), which keep functions in attributes.
    """
    reduction = multiprocessing.reduction
    return [
        place(copy, "copy", _copying, module),
        place(copy, "deepcopy", _deep_copying),
        place(pickle, "Pickler", naming),
        place(pickle, "dumps", dumping),
        place(pickle, "dump", dumping_to_file, PICKLER),
        place(pickle, "loads", loading, io.BytesIO),
        place(pickle, "load", loading),
        place(reduction.ForkingPickler, "dumps", forking_dumping),
        place(reduction, "dump", dumping_to_file, reduction.ForkingPickler),
    ]


def _copying(original: Function, module: type) -> Function:
    @functools.wraps(original)
    def call(x: Any) -> Any:
        with muted():
            result = original(x)
        if isinstance(result, module) and result is not x:
            for name, value in list(vars(result).items()):
                if original_of(value) is not value:
                    vars(result)[name] = original_of(value)
        return result

    return call


def _deep_copying(original: Function) -> Function:
    @functools.wraps(original)
    def call(x: Any, memo: Any = None, *rest: Any) -> Any:
        # deepcopy takes copies from the memo where it has them: there the copy of a wrapper is the original.
        with muted():
            return original(x, originals_by_id() if memo is None else memo, *rest)

    return call


def suspended(original: Function, switch: Switch) -> Function:
    """Return a function that calls `original` while every patched function is the original: for rare calls."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        holder: Any = switch.holder
        if holder is None:
            return original(*args, **kwargs)
        with holder.suspended(f"while {call.__qualname__} ran"):
            return original(*args, **kwargs)

    return call
