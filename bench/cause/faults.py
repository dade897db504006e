"""Plant one fault into a network, no larger than in Probe's first study: 2 %, a scale times 1.05, an eps of 1e-3."""

from __future__ import annotations

import contextlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from attrs import frozen
from torch import nn

from .kernels import Kernels

__all__ = ["FAULTS", "KERNELS", "Truth", "plant", "possible"]

FAULTS = {
    "weight": ("w2", "row"),
    "kernel": ("mm2", "lasttile"),
    "mask": ("scale5", "mask"),
    "rope": ("rope",),
    "dtype island": ("island",),
    "argument": ("eps", "scaling", "dropout"),
    "gradient": ("gradw2", "gradx2"),
    "optimizer": ("update5",),
    "data": ("token",),
    "buffer": ("buffer",),
}
"""Kind -> the faults of that kind."""
KERNELS = ("mm2", "lasttile", "scale5", "mask")


@frozen
class Truth:
    """Say what is right to name: a module by its path, in its backward pass or not.

    own: whether it is the module's own code, so that naming a module inside of it is wrong.
    data: whether it is the batch, so that whatever gets it first may be named.
    """

    path: str
    backward: bool = False
    own: bool = False
    data: bool = False


_PRODUCT = ("Linear", "Conv1D", "Conv2d")


def _places(model: nn.Module, fault: str) -> list[str]:
    """Return the modules that a fault may be planted in, inside of a list of layers."""
    named = {
        n: m
        for n, m in model.named_modules()
        if re.search(r"\.\d+(\.|$)", n) and not n.startswith("classifier")
    }
    kinds = {name: type(module).__name__ for name, module in named.items()}
    if fault in ("w2", "row", "mm2", "lasttile", "island", "gradw2", "update5"):
        return [name for name, kind in kinds.items() if kind in _PRODUCT]
    if fault == "eps":
        return [name for name, module in named.items() if _eps(module)]
    if fault in ("scale5", "mask", "rope", "scaling", "dropout"):
        found = [name for name, kind in kinds.items() if re.search("Attention", kind)]
        found = [name for name in found if not any(other.startswith(f"{name}.") for other in found)]
        if fault == "scaling":
            return [name for name in found if isinstance(getattr(named[name], "scaling", None), float)]
        if fault == "rope":
            return [
                name
                for name in found
                if hasattr(sys.modules[type(named[name]).__module__], "apply_rotary_pos_emb")
            ]
        return found
    if fault == "gradx2":
        return [
            name for name in named if re.search(r"\.\d+$", name) and len(list(named[name].children())) > 1
        ]
    return [name for name, module in model.named_modules() if _fits(fault, module)]


def _fits(fault: str, module: nn.Module) -> bool:
    if fault == "token":
        return isinstance(module, nn.Embedding) and module.num_embeddings == 256
    return fault == "buffer" and isinstance(getattr(module, "inv_freq", None), torch.Tensor)


def _eps(module: nn.Module) -> str:
    named = ("variance_epsilon", "eps", "layer_norm_eps")
    norm = "Norm" in type(module).__name__
    return next((n for n in named if norm and isinstance(getattr(module, n, None), float)), "")


def possible(model: nn.Module, fault: str, dtype: str) -> bool:
    """Return whether a network has a place for a fault, in this dtype."""
    wanted = {"island": ("float32",), "update5": ("float32", "autocast")}.get(fault, (dtype,))
    return dtype in wanted and bool(_places(model, fault))  # bfloat16 rounds 5 % of a small update away


@contextlib.contextmanager
def plant(
    model: nn.Module, batch: dict[str, torch.Tensor], fault: str | None, seed: int, kernels: Kernels
) -> Iterator[Truth | None]:
    """Plant a fault into a network, or its batch, for the time of the context. None plants nothing."""
    if fault is None:
        yield None
        return
    draw = random.Random(f"{fault} {seed}")
    name = draw.choice(_places(model, fault)[:1] if fault == "token" else _places(model, fault))
    module: Any = model.get_submodule(name)
    undo: list[Callable[[], None]] = []
    truth = Truth(name)
    if fault in KERNELS:
        module.register_forward_pre_hook(lambda *_: setattr(kernels, "active", True))
        module.register_forward_hook(lambda *_: setattr(kernels, "active", False))
        truth = Truth(name, own=fault in ("scale5", "mask"))
    elif fault in ("w2", "row"):
        with torch.no_grad():
            (module.weight if fault == "w2" else module.weight[3]).mul_(1.02 if fault == "w2" else 0.0)
    elif fault == "rope":
        truth = Truth(name, own=True)
        undo.append(_rope(module))
    elif fault == "eps":
        setattr(module, _eps(module), 1e-3)
    elif fault == "scaling":
        module.scaling *= 1.25
        truth = Truth(name, own=True)
    elif fault == "dropout":
        module.register_forward_hook(lambda _, __, out: _dropped(out))
        truth = Truth(name, own=True)
    elif fault == "island":
        module.to(torch.bfloat16)
        module.register_forward_pre_hook(lambda _, args: (args[0].bfloat16(),))
        module.register_forward_hook(lambda _, __, out: out.float())
    elif fault == "gradw2":
        module.weight.register_hook(lambda g: g * 1.02)
        truth = Truth(name, backward=True)
    elif fault == "gradx2":
        module.register_forward_hook(
            lambda _, __, out: _first(out).register_hook(lambda g: g * 1.02) and None
        )
        truth = Truth(name, backward=True)
    elif fault == "token":
        batch["input_ids"][0, 5] = 3 + (batch["input_ids"][0, 5] + 17) % 200
        truth = Truth(name, data=True)
    elif fault == "buffer":
        module.inv_freq.mul_(1.02)
    try:
        yield truth
    finally:
        for each in undo:
            each()


def _first(out: Any) -> torch.Tensor:
    return out if isinstance(out, torch.Tensor) else _first(out[0])


def _dropped(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return nn.functional.dropout(out, 0.1)
    return (nn.functional.dropout(out[0], 0.1), *out[1:])


def _rope(module: Any) -> Callable[[], None]:
    """Have the queries of one module turned by the position before."""
    code: Any = sys.modules[type(module).__module__]
    theirs, inside = code.apply_rotary_pos_emb, [False]
    module.register_forward_pre_hook(lambda *_: inside.__setitem__(0, True))
    module.register_forward_hook(lambda *_: inside.__setitem__(0, False))

    def turned(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **how: Any) -> Any:
        right = theirs(q, k, cos, sin, *args, **how)
        if not inside[0]:
            return right
        before = (torch.ops.aten.roll(each, [1], [1]) for each in (cos, sin))
        return theirs(q, k, *before, *args, **how)[0], right[1]

    code.apply_rotary_pos_emb = turned
    return lambda: setattr(code, "apply_rotary_pos_emb", theirs)
