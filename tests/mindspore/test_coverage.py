"""Promise 5: what a dump does not hold is said, and the counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore_dumping import capture, construct, leaves, opened, records, report


def step(case: str, folder: Path, **keys: Any) -> dict[str, Any]:
    with opened(folder, **keys) as debugger:
        zoo.train(zoo.CASES[case], "accumulate", debugger, steps=1)
    return report(folder / "dump")


def total(part: Any) -> int:
    return sum(part.values()) if isinstance(part, dict) else int(part)


FILTERS: list[dict[str, Any]] = [
    {"level": "mix"}, {"level": "L0"}, {"level": "L1"}, {"level": "mix", "list": ["Dense"]},
    {"level": "mix", "scope": ["Cell.blocks.0.GptBlock.forward.0", "Cell.blocks.0.GptBlock.forward.0"]},
    {"level": "mix", "data_mode": ["forward"]}, {"level": "mix", "data_mode": ["backward"]},
    {"level": "mix", "task": "tensor", "list": ["gelu"]}, {"level": "mix", "task": "structure"},
]  # fmt: skip


@pytest.mark.parametrize("keys", FILTERS, ids=str)
def test_the_counts_add_up(keys: dict[str, Any], tmp_path: Path) -> None:
    said = step("gpt", tmp_path, **keys)
    counts = said["counts"]
    seen = total(counts["seen"])
    assert seen > 10
    parts = {k: total(counts[k]) for k in ("recorded", "filtered", "unsupported", "failed")}
    assert seen == sum(parts.values()), counts
    assert parts["failed"] == 0 and not said["faults"]
    data = records(tmp_path / "dump")
    assert said["records"] == len(data)
    assert said["tensors"] == len(list(leaves(data)))
    files = [leaf["data_name"] for leaf in leaves(data) if leaf.get("data_name")]
    assert said["tensor_files"] == len(files) == len(set(files))


def test_a_filter_makes_less_and_says_so(tmp_path: Path) -> None:
    everything = step("gpt", tmp_path / "a", level="mix")
    some = step("gpt", tmp_path / "b", level="mix", list=["gelu"])
    assert 0 < some["records"] < everything["records"]
    assert total(some["counts"]["filtered"]) > 0 == total(everything["counts"]["filtered"])
    assert all("gelu" in name.lower() for name in records(tmp_path / "b" / "dump"))


@pytest.mark.parametrize(
    ("keys", "value", "nearest"),
    [
        ({"list": ["geluu"]}, "geluu", "gelu"),
        ({"scope": ["Cell.blocks.9.GptBlock.forward.0", "x"]}, "Cell.blocks.9", "Cell.blocks"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_filter_that_matches_nothing_names_the_nearest(
    keys: dict[str, Any], value: str, nearest: str, tmp_path: Path
) -> None:
    said = step("gpt", tmp_path, level="mix", **keys)
    entry = next(u for u in said["unmatched"] if value in str(u["value"]))
    assert entry["nearest"] and any(nearest in name for name in entry["nearest"])


@pytest.mark.parametrize("case", ["gpt", "residual"])
def test_every_parent_exists(case: str, tmp_path: Path) -> None:
    step(case, tmp_path, level="mix")
    tree = construct(tmp_path / "dump")
    assert not {parent for parent in tree.values() if parent is not None} - tree.keys()
    data = records(tmp_path / "dump")
    assert data.keys() - tree.keys() <= {name for name in data if ".parameters_grad" in name}


def test_the_first_value_that_is_no_number_is_named(tmp_path: Path) -> None:
    x = Tensor(np.float32([1.0, -1.0]))
    capture(tmp_path, lambda: ops.exp(ops.log(x)), level="L1")
    first = report(tmp_path / "dump")["first_non_finite"]
    assert first["record"] == "Functional.log.0.forward" and "1 NaN" in first["why"]


def test_a_cell_that_was_never_called_is_named(tmp_path: Path) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Dense(2, 2), nn.Dense(2, 2)

        def construct(self, x: Tensor) -> Tensor:
            return self.used(x)

    net = Net()
    capture(tmp_path, lambda: net(Tensor(np.ones((1, 2), np.float32))), net, level="L0")
    assert any("idle" in entry["what"] for entry in report(tmp_path / "dump")["not_seen"])
    assert ms.get_context("mode") == ms.PYNATIVE_MODE
