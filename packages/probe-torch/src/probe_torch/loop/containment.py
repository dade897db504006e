"""Find out which module holds which, and which holds a parameter."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


class Containment:
    """What held what when this was made: one pass over the objects of the process, which takes 50 to 150 ms.

    A module's own tables are read, and its class, as a proxy's other answers run code of the user's.
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._above: dict[int, list[nn.Module]] = {}
        self._holders: dict[int, list[nn.Module]] = {}
        for one in gc.get_objects():
            kind = type(one)
            if not issubclass(kind, nn.Module) or issubclass(
                kind, torch.fx.GraphModule
            ):  # one that was compiled
                continue
            self._modules.append(one)
            names: dict[str, Any] = object.__getattribute__(one, "__dict__")
            for inner in _values(names.get("_modules")):
                self._above.setdefault(id(inner), []).append(one)
            for parameter in _values(names.get("_parameters")):
                self._holders.setdefault(id(parameter), []).append(one)

    def tops(self, module: nn.Module) -> list[nn.Module]:
        """Return the topmost modules around a module; itself where none holds it."""
        found: dict[int, nn.Module] = {}
        waiting, seen = [module], set[int]()
        while waiting:
            one = waiting.pop()
            if id(one) not in seen:
                seen.add(id(one))
                above = self._above.get(id(one), [])
                waiting += above
                if not above:
                    found[id(one)] = one
        return list(found.values())

    def of_classes(self, names: Sequence[str]) -> list[nn.Module]:
        """Return the modules of these classes, in the order of the names."""
        return [one for name in names for one in self._modules if type(one).__name__ == name]

    def models_of(self, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
        """Return the topmost modules that hold these parameters, in the order of the parameters."""
        holders = {id(one): one for p in parameters for one in self._holders.get(id(p), ())}
        return list({id(top): top for one in holders.values() for top in self.tops(one)}.values())


def _values(table: Any) -> list[Any]:
    return [one for one in list(table.values()) if one is not None] if type(table) is dict else []


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside what spreads it over processes and devices: names are those of a run on one of them."""
    while isinstance(module, (DistributedDataParallel, DataParallel)):
        module = module.module
    return module
