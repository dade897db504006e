"""apis.yaml of MindSpore: what it lists, and how a user's file changes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_apis import *  # noqa: F403  the tests that both frameworks have
from contract_apis import Listing, user_file
from probe_mindspore.patching.apis import LIST, MINDTORCH, SECTIONS, load_apis
from probe_mindspore.patching.patches import listed
from probe_runtime.patching import RISK_LEVELS, resolve_owner
from probe_runtime.patching.api_list import Api
from probe_runtime.patching.lookup import go_down

ALL = load_apis()
LISTING = Listing(
    load=load_apis, levels=RISK_LEVELS,
    views={"Tensor.__getitem__", "Tensor.contiguous", "Tensor.clone", "Mint.randn"},
    dropped={"Tensor.reshape", "Functional.cat", "Tensor.to", "Functional.shape"},
    core={"Mint.matmul", "Functional.cross_entropy", "MintDistributed.all_reduce"},
    not_core="Tensor.__add__", added=("functional", "stop_gradient", "Functional.stop_gradient"),
    removed=(
        ("functional", "relu", "Functional.relu"), ("tensor", "__add__", "Tensor.__add__"),
        ("tensor", "__setitem__", "Tensor.__setitem__"),
    ),
    owner="mindspore.ops", other="mint",
    namespaces=(
        "mindspore.ops", "mindspore.Tensor", "mindspore.mint", "mindspore.mint.linalg", "mindspore.mint.special",
        "mindspore.mint.nn.functional", "mindspore.mint.distributed", "mindspore.communication.comm_func",
    ),
    left_out=Path(__file__).with_name("left_out.yaml"),
)  # fmt: skip
labels = LISTING.labels
SECTION_OF = {
    "ops": "functional",
    "tensor": "tensor",
    "mint.ops": "mint",
    "mint.nn.functional": "mint_functional",
    "mint.distributed": "mint_distributed",
    "communication.comm_func": "distributed",
}
# What msprobe's list has by accident: no functions, and two names that lost the line break between them.
ACCIDENTS = {"absolute_import", "functional", "linalg", "nn", "special", "bool astype"}
TORCH_LIST = """
functional: [linear, relu]
tensor: [__add__]
torch: [matmul]
distributed: [all_reduce]
torch_npu: [npu_swiglu]
views:
  tensor: [__getitem__]
risk_level:
  focus_drops: [relu]
  core_keeps: [linear]
"""


@pytest.fixture
def listing() -> Listing:
    return LISTING


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_a_list(section: str) -> None:
    assert sum(api.section == section for api in load_apis(views=True)) > 10


def msprobe_names() -> set[tuple[str, str]]:
    section, names = "", set[tuple[str, str]]()
    listed = (Path(__file__).parents[1] / "msprobe_apis.txt").read_text()
    for line in filter(None, listed.splitlines()):
        if line.startswith("["):
            section = SECTION_OF[line[1:].partition("]")[0]]
        elif not line.startswith("#"):
            names.add((section, line))
    return names


def test_everything_that_msprobe_records_is_listed() -> None:
    wanted = {(section, name) for section, name in msprobe_names() if name not in ACCIDENTS}
    assert len(wanted) > 1000
    assert wanted <= {(api.section, api.name) for api in ALL}
    assert {("tensor", "bool"), ("tensor", "astype")} <= {(api.section, api.name) for api in ALL}


def test_what_msprobe_forgets() -> None:
    forgotten = {"Tensor.__setitem__", "Tensor.__rtruediv__", "Mint.mm", "MintFunctional.cross_entropy"}
    assert forgotten | {"Functional.softplus", "MintFunctional.conv2d", "Mint.qr", "Tensor.mul"} <= labels()
    known = msprobe_names()
    for api in load_apis(views=True):
        assert api.composite == ((api.section, api.name) not in known) or api.name == "bool", api


def test_the_missing_are_told_and_the_others_are_found() -> None:
    found = listed(load_apis(views=True))
    found.look_up()
    missing = found.missing
    assert len(found.places) > 1400
    assert missing["mindspore.Tensor.__imatmul__"] == "this mindspore has no such function"
    for section, name in msprobe_names():
        path = SECTIONS[section][1][0]
        owner, last = go_down(resolve_owner(path), name)
        if name not in ACCIDENTS:
            assert (f"{path}.{name}" in missing) == (not hasattr(owner, last))
    # What MindSpore moved; nothing that a network of today uses is among them.
    known = {f"{SECTIONS[section][1][0]}.{name}" for section, name in msprobe_names()}
    moved = [
        path for path in known & missing.keys() if path.startswith(("mindspore.ops", "mindspore.Tensor"))
    ]
    assert len(moved) < 20


def test_labels_of_dotted_names() -> None:
    api = Api("mint", "linalg.qr", LIST)
    assert (api.prefix, api.api, api.owners) == ("Mint", "qr", ("mindspore.mint",))
    assert Api("mint", "special.exp2", LIST).api == "special.exp2"  # mint.exp2 is another function


def test_the_names_of_mindtorch(tmp_path: Path) -> None:
    listing = user_file(tmp_path, TORCH_LIST)
    wanted = {"Functional.linear", "Functional.relu", "Tensor.__add__", "Torch.matmul"}
    wanted |= {"Distributed.all_reduce", "NPU.npu_swiglu"}
    assert labels(mindtorch=listing) == wanted
    assert labels(mindtorch=listing, views=True) - wanted == {"Tensor.__getitem__"}
    assert labels(mindtorch=listing, risk_level="CORE") == {"Functional.linear"}
    mine = tmp_path / "mine.yaml"
    mine.write_text("torch: [-matmul]\n")
    assert wanted - labels(path=mine, mindtorch=listing) == {"Torch.matmul"}
    assert all(api.owners[0].startswith("torch") for api in load_apis(mindtorch=listing))
    assert set(MINDTORCH) == {api.section for api in load_apis(mindtorch=listing)}
