"""The contract of `keep`."""

from __future__ import annotations

import os
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from contract_keep import *  # noqa: F403
from mindspore import Tensor, nn, ops
from probe_mindspore import PrecisionDebugger

pytestmark = pytest.mark.once


class Compiled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 4)

    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(self.fc(x))


@pytest.mark.usefixtures("pynative")
def test_both_parts_of_a_step_are_removed(tmp_path: Path) -> None:
    net, plain = nn.SequentialCell(nn.Dense(4, 4), Compiled()), nn.SequentialCell(nn.Dense(4, 4))
    earlier = tmp_path / "graph" / "step2" / "rank"  # appears while the run goes on
    with PrecisionDebugger(level="mix", dump_path=str(tmp_path), keep={"last": 2}) as debugger:
        for step in range(6):
            debugger.start(plain if step == 2 else net)
            (plain if step == 2 else net)(Tensor(np.ones((2, 4), np.float32)))
            debugger.stop()
            debugger.step()
            if step == 2:
                assert not earlier.exists()
                earlier.mkdir(parents=True)
                (earlier / "dump.json").write_text("{}")
    assert sorted(os.listdir(tmp_path)) == ["graph", "pynative"], "step2, without a graph, is gone"
    assert sorted(os.listdir(tmp_path / "pynative")) == ["step4", "step5"]
    assert sorted(os.listdir(tmp_path / "graph")) == ["step2", "step4", "step5"]
    assert os.listdir(earlier) == ["dump.json"], "this run has not written it"
