"""Find the functions of MindSpore that the listed names refer to."""

import importlib
import inspect
from functools import partial
from typing import Any

from mindspore._c_expression import TensorPy
from probe_runtime.patching import Apis, Label, Listed, Place, go_down, is_function, name_of, resolve_owner

from probe_mindspore.module_kind import source_of_torch

from .apis import Api
from .primitives import public_primitives
from .wrappers import wrap

# Other modules with the same function objects as mindspore.ops, which old code imports as F. MindSpore's layers use
# them all the time, which msprobe does not record: only the user's own calls are.
_ALIASES = ("mindspore.ops.functional", "mindspore.ops.function")
# MindSpore calls it wherever it fills a parameter.
_USERS_ONLY = ("assign_value",)
# Where gradients are taken by hooks on tensors (hooks/autograd.py).
_COPY = "with a hook on what it writes to, this MindSpore gives other gradients (2.8 and later do not)"
_LEFT_OUT = {} if hasattr(TensorPy, "_grad_node") else {"mindspore.Tensor.copy_": _COPY}
# Submodules that `import mindspore` need not have loaded; they are MindSpore's own and have no side effects.
_OWN = ("mindspore.mint.nn.functional", "mindspore.mint.distributed", "mindspore.communication.comm_func")


def listed(apis: Apis) -> Listed:
    paths = dict.fromkeys(path for api in apis for path in api.owners)
    objects = {label.name for _, label in public_primitives(apis).values()}
    functions = [api for api in apis if f"{api.prefix}.{api.api}" not in objects]
    return Listed(functions, paths, _resolve, _places_of, _LEFT_OUT)


def _resolve(path: str) -> Any:
    if path in _OWN:
        importlib.import_module(path)
    return resolve_owner(source_of_torch(path))


def _places_of(api: Api, path: str, base: Any) -> list[Place]:
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


def _aliases(api: Api, place: Place) -> list[Place]:
    """Return the other public attributes that hold the same function."""
    found = []
    for path in _ALIASES:
        owner = resolve_owner(path)
        if owner is not None and vars(owner).get(api.name) is place.now.original:
            make = partial(wrap, place.label, module=path, qualname=api.name, users_only=True)
            found.append(Place(owner, api.name, make))
    return found
