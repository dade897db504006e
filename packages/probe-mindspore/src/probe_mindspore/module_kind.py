"""Whose modules are dumped: MindSpore's Cells, or those of a `torch` that stands on MindSpore (mindtorch)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mindspore
from attrs import frozen
from mindspore import nn

__all__ = ["CELLS", "Flavour", "behind", "detect", "late_torch", "source_of_torch", "torch_on_mindspore"]

Pairs = Iterable[tuple[str, Any]]


@frozen
class Flavour:
    """How modules are found and named.

    framework: as in dump.json. prefix: of the records of modules. kind: their class; callers: the classes
    whose ``__call__`` is tapped. containers: classes that are never called. optimizers: classes whose modules
    are no part of the model. walk(model): every (path, module) once, the model itself as ``""``.
    parameters(module): its own (name, parameter). requires_grad: tensors say so of themselves.
    """

    framework: str
    prefix: str
    noun: str
    kind: type
    callers: tuple[type, ...]
    containers: tuple[type, ...]
    optimizers: tuple[type, ...]
    walk: Callable[[Any], Pairs]
    parameters: Callable[[Any], Pairs]
    requires_grad: bool = False


def _cells(model: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = model.cells_and_names()
    return found


def _own_parameters(cell: Any) -> Iterator[tuple[str, Any]]:
    return ((name, p) for name, p in cell._params.items() if p is not None)


def _optimizers() -> tuple[type, ...]:
    found = [nn.Optimizer]
    for path in ("experimental.optim.Optimizer", "mint.optim.Optimizer"):
        owner: Any = mindspore
        for part in path.split("."):
            owner = getattr(owner, part, None)
        if isinstance(owner, type):
            found.append(owner)
    return tuple(found)


CELLS = Flavour(
    framework="mindspore",
    prefix="Cell",
    noun="mindspore.nn.Cell",
    kind=nn.Cell,
    callers=(nn.Cell, nn.GraphCell),
    containers=(nn.CellList, nn.CellDict),
    optimizers=(*_optimizers(), nn.learning_rate_schedule.LearningRateSchedule),
    walk=_cells,
    parameters=_own_parameters,
)


def torch_on_mindspore() -> Any:
    """The loaded `torch` whose tensors are MindSpore's (mindtorch, MSAdapter); None for any other, or none."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return torch if isinstance(tensor, type) and issubclass(tensor, mindspore.Tensor) else None


def behind(module: Any) -> Any:
    """The module that another fetches its names from: `mindtorch` for mindtorch's `torch`. Most are themselves.

    mindtorch's `torch` holds nothing, and mindtorch's own layers know nothing of it: what is replaced behind it
    is seen by the user and by the layers, what is replaced in it by the user alone.
    """
    name = getattr(getattr(module, "__loader__", None), "target_name", None)
    return sys.modules.get(name, module) if isinstance(name, str) else module


def source_of_torch(path: str) -> str:
    """The same for a dotted path: "mindtorch.nn.functional" for "torch.nn.functional"."""
    first, dot, rest = path.partition(".")
    return str(getattr(behind(sys.modules.get(first)), "__name__", first)) + dot + rest


def _modules(model: Any) -> Iterator[tuple[str, Any]]:
    found: Iterator[tuple[str, Any]] = model.named_modules()
    return found


def _module_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    return ((name, p) for name, p in module._parameters.items() if p is not None)


def late_torch(flavour: Flavour) -> str:
    """What to do where a torch on MindSpore was imported after this flavour was detected; "" where none was."""
    late = flavour is CELLS and torch_on_mindspore() is not None
    return "torch was imported after the PrecisionDebugger was made; import it before" if late else ""


def detect() -> Flavour:
    """The flavour of this process: mindtorch if its torch is loaded, else MindSpore itself."""
    torch = torch_on_mindspore()
    if torch is None:
        return CELLS
    modules = torch.nn
    containers = (getattr(modules, name, None) for name in ("ModuleList", "ModuleDict"))
    return Flavour(
        framework="mindtorch",
        prefix="Module",
        noun="torch.nn.Module",
        kind=modules.Module,
        callers=(modules.Module,),
        containers=tuple(c for c in containers if c is not None),
        optimizers=(),
        walk=_modules,
        parameters=_module_parameters,
        requires_grad=True,
    )
