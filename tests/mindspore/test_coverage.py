"""Promise 5: what a dump does not hold is said, and the counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
import pytest
from contract_coverage import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_coverage import Training
from mindspore import Tensor, nn, ops
from mindspore_dumping import capture, opened, report

pytestmark = pytest.mark.once


def step(case: str, folder: Path, **keys: Any) -> dict[str, Any]:
    with opened(folder, **keys) as debugger:
        zoo.train(zoo.CASES[case], "accumulate", debugger, steps=1)
    return report(folder / "dump")


@pytest.fixture(scope="module")
def training() -> Training:
    return Training(step, "residual", "Dense")


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
