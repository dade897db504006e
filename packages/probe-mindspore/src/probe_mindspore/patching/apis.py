"""Load the list of functions that a dump records: apis.yaml, with the user's own file applied over it.

With a `torch` built on MindSpore (mindtorch) it is torch's list, as the user calls functions by torch's names.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

from probe_runtime.patching import Apis, api_list

# section of apis.yaml -> (prefix of the labels, dotted paths of the objects that carry the names).
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "functional": ("Functional", ("mindspore.ops",)),
    "tensor": ("Tensor", ("mindspore.Tensor",)),
    "mint": ("Mint", ("mindspore.mint",)),
    "mint_functional": ("MintFunctional", ("mindspore.mint.nn.functional",)),
    "mint_distributed": ("MintDistributed", ("mindspore.mint.distributed",)),
    "distributed": ("Distributed", ("mindspore.communication.comm_func",)),
    "ops_distributed": ("MintDistributed", ("mindspore.ops",)),
}
_BUILT_IN = Path(__file__).with_name("apis.yaml")

# With a `torch` built on MindSpore (MSAdapter, mindtorch) the user calls functions by torch's names. The list is then
# that of torch (probe_torch/patching/apis.yaml, or a file like it); these are its sections.
MINDTORCH: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "functional": ("Functional", ("torch.nn.functional",)),
    "tensor": ("Tensor", ("torch.Tensor",)),
    "torch": ("Torch", ("torch",)),
    "distributed": ("Distributed", ("torch.distributed", "torch.distributed.distributed_c10d")),
    "torch_npu": ("NPU", ("torch_npu",)),
}


@functools.cache
def _composites() -> frozenset[tuple[str, str]]:
    text = api_list.read(_BUILT_IN)
    return frozenset(
        (section, name)
        for block in ("more", "views")
        for section, names in text[block].items()
        for name in names
    )


LIST = api_list.ApiFile(
    _BUILT_IN,
    SECTIONS,
    ("special.",),
    lambda api: (api.section, api.name) in _composites(),
    "functional: [relu, -cat]",
    "probe_mindspore/patching/apis.yaml",
)


def load_apis(
    path: str | Path | None = None,
    *,
    views: bool = False,
    risk_level: str = "ALL",
    mindtorch: Path | None = None,
) -> Apis:
    """Read the list of functions to record, as `probe_runtime.patching.api_list.load` describes.

    mindtorch: a list like probe_torch/patching/apis.yaml, for a `torch` built on MindSpore. Its names are then
        recorded instead of MindSpore's.
    """
    source = LIST
    if mindtorch is not None:
        about = "torch: [relu, -cat]", str(mindtorch)
        source = api_list.ApiFile(mindtorch, MINDTORCH, LIST.whole, lambda api: False, *about)
    return api_list.load(source, path, views=views, risk_level=risk_level)
