"""Promise 5: what a dump does not hold is said, and the counts add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore_zoo as zoo
import numpy as np
import pytest
from contract_coverage import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_coverage import Training
from mindspore import Tensor, ops
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
