"""Find the functions of torch that the listed names refer to."""

from typing import Any

from probe_runtime.patching import Apis, Label, Listed, Place, go_down, is_function, resolve_owner

from .apis import SECTIONS, Api
from .wrappers import wrap


def listed(apis: Apis) -> Listed:
    paths = dict.fromkeys(path for _, paths in SECTIONS.values() for path in paths)
    return Listed(apis.apis, paths, resolve_owner, _places_of)


def _places_of(api: Api, path: str, base: Any) -> list[Place]:
    owner, name = go_down(base, api.name)
    if not is_function(owner, name):
        return []
    label = Label(api.prefix, api.api, api.composite)
    # pickle looks the wrapper up by this name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if path == "torch.Tensor":
        module, qualname = "torch", f"Tensor.{name}"
    return [Place(owner, name, lambda f: wrap(label, f, module, qualname), label)]
