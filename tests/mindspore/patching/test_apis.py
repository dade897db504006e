"""apis.yaml of MindSpore: what it lists, and how a user's file changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_format.errors import ConfigError
from probe_mindspore.patching.apis import MINDTORCH, RISK_LEVELS, SECTIONS, Api, load_apis, resolve_owner
from probe_mindspore.patching.lookup import look_up_all
from probe_runtime.patching.lookup import go_down

ALL = load_apis()
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


def labels(**options: Any) -> set[str]:
    return {f"{api.prefix}.{api.api}" for api in load_apis(**options)}


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


@pytest.mark.parametrize("section", SECTIONS)
def test_no_name_twice(section: str) -> None:
    names = load_apis(views=True).names(section)
    assert len(names) == len(set(names)) > 10


def test_what_msprobe_forgets() -> None:
    forgotten = {"Tensor.__setitem__", "Tensor.__rtruediv__", "Mint.mm", "MintFunctional.cross_entropy"}
    assert forgotten | {"Functional.softplus", "MintFunctional.conv2d", "Mint.qr", "Tensor.mul"} <= labels()
    known = msprobe_names()
    for api in load_apis(views=True):
        assert api.composite == ((api.section, api.name) not in known) or api.name == "bool", api


def test_the_missing_are_told_and_the_others_are_found() -> None:
    places, missing = look_up_all(load_apis(views=True))
    assert len(places) > 1400
    assert missing["mindspore.Tensor.__imatmul__"] == "this mindspore has no such function"
    for section, name in msprobe_names():
        path = SECTIONS[section][1][0]
        owner, last = go_down(resolve_owner(path), name)
        if name not in ACCIDENTS:
            assert (f"{path}.{name}" in missing) == (not hasattr(owner, last))
    # What MindSpore moved; nothing that a network of today uses is among them.
    assert len([path for path in missing if path.startswith(("mindspore.ops", "mindspore.Tensor"))]) < 20


def test_views_are_a_second_list() -> None:
    more = labels(views=True) - labels()
    assert {"Tensor.__getitem__", "Tensor.contiguous", "Tensor.copy_", "Mint.randn"} <= more
    assert labels() < labels(views=True)


def test_risk_levels_are_nested() -> None:
    everything, focus, core = (labels(risk_level=level) for level in RISK_LEVELS)
    assert core < focus < everything
    assert {"Tensor.reshape", "Functional.cat", "Tensor.to", "Functional.shape"} & focus == set()
    assert {"Mint.matmul", "Functional.cross_entropy", "MintDistributed.all_reduce"} <= core
    assert "Tensor.__add__" not in core


def test_unknown_risk_level() -> None:
    with pytest.raises(ConfigError, match=r"risk_level is 'focus'.*FOCUS"):
        load_apis(risk_level="focus")


def user_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "apis.yaml"
    path.write_text(text)
    return path


def test_a_user_file_adds_and_removes(tmp_path: Path) -> None:
    path = user_file(tmp_path, "functional: [stop_gradient, -relu]\ntensor: [-__add__, -__setitem__]\n")
    assert labels(path=path) - labels() == {"Functional.stop_gradient"}
    assert labels() - labels(path=path) == {"Functional.relu", "Tensor.__add__", "Tensor.__setitem__"}
    # What the user asks for is there at every level.
    assert "Functional.stop_gradient" in labels(path=path, risk_level="CORE")


def test_every_problem_of_a_user_file_at_once(tmp_path: Path) -> None:
    path = user_file(tmp_path, "functional: [rellu, -gelux]\ntensr: [add]\nmint: relu\n")
    with pytest.raises(ConfigError) as caught:
        load_apis(path)
    assert len(caught.value.problems) == 4
    texts = "\n".join(f"{p.where} {p.what} {p.remedy}" for p in caught.value.problems)
    for part in ('"rellu" is not a function of mindspore.ops', '"-gelux" takes out', "tensor", "list of names"):
        assert part in texts


def test_labels_of_dotted_names() -> None:
    assert (Api("mint", "linalg.qr").prefix, Api("mint", "linalg.qr").api) == ("Mint", "qr")
    assert Api("mint", "special.exp2").api == "special.exp2"  # mint.exp2 is another function


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
