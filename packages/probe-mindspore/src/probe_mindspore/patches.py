"""Put the wrappers in place of MindSpore's functions for a while, and the very originals back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from probe_format.patching import patches
from probe_format.patching.early import NEVER_SCANNED, Scan
from probe_format.patching.lookup import name_of
from probe_format.patching.switch import Label, Tap

from probe_mindspore.apis import Apis
from probe_mindspore.flavour import behind
from probe_mindspore.lookup import custom_place, look_up_all
from probe_mindspore.primitives import modules_of, places_in
from probe_mindspore.wrappers import switch

__all__ = ["Label", "Patches", "Tap"]

# MindSpore's own modules, and those of a torch that stands on it, are left alone: its layers are recorded where
# they call a function by its public name, as msprobe records them, and its tables are keyed by the originals.
_SCAN = Scan(skipped=NEVER_SCANNED | {"mindspore", "torch", "mindtorch", "te", "tbe", "akg"})


class Patches(patches.Patches):
    """`probe_format.patching.patches.Patches` for the functions of MindSpore listed in `apis`, and for the
    Primitives that the Cells given to `apply` hold."""

    def __init__(self, apis: Apis, tap: Tap) -> None:
        look_up = partial(look_up_all, apis)
        super().__init__(tap, switch, look_up, custom_place, _SCAN, _namespaces, in_models=places_in)

    def add(self, module: Any, api_name: str, prefix: str | None = None) -> None:
        super().add(behind(module), api_name, name_of(module) if prefix is None else prefix)

    def remove(self, module: Any, api_name: str) -> None:
        super().remove(behind(module), api_name)


def _namespaces(model: Any) -> Iterator[dict[str, Any]]:
    return map(vars, modules_of(model))
