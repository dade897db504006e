"""Replace MindSpore's functions, and a model's Primitives, with wrappers that report their calls, for a while.

Afterwards exactly the originals are put back.
"""

import functools
import importlib
import inspect
from contextlib import ExitStack
from functools import partial
from typing import Any

from mindspore._c_expression import TensorPy
from probe_runtime.patching import (
    NEVER_SCANNED,
    Apis,
    Label,
    Listed,
    Place,
    Prepared,
    Scan,
    Tap,
    api_list,
    go_down,
    is_function,
    name_of,
    patches,
    resolve_owner,
)

from probe_mindspore.module_kind import behind, source_of_torch

from .introspection import guards
from .jit_guard import jit_guard, jit_places
from .primitives import modules_of, places_in, public_primitives
from .regions import regions
from .wrappers import switch, wrap

# Other modules with the same function objects as mindspore.ops, which old code imports as F. MindSpore's layers use
# them all the time, which msprobe does not record: only the user's own calls are.
_ALIASES = ("mindspore.ops.functional", "mindspore.ops.function")
# Recorded in calls from the user's files alone, because MindSpore calls it wherever it fills a parameter.
_USERS_ONLY = ("assign_value",)
# Not replaced where gradients are taken by hooks on tensors (hooks/tensor_hooks.py), and why.
_COPY = "with a hook on what it writes to, this MindSpore gives other gradients (2.8 and later do not)"
_LEFT_OUT = {} if hasattr(TensorPy, "_grad_node") else {"mindspore.Tensor.copy_": _COPY}
# Submodules that `import mindspore` need not have loaded; they are MindSpore's own and have no side effects.
_OWN = ("mindspore.mint.nn.functional", "mindspore.mint.distributed", "mindspore.communication.comm_func")


def listed(apis: Apis) -> Listed:
    paths = dict.fromkeys(path for api in apis for path in api.owners)
    objects = {label.name for _, label in public_primitives(apis).values()}
    functions = [api for api in apis if f"{api.prefix}.{api.api}" not in objects]
    return Listed(functions, paths, resolve, _places_of, _LEFT_OUT)


def resolve(path: str) -> Any:
    if path in _OWN:
        importlib.import_module(path)
    return resolve_owner(source_of_torch(path))


def _places_of(api: api_list.Api, path: str, base: Any) -> list[Place]:
    owner, name = go_down(base, api.name)
    # A Primitive or another callable object has no name of its own, and must not become a function.
    if not is_function(owner, name) or not hasattr(getattr(owner, name), "__name__"):
        return []
    label = Label(api.prefix, api.api, api.composite)
    # pickle looks the wrapper up by this name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if inspect.isclass(base):
        module, qualname = path.rpartition(".")[0], f"{name_of(base)}.{name}"
    users = api.name in _USERS_ONLY
    place = Place(owner, name, lambda f: wrap(label, f, module, qualname, users_only=users), label)
    return [place, *(_aliases(api, place) if path == "mindspore.ops" else [])]


def _aliases(api: api_list.Api, place: Place) -> list[Place]:
    """Return the other public attributes that hold the same function."""
    found = []
    for path in _ALIASES:
        owner = resolve_owner(path)
        if owner is not None and vars(owner).get(api.name) is place.now.original:
            make = partial(wrap, place.label, module=path, qualname=api.name, users_only=True)
            found.append(Place(owner, api.name, make))
    return found


# MindSpore's own modules, and those of a torch built on it, are not scanned: calls in its layers are recorded where
# they use a function's public name, as in msprobe, and its tables are keyed by the originals.
_SCAN = Scan(skipped=NEVER_SCANNED | {"mindspore", "torch", "torch_npu", "mindtorch", "te", "tbe", "akg"})


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
