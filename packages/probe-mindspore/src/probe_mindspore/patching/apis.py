"""Load the list of functions that a dump records: apis.yaml, with the user's own file applied over it.

With a `torch` built on MindSpore (mindtorch) it is torch's list, as the user calls functions by torch's names.
"""

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from probe_format.errors import UsageError
from probe_runtime.config import Config
from probe_runtime.patching import Apis, api_list

from probe_mindspore.module_kind import CELLS, ModuleKind

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


def apis_of(config: Config, module_kind: ModuleKind) -> Apis:
    """Return the functions to patch: none at L0, which records Cells only, and none for a task without calls."""
    if config.level == "L0" or not config.kind.calls:
        return ()
    names = None if module_kind is CELLS else _names_of_torch()
    return load_apis(config.apis, views=config.views, risk_level=config.risk_level, mindtorch=names)


def _names_of_torch() -> Path:
    """Return the path of probe-torch's list of names, without importing that package: it needs the real torch."""
    spec = importlib.util.find_spec("probe_torch")
    if spec is None or spec.origin is None:
        raise UsageError(
            "This torch stands on MindSpore. Recording its functions (level L1 or mix) needs the list of torch's "
            "names in probe-torch: `pip install probe-torch`. Level L0 works without."
        )
    return Path(spec.origin).parent / "patching" / "apis.yaml"
