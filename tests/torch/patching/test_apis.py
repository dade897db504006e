"""apis.yaml: what it lists, and how a user's file changes it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from contract_apis import *  # noqa: F403  the tests that both frameworks have
from contract_apis import Listing, user_file
from hypothesis import given
from hypothesis import strategies as st
from probe_format.errors import ConfigError
from probe_runtime.patching import RISK_LEVELS, resolve_owner
from probe_runtime.patching.api_list import Api
from probe_torch.patching.apis import LIST, SECTIONS, load_apis

ALL = load_apis()
LISTING = Listing(
    load=load_apis, levels=RISK_LEVELS,
    views={"Tensor.view", "Tensor.__getitem__", "Tensor.contiguous", "Torch.randn", "Torch.meshgrid"},
    dropped={"Tensor.reshape", "Torch.cat", "Tensor.to", "Tensor.float"},
    core={"Functional.linear", "Torch.matmul", "Functional.scaled_dot_product_attention", "VF.lstm"},
    not_core="Tensor.add", added=("torch", "zeros", "Torch.zeros"),
    removed=(("torch", "relu", "Torch.relu"), ("tensor", "__add__", "Tensor.__add__")),
    owner="torch", other="functional",
    namespaces=(
        "torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.sparse",
        "torch.nested", "torch.signal.windows", "torch._VF", "torch.distributed",
    ),
    left_out=Path(__file__).with_name("left_out.yaml"),
)  # fmt: skip


@pytest.fixture
def listing() -> Listing:
    return LISTING


def test_a_user_adds_what_a_module_has_and_no_call_records(tmp_path: Path) -> None:
    assert "Torch.is_tensor" not in LISTING.labels()
    path = user_file(tmp_path, "torch: [zeros, is_tensor]\n")
    assert LISTING.labels(path=path) - LISTING.labels() == {"Torch.zeros", "Torch.is_tensor"}


# Counts of the distinct names that msprobe 26.2 records, and a sample of what it forgets.
@pytest.mark.parametrize(
    ("section", "at_least", "forgotten"),
    [
        ("functional", 126, {"rms_norm", "grouped_mm", "scaled_mm", "linear_cross_entropy"}),
        (
            "tensor",
            491,
            {"__neg__", "__rmatmul__", "__rtruediv__", "__itruediv__", "__invert__", "scatter_reduce"},
        ),
        ("torch", 506, {"rms_norm", "fft.rfft", "linalg.eigh", "scatter_reduce", "_foreach_lerp_"}),
        ("vf", 1, {"gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}),
        ("distributed", 18, set()),
        ("torch_npu", 235, set()),
        ("npu_distributed", 2, set()),
        ("mindspeed", 17, set()),
    ],
)
def test_listed(section: str, at_least: int, forgotten: set[str]) -> None:
    names = [api.name for api in ALL if api.section == section]
    assert len(names) == len(set(names)) >= at_least + len(forgotten)
    assert forgotten <= set(names)


def test_everything_that_msprobe_records_is_listed() -> None:
    reference = Path(__file__).parents[1] / "msprobe_apis.txt"
    section, wanted = "", set[tuple[str, str]]()
    for line in filter(None, reference.read_text().splitlines()):
        if line.startswith("["):
            section = line[1:].partition("]")[0].removeprefix("_").lower()
        elif not line.startswith("#"):
            wanted.add((section, line))
    assert len(wanted) > 1300
    assert wanted <= {(api.section, api.name) for api in ALL}


def test_names_that_exist_are_functions() -> None:
    found = 0
    for api in load_apis(views=True):
        owner: Any = resolve_owner(api.owners[0])
        for part in api.name.split("."):
            owner = getattr(owner, part, None)
        assert owner is None or (callable(owner) and not isinstance(owner, type)), api
        found += owner is not None
    assert found > 1300


def test_a_package_that_is_not_here_cannot_be_checked(tmp_path: Path) -> None:
    assert resolve_owner("torch_npu") is None
    assert "NPU.npu_brand_new" in LISTING.labels(path=user_file(tmp_path, "torch_npu: [npu_brand_new]\n"))


def test_a_package_that_is_here_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torch_npu")
    fake.npu_new = lambda x: x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", fake)
    assert "NPU.npu_new" in LISTING.labels(path=user_file(tmp_path, "torch_npu: [npu_new]\n"))
    with pytest.raises(ConfigError, match="npu_new"):
        load_apis(user_file(tmp_path, "torch_npu: [npu_nw]\n"))


def test_labels_of_dotted_names() -> None:
    api = Api("torch", "linalg.svd", LIST)
    assert (api.prefix, api.api, api.owners) == ("Torch", "svd", ("torch",))


NAMES = sorted(name for name in dir(torch) if callable(getattr(torch, name)) and not name[0].isupper())


@given(
    st.dictionaries(
        st.sampled_from(sorted(SECTIONS)) | st.text(max_size=8),
        st.lists(st.sampled_from(NAMES) | st.text(max_size=8) | st.integers())
        | st.none()
        | st.text(max_size=3),
        max_size=3,
    )
)
def test_any_file_is_read_or_explained(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("apis") / "apis.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        apis = load_apis(path)
    except ConfigError as error:
        assert error.problems
        assert all(str(path) in p.where and p.what and p.remedy for p in error.problems)
    else:
        assert set(content) <= set(SECTIONS)
        asked = {(s, n) for s, names in content.items() for n in names}
        removed = {(s, n[1:]) for s, n in asked if n.startswith("-")}
        listed = {(api.section, api.name) for api in apis}
        assert {(s, n) for s, n in asked if not n.startswith("-")} - removed <= listed
