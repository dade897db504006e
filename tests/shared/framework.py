"""What the contracts in this folder need of a framework: each framework's conftest has the fixture ``framework``."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
from forks import Forks

__all__ = ["Framework"]


@attrs.frozen
class Framework:
    """A framework as its user has it.

    debugger, plan: PrecisionDebugger and plan of its package.
    leaf: the class of its package that describes values.
    functions: the module with its functions, as the user imports it; ``functions.gelu`` is recorded as Functional.gelu.
    home: the module beside the tests that makes this, as FRAMEWORK.
    module: the base class of modules. kind: what their records begin with. forward: the method that computes.
    linear: the class of its dense layer, made with (inputs, outputs). sequence: the class of a chain of layers.
    ones: a tensor of ones of a shape. array: a tensor's numbers.
    dot: the product of two vectors, recorded as one call whose name ends in "dot".
    gradient: takes a function and a tensor; the gradient of the sum of what the function returns.
    train: takes a module and a tensor; a forward and a backward pass, with gradients of parameters.
    msprobe_arguments: what stands in msprobe's PrecisionDebugger between ``level`` and ``step``.
    forks: what forks a process that has imported it.
    hostile: at least so many of the hostile values are taken by a module without Probe.
    """

    debugger: type[Any]
    plan: Callable[..., Any]
    leaf: type[Any]
    functions: ModuleType
    home: str
    module: type[Any]
    kind: str
    forward: str
    linear: type[Any]
    sequence: type[Any]
    ones: Callable[..., Any]
    array: Callable[[Any], Any]
    dot: Callable[[Any, Any], Any]
    gradient: Callable[[Callable[[Any], Any], Any], Any]
    train: Callable[[Any, Any], Any]
    forks: Forks
    hostile: int
    msprobe_arguments: tuple[Any, ...] = ()

    def layer(self) -> Any:
        return self.linear(2, 2)

    def gelu(self) -> Any:
        """Call one function, which is recorded as Functional.gelu."""
        return self.functions.gelu(self.ones(2, 2))

    def module_of(self, name: str, compute: Callable[..., Any]) -> Any:
        """Make a module of a class of that name. compute: gets the module and what it is called with."""
        return type(name, (self.module,), {self.forward: compute})()
