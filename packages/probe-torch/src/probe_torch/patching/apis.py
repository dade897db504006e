"""Load the list of functions that a dump records: apis.yaml, with the user's own file applied over it."""

import functools
from collections.abc import Mapping
from pathlib import Path

from probe_runtime.config import Config
from probe_runtime.patching import Apis, api_list

# section of apis.yaml -> (prefix of the labels, dotted paths of the objects that carry the names). A name
# is patched in every place that has it: torch.distributed re-exports what distributed_c10d calls by its own
# global name.
SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "functional": ("Functional", ("torch.nn.functional",)),
    "tensor": ("Tensor", ("torch.Tensor",)),
    "torch": ("Torch", ("torch",)),
    "vf": ("VF", ("torch._VF",)),
    "distributed": ("Distributed", ("torch.distributed", "torch.distributed.distributed_c10d")),
    "torch_npu": ("NPU", ("torch_npu",)),
    "npu_distributed": ("Distributed", ("torch_npu.distributed",)),
    "mindspeed": ("MindSpeed", ("mindspeed.ops",)),
}
_BUILT_IN = Path(__file__).with_name("apis.yaml")


@functools.cache
def _composites() -> frozenset[str]:
    return frozenset(api_list.read(_BUILT_IN)["composites"])


LIST = api_list.ApiFile(
    _BUILT_IN,
    SECTIONS,
    ("special.", "sparse."),
    lambda api: f"{api.prefix}.{api.api}" in _composites(),
    "torch: [relu, -cat]",
    "probe_torch/patching/apis.yaml",
)


def load_apis(path: str | Path | None = None, *, views: bool = False, risk_level: str = "ALL") -> Apis:
    """Read the list of functions to record, as `probe_runtime.patching.api_list.load` describes."""
    return api_list.load(LIST, path, views=views, risk_level=risk_level)


def apis_of(config: Config) -> Apis:
    """Return the functions to patch: none at L0, which records modules only, and none for a task without calls."""
    if config.level == "L0" or not config.kind.calls:
        return ()
    return load_apis(config.apis, views=config.views, risk_level=config.risk_level)
