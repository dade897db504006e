"""Notice a coming `torch.utils.swap_tensors`, which refuses tensors with hooks, so that Probe removes its own.

`Module.to` and `load_state_dict` swap too, under `torch.__future__.set_swap_module_params_on_conversion`.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from probe_runtime.patching import Held, listening, place

_told: list[Callable[[torch.Tensor], None]] = []


def watched_swaps(let_go: Callable[[torch.Tensor], None]) -> Held:
    """Call ``let_go``, which must not raise, with each tensor about to be swapped, until the result is undone."""
    # swap_tensors first looks for weak references, through the name `weakref` of its module. Replacing that name
    # catches every caller, also one that imported swap_tensors earlier. Nothing else in torch.utils uses the name.
    return listening(_told, let_go, [place(torch.utils, "weakref", _telling)])


def _telling(original: Any) -> ModuleType:
    """Return a stand-in of the module ``weakref``."""

    def getweakrefs(tensor: Any) -> Any:
        for let_go in tuple(_told):
            let_go(tensor)
        return original.getweakrefs(tensor)

    stand_in = ModuleType(original.__name__, original.__doc__)
    vars(stand_in).update(vars(original), getweakrefs=getweakrefs)
    return stand_in
