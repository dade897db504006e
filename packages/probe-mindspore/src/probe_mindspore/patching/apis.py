"""Load the list of functions that a dump records: apis.yaml, with the user's own file applied over it."""

import functools
from collections.abc import Mapping
from pathlib import Path

import attrs
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


@attrs.frozen
class Api:
    """Describe a listed name.

    section: a key of ``table``, e.g. "mint".
    name: dotted name below the section's objects, e.g. "linalg.qr".
    table: `SECTIONS` or `MINDTORCH`.
    """

    section: str
    name: str
    table: Mapping[str, tuple[str, tuple[str, ...]]] = attrs.field(default=SECTIONS, eq=False, repr=False)

    @property
    def prefix(self) -> str:
        """Return the first part of the record's name: "Mint"."""
        return self.table[self.section][0]

    @property
    def api(self) -> str:
        """Return the second part of the record's name, which is the last part of a dotted name: "qr".

        Names of mint.special, which msprobe does not record, are kept as they are: Mint.exp2.0 must stay the first
        mint.exp2.
        """
        return self.name if self.name.startswith("special.") else self.name.rpartition(".")[2]

    @property
    def composite(self) -> bool:
        """Return whether the calls inside it are recorded too, so that calls are numbered as msprobe numbers them."""
        return self.table is SECTIONS and (self.section, self.name) in _composites()

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the dotted paths of the objects in which `name` is looked up."""
        return self.table[self.section][1]


_SOURCE = api_list.Source(
    _BUILT_IN, tuple(SECTIONS), Api, "functional: [relu, -cat]", "probe_mindspore/patching/apis.yaml"
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
    source = _SOURCE
    if mindtorch is not None:
        make = functools.partial(Api, table=MINDTORCH)
        source = api_list.Source(mindtorch, tuple(MINDTORCH), make, "torch: [relu, -cat]", str(mindtorch))
    return api_list.load(source, path, views=views, risk_level=risk_level)


@functools.cache
def _composites() -> frozenset[tuple[str, str]]:
    text = api_list.read(_BUILT_IN)
    return frozenset(
        (section, name)
        for block in ("more", "views")
        for section, names in text[block].items()
        for name in names
    )
