"""Find what stands at each listed name of torch."""

from __future__ import annotations

import inspect
from typing import Any

from probe_runtime.patching import Attribute, attribute, go_down, is_function, name_of, resolve_owner

from .apis import SECTIONS, Api, Apis
from .wrappers import Label, wrap

__all__ = ["custom_place", "look_up_all"]


def look_up_all(apis: Apis) -> tuple[list[Attribute], dict[str, str]]:
    """The places of the listed names, and the names that have none with the reason."""
    found: list[Attribute] = []
    missing: dict[str, str] = {}
    for path in dict.fromkeys(path for _, paths in SECTIONS.values() for path in paths):
        listed = [api for api in apis.apis if path in api.owners]
        owner = resolve_owner(path)
        if listed and owner is None:
            missing[path] = f"not imported, so its {len(listed)} functions are not recorded"
            continue
        for api in listed:
            place = _look_up(api, path, owner)
            if place is None:
                missing[f"{path}.{api.name}"] = f"this {path.partition('.')[0]} has no such function"
            else:
                found.append(place)
    return found, missing


def _look_up(api: Api, path: str, base: Any) -> Attribute | None:
    owner, name = go_down(base, api.name)
    if not is_function(owner, name):
        return None
    label = Label(api.prefix, api.api, api.composite)
    # Where pickle will find the wrapper, by name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if path == "torch.Tensor":
        module, qualname = "torch", f"Tensor.{name}"
    return attribute(owner, name, lambda f: wrap(label, f, module, qualname), label)


def custom_place(owner: Any, name: str, label: Label) -> Attribute:
    """The place of a function that the user registered."""
    module = getattr(owner, "__module__", None) if inspect.isclass(owner) else None
    qualname = f"{owner.__qualname__}.{name}" if module else name
    return attribute(owner, name, lambda f: wrap(label, f, module or name_of(owner), qualname))
