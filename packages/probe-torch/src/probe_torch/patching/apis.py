"""Load the list of functions that a dump records: apis.yaml, with the user's own file applied over it."""

import functools
from collections.abc import Mapping
from pathlib import Path

import attrs
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


@attrs.frozen
class Api:
    """Describe a listed name.

    section: a key of `SECTIONS`, e.g. "torch".
    name: dotted name below the section's objects, e.g. "linalg.svd".
    """

    section: str
    name: str

    @property
    def prefix(self) -> str:
        return SECTIONS[self.section][0]

    @property
    def api(self) -> str:
        """Return the second part of the record's name; a dotted name is cut to its last part: "svd".

        Names in torch.special and torch.sparse, which msprobe does not record, stay whole: Torch.erf.0 must be the
        first torch.erf, whatever torch.special.erf does.
        """
        return self.name if self.name.startswith(("special.", "sparse.")) else self.name.rpartition(".")[2]

    @property
    def composite(self) -> bool:
        """Return whether the calls inside it are recorded too, so that they count as msprobe counts them."""
        return f"{self.prefix}.{self.api}" in _composites()

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the dotted paths of the objects below which `name` is looked up."""
        return SECTIONS[self.section][1]


_SOURCE = api_list.Source(
    _BUILT_IN, tuple(SECTIONS), Api, "torch: [relu, -cat]", "probe_torch/patching/apis.yaml"
)


def load_apis(path: str | Path | None = None, *, views: bool = False, risk_level: str = "ALL") -> Apis:
    """Read the list of functions to record, as `probe_runtime.patching.api_list.load` describes."""
    return api_list.load(_SOURCE, path, views=views, risk_level=risk_level)


@functools.cache
def _composites() -> frozenset[str]:
    return frozenset(api_list.read(_BUILT_IN)["composites"])
