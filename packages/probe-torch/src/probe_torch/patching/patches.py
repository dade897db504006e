"""Replace torch's functions with the wrappers for a while, and put back exactly the originals."""

import functools

from probe_runtime.patching import NEVER_SCANNED, Apis, Prepared, Scan, Tap, patches

from probe_torch.submodules import submodules

from .introspection import guards
from .lookup import listed
from .regions import regions
from .torch_tables import fill_caches
from .wrappers import switch, wrap

_SCAN = Scan(
    # torch's own functions are patched where they are public; its tables (torch._dynamo, torch._refs, ...) are
    # keyed by the originals. Those below torch that call what they imported, and compute, are scanned all
    # the same.
    skipped=NEVER_SCANNED | {"torch", "torchgen", "functorch"},
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
