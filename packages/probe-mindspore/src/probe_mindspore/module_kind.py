"""Detect which modules are dumped here, MindSpore's Cells or mindtorch's Modules, and how they are found and named.

mindtorch is a `torch` built on MindSpore. The module to which its `torch` forwards a name is found here as well.
"""

import sys
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Any

import mindspore
from attrs import frozen
from mindspore import nn
from probe_runtime.patching import resolve_owner

Pairs = Iterable[tuple[str, Any]]


@frozen
class ModuleKind:
    """Describe how modules are found and named.

    framework: the framework's name in dump.json.
    prefix: the first part of a module's record names, "Cell" or "Module".
    registry: the attribute in which a module keeps the modules inside it.
    parameter_registry: the attribute in which it keeps its own parameters.
    noun: the class's full name, for messages.
    module_class: the base class of all modules.
    patched_classes: the classes whose ``__call__`` is replaced while collecting.
    containers: classes of modules that are never called, such as lists of modules.
    optimizers: classes of modules that do not belong to the model.
    walk(model): yields (path, module) once for each module; the model's own path is ``""``.
    requires_grad: whether tensors have a ``requires_grad`` of their own, which is then recorded.
    """

    framework: str
    prefix: str
    registry: str
    parameter_registry: str
    noun: str
    module_class: type
    patched_classes: tuple[type, ...]
    containers: tuple[type, ...]
    optimizers: tuple[type, ...]
    walk: Callable[[Any], Pairs]
    requires_grad: bool = False

    def parameters(self, module: Any) -> Pairs:
        """Yield the (name, parameter) pairs that a module has itself."""
        return ((n, p) for n, p in getattr(module, self.parameter_registry).items() if p is not None)


_OPTIMIZERS = map(resolve_owner, ("mindspore.experimental.optim.Optimizer", "mindspore.mint.optim.Optimizer"))
CELLS = ModuleKind(
    framework="mindspore",
    prefix="Cell",
    registry="_cells",
    parameter_registry="_params",
    noun="mindspore.nn.Cell",
    module_class=nn.Cell,
    patched_classes=(nn.Cell, nn.GraphCell),
    containers=(nn.CellList, nn.CellDict),
    optimizers=(nn.Optimizer, *filter(None, _OPTIMIZERS), nn.learning_rate_schedule.LearningRateSchedule),
    walk=methodcaller("cells_and_names"),
)


def torch_on_mindspore() -> Any:
    """Return the loaded `torch` whose tensors are MindSpore's (mindtorch, MSAdapter), or None."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return torch if isinstance(tensor, type) and issubclass(tensor, mindspore.Tensor) else None


def behind(module: Any) -> Any:
    """Return the module that ``module`` forwards to: `mindtorch` for mindtorch's `torch`; else ``module`` itself.

    mindtorch's `torch` is an empty module that looks its names up in `mindtorch`, and mindtorch's layers use
    `mindtorch` directly. A function replaced in `torch` is replaced for the user alone; one replaced in
    `mindtorch`, for the layers as well.
    """
    name = getattr(getattr(module, "__loader__", None), "target_name", None)
    return sys.modules.get(name, module) if isinstance(name, str) else module


def source_of_torch(path: str) -> str:
    """Return the dotted path that a path forwards to: "mindtorch.nn.functional" for "torch.nn.functional"."""
    first, dot, rest = path.partition(".")
    return str(getattr(behind(sys.modules.get(first)), "__name__", first)) + dot + rest


def late_torch(module_kind: ModuleKind) -> str:
    """Return advice if a torch on MindSpore was imported after this kind was detected, else ""."""
    late = module_kind is CELLS and torch_on_mindspore() is not None
    return "torch was imported after the PrecisionDebugger was made; import it before" if late else ""


def detect() -> ModuleKind:
    """Return the kind for this process: mindtorch's Modules if its torch is loaded, else MindSpore's Cells."""
    torch = torch_on_mindspore()
    if torch is None:
        return CELLS
    modules = torch.nn
    return ModuleKind(
        framework="mindtorch",
        prefix="Module",
        registry="_modules",
        parameter_registry="_parameters",
        noun="torch.nn.Module",
        module_class=modules.Module,
        patched_classes=(modules.Module,),
        containers=tuple(
            getattr(modules, name) for name in ("ModuleList", "ModuleDict") if hasattr(modules, name)
        ),
        optimizers=(),
        walk=methodcaller("named_modules"),
        requires_grad=True,
    )
