"""Notice a coming `torch.utils.swap_tensors`, which refuses tensors with hooks, so that Probe removes its own.

`Module.to` and `load_state_dict` swap too, under `torch.__future__.set_swap_module_params_on_conversion`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

__all__ = ["watched_swaps"]


@contextlib.contextmanager
def watched_swaps(let_go: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Call ``let_go`` with each tensor that is about to be swapped, while this is open; it must not raise."""
    # swap_tensors first looks for weak references, through the name `weakref` of its module. Replacing that name
    # catches every caller, also one that imported swap_tensors earlier. Nothing else in torch.utils uses the name.
    original: Any = torch.utils.weakref  # type: ignore[attr-defined]

    def getweakrefs(tensor: Any) -> Any:
        let_go(tensor)
        return original.getweakrefs(tensor)

    stand_in = ModuleType(original.__name__, original.__doc__)
    vars(stand_in).update(vars(original), getweakrefs=getweakrefs)
    torch.utils.weakref = stand_in  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.weakref = original  # type: ignore[attr-defined]
