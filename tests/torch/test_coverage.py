"""Promise 5: what a dump does not hold is said, and the counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import zoo
from dumping import capture, construct, leaves, opened, records, report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def step(case: str, folder: Path, **keys: Any) -> dict[str, Any]:
    with opened(folder, **keys) as debugger, zoo.fixed():
        model, optimizer = zoo.build(zoo.CASES[case])
        zoo.step(zoo.CASES[case], zoo.VARIANTS["accumulate"], model, optimizer, debugger)
    return report(folder / "dump")


def total(part: Any) -> int:
    return sum(part.values()) if isinstance(part, dict) else int(part)


FILTERS: list[dict[str, Any]] = [
    {},
    {"level": "L0"},
    {"level": "L1"},
    {"list": ["linear"]},
    {"scope": ["Module.blocks.0.GptBlock.forward.0", "Module.blocks.0.GptBlock.forward.0"]},
    {"data_mode": ["forward"]},
    {"data_mode": ["backward"]},
    {"data_mode": ["input"]},
    {"task": "tensor", "list": ["gelu"]},
    {"task": "structure"},
]


@pytest.mark.parametrize("keys", FILTERS, ids=str)
def test_the_counts_add_up(keys: dict[str, Any], tmp_path: Path) -> None:
    said = step("gpt", tmp_path, **keys)
    counts = said["counts"]
    seen = total(counts["seen"])
    assert seen > 10
    parts = {k: total(counts[k]) for k in ("recorded", "filtered", "unsupported", "failed", "left_out")}
    assert seen == parts["recorded"] + parts["filtered"] + parts["unsupported"] + parts["failed"], counts
    assert parts["failed"] == 0 and not said["faults"]


@pytest.mark.parametrize("keys", FILTERS, ids=str)
def test_the_report_counts_what_is_in_the_dump(keys: dict[str, Any], tmp_path: Path) -> None:
    said = step("gpt", tmp_path, **keys)
    data = records(tmp_path / "dump")
    assert said["records"] == len(data)
    assert said["tensors"] == len(list(leaves(data)))
    files = [leaf["data_name"] for leaf in leaves(data) if leaf.get("data_name")]
    assert said["tensor_files"] == len(files)
    assert len(files) == len(set(files))


def test_a_filter_makes_less_and_says_so(tmp_path: Path) -> None:
    everything = step("gpt", tmp_path / "a")
    some = step("gpt", tmp_path / "b", list=["linear"])
    assert 0 < some["records"] < everything["records"]
    assert total(some["counts"]["filtered"]) > 0
    assert total(everything["counts"]["filtered"]) == 0
    for kind in ("calls", "modules"):
        assert some["counts"]["seen"][kind] == everything["counts"]["seen"][kind]
    names = records(tmp_path / "b" / "dump")
    assert all("linear" in name.lower() for name in names)


@pytest.mark.parametrize(
    ("keys", "value", "nearest"),
    [
        ({"list": ["lineer"]}, "lineer", "linear"),
        ({"scope": ["Module.blocks.9.GptBlock.forward.0", "x"]}, "Module.blocks.9", "Module.blocks"),
        ({"task": "statistics", "tensor_list": ["layer_nrm"]}, "layer_nrm", "layer_norm"),
    ],
    ids=str,
)
def test_a_filter_that_matches_nothing_names_the_nearest(
    keys: dict[str, Any], value: str, nearest: str, tmp_path: Path
) -> None:
    said = step("gpt", tmp_path, **keys)
    entry = next(u for u in said["unmatched"] if value in str(u["value"]))
    assert entry["nearest"] and any(nearest in name for name in entry["nearest"])


def test_what_matches_is_not_called_unmatched(tmp_path: Path) -> None:
    assert step("gpt", tmp_path, list=["gelu", "linear"])["unmatched"] == []


def test_the_optimizer_and_clipping_have_their_own_nodes(tmp_path: Path) -> None:
    step("gpt", tmp_path)
    tree = construct(tmp_path / "dump")
    assert tree["optimizer"] is None and tree["clip_grad"] is None
    children = {node for node, parent in tree.items() if parent in ("optimizer", "clip_grad")}
    assert children, "the calls inside are filed under the nodes"
    roots = [
        name for name, parent in tree.items() if parent is None and name.startswith(("Torch.", "Tensor."))
    ]
    assert not [name for name in roots if "foreach" in name]
    for name in children:
        assert not name.startswith("Module."), name


def test_every_parent_exists(tmp_path: Path) -> None:
    step("llama", tmp_path)
    tree = construct(tmp_path / "dump")
    assert not {parent for parent in tree.values() if parent is not None} - tree.keys()
    assert records(tmp_path / "dump").keys() - tree.keys() <= {
        name for name in records(tmp_path / "dump") if ".parameters_grad" in name
    }


def test_printing_and_loading_data_are_left_out(tmp_path: Path) -> None:
    data = TensorDataset(torch.arange(6.0).view(3, 2))
    text: list[str] = []

    def work() -> None:
        for (rows,) in DataLoader(data, batch_size=2):
            text.append(repr(F.gelu(rows)))

    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        work()
        debugger.stop()
        debugger.step()
    assert set(records(tmp_path / "dump")) == {"Functional.gelu.0.forward", "Functional.gelu.1.forward"}
    assert "tensor(" in text[0]
    assert total(report(tmp_path / "dump")["counts"]["left_out"]) > 0


def test_norms_and_the_first_non_finite(tmp_path: Path) -> None:
    def work() -> None:
        big = torch.full((8,), 1e6).sin_()
        torch.abs(big)
        torch.log(torch.tensor([-1.0, 1.0]))
        torch.sqrt(torch.tensor([-1.0]))

    capture(tmp_path, work, level="L1")
    said = report(tmp_path / "dump")
    assert said["first_non_finite"]["record"] == "Torch.log.0.forward"
    norms = [norm for _, norm in said["norms"]]
    assert norms == sorted(norms, reverse=True) and norms


def test_a_healthy_step_has_no_first_non_finite(tmp_path: Path) -> None:
    assert step("gpt", tmp_path)["first_non_finite"] is None


def test_compiled_regions_are_reported_as_not_seen(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)))

    torch.manual_seed(0)
    net = Net()
    x = torch.randn(2, 4)
    plain = net(x).sum()
    plain.backward()
    grad = net.a.weight.grad.clone()  # type: ignore[union-attr]
    net.zero_grad()
    net.b = torch.compile(net.b, backend="eager")  # type: ignore[assignment]

    def work() -> None:
        loss = net(x).sum()
        loss.backward()
        assert torch.equal(loss, plain) and torch.equal(net.a.weight.grad, grad)  # type: ignore[arg-type]

    names = capture(tmp_path, work, net)
    assert "Module.a.Linear.forward.0" in names and "Torch.relu.0.forward" in names
    said = report(tmp_path / "dump")
    assert any("compile" in str(entry).lower() for entry in said["not_seen"]), said["not_seen"]
