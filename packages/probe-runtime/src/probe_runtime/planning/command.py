"""Run ``probe plan MODULE:FUNCTION --config FILE``: say what a dump would write, before the run."""

import argparse
import contextlib
import importlib
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from probe_format.errors import ProbeError, UsageError
from probe_format.excerpts import error_text
from probe_format.terminal import say, tell

from probe_runtime.collect.module_table import kind_of
from probe_runtime.frameworks import framework_of, packages

from .dump_plan import DumpPlan


def _planner_of(model: object) -> Callable[..., DumpPlan]:
    """Return the function that plans for this model. Raises UsageError when none is installed."""
    framework = framework_of(type(model))
    if framework is None:
        raise UsageError(
            f"No package that is installed here plans for {kind_of(model)}. For a torch.nn.Module: pip install "
            "probe-torch. For a mindspore.nn.Cell: pip install probe-mindspore."
        )
    found: Callable[..., DumpPlan] = importlib.import_module(packages()[framework]).plan
    return found


def _without_memory() -> AbstractContextManager[Any]:
    """Return a context in which new tensors have no memory. Raises UsageError where no framework here can do it."""
    for package in packages().values():
        try:
            planning: Any = importlib.import_module(f"{package}.planning")
        except ImportError:  # its framework is not there
            continue
        if hasattr(planning, "without_memory"):
            return planning.without_memory()  # type: ignore[no-any-return]
    raise UsageError(
        "--meta is for torch, whose tensors can be made without memory; probe-torch is not installed here."
    )


_EXIT = "exit codes: 0 planned, and nothing is in the way; 1 planned, and something is; 2 cannot be planned"
_WANTED = "It must return (model, inputs), or (model, inputs, keywords), where inputs are a tuple and keywords a dict"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe plan``; those of the process when None.
    """
    arguments = _parser().parse_args(argv)
    try:
        with _without_memory() if arguments.meta else contextlib.nullcontext():
            model, inputs, keywords = _made(arguments.function)
        planned = _planner_of(model)(model, arguments.config, *inputs, **keywords)
    except ProbeError as error:
        tell(*f"probe plan: {error}".split("\n"))
        return 2
    say(*str(planned).split("\n"))
    return 1 if planned.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe plan",
        description="Say what a dump of one training step would write: records, files, bytes. Nothing is written. A "
        "torch model is not computed either; a MindSpore net makes one step, and is as before afterwards.",
        epilog=_EXIT,
    )
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="a function without arguments in a module that can be imported from here; it returns (model, inputs), or "
        "(model, inputs, keywords) with keywords for the model, `loss` and `optimizer`",
    )
    parser.add_argument(
        "--config", required=True, metavar="FILE", help="the configuration of the dump, JSON or YAML"
    )
    parser.add_argument(
        "--meta",
        action="store_true",
        help="torch only: call it on the device meta, without memory for weights",
    )
    return parser


def _made(name: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Return what the function gives: the model, its inputs, its keywords. Raises UsageError when it cannot."""
    made = _function(name)()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise UsageError(f"{name} returned {kind_of(made)}. {_WANTED}.")
    model, inputs, keywords = (*made, {})[:3]
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    if not isinstance(keywords, Mapping):
        raise UsageError(f"The third value that {name} returned is {kind_of(keywords)}. {_WANTED}.")
    return model, tuple(inputs), keywords


def _function(name: str) -> Callable[[], Any]:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"{name!r} names no function. Write package.module:function.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = operator.attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as e:
        raise UsageError(f"{name} cannot be taken from {os.getcwd()}: {error_text(e)}.") from e
    if not callable(found):
        raise UsageError(f"{name} is {kind_of(found)}, not a function. {_WANTED}.")
    function: Callable[[], Any] = found
    return function
