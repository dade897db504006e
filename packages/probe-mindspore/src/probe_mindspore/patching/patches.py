"""Replace MindSpore's functions with the wrappers for a while, and put back exactly the originals."""

import functools
from contextlib import ExitStack
from typing import Any

from probe_runtime.patching import NEVER_SCANNED, Apis, Prepared, Scan, Tap, name_of, patches

from probe_mindspore.module_kind import behind

from .introspection import guards
from .jit_guard import jit_guard, jit_places
from .lookup import listed
from .primitives import modules_of, places_in, public_primitives
from .regions import regions
from .wrappers import switch, wrap

# MindSpore's own modules, and those of a torch built on it, are not scanned: calls in its layers are recorded where
# they use a function's public name, as in msprobe, and its tables are keyed by the originals.
_SCAN = Scan(skipped=NEVER_SCANNED | {"mindspore", "torch", "mindtorch", "te", "tbe", "akg"})


class Patches(patches.Patches):
    """Replace the functions of MindSpore listed in `apis`, and the Primitives of the Cells given to `apply`.

    The compiler finds the originals.
    """

    def __init__(self, apis: Apis, tap: Tap) -> None:
        super().__init__(
            tap,
            switch,
            _prepared(apis),
            wrap,
            lambda model: map(vars, modules_of(model)),
            in_models=functools.partial(places_in, public_primitives(apis)),
        )
        self._guard = ExitStack()

    def apply(self, *models: Any) -> None:
        if not self.applied:
            self._guard.enter_context(jit_guard(self))
        try:
            super().apply(*models)
        finally:
            self._unguard()

    def undo(self) -> None:
        super().undo()
        self._unguard()

    def _unguard(self) -> None:
        if not self.applied:
            self._guard.close()

    def add(self, module: Any, api_name: str, prefix: str | None = None) -> None:
        super().add(behind(module), api_name, name_of(module) if prefix is None else prefix)

    def remove(self, module: Any, api_name: str) -> None:
        super().remove(behind(module), api_name)


@functools.cache
def _prepared(apis: Apis) -> Prepared:
    return Prepared(listed(apis), lambda: [*guards(), *regions(), *jit_places()], _SCAN)
