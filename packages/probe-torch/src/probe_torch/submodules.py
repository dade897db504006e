"""Find all modules of a model, fast, as that is done at every start and stop."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from torch import nn

_NAMED_MODULES: Any = nn.Module.named_modules


def submodules(model: nn.Module) -> list[nn.Module]:
    """Return the model and every module below it, each once, level by level.

    `named_submodules` knows their names as well, and takes longer.
    """
    found: dict[int, Any] = {}
    level: list[Any] = [model]
    while level:
        by_id = dict(zip(map(id, level), level, strict=True))
        fresh = {which: m for which, m in by_id.items() if which not in found and m is not None}
        try:
            tables = [module._modules for module in fresh.values()]
        except AttributeError:  # a mock of a module has no `_modules`
            fresh = {which: m for which, m in fresh.items() if issubclass(type(m), nn.Module)}
            tables = [module._modules for module in fresh.values()]
        found |= fresh
        level = list(chain.from_iterable(map(dict.values, [t for t in tables if type(t) is dict])))
        for table in [t for t in tables if type(t) is not dict]:  # of TorchScript
            level += table.values()
    return list(found.values())


def named_submodules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return what `nn.Module.named_modules` yields, without its dozen calls for each module.

    Modules are told apart by identity: a user's class may have ``__eq__``, and no ``__hash__``. In place of a proxy
    comes the module that it stands for, which is what is called; what stands for none (a mock) is returned as it is.
    """
    found: list[tuple[str, nn.Module]] = []
    known: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", model)]
    while waiting:
        path, module = waiting.pop()
        if module is None or (which := id(module)) in known:
            continue
        try:
            # A user's class may have its own named_modules.
            if type(module).named_modules is not _NAMED_MODULES:
                return list(model.named_modules())
        except AttributeError:  # a proxy or a mock, which only says that it is a module
            inner = getattr(getattr(module, "forward", None), "__self__", None)
            if issubclass(type(inner), nn.Module):
                waiting.append((path, inner))
            else:
                found += ((path, module),)
            continue
        known.add(which)
        found += ((path, module),)
        if module._modules:
            before = f"{path}." if path else ""
            waiting += [(before + name, inner) for name, inner in module._modules.items()][::-1]
    return found


def compiled(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return those that torch.compile has made, or whose call it has compiled."""
    return [m for m in modules if "_orig_mod" in m._modules or m._compiled_call_impl is not None]
