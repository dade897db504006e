"""Find the functions of MindSpore that the listed names refer to."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from probe_runtime import patching
from probe_runtime.patching import Attribute, attribute, go_down, is_function, name_of, resolve_owner

from probe_mindspore.module_kind import source_of_torch

from .apis import Api, Apis
from .wrappers import Label, wrap

__all__ = ["look_up_all"]

# Other modules with the same function objects as mindspore.ops, which old code imports as F. MindSpore's layers use
# them all the time, which msprobe does not record: only the user's own calls are.
_ALIASES = ("mindspore.ops.functional", "mindspore.ops.function")
# Submodules that `import mindspore` need not have loaded; they are MindSpore's own and have no side effects.
_OWN = ("mindspore.mint.nn.functional", "mindspore.mint.distributed", "mindspore.communication.comm_func")


def look_up_all(apis: Apis) -> tuple[list[Attribute], dict[str, str]]:
    """Return the places of the listed names, and the names without a place with the reason."""
    paths = dict.fromkeys(path for api in apis for path in api.owners)
    return patching.look_up_all(apis, paths, _resolve, _places_of)


def _resolve(path: str) -> Any:
    if path in _OWN:
        importlib.import_module(path)
    return resolve_owner(source_of_torch(path))


def _places_of(api: Api, path: str, base: Any) -> list[Attribute]:
    owner, name = go_down(base, api.name)
    # A Primitive or another callable object has no name of its own, and must not become a function.
    if not is_function(owner, name) or not hasattr(getattr(owner, name), "__name__"):
        return []
    label = Label(api.prefix, api.api, api.composite)
    # pickle looks the wrapper up by this name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if inspect.isclass(base):
        module, qualname = path.rpartition(".")[0], f"{name_of(base)}.{name}"
    place = attribute(owner, name, lambda f: wrap(label, f, module, qualname), label)
    return [place, *(_aliases(api, place) if path == "mindspore.ops" else [])]


def _aliases(api: Api, place: Attribute) -> list[Attribute]:
    """Return the other public attributes that hold the same function."""
    label = Label(api.prefix, api.api, api.composite)
    found = []
    for path in _ALIASES:
        owner = resolve_owner(path)
        if owner is not None and vars(owner).get(api.name) is place.original:
            stand_in = wrap(label, place.original, path, api.name, users_only=True)
            found.append(Attribute(owner, api.name, place.original, stand_in, place.original, stand_in))
    return found
