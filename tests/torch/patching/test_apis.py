"""apis.yaml: what it lists, and how a user's file changes it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from probe_format.errors import ConfigError
from probe_torch.patching.apis import RISK_LEVELS, SECTIONS, Api, load_apis, resolve_owner

ALL = load_apis()


def labels(**options: Any) -> set[str]:
    return {f"{api.prefix}.{api.api}" for api in load_apis(**options)}


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
    names = ALL.names(section)
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


def test_views_are_a_second_list() -> None:
    more = labels(views=True) - labels()
    assert {"Tensor.view", "Tensor.__getitem__", "Tensor.contiguous", "Torch.randn", "Torch.meshgrid"} <= more
    assert labels() <= labels(views=True)


def test_risk_levels_are_nested() -> None:
    everything, focus, core = (labels(risk_level=level) for level in RISK_LEVELS)
    assert core < focus < everything
    assert {"Tensor.reshape", "Torch.cat", "Tensor.to", "Tensor.float"} & focus == set()
    assert {"Functional.linear", "Torch.matmul", "Functional.scaled_dot_product_attention", "VF.lstm"} <= core
    assert "Tensor.add" not in core


def test_unknown_risk_level() -> None:
    with pytest.raises(ConfigError, match=r"risk_level is 'focus'.*FOCUS"):
        load_apis(risk_level="focus")


def user_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "apis.yaml"
    path.write_text(text)
    return path


def test_a_user_file_adds_and_removes(tmp_path: Path) -> None:
    path = user_file(tmp_path, "torch: [zeros, -relu, is_tensor]\ntensor: [-__add__]\n")
    assert labels(path=path) - labels() == {"Torch.zeros", "Torch.is_tensor"}
    assert labels() - labels(path=path) == {"Torch.relu", "Tensor.__add__"}
    # What the user asks for is there at every level.
    assert "Torch.zeros" in labels(path=path, risk_level="CORE")


def test_an_empty_user_file_changes_nothing(tmp_path: Path) -> None:
    assert load_apis(user_file(tmp_path, "# nothing yet\n")) == ALL


def test_every_problem_of_a_user_file_at_once(tmp_path: Path) -> None:
    path = user_file(tmp_path, "torch: [rellu, -zerox]\ntensr: [add]\nfunctional: relu\n")
    with pytest.raises(ConfigError) as caught:
        load_apis(path)
    problems = {(p.where.rpartition(": ")[2], p.what, p.remedy) for p in caught.value.problems}
    assert len(problems) == 4
    texts = "\n".join(" ".join(problem) for problem in problems)
    for part in (
        '"rellu" is not a function of torch',
        "relu",
        '"-zerox" takes out',
        "tensr",
        "tensor",
        "list of names",
    ):
        assert part in texts


@pytest.mark.parametrize("text", ["- relu\n", "torch: [relu\n", "17\n"])
def test_a_user_file_of_another_kind(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"apis\.yaml"):
        load_apis(user_file(tmp_path, text))


def test_a_missing_user_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_apis(tmp_path / "nowhere.yaml")


def test_a_package_that_is_not_here_cannot_be_checked(tmp_path: Path) -> None:
    assert resolve_owner("torch_npu") is None
    assert "NPU.npu_brand_new" in labels(path=user_file(tmp_path, "torch_npu: [npu_brand_new]\n"))


def test_a_package_that_is_here_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("torch_npu")
    fake.npu_new = lambda x: x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", fake)
    assert "NPU.npu_new" in labels(path=user_file(tmp_path, "torch_npu: [npu_new]\n"))
    with pytest.raises(ConfigError, match="npu_new"):
        load_apis(user_file(tmp_path, "torch_npu: [npu_nw]\n"))


def test_labels_of_dotted_names() -> None:
    api = Api("torch", "linalg.svd")
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


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    "text", [LAUGHS, "torch: !!int ''\n", "[" * 100_000, "x" * (1 << 21), 'torch: ["\\ud800"]'], ids=range(5)
)
def test_a_crafted_user_file_is_a_configerror_of_bounded_length(tmp_path, text):
    path = tmp_path / "apis.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_apis(path)
    assert len(str(error.value)) < 60_000
