"""Replace torch's functions with the wrappers for a while, and put back exactly the originals."""

import functools
from typing import Any

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
    patches,
    resolve_owner,
)

from probe_torch.submodules import submodules

from .apis import SECTIONS
from .introspection import guards
from .regions import regions
from .torch_tables import fill_caches
from .wrappers import switch, wrap


def listed(apis: Apis) -> Listed:
    paths = dict.fromkeys(path for _, paths in SECTIONS.values() for path in paths)
    return Listed(apis, paths, resolve_owner, _places_of)


def _places_of(api: api_list.Api, path: str, base: Any) -> list[Place]:
    owner, name = go_down(base, api.name)
    if not is_function(owner, name):
        return []
    label = Label(api.prefix, api.api, api.composite)
    # pickle looks the wrapper up by this name.
    module, _, qualname = f"{path}.{api.name}".rpartition(".")
    if path == "torch.Tensor":
        module, qualname = "torch", f"Tensor.{name}"
    return [Place(owner, name, lambda f: wrap(label, f, module, qualname), label)]


_SCAN = Scan(
    # torch's own functions are patched where they are public; its tables (torch._dynamo, torch._refs, ...) are
    # keyed by the originals. Those below torch that call what they imported, and compute, are scanned all
    # the same.
    skipped=NEVER_SCANNED | {"torch", "torch_npu", "torchgen", "functorch"},
    within=(
        "torch.distributions.",
        "torch.nn.modules.",
        "torch.nn.utils.",
        "torch.distributed.tensor._collective_utils",
    ),
    # nn.TransformerEncoderLayer(activation=F.relu) compares its argument with F.relu by identity.
    deep=("torch.nn.modules.transformer",),
)


class Patches(patches.Patches):
    """Patch the functions of torch listed in `apis`; see `probe_runtime.patching.patches.Patches`."""

    def __init__(self, apis: Apis, tap: Tap) -> None:
        super().__init__(
            tap, switch, _prepared(apis), wrap, lambda model: map(vars, submodules(model)), fill_caches
        )


@functools.cache
def _prepared(apis: Apis) -> Prepared:
    return Prepared(listed(apis), lambda: [*guards(), *regions()], _SCAN)
