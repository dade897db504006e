"""Names that were bound before the patches: `from torch import relu` in a user's file, `self.act = F.relu`
in a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any

from torch import nn

from probe_torch.places import Slot

__all__ = ["Replacements", "find_in_models", "find_in_modules"]

# Modules that cannot hold a model's functions, or must not be touched. torch's own are patched where they
# are public; its tables (torch._dynamo, torch._refs, ...) are keyed by the originals. Those below torch
# that call what they imported, and compute, are scanned all the same.
_SKIPPED = frozenset(
    {
        *sys.stdlib_module_names,
        "torch",
        "torchgen",
        "functorch",
        "torch_npu",
        "triton",
        "numpy",
        "scipy",
        "sympy",
    }
    | {"mpmath", "networkx", "jinja2", "yaml", "attr", "attrs", "orjson", "pytest", "_pytest", "hypothesis"}
    | {"probe_format", "probe_torch", "probe_save", "probe_mindspore", "probe_kernel"}
) - {"__main__"}
_SCANNED_IN_TORCH = (
    "torch.distributions.",
    "torch.nn.modules.",
    "torch.nn.utils.",
    "torch.distributed.tensor._collective_utils",
)


Replacements = Mapping[int, tuple[Callable[..., Any], Callable[..., Any]]]
"""id(original) -> (original, replacement)."""


def find_in_modules(replacements: Replacements, names: Iterable[str] | None = None) -> list[Slot]:
    """Module-level names that are bound to originals, in every imported module (or in those named)."""
    slots: list[Slot] = []
    seen: set[int] = set()
    for name in list(sys.modules) if names is None else names:
        if name.partition(".")[0] in _SKIPPED and not name.startswith(_SCANNED_IN_TORCH):
            continue
        namespace = getattr(sys.modules.get(name), "__dict__", None)
        # __main__ and __mp_main__ are one module; some entries of sys.modules are objects of another kind.
        if type(namespace) is not dict or id(namespace) in seen:
            continue
        seen.add(id(namespace))
        slots += _find(replacements, namespace)
    return slots


def find_in_models(replacements: Replacements, models: Iterable[nn.Module]) -> list[Slot]:
    """Attributes of the models and their submodules that are originals, or lists and dicts that hold some."""
    slots: list[Slot] = []
    seen: set[int] = set()
    for model in models:
        for module in model.modules():
            if id(module) in seen:
                continue
            seen.add(id(module))
            slots += _find(replacements, vars(module))
            for value in list(vars(module).values()):
                # nn.Module's own tables (_parameters, hooks) hold no functions of torch.
                if type(value) in (dict, list) and value:
                    slots += _find(replacements, value)
    return slots


def _find(
    replacements: Replacements, holder: MutableMapping[Any, Any] | MutableSequence[Any]
) -> Iterator[Slot]:
    values = list(holder.values() if isinstance(holder, MutableMapping) else holder)
    if replacements.keys().isdisjoint(map(id, values)):  # at C speed; nearly always
        return
    items = list(holder.items() if isinstance(holder, MutableMapping) else enumerate(holder))
    for key, value in items:
        found = replacements.get(id(value))
        if found is not None and found[0] is value:
            yield Slot(holder, key, *found)
