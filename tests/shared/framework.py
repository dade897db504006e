"""What the contracts in this folder need of a framework: each framework's conftest has the fixture ``framework``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

__all__ = ["Framework"]


@attrs.frozen
class Framework:
    """A framework as its user has it.

    debugger: PrecisionDebugger of its package.
    functions: the module with its functions, as the user imports it; ``functions.gelu`` is recorded as Functional.gelu.
    linear: the class of its dense layer, made with (inputs, outputs).
    ones: a tensor of ones of a shape.
    file_shape: the shape of the tensor in a file that was dumped.
    msprobe_arguments: what stands in msprobe's PrecisionDebugger between ``level`` and ``step``.
    """

    debugger: type[Any]
    functions: ModuleType
    linear: type[Any]
    ones: Callable[..., Any]
    file_shape: Callable[[Path], list[int]]
    msprobe_arguments: tuple[Any, ...] = ()

    def layer(self) -> Any:
        return self.linear(2, 2)

    def gelu(self) -> Any:
        """Call one function, which is recorded as Functional.gelu."""
        return self.functions.gelu(self.ones(2, 2))
