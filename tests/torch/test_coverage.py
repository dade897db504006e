"""Promise 5: what a dump does not hold is said, and the counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from contract_coverage import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_coverage import Dumped, Training, check_the_nearest
from dumping import capture, construct, opened, report


def step(case: str, folder: Path, **keys: Any) -> dict[str, Any]:
    with opened(folder, **keys) as debugger, zoo.fixed():
        model, optimizer = zoo.build(zoo.CASES[case])
        zoo.step(zoo.CASES[case], zoo.VARIANTS["accumulate"], model, optimizer, debugger)
    return report(folder / "dump")


@pytest.fixture(scope="module")
def training() -> Training:
    return Training(step, "llama", "linear")


@pytest.mark.parametrize(
    ("keys", "value", "nearest"),
    [
        ({"list": ["lineer"]}, "lineer", "linear"),
        ({"task": "statistics", "tensor_list": ["layer_nrm"]}, "layer_nrm", "layer_norm"),
    ],
    ids=str,
)
def test_the_nearest_function_is_named(
    keys: dict[str, Any], value: str, nearest: str, tmp_path: Path
) -> None:
    check_the_nearest(step("gpt", tmp_path, **keys), value, nearest)


def test_the_optimizer_and_clipping_have_their_own_nodes(everything: Dumped) -> None:
    tree = construct(everything[1])
    assert tree["optimizer"] is None and tree["clip_grad"] is None
    children = {node for node, parent in tree.items() if parent in ("optimizer", "clip_grad")}
    assert children, "the calls inside are filed under the nodes"
    roots = [
        name for name, parent in tree.items() if parent is None and name.startswith(("Torch.", "Tensor."))
    ]
    assert not [name for name in roots if "foreach" in name]
    for name in children:
        assert not name.startswith("Module."), name


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
