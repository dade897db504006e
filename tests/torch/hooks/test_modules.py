"""The modules of a model, walked in few calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from probe_torch.submodules import named_submodules
from torch import nn


def test_modules_are_named_as_torch_names_them() -> None:
    """Also modules that several have, TorchScript's, and classes with a way of their own."""

    class Own(nn.Module):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.inside, self.none = inside, None
            self.register_module("absent", None)
            self.table = nn.ModuleDict({"x": nn.ReLU(), "y": inside})

        def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
            return ((f"{name}!", module) for name, module in super().named_modules(*args, **kwargs))

    class Plain(Own):
        named_modules = nn.Module.named_modules

    shared = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    for model in (
        *(shared, nn.Sequential(shared, nn.Sequential(shared[0]), shared), Plain(shared), Own(shared)),
        *(nn.Sequential(Own(shared), shared), torch.jit.script(shared)),
    ):
        assert named_submodules(model) == list(model.named_modules())
