"""Find the functions of torch that the listed names refer to."""

from __future__ import annotations

from typing import Any

from probe_runtime import patching
from probe_runtime.patching import Attribute, attribute, go_down, is_function, resolve_owner

from .apis import SECTIONS, Api, Apis
from .wrappers import Label, wrap

__all__ = ["look_up_all"]


def look_up_all(apis: Apis) -> tuple[list[Attribute], dict[str, str]]:
    """Return the places of the listed names, and the names without a place with the reason."""
    paths = dict.fromkeys(path for _, paths in SECTIONS.values() for path in paths)
    return patching.look_up_all(apis.apis, paths, resolve_owner, _places_of)


def _places_of(api: Api, path: str, base: Any) -> list[Attribute]:
    owner, name = go_down(base, api.name)
    if not is_function(owner, name):
        return []
    label = Label(api.prefix, api.api, api.composite)
    # pickle looks the wrapper up by this name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if path == "torch.Tensor":
        module, qualname = "torch", f"Tensor.{name}"
    return [attribute(owner, name, lambda f: wrap(label, f, module, qualname), label)]
